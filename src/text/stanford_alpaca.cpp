#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "text/chat_mask.h"
#include "text/template_encoder.h"

namespace danlu::text {

namespace {

constexpr std::string_view kWithInput =
    "Below is an instruction that describes a task, paired with an input that provides further "
    "context. Write a "
    "response that appropriately completes the request.\n\n### Instruction:\n{instruction}\n\n### "
    "Input:\n{input}\n\n"
    "### Response:";
constexpr std::string_view kWithoutInput =
    "Below is an instruction that describes a task. Write a response that appropriately completes "
    "the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Response:";

std::string filled(std::string_view prompt, std::string_view placeholder, std::string_view value) {
  const size_t at = prompt.find(placeholder);
  return std::string(prompt.substr(0, at))
      .append(value)
      .append(prompt.substr(at + placeholder.size()));
}

class StanfordAlpacaEncoder final : public ChatEncoder {
 public:
  explicit StanfordAlpacaEncoder(std::shared_ptr<const Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)), eos_(tokenizer_->special_tokens().eos.value_or("")) {
    if (!tokenizer_->eos_id())
      throw ModelError(
          tr("template 'stanford_alpaca' ends answers with EOS, and this tokenizer names no EOS "
             "token"));
  }

  EncodedConversation encode(const Conversation& conversation) const override {
    const auto& messages = conversation.messages;
    if (messages.empty() || messages.back().role != "assistant") {
      throw DataError(tr("the conversation ends without an answer of the assistant"));
    }
    const std::string source = source_text(conversation, messages.size() - 1);
    EncodedConversation result;
    tokenizer_->encode_append(source + messages.back().content + eos_, true, result.ids);
    result.labels.assign(result.ids.size(), kIgnoreLabel);
    if (!messages.back().train) return result;
    for (size_t i = target_begin(source, result.ids); i < result.ids.size(); ++i)
      result.labels[i] = result.ids[i];
    return result;
  }

  std::vector<TokenId> encode_prompt(const Conversation& conversation) const override {
    return tokenizer_->encode(source_text(conversation, conversation.messages.size()), true);
  }

  std::string render(const Conversation& conversation, bool add_generation_prompt) const override {
    const auto& messages = conversation.messages;
    const bool answered = !messages.empty() && messages.back().role == "assistant";
    if (answered == add_generation_prompt) {
      throw DataError(answered ? tr("a prompt must not end with a message of the assistant")
                               : tr("the conversation ends without an answer of the assistant"));
    }
    std::string text = source_text(conversation, messages.size() - (answered ? 1 : 0));
    if (answered) text += messages.back().content + eos_;
    return text;
  }

  std::vector<TokenId> stop_ids() const override { return {*tokenizer_->eos_id()}; }
  std::string description() const override { return "stanford_alpaca"; }
  uint64_t content_hash() const override {
    return hash_bytes(kWithInput, hash_bytes(kWithoutInput));
  }

 private:
  /// The prompt of the one user message among the first `count`.
  std::string source_text(const Conversation& conversation, size_t count) const {
    const auto& messages = conversation.messages;
    if (count != 1 || messages[0].role != "user") {
      throw DataError(
          tr("template 'stanford_alpaca' is for one user message and one answer, without system "
             "text; use 'alpaca' for conversations"));
    }
    if (conversation.tools.is_array() && !conversation.tools.empty()) {
      throw DataError(tr("template 'stanford_alpaca' cannot write tools"));
    }
    const Message& user = messages[0];
    const auto instruction = json_get<std::string>(user.extra, "instruction");
    const auto input = json_get<std::string>(user.extra, "input");
    // The input goes in last: text of a row is never searched for placeholders.
    if (!input || input->empty())
      return filled(kWithoutInput, "{instruction}", instruction.value_or(user.content));
    const size_t cut = kWithInput.find("\n\n### Input:");
    return filled(kWithInput.substr(0, cut), "{instruction}", instruction.value_or(user.content)) +
           filled(kWithInput.substr(cut), "{input}", *input);
  }

  /// The first token that begins in the answer. Tokens may straddle the border: "### Response:" and
  /// the answer are one text; what they share is told by the ids of the source alone.
  size_t target_begin(const std::string& source, const std::vector<TokenId>& ids) const {
    const std::vector<TokenId> head = tokenizer_->encode(source, true);
    size_t same = 0;
    while (same < head.size() && same < ids.size() && head[same] == ids[same]) ++same;
    if (same == head.size()) return same;
    // Token `same` straddles the border; decoding tells whether the following ones begin after it.
    const std::string text = tokenizer_->decode(std::span(head).subspan(same), false);
    size_t end = same + 1;
    while (end < ids.size() &&
           tokenizer_->decode(std::span(ids).subspan(same, end - same), false).size() <
               text.size()) {
      ++end;
    }
    return end;
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string eos_;
};

}  // namespace

std::shared_ptr<const ChatEncoder> make_stanford_alpaca_encoder(
    std::shared_ptr<const Tokenizer> tokenizer) {
  return std::make_shared<StanfordAlpacaEncoder>(std::move(tokenizer));
}

}  // namespace danlu::text
