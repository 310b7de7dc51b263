// tests/grammar/follow.h: answers drawn token by token, as a model would that knows nothing.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "grammar/compiler.h"
#include "grammar/grammar.h"

namespace danlu::grammar {

inline bool is_allowed(std::span<const uint64_t> mask, text::TokenId id) {
  const auto word = static_cast<size_t>(id) / 64;
  return word < mask.size() && (mask[word] >> (id % 64) & 1) != 0;
}

inline std::vector<text::TokenId> ids_of(std::span<const uint64_t> mask) {
  std::vector<text::TokenId> ids;
  for (size_t i = 0; i < mask.size() * 64; ++i) {
    if (is_allowed(mask, static_cast<text::TokenId>(i)))
      ids.push_back(static_cast<text::TokenId>(i));
  }
  return ids;
}

/// Draws allowed tokens until a stop id comes. After `patience` tokens what closes JSON is
/// preferred, and `closers`, tokens of the vocabulary. None if no end came within 3000.
inline std::optional<std::vector<text::TokenId>> draw_some(
    text::TokenConstraint& constraint, const text::Tokenizer& tokenizer, text::TokenId stop,
    std::mt19937& random, int patience, const std::vector<std::string>& closers = {}) {
  std::vector<text::TokenId> closing;
  for (const std::string& text : closers) closing.push_back(tokenizer.token_to_id(text).value());
  for (const char* text : {"\"", "}", "]", "1", "0", "\n", "e", "b", "<"}) {
    const auto ids = tokenizer.encode(text, false);
    closing.push_back(ids.back());
  }
  std::vector<text::TokenId> answer;
  for (int step = 0; step < 3000; ++step) {
    const auto mask = constraint.allowed();
    const auto ids = ids_of(mask);
    if (ids.empty()) {
      ADD_FAILURE() << "nothing is allowed after " << tokenizer.decode(answer);
      return answer;
    }
    text::TokenId chosen = ids[random() % ids.size()];
    if (is_allowed(mask, stop) && (step > patience || random() % 3 == 0)) return answer;
    if (step > patience) {
      std::vector<text::TokenId> ways;
      for (const text::TokenId id : closing) {
        if (is_allowed(mask, id)) ways.push_back(id);
      }
      if (!ways.empty()) chosen = ways[random() % ways.size()];
    }
    if (chosen == stop) return answer;
    constraint.accept(chosen);
    answer.push_back(chosen);
  }
  return std::nullopt;
}

inline std::vector<text::TokenId> draw(text::TokenConstraint& constraint,
                                       const text::Tokenizer& tokenizer, text::TokenId stop,
                                       std::mt19937& random, int patience,
                                       const std::vector<std::string>& closers = {}) {
  const auto answer = draw_some(constraint, tokenizer, stop, random, patience, closers);
  EXPECT_TRUE(answer) << "no end";
  return answer.value_or(std::vector<text::TokenId>());
}

}  // namespace danlu::grammar
