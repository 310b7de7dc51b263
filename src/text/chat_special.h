// text/chat_special.h: finding a tokenizer's special tokens in text.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "text/tokenizer.h"

namespace danlu::text {

/// The tokens a tokenizer flags as special (unk excepted: it stands for text that is not its own).
class SpecialIndex {
 public:
  explicit SpecialIndex(const Tokenizer& tokenizer);
  /// Length of the longest special token that begins at `position`; 0 if none does.
  size_t length_at(std::string_view text, size_t position) const;
  /// Where the first special token at or after `position` begins; npos if there is none.
  size_t find(std::string_view text, size_t position) const;
  /// The text of a special id; empty for others.
  std::string_view text_of(TokenId id) const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  std::vector<std::string> texts_;  ///< by id; empty unless special
  std::unordered_set<std::string, Hash, std::equal_to<>> set_;
  std::vector<size_t> lengths_by_first_byte_[256];  ///< longest first
};

}  // namespace danlu::text
