// What a run of a model that sees pictures says it will need, beside what its ranks count; and what
// danlu plan says of guide (d)'s line.
#include <algorithm>

#include "base/json.h"
#include "cli/launch.h"
#include "support/shared_data.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

struct VisionMesh {
  const char* name;
  int64_t processes;
  Words flags;
  std::vector<int64_t> blocks = {6, 0}, layers = {1, 3};  ///< of two stages
};
void PrintTo(const VisionMesh& mesh, std::ostream* out) { *out << mesh.name; }

/// The keys that every Qwen2-VL has.
Json with_vision_tokens(Json config) {
  config.update(Json::parse(R"({"architectures": ["Qwen2VLForConditionalGeneration"],
    "model_type": "qwen2_vl", "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
    "max_position_embeddings": 32768, "tie_word_embeddings": false, "vocab_size": 152064,
    "vision_start_token_id": 151652, "vision_end_token_id": 151653, "image_token_id": 151655,
    "video_token_id": 151656, "bos_token_id": 151643, "eos_token_id": 151645})"));
  return config;
}

class PlannedVision : public Launch, public testing::WithParamInterface<VisionMesh> {
 protected:
  void SetUp() override {
    DANLU_REQUIRES_SHARED();
    Launch::SetUp();
  }

  /// A tower that takes more than the decoder: 6 blocks of width 160, some 2200 patches a row.
  void write_inputs() const {
    const Json config =
        with_vision_tokens({{"hidden_size", 64},
                            {"intermediate_size", 172},
                            {"num_hidden_layers", 4},
                            {"num_attention_heads", 4},
                            {"num_key_value_heads", 2},
                            {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {2, 3, 3}}}},
                            {"torch_dtype", "float32"},
                            {"vision_config",
                             {{"depth", 6},
                              {"embed_dim", 160},
                              {"mlp_ratio", 4},
                              {"num_heads", 4},
                              {"hidden_size", 64}}}});
    write("config.json", config.dump());
    const ProgramResult made = run({"init", "--config", "config.json", "--output", "sees"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    for (const auto& file : fs::directory_iterator(unpacked("tokenizers") / "qwen2_5"))
      fs::copy(file, (*this) / "sees", fs::copy_options::skip_existing);
    Json processor =
        Json::parse(content_of(shared_dir() / "golden/qwen2_vl/preprocessor_config.json"));
    processor.update({{"min_pixels", 430000}, {"max_pixels", 450000}});
    write_content((*this) / "sees" / "preprocessor_config.json", processor.dump());
    const fs::path picture = shared_dir() / "golden/vl/rows/media/b.jpg";
    // As many targets as the loss takes at once.
    std::string rows, answer;
    for (int word = 0; word < 110; ++word) answer += std::to_string(10 + word * word % 89) + " ";
    for (int row = 0; row < 8; ++row) {
      rows += Json{{"images", {picture.string()}},
                   {"messages",
                    {{{"role", "user"}, {"content", "<image>What is it?"}},
                     {{"role", "assistant"}, {"content", answer + std::to_string(row)}}}}}
                  .dump() +
              "\n";
    }
    write("rows.jsonl", rows);
  }
  void write_model_json(const VisionMesh& mesh) const {
    const auto part = [](const std::vector<int64_t>& list) {
      return Json{{"pipeline_num_layers", list}, {"freeze", false}};
    };
    write("model.json",
          Json{{"image_encoder",
                {{"vision_encoder", part(mesh.blocks)}, {"vision_projector", {{"freeze", false}}}}},
               {"text_decoder", {{"pipeline_num_layers", mesh.layers}}}}
              .dump());
  }
};

