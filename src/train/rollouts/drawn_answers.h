// train/rollouts/drawn_answers.h: answers that a policy drew, between the ranks that drew them.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/batch.h"
#include "parallel/group.h"

namespace danlu::train {

/// One answer.
struct DrawnAnswer {
  int64_t place = 0;  ///< among all answers that the rollout drew, whichever rank drew them
  std::vector<int32_t> prompt;
  std::vector<int32_t> ids;                   ///< with the token that ended it
  bool is_ended = false;                      ///< by such a token; false: cut at the limit
  std::vector<std::optional<double>> scores;  ///< of each reward
  // One number for each of `ids`, or empty.
  std::vector<float> old, reference;  ///< log-probabilities: the policy's, the reference's
  std::vector<float> values;          ///< what a critic expected before it
};

/// Everybody's answers, in the order of their places. Collective.
std::vector<DrawnAnswer> answers_of_all(const parallel::Group& group,
                                        const std::vector<DrawnAnswer>& own);

/// Prompt and answer as one sample whose targets are the answer's tokens; none if is_masked. It has
/// the column of old log-probabilities (train/objectives/policy.h), if the answer has them.
data::Sample sample_of(const DrawnAnswer& answer, bool is_masked);

/// Puts a value for each token of the answer into a column, where the token is predicted.
void set_column(const DrawnAnswer& answer, const char* name, std::span<const double> values,
                data::Sample& sample);

}  // namespace danlu::train
