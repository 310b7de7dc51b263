#include "text/judged_text.h"

namespace danlu::text {

std::vector<TokenId> judged_ids(const Conversation& conversation, const Tokenizer* tokenizer,
                                const ChatEncoder* encoder) {
  if (!encoder) {
    std::string all;
    for (const Message& message : conversation.messages)
      if (message.role != "system") all += message.content;
    return tokenizer->encode(all, /*add_special=*/true);
  }
  const bool is_answered =
      !conversation.messages.empty() && conversation.messages.back().role == "assistant";
  return is_answered ? encoder->encode_ids(conversation) : encoder->encode_prompt(conversation);
}

}  // namespace danlu::text
