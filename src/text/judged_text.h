// text/judged_text.h: texts of which a model's head says something.
#pragma once
#include <string>
#include <vector>

#include "text/conversation.h"
#include "text/tokenizer.h"

namespace danlu::text {

/// The ids at whose last a model judges: the conversation by the template, with its beginning of an
/// answer where it has none; without an encoder what messages say, but for the system's, as one
/// text with the tokenizer's special tokens. tokenizer: may be null beside an encoder. Errors:
/// DataError if the template cannot render it.
std::vector<TokenId> judged_ids(const Conversation& conversation, const Tokenizer* tokenizer,
                                const ChatEncoder* encoder);

}  // namespace danlu::text
