// train/rollouts/answer_judge.h: has drawn answers judged by the rewards of a run.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/rollouts/drawn_answers.h"
#include "train/rollouts/rollout_journal.h"
#include "train/rollouts/rollout_settings.h"

namespace danlu::train {

class AnswerJudge {
 public:
  /// All arguments outlive the object.
  AnswerJudge(const RolloutParts& parts, const RolloutSettings& settings, RolloutJournal& journal)
      : parts_(parts), settings_(settings), journal_(journal) {}

  /// Gives this rank's answers of a round their scores, which its journal may have already. Errors:
  /// as the rewards. Collective over all ranks.
  void judge(int64_t round, std::vector<DrawnAnswer>& answers);
  /// The same of answers that no journal has. columns: of each answer's row, JSON or empty.
  void find_scores(const std::vector<std::string>& columns,
                   std::vector<DrawnAnswer>& answers) const;
  /// Warns where nothing judged any of a rollout's answers. rewards: of all of them. Errors:
  /// DataError where no answer was judged since the run began or went on.
  void require_judged(const std::vector<std::optional<double>>& rewards);

 private:
  const RolloutParts& parts_;
  const RolloutSettings& settings_;
  RolloutJournal& journal_;
  bool has_judged_ = false;  ///< an answer of this process's rollouts
};

}  // namespace danlu::train
