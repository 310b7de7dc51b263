// text/sentencepiece/joiner.h: from SentencePiece's ids back to text.
#pragma once
#include <optional>
#include <span>
#include <string>

#include "text/sentencepiece/rules.h"
#include "text/sentencepiece/segmenter.h"

namespace danlu::text {

/// Immutable and thread-safe.
class SentencePieceJoiner {
 public:
  /// pieces: to outlive this. Errors: ModelError naming `origin` for a damaged character map.
  SentencePieceJoiner(const SentencePieceFile& file, const PieceTable& pieces,
                      const std::string& origin);
  /// The text of pieces, none of which is a control token. Bytes that are no UTF-8 become U+FFFD
  /// one by one. REQUIRES: every id is a piece's.
  std::string join(std::span<const TokenId> ids) const;

 private:
  const PieceTable& pieces_;
  std::string unk_surface_;
  bool drops_space_in_front_, drops_all_spaces_in_front_;
  TokenMatcher nothing_kept_;
  std::optional<SentencePieceRewriter> denormalizer_;
};

}  // namespace danlu::text
