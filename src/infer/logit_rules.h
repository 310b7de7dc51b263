// infer/logit_rules.h: what a request asks of its answer's tokens beside how they are drawn.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "text/token_constraint.h"
#include "text/tokenizer.h"

namespace danlu::infer {

struct LogitRules {
  std::vector<std::pair<text::TokenId, float>> bias;  ///< added to the logits of these
  double presence_penalty = 0;   ///< taken from the logits of tokens that the answer has
  double frequency_penalty = 0;  ///< the same for each time that it has them
  int64_t min_new_tokens = 0;    ///< no stop id comes before so many tokens, where others may
  std::shared_ptr<text::TokenConstraint> constraint;  ///< of this answer alone

  bool is_empty() const {
    return bias.empty() && presence_penalty == 0 && frequency_penalty == 0 && min_new_tokens == 0 &&
           !constraint;
  }
};

/// Changes the logits of the token that follows `answer`; what may not come becomes -inf. False: no
/// token may come. Logits that are no numbers stay so.
bool apply_rules(std::span<float> logits_V, const LogitRules& rules,
                 std::span<const text::TokenId> answer, std::span<const text::TokenId> stop_ids);

/// Leaves the logits of what the answer's form allows, if it has one; the others become -inf.
void keep_form(std::span<float> logits_V, const LogitRules& rules);

/// Errors: DataError naming an id outside a vocabulary of so many, UsageError naming a penalty that
/// is no finite number.
void check_rules(const LogitRules& rules, int64_t vocabulary);

}  // namespace danlu::infer
