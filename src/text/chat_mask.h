// text/chat_mask.h: from byte ranges of a text to the tokens that hold them.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "text/chat_special.h"
#include "text/tokenizer.h"

namespace danlu::text {

/// Bytes [begin, end) of a text.
struct ByteSpan {
  size_t begin = 0;
  size_t end = 0;
};

/// labels[i] = ids[i] where token i holds text of one of `spans`, else kIgnoreLabel. So the first
/// target of a span is the token that holds its first byte, even if that token begins before the
/// span, as transformers' assistant mask has it: a template's "A: " and an answer's "Rome" may
/// share the token " Rome", and without it the answer's first word would never be learnt.
///
/// REQUIRES ids == tokenizer.encode(text, false); spans sorted and disjoint, at character
/// boundaries. The tokenizer has no offsets, so borders are found by exact means, cheapest first:
/// special tokens split the text (each occurrence in ids is one in text) and hold the blanks they
/// take along; between two of them the ids of the text up to the border are a prefix of the ids
/// there; where that fails, the nearest places on both sides where it holds have one token between
/// them, or the text of those between tells. Errors: DataError where that text is another one.
std::vector<TokenId> mask_labels(const Tokenizer& tokenizer, const SpecialIndex& special,
                                 std::string_view text, std::span<const TokenId> ids,
                                 std::span<const ByteSpan> spans);

}  // namespace danlu::text