TEST_P(PlannedVision, IsWhatEachRankCounts) {
  DANLU_SLOW_BUT_FOR("recomputed", "pp2_in_the_tower");
  const VisionMesh& mesh = GetParam();
  write_inputs();
  Words words = {"sft",
                 "--model",
                 "sees",
                 "--dataset",
                 "rows.jsonl",
                 "--tuner",
                 "full",
                 "--output_dir",
                 "run",
                 "--no-version-dir",
                 "--max_steps",
                 "1",
                 "--batch_size",
                 "1",
                 "--val_ratio",
                 "0",
                 "--save_strategy",
                 "no",
                 "--max_length",
                 "1024",
                 "--global_batch_size",
                 "2",
                 "--no-packing"};
  words.insert(words.end(), mesh.flags.begin(), mesh.flags.end());
  if (std::count(words.begin(), words.end(), "--pp") > 0) {
    write_model_json(mesh);
    words.insert(words.end(), {"--mm-model", "model.json"});
  }
  const ProgramResult result =
      mesh.processes == 1 ? run_words(words) : launch(mesh.processes, words);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json ranks = Json::parse(content_of((*this) / "run" / "memory.json"))["ranks"];
  ASSERT_EQ(ranks.size(), static_cast<size_t>(mesh.processes));
  double most = 0;
  for (const Json& rank : ranks) {
    const Json &planned = rank["planned"], &counted = rank["counted"];
    const auto of = [](const Json& json, const char* key) { return json[key].get<double>(); };
    for (const char* key : {"weights", "gradients", "optimizer"})
      EXPECT_NEAR(of(planned, key) / of(counted, key), 1, 0.1) << key << rank.dump(1);
    const double pass = of(planned, "activations") + of(planned, "working") +
                        of(planned, "communication") - of(planned, "gradients_to_come");
    // The pixels of a micro-batch are not counted: whoever loads them has made them.
    const double pixels = rank["stage"] == 0 ? 2304 * 1176 * 4 : 0;
    EXPECT_LE(of(counted, "pass"), 1.1 * pass) << rank.dump(1);
    EXPECT_GE(of(counted, "pass") + pixels, 0.9 * pass) << rank.dump(1);
    EXPECT_NEAR(of(planned, "total") / (of(counted, "total") + pixels / 2), 1, 0.1) << rank.dump(1);
    most = std::max(most, of(counted, "pass"));
  }
  EXPECT_GT(most, 40e6);
}

class PlannedData : public PlannedVision {};

