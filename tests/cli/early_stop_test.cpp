// A run that ends because its loss gets no better.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

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

// With ms-swift's defaults checkpoints are counted: those with no better evaluation since the last.
TEST_F(EarlyStop, CountsCheckpointsInLinesOfMsSwift) {
  const ProgramResult result =
      ok(rising("run", {"--profile", "swift3", "--early_stop_interval", "2", "--save_steps", "6"}));
  EXPECT_THAT(result.err, HasSubstr("2 checkpoints in a row, and no better evaluation"));
  const std::vector<double> losses = evaluations("run");
  // Three evaluations to a checkpoint.
  double lowest = INFINITY, lowest_when_saved = INFINITY;
  size_t count = 0, evaluated = 0;
  for (; evaluated < losses.size() && count < 2; ++evaluated) {
    lowest = std::min(lowest, losses[evaluated]);
    if ((evaluated + 1) % 3 != 0) continue;
    count = lowest < lowest_when_saved ? 0 : count + 1;
    lowest_when_saved = lowest;
  }
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(evaluated, losses.size());
}

// The best is not lost, and no disk fills with what was the best before it.
TEST_F(EarlyStop, CheckpointsAreThoseThatTheLineAsksForAndTheBest) {
  const auto kept = [&](const std::string& to, const std::vector<std::string>& more) {
    std::vector<std::string> line =
        rising(to, {"--save_steps", "14", "--max_steps", "16", "--save_total_limit", "0"});
    line.insert(line.end(), more.begin(), more.end());
    ok(line);
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(*this / to)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("checkpoint-")) names.insert(name);
    }
    return names;
  };
  const auto best_of = [&](const std::string& run) {
    return fs::read_symlink(*this / run / "best").string();
  };
  /// Step of the evaluation that found the least, each second step from the second on.
  const auto lowest = [&](const std::string& run, size_t first = 0) {
    const std::vector<double> losses = evaluations(run);
    const auto begin = losses.begin() + static_cast<std::ptrdiff_t>(first);
    const auto at = std::min_element(begin, losses.end()) - losses.begin();
    return "checkpoint-" + std::to_string(2 * (at + 1));
  };
  using Names = std::set<std::string>;
  const Names asked = {"checkpoint-14", "checkpoint-16"};
  const auto with = [&](const std::string& name) {
    Names names = asked;
    names.insert(name);
    return names;
  };
  const Names own = kept("own", {});
  EXPECT_EQ(own, with(lowest("own")));
  EXPECT_NE(lowest("own"), "checkpoint-2") << "something was the best before";
  EXPECT_EQ(best_of("own"), lowest("own"));
  // Elsewhere the best is one of those that the line asks for.
  const std::vector<std::string> theirs = {"--profile", "llamafactory", "--eval_strategy", "steps"};
  EXPECT_EQ(kept("theirs", theirs), asked);
  EXPECT_EQ(best_of("theirs"), lowest("theirs", 6));
  std::vector<std::string> loaded = theirs;
  loaded.insert(loaded.end(), {"--load_best_model_at_end", "true"});
  const Names of_loaded = kept("loaded", loaded);
  EXPECT_EQ(of_loaded, with(lowest("loaded")));
}

// LLaMA-Factory's do_eval alone: the finished model is evaluated.
TEST_F(EarlyStop, DoEvalAloneEvaluatesOnce) {
  ok(rising("run", {"--profile", "llamafactory", "--do_eval", "true", "--max_steps", "4"}));
  EXPECT_EQ(evaluations("run").size(), 1u);
}

/// The directories of checkpoints that are complete.
std::set<std::string> checkpoints_in(const fs::path& run) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(run)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("checkpoint-") && fs::exists(entry.path() / "DONE")) names.insert(name);
  }
  return names;
}

// 0.05 of 40 steps are 2. Only evaluations that find something better are followed by a checkpoint.
TEST_F(EarlyStop, TheBestAloneIsSaved) {
  ok(rising("run", {"--save_strategy", "best", "--eval_steps", "0.05", "--save_total_limit", "0",
                    "--early_stop_interval", "3"}));
  const std::vector<double> losses = evaluations("run");
  std::set<std::string> wanted;
  double best = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < losses.size(); ++i) {
    if (losses[i] < best) wanted.insert("checkpoint-" + std::to_string(2 * (i + 1)));
    best = std::min(best, losses[i]);
  }
  EXPECT_EQ(checkpoints_in(*this / "run"), wanted);
  EXPECT_LT(wanted.size(), losses.size());
  EXPECT_TRUE(fs::exists(*this / "run" / "model.safetensors"));
}

TEST_F(EarlyStop, AnotherFigureSaysWhichIsBest) {
  const std::vector<std::string> by_accuracy = {
      "--metric_for_best_model", "eval_token_acc", "--max_steps", "12", "--save_total_limit", "0"};
  const ProgramResult result = ok(rising("run", by_accuracy));
  std::vector<double> figures;
  std::ifstream file(*this / "run" / "logging.jsonl");
  for (std::string text; std::getline(file, text);) {
    const Json record = Json::parse(text);
    if (record.contains("eval_token_acc")) figures.push_back(record["eval_token_acc"]);
  }
  ASSERT_EQ(figures.size(), 6u);
  const auto best = std::max_element(figures.begin(), figures.end());
  const std::string name = "checkpoint-" + std::to_string(2 * (best - figures.begin() + 1));
  EXPECT_EQ(fs::read_symlink(*this / "run" / "best"), fs::path(name));
  EXPECT_THAT(result.err, HasSubstr("eval token_acc"));
  std::ifstream state(*this / "run" / name / "trainer_state.json");
  EXPECT_NEAR(Json::parse(state).at("best_metric").get<double>(), *best, 1e-6);
  std::vector<std::string> unknown = by_accuracy;
  unknown[1] = "rouge-l";
  expect_error(
      run(rising("other", unknown)), 2,
      {"--metric_for_best_model rouge-l: evaluations have no such figure", "loss, token_acc"});
}

TEST_F(EarlyStop, NeedsSomethingHeldOut) {
  expect_error(run(rising("run", {"--early_stop_interval", "3", "--val_ratio", "0"})), 2,
               {"--early_stop_interval 3: nothing is held out"});
}

}  // namespace
}  // namespace danlu::test
