// SentencePiece's BPE: of all neighbours whose concatenation is a piece, the two with the best
// score are joined first. Written as merges of pairs of ids it is what BpeModel does, as long as
// every character that a piece begins or ends with is a piece and none is marked unused; models
// that are otherwise, which are made by hand, are merged by text.
#include <algorithm>
#include <queue>
#include <unordered_map>

#include "text/sentencepiece/segmenter.h"
#include "text/tokenizer/bpe_model.h"
#include "text/tokenizer/utf8.h"

namespace danlu::text {

namespace {

/// Calls on_text(stretch) and on_kept(id) for a text and the user-defined pieces in it.
template <typename Text, typename Kept>
void cut_at_kept(const PieceTable& pieces, std::string_view text, Text&& on_text, Kept&& on_kept) {
  if (pieces.kept().empty()) return on_text(text);
  size_t done = 0;
  for (TokenMatcher::Match match = pieces.kept().find(text, 0); match.token;
       match = pieces.kept().find(text, match.end)) {
    if (done < match.begin) on_text(text.substr(done, match.begin - done));
    on_kept(match.token->id);
    done = match.end;
  }
  if (done < text.size()) on_text(text.substr(done));
}

class MergingSegmenter final : public Segmenter {
 public:
  MergingSegmenter(const PieceTable& pieces, BpeModel model)
      : pieces_(pieces), model_(std::move(model)) {}
  void encode(std::string_view text, Scratch& scratch) const override {
    cut_at_kept(
        pieces_, text, [&](std::string_view stretch) { model_.encode_piece(stretch, scratch); },
        [&](TokenId id) { scratch.ids.push(id); });
  }

 private:
  const PieceTable& pieces_;
  BpeModel model_;
};

class TextMergingSegmenter final : public Segmenter {
 public:
  explicit TextMergingSegmenter(const PieceTable& pieces) : pieces_(pieces) {}
  void encode(std::string_view text, Scratch& scratch) const override {
    cut_at_kept(
        pieces_, text, [&](std::string_view stretch) { merge(stretch, scratch.ids); },
        [&](TokenId id) { scratch.ids.push(id); });
  }

 private:
  struct Symbol {
    std::string_view text;  ///< empty: joined to the one before
    size_t previous, next;
  };
  struct Candidate {
    float score;
    size_t left, right, length;
    bool operator<(const Candidate& other) const {  // the greatest is taken first
      return score != other.score ? score < other.score : left > other.left;
    }
  };
  struct Work {
    std::vector<Symbol> symbols;
    std::priority_queue<Candidate> queue;
    std::unordered_map<std::string_view, std::pair<std::string_view, std::string_view>> halves;
  };
  static constexpr size_t kNone = SIZE_MAX;

  void offer(size_t left, size_t right, Work& work) const {
    if (left == kNone || right == kNone) return;
    const std::string_view a = work.symbols[left].text, b = work.symbols[right].text;
    const std::string_view both(a.data(), a.size() + b.size());
    const TokenId id = pieces_.find_cuttable(both);
    if (id < 0) return;
    work.queue.push({pieces_.score(id), left, right, both.size()});
    if (pieces_.type(id) == PieceType::kUnused) work.halves[both] = {a, b};
  }

  void merge(std::string_view text, IdBuffer& ids) const {
    Work work;
    std::vector<Symbol>& symbols = work.symbols;
    for (size_t at = 0; at < text.size();) {
      const size_t length = decode_utf8(text, at).length, i = symbols.size();
      at += length;
      symbols.push_back({text.substr(at - length, length), i == 0 ? kNone : i - 1,
                         at < text.size() ? i + 1 : kNone});
    }
    for (size_t i = 1; i < symbols.size(); ++i) offer(i - 1, i, work);
    while (!work.queue.empty()) {
      const Candidate best = work.queue.top();
      work.queue.pop();
      Symbol &left = symbols[best.left], &right = symbols[best.right];
      if (left.text.empty() || right.text.empty() ||
          left.text.size() + right.text.size() != best.length)
        continue;  // one of the two was joined since
      left.text = {left.text.data(), best.length};
      left.next = right.next;
      if (left.next != kNone) symbols[left.next].previous = best.left;
      right.text = {};
      offer(left.previous, best.left, work);
      offer(best.left, left.next, work);
    }
    for (size_t i = 0; i != kNone; i = symbols[i].next) push(symbols[i].text, work, ids);
  }

  /// An unused piece falls into the halves that it was last offered as.
  void push(std::string_view piece, const Work& work, IdBuffer& ids) const {
    std::vector<std::string_view> left{piece};
    while (!left.empty()) {
      const std::string_view text = left.back();
      left.pop_back();
      const TokenId id = pieces_.vocabulary().find(text);
      const auto found = id >= 0 && pieces_.type(id) == PieceType::kUnused ? work.halves.find(text)
                                                                           : work.halves.end();
      if (found == work.halves.end()) {
        pieces_.push(text, ids);
      } else {
        left.push_back(found->second.second);
        left.push_back(found->second.first);
      }
    }
  }

  const PieceTable& pieces_;
};

bool is_one_char(std::string_view text) { return decode_utf8(text, 0).length == text.size(); }

/// False if an unused piece or a character that is no piece can take part in merges.
bool ids_tell_texts(const PieceTable& pieces) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string_view piece = pieces.vocabulary().token(id);
    if (pieces.type(id) == PieceType::kUnused) return false;
    if (pieces.type(id) != PieceType::kNormal || is_one_char(piece)) continue;
    for (size_t at = 0; at < piece.size();) {
      const size_t length = decode_utf8(piece, at).length;
      if (pieces.find_cuttable(piece.substr(at, length)) < 0) return false;
      at += length;
    }
  }
  return true;
}

/// Every way in which two pieces make a third one; the rank is that of the third one's score.
std::vector<MergeTable::Merge> merges_of(const PieceTable& pieces) {
  std::vector<TokenId> by_score;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (pieces.type(id) == PieceType::kNormal) by_score.push_back(id);
  }
  std::stable_sort(by_score.begin(), by_score.end(),
                   [&](TokenId a, TokenId b) { return pieces.score(a) > pieces.score(b); });
  std::vector<MergeTable::Merge> merges;
  uint32_t rank = 0;
  for (size_t i = 0; i < by_score.size(); ++i) {
    if (i > 0 && pieces.score(by_score[i]) != pieces.score(by_score[i - 1])) ++rank;
    const std::string_view piece = pieces.vocabulary().token(by_score[i]);
    for (size_t at = decode_utf8(piece, 0).length; at < piece.size();
         at += decode_utf8(piece, at).length) {
      const TokenId left = pieces.find_cuttable(piece.substr(0, at));
      const TokenId right = left < 0 ? -1 : pieces.find_cuttable(piece.substr(at));
      if (right < 0) continue;
      if (pieces.type(left) != PieceType::kNormal || pieces.type(right) != PieceType::kNormal)
        continue;  // user-defined pieces are cut out before and stay as they are
      merges.push_back({left, right, by_score[i], rank});
    }
  }
  return merges;
}

}  // namespace

std::unique_ptr<Segmenter> make_bpe_segmenter(const PieceTable& pieces, const std::string& unk) {
  if (!ids_tell_texts(pieces)) return std::make_unique<TextMergingSegmenter>(pieces);
  BpeOptions options;
  options.unk_token = unk;
  options.byte_fallback = pieces.byte_fallback();
  return std::make_unique<MergingSegmenter>(
      pieces, BpeModel(pieces.vocabulary(), merges_of(pieces), std::move(options)));
}

}  // namespace danlu::text
