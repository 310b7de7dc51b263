// What a run that draws its own answers says it will need, beside what its ranks count: two
// rollouts and their steps.
#include <iterator>

#include "base/json.h"
#include "cli/launch.h"
#include "cli/random_model_dir.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;

struct Drawn {
  std::string name;
  int64_t processes;
  std::vector<std::string> flags;
  bool fills = true;  ///< a rollout takes more than a step's passes
};

void PrintTo(const Drawn& drawn, std::ostream* out) { *out << drawn.name; }

class PlannedRollout : public Launch, public testing::WithParamInterface<Drawn> {
 protected:
  void SetUp() override {
    DANLU_SLOW_BUT_FOR("grpo_zero3", "ppo_pp2");
    Launch::SetUp();
    Json config = Json::parse(content_of(good("model") / "config.json"));
    const auto vocab = config["vocab_size"];
    config.update(Json::parse(
        config_text({.layers = 8, .hidden = 256, .ffn = 512, .heads = 4, .kv_heads = 2})));
    config["vocab_size"] = vocab;
    write("config.json", config.dump());
    ok({"init", "--config", "config.json", "--tokenizer", good("tokenizer").string(), "--seed", "7",
        "--output", "policy"});
    std::string rows;
    for (int row = 0; row < 64; ++row)
      rows += Json{{"prompt", "question " + std::to_string(row)}}.dump() + "\n";
    write("rows.jsonl", rows);
  }
  std::vector<std::string> line(const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"rlhf",       "--model",
                                      "policy",     "--dataset",
                                      "rows.jsonl", "--reward_funcs",
                                      "repetition", "--output_dir",
                                      "run",        "--version_dir",
                                      "false",      "--top_k",
                                      "1",          "--max_steps",
                                      "2",          "--max_completion_length",
                                      "120",        "--global_batch_size",
                                      "64",         "--batch_size",
                                      "2",          "--dtype",
                                      "fp32",       "--tuner",
                                      "full",       "--val_ratio",
                                      "0",          "--save_strategy",
                                      "no"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

std::vector<Drawn> drawn() {
  const std::vector<std::string> grpo = {"--rlhf_type", "grpo", "--num_generations", "8"},
                                 ppo = {"--rlhf_type", "ppo", "--num_ppo_epochs", "1"};
  const auto with = [](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  return {{"grpo", 1, with(grpo, {"--beta", "0"})},
          {"grpo_reference", 1, grpo},
          {"grpo_parts", 1, with(grpo, {"--partial_rollout_max_split", "3"})},
          {"grpo_lora", 1, with(grpo, {"--tuner", "lora"})},
          {"grpo_bf16", 1, with(grpo, {"--dtype", "bf16"})},
          {"grpo_tp2", 2, with(grpo, {"--tp", "2"})},
          {"grpo_zero3", 2, with(grpo, {"--shard", "zero3"})},
          {"grpo_pp2", 2, with(grpo, {"--pp", "2"})},
          {"grpo_cp2", 2, with(grpo, {"--cp", "2"})},
          {"grpo_long_passes", 1, with(grpo, {"--batch_size", "32"}), /*fills=*/false},
          {"ppo", 1, ppo},
          {"ppo_pp2", 2, with(ppo, {"--pp", "2"})},
          {"ppo_zero3", 2, with(ppo, {"--shard", "zero3"})}};
}

TEST_P(PlannedRollout, IsWhatEachRankCounts) {
  const Drawn& drawn = GetParam();
  const ProgramResult result = drawn.processes == 1 ? run_words(line(drawn.flags))
                                                    : launch(drawn.processes, line(drawn.flags));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json ranks = Json::parse(content_of((*this) / "run" / "memory.json"))["ranks"];
  ASSERT_EQ(ranks.size(), static_cast<size_t>(drawn.processes));
  for (const Json& rank : ranks) {
    const Json &planned = rank["planned"], &counted = rank["counted"];
    const double total = planned["total"].get<double>();
    EXPECT_NEAR(total / counted["total"].get<double>(), 1, 0.1) << rank.dump(1);
    const double kept = planned["weights"].get<double>() + planned["gradients"].get<double>() +
                        planned["optimizer"].get<double>();
    EXPECT_EQ(total - kept <= planned["rollout"].get<double>(), drawn.fills) << rank.dump(1);
  }
}

INSTANTIATE_TEST_SUITE_P(Rollouts, PlannedRollout, testing::ValuesIn(drawn()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace danlu::test
