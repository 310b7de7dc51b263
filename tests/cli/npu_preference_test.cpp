// Preferences, rewards and policies with --device npu on the simulated NPU: the CPU's numbers.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "cli/preference_lines.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

using ::testing::HasSubstr;

class NpuPreferences : public PreferenceLines {
 protected:
  using Words = std::vector<std::string>;

  ProgramResult run_on(const std::string& device, Words words, int64_t ranks = 1) const {
    words.insert(words.end(), {"--device", device, "--adam_epsilon", "1e-6"});
    if (ranks > 1)
      words.insert(words.begin(), {"launch", "--nproc_per_node=" + std::to_string(ranks)});
    ProgramSettings settings;
    settings.environment = {{"XDG_CACHE_HOME", (*this) / "cache"}, {"OMP_NUM_THREADS", "1"}};
    if (device == "npu") {
      settings.environment["DANLU_NPU_LIBRARY"] = DANLU_BUILD_DIR "/npu_sim/current";
      settings.environment["NPU_SIM_DELAY_US"] = "50";
    }
    settings.directory = (*this) / "";
    return run_danlu(words, settings);
  }

  /// Every figure of every step, of `more` words on `ranks` cards too.
  void expect_same(const Words& begin, const std::string& data, const Words& own,
                   const Words& more = {}, int64_t ranks = 1) {
    const std::string name = "run" + std::to_string(runs_++);
    Words both = {"--val_ratio", "0", "--max_steps", "6", "--save_strategy", "no"};
    both.insert(both.end(), own.begin(), own.end());
    const ProgramResult cpu = run_on("cpu", line(begin, data, name + "_cpu", both));
    both.insert(both.end(), more.begin(), more.end());
    const ProgramResult npu = run_on("npu", line(begin, data, name + "_npu", both), ranks);
    ASSERT_EQ(cpu.exit_code, 0) << cpu.err;
    ASSERT_EQ(npu.exit_code, 0) << npu.err;
    EXPECT_THAT(npu.err, HasSubstr("NPU SIMULATOR"));
    expect_same_figures(steps_of((*this) / (name + "_cpu")), steps_of((*this) / (name + "_npu")));
  }

 private:
  static void expect_same_figures(const std::vector<Json>& cpu, const std::vector<Json>& npu) {
    ASSERT_EQ(cpu.size(), 6u);
    ASSERT_EQ(npu.size(), 6u);
    int64_t compared = 0;
    for (size_t i = 0; i < 6; ++i) {
      for (const auto& [name, value] : cpu[i].items()) {
        const bool is_figure = name == "loss" || name == "grad_norm" || name == "entropy" ||
                               name == "acc" || name == "accuracy" || name == "kl" ||
                               name == "reward" || name == "divergence" || name == "sft_loss" ||
                               name.find('/') != name.npos;
        const bool is_time = name.find("speed") != name.npos || name.starts_with("time/");
        if (!is_figure || !value.is_number() || is_time) continue;
        const double wanted = value, found = npu[i].value(name, std::nan(""));
        EXPECT_NEAR(found, wanted, 1e-5 * std::max(1.0, std::abs(wanted))) << name << " of " << i;
        ++compared;
      }
    }
    EXPECT_GE(compared, 12);
  }
  int runs_ = 0;
};

TEST_F(NpuPreferences, PairsOfAnswersTeachAsOnTheCpu) {
  for (const char* tuner : {"full", "lora"}) {
    if (!is_slow() && tuner == std::string("full")) continue;
    SCOPED_TRACE(tuner);
    expect_same({"rlhf", "--rlhf_type", "dpo"}, "pairs.jsonl",
                {"--tuner", tuner, "--rpo_alpha", "0.3"});
  }
  for (const std::string type : {"simpo", "cpo", "orpo"}) {
    if (!is_slow() && type == "cpo") continue;
    SCOPED_TRACE(type);
    expect_same({"rlhf", "--rlhf_type", type}, "pairs.jsonl", {"--tuner", "full"});
  }
}

TEST_F(NpuPreferences, LikedAnswersAndRewardModelsTeachAsOnTheCpu) {
  expect_same({"rlhf", "--rlhf_type", "kto"}, "answers.jsonl", {"--tuner", "lora"});
  for (const char* tuner : {"full", "lora"}) {
    if (!is_slow() && tuner == std::string("lora")) continue;
    expect_same({"rlhf", "--rlhf_type", "rm"}, "pairs.jsonl", {"--tuner", tuner});
  }
}

