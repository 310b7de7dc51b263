// tests/text/fake_tokenizer.h: a tokenizer small enough to think through: one id per byte, and
// words and special tokens as given.
#pragma once
#include <algorithm>

#include "base/error.h"
#include "text/tokenizer.h"

namespace danlu::text {

/// Ids 0..255 are bytes; then `special` tokens, then `merges` (matched greedily, longest first,
/// never across a special token).
class FakeTokenizer : public Tokenizer {
 public:
  FakeTokenizer(std::vector<std::string> special, std::vector<std::string> merges,
                std::string chat_template = "", std::string eos = "")
      : specials_(std::move(special)), merges_(std::move(merges)) {
    chat_template_ = std::move(chat_template);
    if (!eos.empty()) special_.eos = eos;
  }
  void set_tool_template(std::string text) { tool_template_ = std::move(text); }
  void set_bos(std::string bos) { special_.bos = std::move(bos); }

  void encode_append(std::string_view text, bool, std::vector<TokenId>& ids) const override {
    while (!text.empty()) {
      size_t length = 1;
      TokenId id = static_cast<unsigned char>(text[0]);
      match(specials_, 256, text, length, id);
      const size_t limit = next_special(text);
      if (length == 1) match(merges_, 256 + specials_.size(), text.substr(0, limit), length, id);
      ids.push_back(id);
      text.remove_prefix(length);
    }
  }
  std::string decode(std::span<const TokenId> ids, bool) const override {
    std::string text;
    for (const TokenId id : ids) text += *id_to_token(id);
    return text;
  }
  size_t size() const override { return 256 + specials_.size() + merges_.size(); }
  std::optional<TokenId> token_to_id(std::string_view token) const override {
    for (size_t i = 0; i < size(); ++i) {
      if (*id_to_token(static_cast<TokenId>(i)) == token) return static_cast<TokenId>(i);
    }
    return std::nullopt;
  }
  std::optional<std::string> id_to_token(TokenId id) const override {
    const size_t i = static_cast<size_t>(id);
    if (i < 256) return std::string(1, static_cast<char>(i));
    return i < 256 + specials_.size() ? specials_[i - 256] : merges_.at(i - 256 - specials_.size());
  }
  bool is_special(TokenId id) const override {
    return id >= 256 && static_cast<size_t>(id) < 256 + specials_.size();
  }

 private:
  static void match(const std::vector<std::string>& words, size_t first, std::string_view text,
                    size_t& length, TokenId& id) {
    for (size_t i = 0; i < words.size(); ++i) {
      if (text.starts_with(words[i]) && words[i].size() > length) {
        length = words[i].size();
        id = static_cast<TokenId>(first + i);
      }
    }
  }
  size_t next_special(std::string_view text) const {
    size_t next = text.size();
    for (const std::string& s : specials_) next = std::min(next, text.find(s));
    return next;
  }
  std::vector<std::string> specials_, merges_;
};

}  // namespace danlu::text
