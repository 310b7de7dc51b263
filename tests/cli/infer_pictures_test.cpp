// Answers to prompts with pictures on the command line: infer, chat, eval, MindSpeed-MM's inference
// json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/bad_input.h"
#include "cli/own_folder.h"
#include "support/shared_data.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

/// A tiny model with random weights, and the tokenizer and processor of Qwen2.5-VL.
class AnswersAboutPictures : public OwnFolder {
 protected:
  static void SetUpTestSuite() {
    if (!fs::exists(shared_dir())) return;
    made_ = std::make_unique<TemporaryDirectory>();
    make_model("model", true);
    make_model("text_model", false);
  }
  static void TearDownTestSuite() { made_.reset(); }
  void SetUp() override { DANLU_REQUIRES_SHARED(); }

  static void make_model(const std::string& name, bool sees) {
    const fs::path directory = made_->path() / name;
    nlohmann::json config = {{"model_type", sees ? "qwen2_5_vl" : "qwen2"},
                             {"vocab_size", 151665},
                             {"hidden_size", 32},
                             {"intermediate_size", 40},
                             {"num_hidden_layers", 2},
                             {"num_attention_heads", 4},
                             {"num_key_value_heads", 2},
                             {"rms_norm_eps", 1e-6},
                             {"rope_theta", 1e6},
                             {"max_position_embeddings", 2048},
                             {"initializer_range", 0.5},
                             {"tie_word_embeddings", true},
                             {"hidden_act", "silu"},
                             {"torch_dtype", "float32"},
                             {"bos_token_id", 151643},
                             {"eos_token_id", 151645}};
    if (sees) {
      const nlohmann::json vl =
          nlohmann::json::parse(content_of(shared_dir() / "golden/vl/qwen2_5_vl/config.json"));
      config["vision_config"] = vl["vision_config"];
      for (const char* width : {"out_hidden_size"}) config["vision_config"][width] = 32;
      config["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {1, 1, 2}}};
      config["vision_start_token_id"] = 151652;
      config["vision_end_token_id"] = 151653;
      config["image_token_id"] = 151655;
      config["video_token_id"] = 151656;
    }
    std::ofstream(made_->path() / "config.json") << config.dump();
    const ProgramResult made =
        run_danlu({"init", "--config", made_->path() / "config.json", "--tokenizer",
                   unpacked("tokenizers") / "qwen2_5", "--seed", "1", "--output", directory});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    for (const char* file : {"tokenizer_config.json", "chat_template.json"}) {
      if (fs::exists(unpacked("tokenizers") / "qwen2_5" / file))
        fs::copy_file(unpacked("tokenizers") / "qwen2_5" / file, directory / file,
                      fs::copy_options::overwrite_existing);
    }
    if (sees)
      fs::copy_file(shared_dir() / "golden/vl/qwen2_5_vl/preprocessor_config.json",
                    directory / "preprocessor_config.json");
  }

  static std::string model() { return made_->path() / "model"; }
  static std::string text_model() { return made_->path() / "text_model"; }
  static std::string media(const std::string& name) {
    return shared_dir() / "golden/vl/rows/media" / name;
  }
  ProgramResult infer(std::vector<std::string> words) const {
    words.insert(words.begin(), {"infer", "--model", model(), "--max_new_tokens", "8"});
    return run(words);
  }
  static std::vector<nlohmann::json> rows_in(const fs::path& file) {
    std::vector<nlohmann::json> rows;
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) rows.push_back(nlohmann::json::parse(line));
    return rows;
  }

  static std::unique_ptr<TemporaryDirectory> made_;
};
std::unique_ptr<TemporaryDirectory> AnswersAboutPictures::made_;

TEST_F(AnswersAboutPictures, AFlagAndARowSayTheSame) {
  const ProgramResult one = infer({"--prompt", "<image>What is this?", "--image", media("a.png")});
  ASSERT_EQ(one.exit_code, 0) << one.err;
  const ProgramResult before = infer({"--prompt", "What is this?", "--image", media("a.png")});
  EXPECT_EQ(before.out, one.out) << "a picture without a place stands first";
  const ProgramResult other = infer({"--prompt", "What is this?", "--image", media("b.jpg")});
  EXPECT_NE(other.out, one.out);
  const nlohmann::json row = {
      {"messages", {{{"role", "user"}, {"content", "<image>What is this?"}}}},
      {"images", {media("a.png")}}};
  nlohmann::json text = {{"messages", {{{"role", "user"}, {"content", "And without?"}}}}};
  write("rows.jsonl", row.dump() + "\n" + text.dump() + "\n" + row.dump() + "\n");
  const ProgramResult rows = infer({"--dataset", "rows.jsonl", "--output", "out.jsonl"});
  ASSERT_EQ(rows.exit_code, 0) << rows.err;
  const std::vector<nlohmann::json> answers = rows_in(folder_.path() / "out.jsonl");
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers[0]["response"].get<std::string>() + "\n", one.out);
  EXPECT_EQ(answers[2]["response"], answers[0]["response"]);
  EXPECT_EQ(answers[0]["images"], nlohmann::json({media("a.png")}));
  EXPECT_EQ(answers[0]["messages"][0]["content"], "<image>What is this?");
  EXPECT_FALSE(answers[1].contains("images"));
}

