// text/raw_encoder.h: a model without a chat template at a terminal: it completes what it is given.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "text/conversation.h"

namespace danlu::text {

/// The last message alone, as text to complete; earlier ones and the system's are left out.
class RawTextEncoder final : public ChatEncoder {
 public:
  explicit RawTextEncoder(std::shared_ptr<const Tokenizer> tokenizer);
  /// Errors: InternalError: nothing of it is an answer to learn.
  EncodedConversation encode(const Conversation& conversation) const override;
  std::vector<TokenId> encode_prompt(const Conversation& conversation) const override;
  std::string render(const Conversation& conversation, bool add_generation_prompt) const override;
  std::vector<TokenId> stop_ids() const override { return {}; }
  std::string description() const override;
  uint64_t content_hash() const override { return 0; }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
};

}  // namespace danlu::text
