// text/sentencepiece/segmenter.h: from rewritten text to SentencePiece's ids.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "text/sentencepiece/model_file.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/model.h"

namespace danlu::text {

/// The pieces of one model as its segmenters ask for them. Immutable and thread-safe.
class PieceTable {
 public:
  /// REQUIRES: check_sentencepiece_file.
  explicit PieceTable(const SentencePieceFile& file);

  const Vocabulary& vocabulary() const { return vocabulary_; }
  size_t size() const { return types_.size(); }
  PieceType type(TokenId id) const { return types_[static_cast<size_t>(id)]; }
  float score(TokenId id) const { return scores_[static_cast<size_t>(id)]; }
  TokenId unk_id() const { return unk_id_; }
  /// The piece's id if merging or cutting may give it (normal, user-defined, unused), else -1.
  TokenId find_cuttable(std::string_view piece) const;
  /// Finds the user-defined pieces.
  const TokenMatcher& kept() const { return kept_; }
  bool byte_fallback() const { return byte_ids_[0] >= 0; }
  TokenId byte_id(unsigned char byte) const { return byte_ids_[byte]; }

  /// Appends the id of what was cut out; the ids of its bytes, or the unknown one, if it is none.
  void push(std::string_view piece, IdBuffer& ids) const {
    const TokenId id = vocabulary_.find(piece);
    id < 0 || id == unk_id_ ? push_unknown(piece, ids) : ids.push(id);
  }
  void push_unknown(std::string_view piece, IdBuffer& ids) const;

 private:
  Vocabulary vocabulary_;
  std::vector<PieceType> types_;
  std::vector<float> scores_;
  TokenId unk_id_ = -1, byte_ids_[256];
  std::vector<AddedToken> kept_tokens_;
  TokenMatcher kept_;
};

/// Cuts rewritten text into pieces. Immutable and thread-safe.
class Segmenter {
 public:
  virtual ~Segmenter() = default;
  /// Appends the ids of `text` to scratch.ids; runs of unknown ids are not joined.
  /// REQUIRES: text is valid UTF-8 and not empty.
  virtual void encode(std::string_view text, Scratch& scratch) const = 0;
};

/// The file's own. pieces: to outlive it.
std::unique_ptr<Segmenter> make_segmenter(const SentencePieceFile& file, const PieceTable& pieces);

std::unique_ptr<Segmenter> make_unigram_segmenter(const PieceTable& pieces);
std::unique_ptr<Segmenter> make_bpe_segmenter(const PieceTable& pieces, const std::string& unk);

}  // namespace danlu::text
