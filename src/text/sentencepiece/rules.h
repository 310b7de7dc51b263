// text/sentencepiece/rules.h: how SentencePiece rewrites a text before it cuts it into pieces.
#pragma once
#include <string>
#include <string_view>

#include "text/sentencepiece/model_file.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/normalizer.h"

namespace danlu::text {

/// The rules of one model. Immutable and thread-safe.
class SentencePieceRewriter {
 public:
  /// kept: the pieces that are taken from a text as they are (user-defined ones); may be empty; to
  /// outlive this. Errors: ModelError naming `origin` for a damaged character map.
  SentencePieceRewriter(const SentencePieceRules& rules, bool whitespace_as_suffix,
                        const TokenMatcher& kept, const std::string& origin);

  /// REQUIRES: text is valid UTF-8, and is not in `out`. Replaces `out` by the rewritten text.
  void rewrite(std::string_view text, std::string& out) const;
  /// The character map alone.
  std::string map_characters(std::string_view text) const;

 private:
  struct Unit {
    std::string_view text;  ///< what the unit becomes
    size_t length;          ///< what it was
  };
  Unit unit_at(std::string_view text, size_t at, size_t next_kept) const;
  void rewrite_units(std::string_view text, std::string& out) const;
  void append_escaped(std::string_view text, std::string& out) const;
  bool is_plain(std::string_view text, size_t at) const;

  SentencePieceRules rules_;
  bool whitespace_as_suffix_;
  const TokenMatcher& kept_;
  CharacterMap map_;
  std::string space_;
  bool plain_[128] = {};  ///< no rule begins with this character, alone or before ASCII
};

}  // namespace danlu::text
