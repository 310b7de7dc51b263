// train/rollouts/drawn_answers.h: answers that a policy drew, between the ranks that drew them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/batch.h"
#include "parallel/group.h"

namespace danlu::train {

/// One answer.
struct DrawnAnswer {
  std::vector<int32_t> prompt;
  std::vector<int32_t> ids;                   ///< with the token that ended it
  bool is_ended = false;                      ///< by such a token; false: cut at the limit
  std::vector<std::optional<double>> scores;  ///< of each reward
  std::vector<float> old;                     ///< log-probability of each of `ids`; or empty
};

/// Everybody's answers, in the order of ranks. Collective.
std::vector<DrawnAnswer> answers_of_all(const parallel::Group& group,
                                        const std::vector<DrawnAnswer>& own);

/// Prompt and answer as one sample whose targets are the answer's tokens; none if is_masked. Its
/// columns are those of train/objectives/policy.h.
data::Sample sample_of(const DrawnAnswer& answer, double advantage, bool is_masked);

}  // namespace danlu::train
