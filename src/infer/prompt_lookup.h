// infer/prompt_lookup.h: guesses at the tokens that follow a text, from what it said before.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace danlu::infer {

struct PromptLookup {
  int64_t num_tokens = 0;             ///< guessed at a time; 0: none
  int64_t shortest = 2, longest = 4;  ///< of a text's end that is looked for before it
};

/// The tokens, at most `most`, that followed the latest earlier place where the text's end stands,
/// as long an end as there is one; empty: there is none.
std::vector<text::TokenId> looked_up(std::span<const text::TokenId> text, const PromptLookup& how,
                                     int64_t most);

}  // namespace danlu::infer
