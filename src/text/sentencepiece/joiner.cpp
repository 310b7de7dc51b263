#include "text/sentencepiece/joiner.h"

#include <charconv>

#include "text/tokenizer/utf8.h"

namespace danlu::text {

namespace {

constexpr std::string_view kSpacePiece = "\xE2\x96\x81";  // ▁

/// The byte that "<0xHH>" stands for.
char byte_of_piece(std::string_view piece) {
  unsigned value = 0;
  std::from_chars(piece.data() + 3, piece.data() + 5, value, 16);
  return static_cast<char>(value);
}

/// Appends bytes, each one that belongs to no character as U+FFFD.
void append_characters(std::string_view bytes, std::string& out) {
  for (size_t at = 0; at < bytes.size();) {
    size_t bad = 0;
    bool truncated = false;
    const size_t length = utf8_char_length(bytes, at, bad, truncated);
    out += length > 0 ? bytes.substr(at, length) : kReplacementUtf8;
    at += std::max<size_t>(length, 1);
  }
}

}  // namespace

SentencePieceJoiner::SentencePieceJoiner(const SentencePieceFile& file, const PieceTable& pieces,
                                         const std::string& origin)
    : pieces_(pieces),
      unk_surface_(file.unk_surface),
      drops_space_in_front_(file.rules.add_dummy_prefix || file.rules.remove_extra_whitespaces),
      drops_all_spaces_in_front_(file.rules.remove_extra_whitespaces) {
  if (file.denormalizer_map.empty()) return;
  SentencePieceRules rules;
  rules.character_map = file.denormalizer_map;
  denormalizer_.emplace(rules, /*whitespace_as_suffix=*/false, nothing_kept_, origin);
}

std::string SentencePieceJoiner::join(std::span<const TokenId> ids) const {
  std::string text, bytes;
  bool in_front = true, dropped = false;
  const auto end_bytes = [&] {
    append_characters(bytes, text);
    bytes.clear();
  };
  for (const TokenId id : ids) {
    std::string_view piece = pieces_.vocabulary().token(id);
    if (pieces_.type(id) == PieceType::kByte) {
      bytes += byte_of_piece(piece);
      continue;
    }
    end_bytes();
    if (dropped || !text.empty()) in_front = false;
    dropped = false;
    if (id == pieces_.unk_id()) {
      text += unk_surface_;
      continue;
    }
    if (in_front && drops_space_in_front_ && piece.starts_with(kSpacePiece)) {
      piece.remove_prefix(kSpacePiece.size());
      dropped = !drops_all_spaces_in_front_;
    }
    while (!piece.empty()) {
      const size_t space = piece.find(kSpacePiece);
      text += piece.substr(0, space);
      if (space == std::string_view::npos) break;
      text += ' ';
      piece.remove_prefix(space + kSpacePiece.size());
    }
  }
  end_bytes();
  return denormalizer_ ? denormalizer_->map_characters(text) : text;
}

}  // namespace danlu::text
