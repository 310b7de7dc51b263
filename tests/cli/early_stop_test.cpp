// A run that ends because its loss gets no better.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/preference_lines.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class EarlyStop : public PreferenceLines {
 protected:
  /// A rate so large that the held-out loss rises from some step on.
  std::vector<std::string> rising(const std::string& to,
                                  const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words =
        line({"sft"}, good("good.jsonl").string(), to,
             {"--tuner", "full", "--lr", "0.05", "--lr_scheduler", "constant", "--max_steps", "40",
              "--eval_steps", "2", "--save_steps", "2"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::vector<double> evaluations(const std::string& run) const {
    std::vector<double> losses;
    std::ifstream file(*this / run / "logging.jsonl");
    for (std::string text; std::getline(file, text);) {
      const Json record = Json::parse(text);
      if (record.contains("eval_loss")) losses.push_back(record["eval_loss"]);
    }
    return losses;
  }
};

TEST_F(EarlyStop, AfterSoManyEvaluationsWithoutABetterOne) {
  const ProgramResult result = ok(rising("run", {"--early_stop_interval", "3"}));
  EXPECT_THAT(result.err, HasSubstr("stopped early after step"));
  const std::vector<double> losses = evaluations("run");
  ASSERT_LT(losses.size(), 20u) << "40 steps have 20";
  // The last three found nothing better, and the three before any other evaluation did not.
  const auto best = std::min_element(losses.begin(), losses.end());
  EXPECT_EQ(losses.end() - best, 4);
  const auto steps = steps_of(*this / "run");
  const std::string last = "checkpoint-" + std::to_string(2 * losses.size());
  EXPECT_TRUE(fs::exists(*this / "run" / last / "DONE"));
  EXPECT_TRUE(fs::exists(*this / "run" / "model.safetensors"));
  EXPECT_EQ(fs::read_symlink(*this / "run" / "last"), fs::path(last));
  // It is complete, and a larger number goes on with it.
  EXPECT_THAT(ok(rising("run", {"--early_stop_interval", "3"})).err,
              HasSubstr("this run is complete: --early_stop_interval 3 ended it"));
  EXPECT_THAT(ok(rising("run", {"--early_stop_interval", "4"})).err, HasSubstr("resuming from"));
  EXPECT_EQ(evaluations("run").size(), losses.size() + 1);
}

// A run that is broken off before its end counts on.
TEST_F(EarlyStop, CountsOnInARunThatGoesOn) {
  ok(rising("once", {"--early_stop_interval", "3"}));
  ok(rising("twice", {"--early_stop_interval", "3"}));
  const std::string last = "checkpoint-" + std::to_string(2 * evaluations("once").size());
  fs::remove_all(*this / "twice" / last);
  fs::remove(*this / "twice" / "DONE");
  EXPECT_THAT(ok(rising("twice", {"--early_stop_interval", "3"})).err,
              HasSubstr("stopped early after step"));
  EXPECT_EQ(evaluations("twice"), evaluations("once"));
}

TEST_F(EarlyStop, NeedsSomethingHeldOut) {
  expect_error(run(rising("run", {"--early_stop_interval", "3", "--val_ratio", "0"})), 2,
               {"--early_stop_interval 3: nothing is held out"});
}

}  // namespace
}  // namespace danlu::test
