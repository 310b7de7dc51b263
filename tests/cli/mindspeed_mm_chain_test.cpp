// Guide (d) from its first line to its last, with its own names of files: a model of 28 layers and
// 32 blocks is fetched and converted, LLaVA's rows too, four stages train it, on one machine and on
// two, and it is converted back and asked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/free_port.h"
#include "cli/bad_input.h"
#include "cli/own_folder.h"
#include "cli/two_machines.h"
#include "support/fake_hub.h"
#include "support/shared_data.h"

namespace danlu::test {
namespace mindspeed_mm_chain {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

constexpr const char* kHf = "ckpt/hf_path/Qwen2-VL-7B-Instruct";
constexpr const char* kPage = "https://huggingface.co/Qwen/Qwen2-VL-7B-Instruct/tree/main";
constexpr const char* kMm = "ckpt/mm_path/Qwen2-VL-7B-Instruct";

class MindSpeedMmChain : public OwnFolder {
 protected:
  void SetUp() override {
    DANLU_REQUIRES_SHARED();
    fs::create_directories((*this / kHf).parent_path());
    write("hub/config.json", config().dump());
    ok({"init", "--config", "hub/config.json", "--output", "first"});
    fs::rename(*this / "first/model.safetensors", *this / "hub/model.safetensors");
    for (const auto& file : fs::directory_iterator(unpacked("tokenizers") / "qwen2_5"))
      fs::copy(file, *this / "hub" / file.path().filename());
    fs::copy_file(shared_dir() / "golden/qwen2_vl/preprocessor_config.json",
                  *this / "hub/preprocessor_config.json");
    write_rows();
    write("model.json", model_json().dump());
    write("data.json", data_json().dump());
    write("tools.json", R"({"profile": {"enable": false}})");
  }

  /// As wide as makes sense for 28 layers, with the real vocabulary.
  static json config() {
    return {{"architectures", {"Qwen2VLForConditionalGeneration"}},
            {"model_type", "qwen2_vl"},
            {"hidden_size", 16},
            {"intermediate_size", 24},
            {"num_hidden_layers", 28},
            {"num_attention_heads", 2},
            {"num_key_value_heads", 2},
            {"max_position_embeddings", 32768},
            {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {2, 1, 1}}}},
            {"tie_word_embeddings", false},
            {"torch_dtype", "bfloat16"},
            {"vocab_size", 152064},
            {"bos_token_id", 151643},
            {"eos_token_id", 151645},
            {"vision_start_token_id", 151652},
            {"vision_end_token_id", 151653},
            {"image_token_id", 151655},
            {"video_token_id", 151656},
            {"vision_config",
             {{"depth", 32},
              {"embed_dim", 16},
              {"mlp_ratio", 2},
              {"num_heads", 2},
              {"hidden_size", 16}}}};
  }
  static json model_json() {
    return {{"model_id", "qwen2vl"},
            {"text_encoder", nullptr},
            {"video_encoder", nullptr},
            {"img_context_token_id", 151655},
            {"vision_start_token_id", 151652},
            {"image_encoder",
             {{"vision_encoder",
               {{"model_id", "qwen2vit"},
                {"num_layers", 32},
                {"hidden_size", 16},
                {"ffn_hidden_size", 32},
                {"num_attention_heads", 2},
                {"pipeline_num_layers", {32, 0, 0, 0}},
                {"freeze", true}}},
              {"vision_projector", {{"model_id", "lnmlp"}, {"freeze", true}}}}},
            {"text_decoder",
             {{"model_id", "qwen2lm"},
              {"num_layers", 28},
              {"hidden_size", 16},
              {"vocab_size", 152064},
              {"layernorm_epsilon", 1e-6},
              {"recompute_num_layers", 1},
              {"llm_hidden_size", 16},
              {"pipeline_num_layers", {1, 10, 10, 7}}}}};
  }
  static json data_json() {
    return {{"dataset_param",
             {{"dataset_type", "huggingface"},
              {"preprocess_parameters",
               {{"model_name_or_path", std::string("./") + kHf},
                {"image_resolution", 262144},
                {"video_resolution", 16384},
                {"video_fps", 2.0},
                {"video_maxlen", 64}}},
              {"basic_parameters",
               {{"template", "qwen2vl"},
                {"dataset_dir", "./data"},
                {"dataset", "./data/mllm_format_llava_instruct_data.json"},
                {"cache_dir", "./data/cache_dir"},
                {"max_samples", nullptr}}},
              {"attr",
               {{"images", "images"},
                {"messages", "messages"},
                {"role_tag", "role"},
                {"content_tag", "content"},
                {"user_tag", "user"},
                {"assistant_tag", "assistant"}}}}}};
  }

