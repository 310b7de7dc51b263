// base/token_type.h: which text of a pair a token is of. BERT adds a row of a table for it to each
// token's embedding; batches carry it in the token's number.
#pragma once
#include <cstdint>

namespace danlu {

/// Added to the number of each token of a pair's second text, where the tokenizer's template says
/// so; above every vocabulary.
inline constexpr int32_t kSecondText = 1 << 30;

/// The token itself.
inline int64_t without_type(int64_t id) { return id >= kSecondText ? id - kSecondText : id; }

}  // namespace danlu
