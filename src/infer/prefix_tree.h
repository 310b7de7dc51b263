// infer/prefix_tree.h: id sequences by what they begin with.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace danlu::infer {

/// Sequences of ids as a forest in which what several begin with stands once. A node stands for
/// positions [begin, end) of every sequence below it.
struct PrefixTree {
  struct Node {
    int64_t begin = 0, end = 0;
    int parent = -1;
    std::vector<int> children = {};
    std::vector<size_t> ending = {};  ///< sequences that have no further ids
    size_t example = 0;               ///< one of the sequences that pass here
    int64_t longest = 0;              ///< of the sequences below
  };
  std::vector<Node> nodes;  ///< parents before children
  std::vector<int> roots;   ///< longest first, as are children
};

/// A node is made where sequences share at least `min_shared` further ids (equal sequences always
/// share one); `share` false: where they are equal alone.
PrefixTree make_prefix_tree(const std::vector<std::span<const text::TokenId>>& sequences,
                            bool share, int64_t min_shared = 16);

}  // namespace danlu::infer