  /// LLaVA's file, as the guide's reader downloads it: twelve rows, one whose picture is missing.
  void write_rows() const {
    const fs::path pictures = *this / "data/COCO2017/train2017";
    fs::create_directories(pictures);
    json rows = json::array();
    for (int i = 0; i < 12; ++i) {
      const std::string name = "00000003347" + std::to_string(i) + ".jpg";
      json row = {{"id", std::to_string(i)},
                  {"conversations",
                   {{{"from", "human"}, {"value", "What colour is number " + std::to_string(i)}},
                    {{"from", "gpt"}, {"value", "It is the colour of " + std::to_string(7 * i)}}}}};
      if (i % 3 != 2) {
        row["image"] = name;
        row["conversations"][0]["value"] = "<image>\nWhat is it?";
        if (i != 7)
          fs::copy_file(shared_dir() / "golden/vl/rows/media" / (i % 2 ? "b.jpg" : "e.jpg"),
                        pictures / name);
      }
      rows.push_back(row);
    }
    write("data/llava_instruct_150k.json", rows.dump());
  }

  /// As the guide has it: from the page that it names to the folder that it names.
  void download_model() const {
    FakeHub hub;
    hub.id = "Qwen/Qwen2-VL-7B-Instruct";
    for (const auto& file : fs::directory_iterator(*this / "hub")) {
      const std::string name = file.path().filename();
      hub.files[name] = {content_of(file.path()), name.ends_with(".safetensors")};
    }
    const ProgramResult fetched =
        run_danlu({"download", kPage, "--local_dir", kHf},
                  {.environment = {{"HF_ENDPOINT", hub.url()}, {"no_proxy", "127.0.0.1"}},
                   .directory = folder_.path()});
    ASSERT_EQ(fetched.exit_code, 0) << fetched.err;
    for (const auto& [name, file] : hub.files)
      EXPECT_EQ(content_of(*this / kHf / name), file.content) << name;
  }