TEST_F(AnswersAboutPictures, EveryLayoutIsAnswered) {
  for (const char* name : {"llava.json", "sharegpt4v.json", "llamafactory.json", "mllm.json",
                           "swift.jsonl", "openai.jsonl"}) {
    const ProgramResult result = infer(
        {"--dataset", shared_dir() / "golden/vl/rows" / name, "--max_samples", "3", "--media_dir",
         name == std::string("llava.json") ? shared_dir() / "golden/vl/rows/media"
                                           : shared_dir() / "golden/vl/rows",
         "--output", std::string(name) + ".out.jsonl"});
    EXPECT_EQ(result.exit_code, 0) << name << result.err;
    for (const nlohmann::json& row : rows_in(folder_.path() / (std::string(name) + ".out.jsonl")))
      EXPECT_NE(row["finish_reason"], "error") << name << row.dump();
  }
}

TEST_F(AnswersAboutPictures, VideosAreListsOfFramesOrFiles) {
  const nlohmann::json row = {
      {"messages", {{{"role", "user"}, {"content", "<video>What happens?"}}}},
      {"videos", {{media("v0_0.png"), media("v0_1.png"), media("v0_2.png"), media("v0_3.png")}}}};
  write("rows.jsonl", row.dump() + "\n");
  const ProgramResult rows = infer({"--dataset", "rows.jsonl", "--output", "out.jsonl"});
  ASSERT_EQ(rows.exit_code, 0) << rows.err;
  EXPECT_EQ(rows_in(folder_.path() / "out.jsonl")[0]["finish_reason"], "length");
}

TEST_F(AnswersAboutPictures, WhatIsWrongIsSaid) {
  const auto error = [&](std::vector<std::string> words) {
    const ProgramResult result = infer(words);
    EXPECT_NE(result.exit_code, 0);
    return result.err;
  };
  EXPECT_THAT(error({"--prompt", "<image><image>?", "--image", media("a.png")}),
              HasSubstr("<image> and pictures differ in number"));
  EXPECT_THAT(error({"--prompt", "<image>?"}), HasSubstr("<image> and pictures differ in number"));
  EXPECT_THAT(error({"--prompt", "?", "--image", "nowhere.png"}), HasSubstr("nowhere.png"));
  EXPECT_THAT(error({"--prompt", "?", "--image", ""}), HasSubstr("[--image] names no file"));
  write("broken.png", "no picture");
  EXPECT_THAT(error({"--prompt", "?", "--image", "broken.png"}), HasSubstr("broken.png"));
  write("rows.jsonl", "{\"query\": \"?\"}\n");
  EXPECT_THAT(error({"--dataset", "rows.jsonl", "--image", media("a.png")}),
              HasSubstr("[--image] goes with a prompt"));
  const ProgramResult text =
      run({"infer", "--model", text_model(), "--prompt", "?", "--image", media("a.png")});
  EXPECT_EQ(text.exit_code, 2);
  EXPECT_THAT(text.err, HasSubstr("[--image] the model reads text alone"));
}

