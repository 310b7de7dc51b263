// text/tokenizer/lattice.h: the best way of cutting a text into pieces with scores (Viterbi).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "text/tokenizer.h"

namespace danlu::text {

/// Score: the type in which sums of scores are kept; of two ways that nearly tie its last bit
/// decides. Keeps its memory from text to text.
template <typename Score>
class Lattice {
 public:
  /// For a text of `length` bytes.
  void reset(size_t length) { nodes_.assign(length + 1, Node{}); }
  /// The score of the best way to a place; 0 at the beginning.
  Score score(size_t at) const { return nodes_[at].score; }
  /// A way that ends in the piece of `length` bytes at `begin`; of equal ones the first counts.
  template <typename S>
  void offer(size_t begin, size_t length, S score, TokenId id) {
    Node& node = nodes_[begin + length];
    if (node.id >= 0 && !(score > node.score)) return;
    node.score = static_cast<Score>(score);
    node.begin = static_cast<uint32_t>(begin);
    node.id = id;
  }
  /// Calls on_piece(begin, end, id) for the pieces of the best way to the end of the text, in
  /// order. REQUIRES: there is one; once after reset.
  template <typename F>
  void each_piece(F&& on_piece) {
    size_t end = nodes_.size() - 1, count = 0;
    while (end > 0) {  // from the end; where pieces end is kept in the first nodes
      const size_t begin = nodes_[end].begin;
      nodes_[count++].end = static_cast<uint32_t>(end);
      end = begin;
    }
    while (count > 0) {
      const uint32_t stop = nodes_[--count].end;
      on_piece(size_t{nodes_[stop].begin}, size_t{stop}, nodes_[stop].id);
    }
  }

 private:
  struct Node {
    Score score = 0;
    uint32_t begin = 0;  ///< of the piece that ends here
    TokenId id = -1;     ///< of that piece; -1: no way yet
    uint32_t end = 0;    ///< used while the best way is read backwards
  };
  std::vector<Node> nodes_;
};

}  // namespace danlu::text
