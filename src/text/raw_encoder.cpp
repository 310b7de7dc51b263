#include "text/raw_encoder.h"

#include <utility>

#include "base/error.h"

namespace danlu::text {

RawTextEncoder::RawTextEncoder(std::shared_ptr<const Tokenizer> tokenizer)
    : tokenizer_(std::move(tokenizer)) {}

EncodedConversation RawTextEncoder::encode(const Conversation&) const {
  throw InternalError("[template] text that is completed has no answers to learn");
}

std::vector<TokenId> RawTextEncoder::encode_prompt(const Conversation& conversation) const {
  return tokenizer_->encode(render(conversation, true));
}

std::string RawTextEncoder::render(const Conversation& conversation, bool) const {
  return conversation.messages.empty() ? "" : conversation.messages.back().content;
}

std::string RawTextEncoder::description() const { return tr("none (each line is completed)"); }

}  // namespace danlu::text
