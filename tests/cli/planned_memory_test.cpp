// What a run says it will need, beside what its ranks count in the first step; and what it refuses.
#include <iterator>
#include <sstream>

#include "base/json.h"
#include "cli/launch.h"
#include "cli/random_model_dir.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct Mesh {
  std::string name;
  int64_t processes;
  std::vector<std::string> flags;
};

void PrintTo(const Mesh& mesh, std::ostream* out) { *out << mesh.name; }

class PlannedMemory : public Launch, public testing::WithParamInterface<Mesh> {
 protected:
  /// Much more activations than weights: 8 layers of width 64, passes of 1024 tokens.
  std::vector<std::string> pretraining(const std::string& run,
                                       const std::vector<std::string>& more) const {
    const fs::path model = (*this) / "model";
    fs::create_directories(model);
    fs::copy(good("model"), model, fs::copy_options::overwrite_existing);
    Json config = Json::parse(content_of(good("model") / "config.json"));
    config.update(Json::parse(config_text({.layers = 8, .ffn = 172, .heads = 8, .kv_heads = 4})));
    config["vocab_size"] = Json::parse(content_of(good("model") / "config.json"))["vocab_size"];
    write_content(model / "config.json", config.dump());
    std::ofstream text((*this) / "text.jsonl");
    for (int row = 0; row < 60; ++row) {
      std::string words;
      for (int word = 0; word < 500; ++word) words += std::to_string(row * word % 97) + " ";
      text << Json{{"text", words}}.dump() << "\n";
    }
    std::vector<std::string> words = {"pretrain",
                                      "--model",
                                      model,
                                      "--tokenizer",
                                      good("tokenizer"),
                                      "--from_scratch",
                                      "--dataset",
                                      "text.jsonl",
                                      "--seq_length",
                                      "1024",
                                      "--max_steps",
                                      "1",
                                      "--output_dir",
                                      run,
                                      "--val_ratio",
                                      "0",
                                      "--save_strategy",
                                      "no",
                                      "--profile",
                                      "danlu",
                                      "--global_batch_size",
                                      "4"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

std::vector<Mesh> meshes() {
  const std::string algorithm = "--context-parallel-algo";
  return {
      {"one", 1, {}},
      {"one_16_bits", 1, {"--dtype", "bf16", "--batch_size", "2"}},
      {"dp2", 2, {}},
      {"zero1", 2, {"--shard", "zero1"}},
      {"zero2", 2, {"--shard", "zero2"}},
      {"zero3", 2, {"--shard", "zero3"}},
      {"tp2", 2, {"--tp", "2"}},
      {"tp2sp", 2, {"--tp", "2", "--sequence_parallel"}},
      {"pp2", 2, {"--pp", "2"}},
      {"pp2_uneven", 2, {"--pp", "2", "--num-layer-list", "5,3"}},
      {"vpp2", 2, {"--pp", "2", "--vpp", "2"}},
      {"zero_bubble", 2, {"--pp", "2", "--pipeline-schedule", "zero-bubble"}},
      {"ulysses2", 2, {"--cp", "2"}},
      {"ring2", 2, {"--cp", "2", algorithm, "megatron_cp_algo"}},
      // Where nothing below is trained nothing is kept; a second stage gives gradients all the
      // same.
      {"frozen", 1, {"--freeze", "embed_tokens", R"(layers\.[0-2]\.)"}},
      {"frozen_pp2", 2, {"--pp", "2", "--freeze", "embed_tokens", R"(layers\.[0-1]\.)"}},
      {"tp2pp2_full", 4, {"--tp", "2", "--pp", "2", "--recompute", "full"}},
      {"pp2dp2_selective",
       4,
       {"--pp", "2", "--recompute", "selective", "--shard", "zero1", "--dtype", "bf16"}},
  };
}

TEST_P(PlannedMemory, IsWhatEachRankCountsInEveryCategory) {
  DANLU_SLOW_BUT_FOR("one_16_bits", "zero3", "tp2sp", "ring2", "frozen", "pp2dp2_selective");
  const Mesh& mesh = GetParam();
  std::vector<std::string> flags = mesh.flags;
  if (std::find(flags.begin(), flags.end(), "--dtype") == flags.end())
    flags.insert(flags.end(), {"--dtype", "fp32"});
  const std::vector<std::string> words = pretraining("run", flags);
  const ProgramResult result =
      mesh.processes == 1 ? run_words(words) : launch(mesh.processes, words);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("+ activations "));
  const Json ranks = Json::parse(content_of((*this) / "run" / "memory.json"))["ranks"];
  ASSERT_EQ(ranks.size(), static_cast<size_t>(mesh.processes));
  for (const Json& rank : ranks) {
    const Json &planned = rank["planned"], &counted = rank["counted"];
    const auto of = [](const Json& json, const char* key) { return json[key].get<double>(); };
    for (const char* key : {"weights", "gradients", "optimizer", "total"})
      EXPECT_NEAR(of(planned, key) / of(counted, key), 1, 0.1) << key << rank.dump(1);
    const double pass = of(planned, "activations") + of(planned, "working") +
                        of(planned, "communication") - of(planned, "gradients_to_come");
    EXPECT_NEAR(pass / of(counted, "pass"), 1, 0.1) << rank.dump(1);
    EXPECT_GE(of(counted, "pass"), 0.5 * of(counted, "total")) << rank.dump(1);
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, PlannedMemory, testing::ValuesIn(meshes()),
                         [](const auto& info) { return info.param.name; });

class PlanCheck : public PlannedMemory {};

TEST_F(PlanCheck, RefusesWhatWillNotFitBeforeWeightsAreRead) {
  // Passes of so many tokens that no machine of today holds them.
  std::vector<std::string> words =
      pretraining("run", {"--batch_size", "1000000", "--global_batch_size", "1000000"});
  const ProgramResult refused = run_words(words);
  EXPECT_EQ(refused.exit_code, 6) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("[train] a process will need "));
  EXPECT_THAT(refused.err, HasSubstr("--batch_size "));
  EXPECT_THAT(refused.err, HasSubstr("--no-plan-check starts it all the same"));
  EXPECT_FALSE(fs::exists((*this) / "run" / "memory.json"));
}

// Samples that are put together make other passes of other batches.
TEST_F(PlanCheck, WhatIsSaidToFitIsWhatThoseFlagsNeed) {
  std::vector<std::string> words =
      training("run", {"--tuner", "full", "--max_steps", "1", "--batch_size", "1000000",
                       "--gradient_accumulation_steps", "1"});
  const ProgramResult refused = run_words(words);
  ASSERT_EQ(refused.exit_code, 6) << refused.err;
  const size_t begin = refused.err.find("hint: ") + 6, end = refused.err.find(" fits, in ");
  ASSERT_NE(end, std::string::npos) << refused.err;
  std::istringstream flags(refused.err.substr(begin, end - begin));
  const size_t size = end + std::string(" fits, in ").size();
  const std::string bytes = refused.err.substr(size, refused.err.find(';', size) - size);
  words.insert(words.end(), std::istream_iterator<std::string>(flags), {});
  words.push_back("--dry_run");
  const ProgramResult fits = run_words(words);
  EXPECT_EQ(fits.exit_code, 0) << fits.err;
  EXPECT_THAT(fits.err, HasSubstr(" = " + bytes + ";"));
}

TEST_F(PlanCheck, ADryRunOfManyProcessesNeedsNoOtherAndSaysWhatEachStageHolds) {
  // Rank 0 of 16 on two machines: the others are not there.
  const ProgramResult dry = run_words(pretraining("run", {"--tp", "2", "--pp", "4", "--dry_run"}),
                                      {{"RANK", "0"},
                                       {"WORLD_SIZE", "16"},
                                       {"LOCAL_RANK", "0"},
                                       {"LOCAL_WORLD_SIZE", "8"},
                                       {"MASTER_ADDR", "127.0.0.1"},
                                       {"MASTER_PORT", "1"}});
  EXPECT_EQ(dry.exit_code, 0) << dry.err;
  EXPECT_THAT(dry.err, HasSubstr("planned for a rank of each stage:"));
  for (const char* stage : {"0     0-1 ", "1     2-3 ", "2     4-5 ", "3     6-7 "})
    EXPECT_THAT(dry.err, HasSubstr(stage));
}

}  // namespace
}  // namespace danlu::test
