// tests/data/preprocess_fakes.h: a tokenizer and a template whose results can be worked out by
// hand.
#pragma once
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "support/temporary_directory.h"
#include "text/conversation.h"
#include "text/tokenizer.h"

namespace danlu::data {

/// One id per byte: byte + 10. <pad> 0, <s> 1, </s> 2.
class ByteTokenizer : public text::Tokenizer {
 public:
  ByteTokenizer() {
    special_.eos = "</s>";
    special_.pad = "<pad>";
    content_hash_ = 1;
  }
  void encode_append(std::string_view text, bool, std::vector<text::TokenId>& ids) const override {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c) + 10);
  }
  std::string decode(std::span<const text::TokenId> ids, bool) const override {
    std::string text;
    for (const text::TokenId id : ids) {
      text += id >= 10 ? std::string(1, static_cast<char>(id - 10)) : fmt::format("<{}>", id);
    }
    return text;
  }
  size_t size() const override { return 266; }
  std::optional<text::TokenId> token_to_id(std::string_view token) const override {
    if (token == "</s>") return 2;
    if (token == "<pad>") return 0;
    return std::nullopt;
  }
  std::optional<std::string> id_to_token(text::TokenId) const override { return std::nullopt; }
  bool is_special(text::TokenId id) const override { return id < 10; }
};

/// "<role>content" with the answers and a closing </s> as targets: U question, A answer.
class ByteChatEncoder : public text::ChatEncoder {
 public:
  text::EncodedConversation encode(const text::Conversation& conversation) const override {
    text::EncodedConversation encoded;
    for (const text::Message& message : conversation.messages) {
      const bool target = message.role == "assistant" && message.train;
      encoded.ids.push_back(message.role[0] + 10);
      encoded.labels.push_back(kIgnoreLabel);
      for (const char c : message.content) {
        encoded.ids.push_back(static_cast<unsigned char>(c) + 10);
        encoded.labels.push_back(target ? encoded.ids.back() : kIgnoreLabel);
      }
      if (message.role != "assistant") continue;
      encoded.ids.push_back(2);
      encoded.labels.push_back(target ? 2 : kIgnoreLabel);
    }
    return encoded;
  }
  std::vector<text::TokenId> encode_prompt(const text::Conversation& conversation) const override {
    std::vector<text::TokenId> ids = encode(conversation).ids;
    ids.push_back('a' + 10);
    return ids;
  }
  std::string render(const text::Conversation&, bool) const override { return ""; }
  std::vector<text::TokenId> stop_ids() const override { return {2}; }
  std::string description() const override { return "bytes"; }
  uint64_t content_hash() const override { return 7; }
};

/// A temporary directory for flags and rows: its paths are text.
class TestDirectory : public test::TemporaryDirectory {
 public:
  fs::path write(const std::string& name, const std::string& content) const {
    fs::create_directories((path() / name).parent_path());
    std::ofstream(path() / name, std::ios::binary) << content;
    return path() / name;
  }
  std::string operator/(const std::string& name) const { return (path() / name).string(); }
};

/// what() of the Error that `body` throws; "" if it throws none.
template <typename ErrorType = Error, typename Body>
std::string error_text(Body body) {
  try {
    body();
  } catch (const ErrorType& error) {
    return error.what();
  }
  return "";
}

}  // namespace danlu::data
