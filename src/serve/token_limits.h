// serve/token_limits.h: constraints of an answer's tokens beside grammars.
#pragma once
#include <memory>
#include <vector>

#include "api/reasoning.h"
#include "text/token_constraint.h"
#include "text/tokenizer.h"

namespace danlu::serve {

/// Only these ids may come. They are the request's choice, not a form: log-probabilities are the
/// model's own.
std::shared_ptr<text::TokenConstraint> allowed_ids(const std::vector<text::TokenId>& ids);

/// `form` behind the thought that an answer begins with: until </think> all tokens may come. Where
/// a thought may open, <think> may come in place of the form's beginning. `form` itself where
/// nothing is thought, or a thought may open and the vocabulary has no token for it.
std::shared_ptr<text::TokenConstraint> behind_thought(
    std::shared_ptr<text::TokenConstraint> form, api::Thought thought,
    const std::shared_ptr<const text::Tokenizer>& tokenizer);

}  // namespace danlu::serve