TEST_F(NpuPreferences, StepsAreJudgedAsOnTheCpu) {
  std::string rows;
  for (int i = 0; i < 12; ++i) {
    const std::string number = std::to_string(i), next = std::to_string(i + 1);
    rows += Json{{"input", "what is " + number + "? It is " + number + "#no it is " + next + "#"},
                 {"value", {"+", "-"}}}
                .dump() +
            "\n";
  }
  write("steps.jsonl", rows);
  const Words labels = {"--placeholder-token", "#", "--reward-tokens", "+", "-"};
  Words classes = labels;
  classes.insert(classes.end(), {"--step-head", "class"});
  expect_same({"posttrain", "--stage", "prm"}, "steps.jsonl", labels);
  expect_same({"posttrain", "--stage", "prm"}, "steps.jsonl", classes);
}

TEST_F(NpuPreferences, DrawnAnswersTeachAsOnTheCpu) {
  ASSERT_EQ(
      run_on("cpu", line({"rlhf", "--rlhf_type", "rm", "--tuner", "full"}, "pairs.jsonl", "judge"))
          .exit_code,
      0);
  const Words drawing = {"--reward_model", "judge", "--max_completion_length", "6"};
  for (const char* tuner : {"full", "lora"}) {
    if (!is_slow() && tuner == std::string("full")) continue;
    SCOPED_TRACE(tuner);
    Words grpo = drawing, ppo = drawing;
    grpo.insert(grpo.end(), {"--tuner", tuner, "--num_generations", "2", "--beta", "0.1",
                             "--num_iterations", "2"});
    expect_same({"rlhf", "--rlhf_type", "grpo"}, "pairs.jsonl", grpo);
    ppo.insert(ppo.end(), {"--tuner", tuner, "--num_ppo_epochs", "2", "--kl_coef", "0.1"});
    expect_same({"rlhf", "--rlhf_type", "ppo"}, "pairs.jsonl", ppo);
  }
}

/// A teacher twice as wide, with more tokens: its rows, and answers of the model's own.
TEST_F(NpuPreferences, TeachersAreFollowedAsOnTheCpu) {
  std::string rows;
  for (int i = 0; i < 12; ++i)
    rows += Json{{"query", "question " + std::to_string(i)},
                 {"response", "answer " + std::to_string(i * 7)}}
                .dump() +
            "\n";
  write("rows.jsonl", rows);
  Json config = Json::parse(std::ifstream(good("model") / "config.json"));
  config.update({{"hidden_size", 64},
                 {"initializer_range", 0.2},
                 {"vocab_size", config["vocab_size"].get<int64_t>() + 7}});
  write("teacher.json", config.dump());
  ok({"init", "--config", "teacher.json", "--output", "teacher", "--tokenizer",
      good("tokenizer").string(), "--seed", "11"});
  const Words gkd = {"rlhf", "--rlhf_type", "gkd", "--teacher_model", "teacher"};
  const Words of_rows = {"--lmbda", "0", "--tuner", "full"};
  const auto with = [](Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  expect_same(gkd, "rows.jsonl", with(of_rows, {"--beta", "0", "--sft_alpha", "0.1"}));
  expect_same(gkd, "rows.jsonl",
              {"--lmbda", "0.5", "--tuner", "lora", "--max_completion_length", "6"});
  expect_same(gkd, "rows.jsonl", with(of_rows, {"--beta", "1"}),
              {"--tp", "2", "--sequence-parallel"}, 2);
  if (std::getenv("DANLU_SLOW")) {
    const std::vector<Words> meshes = {{}, {"--pp", "2"}, {"--deepspeed", "zero3"}, {"--cp", "2"}};
    for (const Words& mesh : meshes) expect_same(gkd, "rows.jsonl", of_rows, mesh, 2);
  }
  const ProgramResult refused =
      run_on("npu", line(gkd, "rows.jsonl", "few", with(of_rows, {"--gkd_logits_topk", "4"})));
  expect_error(refused, 5, {"--device npu:0", "--gkd_logits_topk", "all tokens"});
}

TEST_F(NpuPreferences, SeveralCardsTeachAsOneCpu) {
  const Words dpo = {"rlhf", "--rlhf_type", "dpo"}, full = {"--tuner", "full"};
  std::vector<Words> meshes = {{"--tp", "2", "--sequence-parallel"}};
  if (is_slow())
    meshes.insert(meshes.end(), {{}, {"--pp", "2"}, {"--deepspeed", "zero3"}, {"--cp", "2"}});
  for (const Words& mesh : meshes) {
    SCOPED_TRACE(mesh.empty() ? "dp" : mesh[0]);
    expect_same(dpo, "pairs.jsonl", full, mesh, 2);
  }
  if (!is_slow()) return;
  expect_same({"rlhf", "--rlhf_type", "rm"}, "pairs.jsonl", full,
              {"--tp", "2", "--sequence-parallel"}, 2);
}

}  // namespace
}  // namespace danlu::test
