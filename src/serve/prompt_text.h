// serve/prompt_text.h: what a conversation or a text is as a prompt.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "api/chat_request.h"
#include "text/conversation.h"
#include "text/tokenizer.h"

namespace danlu::serve {

/// The ids of a conversation that an answer begins behind, which may follow another answer. Errors:
/// DataError of the encoder.
std::vector<text::TokenId> prompt_ids(const text::Tokenizer& tokenizer,
                                      const text::ChatEncoder& encoder,
                                      const text::Conversation& conversation);

/// The text of a prompt that ends so. White space at the end of a message that goes on stays,
/// unless the template trims messages. Errors: DataError of the encoder; Refusal where it does not
/// show the message that is to go on.
std::string rendered(const text::ChatEncoder& encoder, const text::Conversation& conversation,
                     api::PromptEnd end);

/// The beginning of a text in at most so many tokens, of which those that the tokenizer adds around
/// texts all stay; as many as these are there at least.
std::vector<text::TokenId> beginning_of(const text::Tokenizer& tokenizer, const std::string& text,
                                        int64_t most);

/// A text without its last tokens; "" where it has no more.
std::string without_last_tokens(const text::Tokenizer& tokenizer, const std::string& text,
                                int64_t count);

}  // namespace danlu::serve