TEST_P(PlannedData, AreLookedAtForTheirPictures) {
  write_inputs();
  const auto pictures = [&](const Words& more) {
    Words words = {"plan", "--devices", "1",          "sft",          "--model",
                   "sees", "--dataset", "rows.jsonl", "--max_length", "1024"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult plan = run_words(words);
    EXPECT_EQ(plan.exit_code, 0) << plan.err;
    return plan.out;
  };
  // b.jpg at 430,000 to 450,000 pixels is 14 x 41 cells of 28 x 28, in every row.
  EXPECT_THAT(pictures({}), HasSubstr("574 visual tokens of a sample, 2296 patches; the most in 8 "
                                      "samples of the data, whose mean is 574.0 tokens"));
  EXPECT_THAT(pictures({"--visual_tokens", "100"}),
              HasSubstr("100 visual tokens of a sample, 400 patches\n"));
  // Rows without a picture count in the mean alone; those that do not fit are not trained on.
  std::string rows = content_of((*this) / "rows.jsonl");
  for (int row = 0; row < 8; ++row)
    rows +=
        R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"
        "\n";
  write("rows.jsonl", rows);
  EXPECT_THAT(pictures({}), HasSubstr("574 visual tokens of a sample, 2296 patches; the most in 16 "
                                      "samples of the data, whose mean is 287.0"));
  EXPECT_THAT(pictures({"--max_length", "500"}),
              HasSubstr("0 visual tokens of a sample, 0 patches; the most in 8 samples"));
  fs::remove((*this) / "rows.jsonl");
  EXPECT_THAT(pictures({}), testing::Not(HasSubstr("samples of the data")));
}

const Words kTrainsAll = {"--freeze_vit", "false", "--freeze_aligner", "false", "--dtype", "fp32"};

Words trains_all(const Words& more) {
  Words words = kTrainsAll;
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, PlannedVision,
    testing::Values(VisionMesh{"one", 1, trains_all({})},
                    VisionMesh{"frozen_tower", 1, {"--dtype", "fp32"}},
                    VisionMesh{"recomputed", 1, trains_all({"--recompute", "full"})},
                    VisionMesh{"tp2", 2, trains_all({"--tp", "2"})},
                    VisionMesh{"pp2_tower_decoder", 2, trains_all({"--pp", "2"}), {6, 0}, {0, 4}},
                    VisionMesh{"pp2_in_the_tower", 2, trains_all({"--pp", "2"}), {4, 2}, {0, 4}}),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(One, PlannedData, testing::Values(VisionMesh{"one", 1, {}}),
                         [](const auto& info) { return std::string(info.param.name); });

class PicturesOfRanks : public PlannedVision {};

TEST_P(PicturesOfRanks, AreSharedByRanksOfTheDataAxis) {
  write_inputs();
  // In the order of the file every picture would be rank 0's.
  std::istringstream pictures(content_of((*this) / "rows.jsonl"));
  std::string rows;
  for (std::string line; std::getline(pictures, line);)
    rows +=
        line + "\n" +
        R"({"messages": [{"role": "user", "content": "What?"}, {"role": "assistant", "content": "That"}]})"
        "\n";
  write("rows.jsonl", rows);
  const ProgramResult result = launch(2, {"sft",
                                          "--model",
                                          "sees",
                                          "--dataset",
                                          "rows.jsonl",
                                          "--tuner",
                                          "full",
                                          "--output_dir",
                                          "run",
                                          "--no-version-dir",
                                          "--max_steps",
                                          "1",
                                          "--batch_size",
                                          "1",
                                          "--val_ratio",
                                          "0",
                                          "--save_strategy",
                                          "no",
                                          "--max_length",
                                          "1024",
                                          "--global_batch_size",
                                          "4",
                                          "--no_shuffle",
                                          "--dtype",
                                          "fp32"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json ranks = Json::parse(content_of((*this) / "run" / "memory.json"))["ranks"];
  ASSERT_EQ(ranks.size(), 2u);
  const double a = ranks[0]["counted"]["pass"], b = ranks[1]["counted"]["pass"];
  EXPECT_NEAR(a / b, 1, 0.2) << ranks.dump(1);
}

INSTANTIATE_TEST_SUITE_P(One, PicturesOfRanks, testing::Values(VisionMesh{"two", 2, {}}),
                         [](const auto& info) { return std::string(info.param.name); });

class PlannedGuideD : public Launch {};

/// The line of finetune_qwen2vl_7b.sh on one machine, of which the files need not be there but for
/// those that a plan reads.
TEST_F(PlannedGuideD, HasTheMemoryOfARankOfEachStage) {
  write("7b/config.json", with_vision_tokens(Json::parse(R"({"hidden_size": 3584,
    "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
    "num_key_value_heads": 4, "torch_dtype": "bfloat16",
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    "vision_config": {"depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "num_heads": 16,
                      "hidden_size": 3584}})"))
                              .dump());
  write("model.json", R"({"image_encoder": {"vision_encoder": {"num_layers": 32, "freeze": true,
      "pipeline_num_layers": [32, 0, 0, 0]}, "vision_projector": {"freeze": true}},
    "text_decoder": {"num_layers": 28, "pipeline_num_layers": [1, 10, 10, 7]}})");
  write("data.json", R"({"dataset_param": {"dataset_type": "huggingface",
    "preprocess_parameters": {"model_name_or_path": "7b", "image_resolution": 262144},
    "basic_parameters": {"template": "qwen2vl", "dataset_dir": "./data",
                         "dataset": "./data/mllm_format_llava_instruct_data.json"},
    "attr": {"images": "images", "messages": "messages", "role_tag": "role",
             "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}}})");
  const ProgramResult plan = run({"plan",
                                  "--machine",
                                  "atlas-800t-a2",
                                  "pretrain",
                                  "--load",
                                  "7b",
                                  "--tensor-model-parallel-size",
                                  "1",
                                  "--pipeline-model-parallel-size",
                                  "4",
                                  "--micro-batch-size",
                                  "1",
                                  "--global-batch-size",
                                  "64",
                                  "--seq-length",
                                  "1024",
                                  "--use-distributed-optimizer",
                                  "--bf16",
                                  "--train-iters",
                                  "5000",
                                  "--lr",
                                  "1e-5",
                                  "--mm-data",
                                  "data.json",
                                  "--mm-model",
                                  "model.json",
                                  "--save",
                                  "save_dir"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("334 visual tokens of a sample, 1336 patches"));
  EXPECT_THAT(plan.out, testing::ContainsRegex("a rank of each stage +[0-9.]+ GB, [0-9.]+ GB, "
                                               "[0-9.]+ GB, [0-9.]+ GB"));
  EXPECT_THAT(plan.out, HasSubstr("fits"));
  write("frozen.json", R"({"text_decoder": {"freeze": true}})");
  const ProgramResult frozen =
      run({"plan", "--devices", "1", "pretrain", "--load", "7b", "--mm-data", "data.json",
           "--mm-model", "frozen.json", "--seq-length", "1024", "--save", "save_dir"});
  EXPECT_EQ(frozen.exit_code, 2);
  EXPECT_THAT(frozen.err, HasSubstr("frozen.json: text_decoder.freeze is no switch"));
}

}  // namespace
}  // namespace danlu::test
