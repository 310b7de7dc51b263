// tests/support/byte_tokenizer.h: a tokenizer and a template that a test can read.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/conversation.h"
#include "text/tokenizer.h"

namespace danlu::test {

/// One id per byte; 0 is special.
class ByteTokenizer : public text::Tokenizer {
 public:
  void encode_append(std::string_view text, bool, std::vector<text::TokenId>& ids) const override {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  }
  std::string decode(std::span<const text::TokenId> ids, bool skip_special) const override {
    std::string text;
    for (const text::TokenId id : ids) {
      if (id != 0 || !skip_special) text += static_cast<char>(id);
    }
    return with_whole_characters(text);
  }
  size_t size() const override { return 256; }
  std::optional<text::TokenId> token_to_id(std::string_view) const override { return std::nullopt; }
  std::optional<std::string> id_to_token(text::TokenId id) const override {
    return std::string(1, static_cast<char>(id));
  }
  bool is_special(text::TokenId id) const override { return id == 0; }

 private:
  /// What is cut off in the midst is one U+FFFD.
  static std::string with_whole_characters(const std::string& text) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const auto lead = static_cast<unsigned char>(text[at]);
      const size_t wanted = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
      size_t size = 1;
      while (size < wanted && at + size < text.size() &&
             (static_cast<unsigned char>(text[at + size]) & 0xC0) == 0x80)
        ++size;
      const bool is_whole = size == wanted && (lead & 0xC0) != 0x80;
      out += is_whole ? text.substr(at, size) : "\xEF\xBF\xBD";
      at += size;
    }
    return out;
  }
};

/// "user:hi|assistant:"; tools stand before it as JSON. '|' ends an answer.
class PlainEncoder : public text::ChatEncoder {
 public:
  explicit PlainEncoder(std::string suffix = {}) : suffix_(std::move(suffix)) {}
  text::EncodedConversation encode(const text::Conversation& conversation) const override {
    const std::vector<text::TokenId> ids = ByteTokenizer().encode(render(conversation, false));
    return {.ids = ids, .labels = ids};
  }
  std::vector<text::TokenId> encode_prompt(const text::Conversation& conversation) const override {
    return ByteTokenizer().encode(render(conversation, true));
  }
  std::vector<text::TokenId> encode_pair(const text::Conversation& pair) const override {
    return ByteTokenizer().encode(render(pair, false));
  }
  std::string render(const text::Conversation& conversation,
                     bool add_generation_prompt) const override {
    std::string out = conversation.tools.is_null() ? "" : conversation.tools.dump() + "|";
    for (const text::Message& message : conversation.messages)
      out += message.role + ":" + message.content + "|";
    return out + (add_generation_prompt ? "assistant:" + suffix_ : "");
  }
  std::vector<text::TokenId> stop_ids() const override { return {'|'}; }
  std::string description() const override { return "plain"; }
  uint64_t content_hash() const override { return 0; }

 private:
  std::string suffix_;
};

}  // namespace danlu::test