  Words train_line(const Words& launch, const Words& more = {}) const {
    Words words = {"launch"};
    words.insert(words.end(), launch.begin(), launch.end());
    for (const char* word : {"pretrain",
                             "--use-mcore-models",
                             "--tensor-model-parallel-size",
                             "1",
                             "--pipeline-model-parallel-size",
                             "4",
                             "--micro-batch-size",
                             "1",
                             "--global-batch-size",
                             "4",
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
                             "--lr",
                             "1.0e-5",
                             "--lr-decay-style",
                             "cosine",
                             "--weight-decay",
                             "0",
                             "--train-iters",
                             "2",
                             "--lr-warmup-fraction",
                             "0.1",
                             "--clip-grad",
                             "0.0",
                             "--adam-beta1",
                             "0.9",
                             "--adam-beta2",
                             "0.999",
                             "--no-gradient-accumulation-fusion",
                             "--seed",
                             "42",
                             "--bf16",
                             "--load",
                             kMm,
                             "--variable-seq-lengths",
                             "--use-distributed-optimizer",
                             "--use-flash-attn",
                             "--no-load-optim",
                             "--no-load-rng",
                             "--no-save-optim",
                             "--no-save-rng",
                             "--num-workers",
                             "8",
                             "--mm-data",
                             "data.json",
                             "--mm-model",
                             "model.json",
                             "--mm-tool",
                             "tools.json",
                             "--log-tps",
                             "--log-interval",
                             "1",
                             "--save-interval",
                             "10000",
                             "--eval-interval",
                             "10000",
                             "--eval-iters",
                             "5000",
                             "--save",
                             "save_dir",
                             "--distributed-backend",
                             "nccl"})
      words.emplace_back(word);
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

TEST_F(MindSpeedMmChain, RunsFromTheFirstLineToTheLast) {
  download_model();
  ok({"mm-convert", "Qwen2VLConverter", "hf_to_mm", "--cfg.mm_dir", kMm, "--cfg.hf_config.hf_dir",
      kHf, "--cfg.parallel_config.llm_pp_layers", "[[1,10,10,7]]",
      "--cfg.parallel_config.vit_pp_layers", "[[32,0,0,0]]", "--cfg.parallel_config.tp_size", "1"});
  const ProgramResult rows = ok({"convert-rows", "llava"});
  EXPECT_THAT(rows.out + rows.err, HasSubstr("dropped   1 row: missing file"));
  const ProgramResult trained =
      ok(train_line({"--nproc_per_node", "4", "--nnodes", "1", "--node_rank", "0", "--master_addr",
                     "localhost", "--master_port", std::to_string(free_port().value())}));
  EXPECT_THAT(trained.err + trained.out, HasSubstr("finished 2 steps"));
  EXPECT_THAT(trained.err + trained.out, HasSubstr("[PICTURE 1]"));
  const ProgramResult told = run({"diff", kHf, "save_dir"});
  // The decoder alone: 28 layers of at most 12 tensors, embedding, norm and head.
  EXPECT_THAT(told.out, HasSubstr("lm_head.weight"));
  EXPECT_THAT(told.out, testing::Not(HasSubstr("visual.")));
  ok({"mm-convert", "Qwen2VLConverter", "mm_to_hf", "--cfg.save_hf_dir",
      "ckpt/mm_to_hf/Qwen2-VL-7B-Instruct", "--cfg.mm_dir", "save_dir", "--cfg.hf_config.hf_dir",
      kHf, "--cfg.parallel_config.llm_pp_layers", "[1,10,10,7]",
      "--cfg.parallel_config.vit_pp_layers", "[32,0,0,0]", "--cfg.parallel_config.tp_size", "1"});
  const ProgramResult same = run({"diff", "save_dir", "ckpt/mm_to_hf/Qwen2-VL-7B-Instruct"});
  EXPECT_EQ(same.exit_code, 0) << same.out;
  const ProgramResult answer =
      ok({"infer", "--model", "ckpt/mm_to_hf/Qwen2-VL-7B-Instruct", "--image",
          "data/COCO2017/train2017/000000033470.jpg", "--prompt", "<image>\nWhat is it?",
          "--max_new_tokens", "4", "--template", "qwen2vl"});
  EXPECT_FALSE(answer.out.empty());
  // NNODES=2, and NODE_RANK and MASTER_ADDR as the guide has them.
  TwoMachines machines(folder_.path());
  if (const std::string why = machines.obstacle(); !why.empty())
    GTEST_SKIP() << "all but two machines was tried; here they cannot be: " << why;
  for (const int64_t machine : {0, 1}) {
    std::string line = "exec '" + danlu_path() + "'";
    for (const std::string& word :
         train_line(TwoMachines::launch(machine, 2, "6000"), {"--save", "save_dir_of_two"}))
      line += " '" + word + "'";
    std::ofstream(*this / ("machine-" + std::to_string(machine) + ".sh")) << line << "\n";
  }
  for (const MachineEnd& end : machines.run()) EXPECT_EQ(end.exit_code, 0) << end.err;
  const ProgramResult of_two = run({"diff", "save_dir", "save_dir_of_two"});
  EXPECT_EQ(of_two.exit_code, 0) << of_two.out;
}

TEST_F(MindSpeedMmChain, AModelJsonThatIsWrongIsRefusedByItsKey) {
  fs::rename(*this / "hub", *this / kHf);
  ok({"convert-rows", "llava"});
  const auto error_of = [&](const json& wrong, int exit_code) {
    write("wrong.json", wrong.dump());
    const ProgramResult result = run({"pretrain", "--mm-data", "data.json", "--mm-model",
                                      "wrong.json", "--load", kHf, "--save", "save_dir"});
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_FALSE(fs::exists(*this / "save_dir"));
    return result.err;
  };
  json wrong = model_json();
  wrong["text_decoder"]["hidden_size"] = 3584;
  EXPECT_THAT(error_of(wrong, 2), HasSubstr("text_decoder.hidden_size is 3584, the model in the "
                                            "checkpoint has 16"));
  wrong = model_json();
  wrong["image_encoder"]["vision_encoder"]["pipeline_num_layer"] = {32};
  EXPECT_THAT(error_of(wrong, 2),
              HasSubstr("wrong.json: image_encoder.vision_encoder.pipeline_num_layer: unknown key\n"
                        "hint: did you mean \"pipeline_num_layers\"?"));
  wrong = model_json();
  wrong["text_decoder"]["pipeline_num_layers"] = "two";
  EXPECT_THAT(error_of(wrong, 3),
              HasSubstr("wrong.json: text_decoder.pipeline_num_layers must be"));
  EXPECT_THAT(error_of(json::array(), 3), HasSubstr("wrong.json: must be an object, got array"));
}

}  // namespace mindspeed_mm_chain
}  // namespace danlu::test
