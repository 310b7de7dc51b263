// infer/end_ids.h: the tokens that end an answer, for every verb that asks a model.
#pragma once
#include <vector>

#include "text/conversation.h"
#include "text/tokenizer.h"

namespace danlu::infer {

/// The ids that a model's files name (GenerationDefaults::stop_ids), the tokenizer's own end, and
/// those of the template that asks (nullptr: none does). Ascending, each once.
std::vector<text::TokenId> end_ids(std::vector<text::TokenId> of_files,
                                   const text::Tokenizer& tokenizer,
                                   const text::ChatEncoder* encoder);

}  // namespace danlu::infer
