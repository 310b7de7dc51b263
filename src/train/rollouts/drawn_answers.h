// train/rollouts/drawn_answers.h: answers that a policy drew, between the ranks that drew them.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/batch.h"
#include "eval/rewards/reward.h"
#include "infer/generate.h"
#include "parallel/group.h"
#include "text/tokenizer.h"

namespace danlu::train {

/// One answer.
struct DrawnAnswer {
  int64_t place = 0;     ///< among all answers that the rollout drew, whichever rank drew them
  int64_t number = 0;    ///< of its prompt in the order of prompts
  int64_t rollouts = 1;  ///< that drew a part of it
  std::vector<int32_t> prompt;
  std::vector<int32_t> ids;  ///< with the token that ended it
  bool is_ended = false;     ///< by such a token or a stop word; false: cut at the limit
  std::vector<std::optional<double>> scores;  ///< of each reward
  // One number for each of `ids`, or empty.
  std::vector<float> old, reference;  ///< log-probabilities: the policy's, the reference's
  std::vector<float> values;          ///< what a critic expected before it
  // What a conversation with an environment has beside, whose ids are those of all turns.
  std::vector<uint8_t> is_drawn;         ///< of each of `ids`: by the policy; empty: all are
  int64_t turns = 1;                     ///< answers in it
  int64_t last_turn = 0;                 ///< where in `ids` the last answer begins
  std::optional<double> of_environment;  ///< the reward that the environment gave
  std::string talk;                      ///< JSON: its messages, and what the environment noted

  /// Tokens that the policy drew.
  int64_t num_drawn() const;
  bool has_drawn(size_t token) const { return is_drawn.empty() || is_drawn[token] != 0; }
};

/// With the token that ended it.
DrawnAnswer drawn_answer(const infer::Answer& found);

/// What rewards see of it, but for its row: of a conversation the last answer, and before it the
/// prompt and what was said since.
eval::Completion completion_of(const DrawnAnswer& answer, const text::Tokenizer& tokenizer);

/// Everybody's answers, in the order of their places. Collective.
std::vector<DrawnAnswer> answers_of_all(const parallel::Group& group,
                                        const std::vector<DrawnAnswer>& own);

/// What each of so many rules gave to each answer.
std::vector<std::vector<std::optional<double>>> scores_by_rule(
    const std::vector<DrawnAnswer>& answers, size_t rules);

/// Prompt and answer as one sample whose targets are the tokens that were drawn; none if is_masked.
/// It has the column of old log-probabilities (train/objectives/policy.h), if the answer has them.
data::Sample sample_of(const DrawnAnswer& answer, bool is_masked);

/// Puts a value for each token of the answer into a column, where the token is predicted.
void set_column(const DrawnAnswer& answer, const char* name, std::span<const double> values,
                data::Sample& sample);

}  // namespace danlu::train