/// The header is whole, the content is not.
TEST_F(AnswersAboutPictures, ABrokenPictureMarksItsRowAlone) {
  std::string png = content_of(media("a.png"));
  for (size_t i = png.size() / 2; i < png.size() / 2 + 40; ++i) png[i] = '\0';
  write("broken.png", png);
  const auto row = [&](const std::string& image) {
    return nlohmann::json{{"messages", {{{"role", "user"}, {"content", "<image>What?"}}}},
                          {"images", {image}}}
               .dump() +
           "\n";
  };
  write("rows.jsonl", row(media("a.png")) + row("broken.png") + row(media("b.jpg")));
  const ProgramResult result = infer({"--dataset", "rows.jsonl", "--output", "out.jsonl"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::vector<nlohmann::json> answers = rows_in(folder_.path() / "out.jsonl");
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers[0]["finish_reason"], "length");
  EXPECT_EQ(answers[1]["finish_reason"], "error");
  EXPECT_THAT(answers[1]["error"].get<std::string>(), HasSubstr("broken.png"));
  EXPECT_EQ(answers[2]["finish_reason"], "length");
}

TEST_F(AnswersAboutPictures, AChatTakesThemBetweenItsMessages) {
  const ProgramResult one = infer({"--prompt", "What is this?", "--image", media("a.png")});
  const std::vector<std::string> words = {"chat", "--model", model(), "--max_new_tokens", "8"};
  const ProgramResult chat = run(words, "/image " + media("a.png") + "\nWhat is this?\nAnd now?\n");
  EXPECT_EQ(chat.exit_code, 0) << chat.err;
  EXPECT_THAT(chat.out, HasSubstr("(a picture of the next message)\n" + one.out));
  std::vector<std::string> flag = words;
  flag.insert(flag.end(), {"--image", media("a.png")});
  const ProgramResult given = run(flag, "What is this?\nAnd now?\n");
  EXPECT_THAT(chat.out, HasSubstr(given.out));
  const ProgramResult missing = run(words, "/image nowhere.png\nWhat is this?\n");
  EXPECT_THAT(missing.err, HasSubstr("nowhere.png"));
  EXPECT_THAT(missing.out, Not(HasSubstr("next message")));
  std::vector<std::string> of_text = words;
  of_text[2] = text_model();
  EXPECT_THAT(run(of_text, "/image " + media("a.png") + "\n").err,
              HasSubstr("the model reads text alone"));
}

TEST_F(AnswersAboutPictures, AChatWithoutFilesTakesTagsAsTheyAreTyped) {
  const ProgramResult chat = run({"chat", "--model", model(), "--max_new_tokens", "8"},
                                 "What does HTML's <video> tag do?\nAnd <image>?\n");
  EXPECT_EQ(chat.exit_code, 0) << chat.err;
  EXPECT_THAT(chat.err, Not(HasSubstr("differ in number")));
  EXPECT_THAT(chat.err, Not(HasSubstr("rror")));
}

/// The lines of guide (d), after `torchrun … inference_vlm.py`.
TEST_F(AnswersAboutPictures, TheInferenceJsonOfMindSpeedMmIsRead) {
  const nlohmann::json file = {{"model_id", "Qwen2VlPipeline"},
                               {"params_dtype", "bf16"},
                               {"image_encoder", {{"vision_encoder", {{"model_id", "qwen2vit"}}}}},
                               {"text_decoder", {{"num_layers", 28}}},
                               {"text_encoder", nullptr},
                               {"device", "npu"},
                               {"tokenizer", {{"hub_backend", "hf"}, {"from_pretrained", model()}}},
                               {"generation_config",
                                {{"do_sample", true},
                                 {"temperature", 0.01},
                                 {"top_k", 1},
                                 {"top_p", 0.001},
                                 {"max_new_tokens", 8},
                                 {"min_length", 0},
                                 {"encoder_repetition_penalty", 1.0},
                                 {"image_token_id", 151655},
                                 {"eos_token_id", {151645, 151643}}}},
                               {"min_pixels", 1003520},
                               {"image_processer_path", model() + "/preprocessor_config.json"},
                               {"patch", {{"ae_float32", true}}},
                               {"image_path", media("a.png")},
                               {"prompts", "What is this?"}};
  write("inference_qwen2vl_7b.json", file.dump());
  const std::vector<std::string> words = {"infer",
                                          "--use-mcore-models",
                                          "--tensor-model-parallel-size",
                                          "1",
                                          "--pipeline-model-parallel-size",
                                          "1",
                                          "--micro-batch-size",
                                          "1",
                                          "--global-batch-size",
                                          "1",
                                          "--tokenizer-type",
                                          "NullTokenizer",
                                          "--vocab-size",
                                          "152064",
                                          "--seq-length",
                                          "1024",
                                          "--make-vocab-size-divisible-by",
                                          "1",
                                          "--normalization",
                                          "RMSNorm",
                                          "--use-fused-rmsnorm",
                                          "--swiglu",
                                          "--use-fused-swiglu",
                                          "--seed",
                                          "42",
                                          "--load",
                                          model(),
                                          "--use-flash-attn",
                                          "--no-load-optim",
                                          "--no-load-rng",
                                          "--mm-model",
                                          "inference_qwen2vl_7b.json",
                                          "--log-interval",
                                          "1",
                                          "--save-interval",
                                          "10000",
                                          "--eval-interval",
                                          "10000",
                                          "--eval-iters",
                                          "5000",
                                          "--distributed-backend",
                                          "nccl"};
  const ProgramResult result = run(words);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const ProgramResult same = infer({"--prompt", "What is this?", "--image", media("a.png")});
  EXPECT_EQ(result.out, same.out);
  EXPECT_THAT(result.err, HasSubstr("min_pixels have no effect"));
  nlohmann::json other = file;
  other["model_id"] = "InternVLPipeline";
  write("inference_qwen2vl_7b.json", other.dump());
  EXPECT_THAT(run(words).err, HasSubstr("is not available, only Qwen2-VL's and Qwen2.5-VL's"));
  other = file;
  other["image_pth"] = "x.png";
  write("inference_qwen2vl_7b.json", other.dump());
  EXPECT_THAT(run(words).err, HasSubstr("did you mean \"image_path\"?"));
  other = file;
  other["generation_config"]["topk"] = 1;
  write("inference_qwen2vl_7b.json", other.dump());
  EXPECT_THAT(run(words).err,
              HasSubstr("generation_config.topk: unknown key\nhint: did you mean \"top_k\"?"));
  other = file;
  other["generation_config"]["transformers_version"] = "4.45.0";
  write("inference_qwen2vl_7b.json", other.dump());
  std::vector<std::string> all_notices = words;
  all_notices.emplace_back("-v");
  EXPECT_THAT(run(all_notices).err,
              HasSubstr("generation_config.transformers_version have no effect\n"));
}

/// PEFT would put adapters on Qwen2.5-VL's tower too, whose MLP has the names of the decoder's.
TEST_F(AnswersAboutPictures, AnAdapterOfTheDecoderLeavesATowerOfTheSameNamesAlone) {
  for (const std::string name : {"qwen2_5_vl", "qwen2_vl"}) {
    const fs::path golden = shared_dir() / "golden/vl" / name, adapter = folder_.path() / name;
    fs::create_directories(adapter);
    fs::copy_file(golden / "lora/adapter_config.json", adapter / "adapter_config.json");
    fs::copy_file(golden / "lora/adapter_final.safetensors", adapter / "adapter_model.safetensors");
    const ProgramResult merged =
        run({"merge", "--model", golden, "--adapters", name, "--output", name + "-merged"});
    ASSERT_EQ(merged.exit_code, 0) << merged.err;
    EXPECT_EQ(merged.err.find("the tower has no adapters") != std::string::npos,
              name == "qwen2_5_vl")
        << merged.err;
    const ProgramResult told = run({"diff", golden, name + "-merged"});
    EXPECT_THAT(told.out, Not(HasSubstr("visual.")));
  }
}

TEST_F(AnswersAboutPictures, AnExaminationShowsThem) {
  fs::create_directories(folder_.path() / "signs");
  std::ofstream rows(folder_.path() / "signs/test.csv");
  rows << "image,question,A,B,C,D,answer\n"
       << fs::path(media("a.png")).string() << ",What is this?,bus,dog,cup,sky,A\n"
       << "b.jpg,What is this?,bus,dog,cup,sky,B\n";
  rows.close();
  fs::copy_file(media("b.jpg"), folder_.path() / "signs/b.jpg");
  write("signs.yaml",
        "task: signs\noutput_type: multiple_choice\ntest_split: test\nnum_fewshot: 0\n"
        "doc_to_image: image\n"
        "doc_to_text: \"{{question}}\\nA. {{A}}\\nB. {{B}}\\nC. {{C}}\\nD. {{D}}\\nAnswer:\"\n"
        "doc_to_choice: [A, B, C, D]\ndoc_to_target: \"{{ 'ABCD'.index(answer) }}\"\n"
        "metric_list: [{metric: acc}]\n");
  const std::vector<std::string> words = {
      "eval",  "--include_path", "signs.yaml",    "--tasks", "signs",  "--data_dir",
      "signs", "--log_samples",  "--output_path", "out",     "--model"};
  std::vector<std::string> sees = words;
  sees.push_back(model());
  const ProgramResult result = run(sees);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("|signs"));
  std::vector<std::string> reads = words;
  reads.push_back(text_model());
  EXPECT_THAT(run(reads).err, HasSubstr("a question with a picture: the model reads text alone"));
}

}  // namespace
}  // namespace danlu::test
