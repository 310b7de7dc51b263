#include "text/sentencepiece/segmenter.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/tokenizer/utf8.h"

namespace danlu::text {

PieceTable::PieceTable(const SentencePieceFile& file) {
  size_t bytes = 0;
  for (const SentencePiecePart& piece : file.pieces) bytes += piece.piece.size();
  vocabulary_.reserve(file.pieces.size(), bytes);
  for (const SentencePiecePart& piece : file.pieces) {
    const auto id = static_cast<TokenId>(types_.size());
    vocabulary_.add(piece.piece, id);
    types_.push_back(piece.type);
    scores_.push_back(piece.score);
    if (piece.type == PieceType::kUnknown) unk_id_ = id;
    if (piece.type != PieceType::kUserDefined) continue;
    AddedToken& token = kept_tokens_.emplace_back();
    token.content = piece.piece;
    token.id = id;
  }
  for (const AddedToken& token : kept_tokens_) kept_.add(token.content, &token);
  for (int byte = 0; byte < 256; ++byte)
    byte_ids_[byte] = file.byte_fallback ? vocabulary_.find(fmt::format("<0x{:02X}>", byte)) : -1;
}

TokenId PieceTable::find_cuttable(std::string_view piece) const {
  const TokenId id = vocabulary_.find(piece);
  if (id < 0) return -1;
  const PieceType kind = type(id);
  return kind == PieceType::kNormal || kind == PieceType::kUserDefined || kind == PieceType::kUnused
             ? id
             : -1;
}

void PieceTable::push_unknown(std::string_view piece, IdBuffer& ids) const {
  if (!byte_fallback()) return ids.push(unk_id_);
  for (const char byte : piece) ids.push(byte_ids_[static_cast<unsigned char>(byte)]);
}

namespace {

class CharSegmenter final : public Segmenter {
 public:
  explicit CharSegmenter(const PieceTable& pieces) : pieces_(pieces) {}
  void encode(std::string_view text, Scratch& scratch) const override {
    size_t at = 0;
    while (at < text.size()) {
      const TokenMatcher::Match kept = pieces_.kept().find(text, at);
      const size_t stop = kept.token ? kept.begin : text.size();
      while (at < stop) {
        const size_t length = decode_utf8(text, at).length;
        pieces_.push(text.substr(at, length), scratch.ids);
        at += length;
      }
      if (!kept.token) return;
      scratch.ids.push(kept.token->id);
      at = kept.end;
    }
  }

 private:
  const PieceTable& pieces_;
};

class WordSegmenter final : public Segmenter {
 public:
  explicit WordSegmenter(const PieceTable& pieces) : pieces_(pieces) {}
  void encode(std::string_view text, Scratch& scratch) const override {
    constexpr std::string_view kSpace = "\xE2\x96\x81";  // ▁
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find(kSpace, begin + 1), text.size());
      pieces_.push(text.substr(begin, end - begin), scratch.ids);
      begin = end;
    }
  }

 private:
  const PieceTable& pieces_;
};

}  // namespace

std::unique_ptr<Segmenter> make_segmenter(const SentencePieceFile& file, const PieceTable& pieces) {
  switch (file.type) {
    case SegmenterType::kUnigram:
      return make_unigram_segmenter(pieces);
    case SegmenterType::kBpe:
      return make_bpe_segmenter(pieces, file.pieces[static_cast<size_t>(pieces.unk_id())].piece);
    case SegmenterType::kWord:
      return std::make_unique<WordSegmenter>(pieces);
    case SegmenterType::kChar:
      break;
  }
  return std::make_unique<CharSegmenter>(pieces);
}

}  // namespace danlu::text
