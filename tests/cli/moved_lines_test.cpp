// What runs of other systems' lines measure from and count, as a user sees it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cli/preference_lines.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class MovedLines : public PreferenceLines {
 protected:
  /// As if the run had been killed behind its checkpoint before `step`.
  void forget(const std::string& run, const std::string& checkpoint) {
    fs::remove_all(*this / run / checkpoint);
    fs::remove_all(*this / run / "critic" / checkpoint);
    fs::remove(*this / run / "DONE");
  }
};

TEST_F(MovedLines, AdaptersThatGoOnAreMeasuredAsTheirSystemMeasures) {
  ok(line({"rlhf", "--tuner_type", "lora"}, "pairs.jsonl", "first", {"--lr", "5e-2"}));
  const auto dpo = [&](const std::string& to, std::vector<std::string> more) {
    more.insert(more.end(), {"--adapters", "first"});
    return ok(line({"rlhf", "--tuner_type", "lora"}, "pairs.jsonl", to, more)).err;
  };
  const auto begins_at = [&](const std::string& run) {
    return steps_of(*this / run)[0].at("loss").get<double>();
  };
  EXPECT_THAT(dpo("base", {}), HasSubstr("reference: the model without the adapters first, as in "
                                         "lines of swift3; --ref_adapters first takes them in"));
  EXPECT_GT(std::fabs(begins_at("base") - std::log(2.0)), 1e-3);
  dpo("named", {"--ref_model", good("model").string()});
  expect_same_losses(*this / "named", *this / "base", 4);
  EXPECT_THAT(dpo("with", {"--ref_adapters", "first"}),
              HasSubstr("reference: the model with the adapters first as they are; --ref_model"));
  EXPECT_NEAR(begins_at("with"), std::log(2.0), 1e-5);
  EXPECT_THAT(dpo("ours", {"--profile", "danlu"}), HasSubstr("the model with the adapters first"));
  EXPECT_NEAR(begins_at("ours"), std::log(2.0), 1e-5);
  // A run of an earlier version says nothing of it, as one with --ref_adapters.
  const Json last = steps_of(*this / "with").back();
  forget("with", "checkpoint-4");
  EXPECT_THAT(dpo("with", {}), HasSubstr("this run began with its adapters in the reference"));
  EXPECT_EQ(steps_of(*this / "with").back().at("loss"), last.at("loss"));
}

TEST_F(MovedLines, LlamaFactorysPpoCountsRolloutsAndMovesItsWeight) {
  write("ppo.yaml",
        "stage: ppo\ndo_train: true\nfinetuning_type: lora\nppo_epochs: 2\nppo_target: 0.01\n"
        "reward_funcs: repetition\nmax_new_tokens: 4\n");
  const auto ppo = [&] {
    return ok(line({"train", "ppo.yaml"}, "pairs.jsonl", "run",
                   {"--lr", "1e-2", "--lr_scheduler", "constant"}))
        .err;
  };
  EXPECT_THAT(ppo(),
              HasSubstr("--max_steps, --save_steps, --logging_steps and --warmup_steps count "
                        "rollouts, as there, and steps below are updates, 2 to a rollout"));
  EXPECT_TRUE(fs::exists(*this / "run/checkpoint-8")) << "four rollouts of two updates";
  EXPECT_TRUE(fs::exists(*this / "run/checkpoint-4"));
  const auto rollouts = [&] {
    std::vector<Json> found = steps_of(*this / "run");
    std::erase_if(found, [](const Json& step) { return !step.contains("objective/kl_coef"); });
    return found;
  };
  const std::vector<Json> seen = rollouts();
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_EQ(seen[0].at("objective/kl_coef"), 0.2);
  for (size_t i = 0; i + 1 < seen.size(); ++i) {
    const double error = std::clamp(seen[i].at("objective/kl").get<double>() / 0.01 - 1, -0.2, 0.2);
    const double next = seen[i].at("objective/kl_coef").get<double>() * (1 + error * 4 / 10000);
    EXPECT_NEAR(seen[i + 1].at("objective/kl_coef").get<double>(), next, 1e-8) << i;
    EXPECT_GT(std::fabs(next - seen[i].at("objective/kl_coef").get<double>()), 1e-6) << i;
  }
  // The weight is among what a checkpoint holds.
  forget("run", "checkpoint-8");
  EXPECT_THAT(ppo(), HasSubstr("checkpoint-4"));
  for (const char* name : {"objective/kl_coef", "objective/kl", "loss/value_avg"})
    EXPECT_EQ(rollouts().back().at(name), seen.back().at(name)) << name;
}

}  // namespace
}  // namespace danlu::test
