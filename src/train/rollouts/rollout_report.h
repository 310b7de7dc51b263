// train/rollouts/rollout_report.h: what a rollout shows of its answers and writes down.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "train/rollouts/drawn_answers.h"
#include "train/rollouts/rollout_settings.h"

namespace danlu::train {

/// Answers that were judged. scores: of each rule; rewards: their weighted sums
/// (train/rollouts/advantages.h).
struct JudgedAnswers {
  std::vector<DrawnAnswer> answers;
  std::vector<std::vector<std::optional<double>>> scores;
  std::vector<std::optional<double>> rewards;
};

class RolloutReport {
 public:
  /// All arguments outlive the object.
  RolloutReport(const RolloutParts& parts, const RolloutSettings& settings)
      : parts_(parts), settings_(settings) {}

  /// Rewards, how they spread in their groups, lengths, how many answers were cut. Warns once where
  /// no group has rewards that differ.
  std::map<std::string, double> figures_of(const JudgedAnswers& judged);
  /// The same of answers to held-out prompts, which no others are compared with.
  std::map<std::string, double> figures_of_held_out(const JudgedAnswers& judged) const;
  /// A line for each answer in settings.samples_file. step: that it is of. advantages: of each;
  /// empty: of answers to held-out prompts. What cannot be written is said once.
  void write(int64_t step, const JudgedAnswers& judged, const std::vector<double>& advantages);

 private:
  void note_rules(const JudgedAnswers& judged, std::map<std::string, double>& figures) const;

  const RolloutParts& parts_;
  const RolloutSettings& settings_;
  /// Warns once where an environment gave rewards that are none of the rewards.
  void warn_of_unread(const std::vector<DrawnAnswer>& answers);

  bool has_warned_of_equal_ = false, has_warned_of_samples_ = false, has_warned_of_unread_ = false;
};

/// What there is to show of answers that several rollouts drew. waiting: prompts that are left to
/// the next one.
std::map<std::string, double> figures_of_parts(const std::vector<DrawnAnswer>& answers,
                                               size_t waiting);

}  // namespace danlu::train
