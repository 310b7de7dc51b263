// text/tokenizer/prefix_tree.h: which tokens begin a text, byte by byte.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace danlu::text {

/// Keys by byte, children of a node in one contiguous, sorted range; nodes with many children have
/// a table of them. Immutable and thread-safe.
class PrefixTree {
 public:
  using Entry = std::pair<std::string_view, TokenId>;
  /// REQUIRES: no two entries have the same text, and none is empty. The texts need not outlive the
  /// call.
  explicit PrefixTree(std::vector<Entry> entries);

  /// Calls on_match(length, id) for every key that begins text at `at`, shortest first.
  template <typename F>
  void each_prefix(std::string_view text, size_t at, F&& on_match) const {
    uint32_t node = 0;
    for (size_t i = at; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) return;
      if (nodes_[node].id >= 0) on_match(i + 1 - at, nodes_[node].id);
    }
  }

 private:
  static constexpr uint16_t kFewChildren = 6;
  struct Node {
    uint32_t first_child = 0;  ///< or, of many, the index of their table
    uint16_t num_children = 0;
    unsigned char byte = 0;
    TokenId id = -1;
  };
  /// 0: none.
  uint32_t child(uint32_t node, unsigned char byte) const {
    const Node& parent = nodes_[node];
    if (parent.num_children > kFewChildren) return tables_[parent.first_child][byte];
    for (uint32_t at = parent.first_child; at < parent.first_child + parent.num_children; ++at) {
      if (nodes_[at].byte == byte) return at;
    }
    return 0;
  }
  /// The entries [begin, end) share their first `depth` bytes, which lead to `node`.
  struct Work {
    uint32_t node;
    const Entry *begin, *end;
    size_t depth;
  };
  void add_children(const Work& item, std::vector<Work>& work);

  std::vector<Node> nodes_;
  std::vector<std::array<uint32_t, 256>> tables_;
};

}  // namespace danlu::text
