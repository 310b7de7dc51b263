// tests/eval/shown_chat.h: a chat template whose every border shows.
#pragma once
#include <string>
#include <vector>

#include "eval/model.h"

namespace danlu::eval {

/// Writes messages so that every border shows.
class ShownChat : public Model {
 public:
  void answer(const std::vector<Call>&, const OnAnswer&) override {}
  std::string chat_text(const std::vector<text::Message>& messages) const override {
    std::string out = "<s>";
    for (const text::Message& message : messages)
      out += "[" + message.role + "|" + message.content + "]";
    return out + "[assistant|";
  }
  bool chat_text_has_bos() const override { return true; }
  int64_t count_tokens(const std::string& text) const override {
    return static_cast<int64_t>(text.size());
  }
  Json identity() const override { return nullptr; }
};

}  // namespace danlu::eval
