// The most probable segmentation. Scores are summed as the library sums them, to the type of each
// intermediate result: of two paths whose scores nearly tie, the last bit decides.
#include <algorithm>
#include <limits>

#include "text/sentencepiece/segmenter.h"
#include "text/tokenizer/prefix_tree.h"
#include "text/tokenizer/utf8.h"

namespace danlu::text {

namespace {

std::vector<PrefixTree::Entry> cuttable_pieces(const PieceTable& pieces) {
  std::vector<PrefixTree::Entry> entries;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string_view piece = pieces.vocabulary().token(id);
    // Unused ones are never cut out.
    if (pieces.type(id) != PieceType::kUnused && pieces.find_cuttable(piece) == id)
      entries.emplace_back(piece, id);
  }
  return entries;
}

class UnigramSegmenter final : public Segmenter {
 public:
  explicit UnigramSegmenter(const PieceTable& pieces)
      : pieces_(pieces), tree_(cuttable_pieces(pieces)) {
    for (size_t i = 0; i < pieces.size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      if (pieces.type(id) != PieceType::kNormal) continue;
      min_score_ = std::min(min_score_, pieces.score(id));
      max_score_ = std::max(max_score_, pieces.score(id));
    }
  }

  void encode(std::string_view text, Scratch& scratch) const override {
    Lattice<float>& lattice = scratch.float_lattice;
    lattice.reset(text.size());
    for (size_t begin = 0; begin < text.size();) begin = extend(text, begin, lattice);
    lattice.each_piece([&](size_t begin, size_t end, TokenId id) {
      if (id == pieces_.unk_id()) {
        pieces_.push_unknown(text.substr(begin, end - begin), scratch.ids);
      } else {
        scratch.ids.push(id);
      }
    });
  }

 private:
  /// Offers every piece that begins at `begin`; returns where the next character begins.
  size_t extend(std::string_view text, size_t begin, Lattice<float>& lattice) const {
    const float here = lattice.score(begin);
    const size_t char_length = decode_utf8(text, begin).length;
    bool has_single = false;
    tree_.each_prefix(text, begin, [&](size_t length, TokenId id) {
      // A user-defined piece is to win over everything.
      const double score = pieces_.type(id) == PieceType::kUserDefined
                               ? static_cast<float>(length) * max_score_ - 0.1
                               : double{pieces_.score(id)};
      lattice.offer(begin, length, score + here, id);
      has_single |= length == char_length;
    });
    constexpr float kUnknownPenalty = 10;
    if (!has_single)
      lattice.offer(begin, char_length, min_score_ - kUnknownPenalty + here, pieces_.unk_id());
    return begin + char_length;
  }

  const PieceTable& pieces_;
  PrefixTree tree_;
  float min_score_ = std::numeric_limits<float>::max();
  float max_score_ = std::numeric_limits<float>::min();  // as the library: at least this
};

}  // namespace

std::unique_ptr<Segmenter> make_unigram_segmenter(const PieceTable& pieces) {
  return std::make_unique<UnigramSegmenter>(pieces);
}

}  // namespace danlu::text
