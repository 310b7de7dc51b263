#include "infer/prefix_tree.h"

#include <algorithm>
#include <numeric>

namespace danlu::infer {
namespace {

using Ids = std::span<const text::TokenId>;

class Maker {
 public:
  Maker(const std::vector<Ids>& sequences, bool share, int64_t min_shared)
      : sequences_(sequences), share_(share), min_shared_(min_shared) {
    order_.resize(sequences.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      return std::ranges::lexicographical_compare(sequences[a], sequences[b]);
    });
  }

  PrefixTree make() {
    if (!order_.empty()) add_range(0, order_.size(), 0, -1);
    sort_by_length(tree_.roots);
    for (PrefixTree::Node& node : tree_.nodes) sort_by_length(node.children);
    return std::move(tree_);
  }

 private:
  const Ids& at(size_t place) const { return sequences_[order_[place]]; }

  /// The tokens that the sequences in [low, high) have in common: they are sorted, so the first and
  /// the last differ first.
  int64_t num_common(size_t low, size_t high) const {
    const Ids &first = at(low), &last = at(high - 1);
    return std::ranges::mismatch(first, last).in1 - first.begin();
  }

  int add_node(size_t low, int64_t begin, int64_t end, int parent) {
    const int index = static_cast<int>(tree_.nodes.size());
    tree_.nodes.push_back({.begin = begin, .end = end, .parent = parent, .example = order_[low]});
    (parent < 0 ? tree_.roots : tree_.nodes[static_cast<size_t>(parent)].children).push_back(index);
    for (int above = index; above >= 0; above = tree_.nodes[static_cast<size_t>(above)].parent) {
      int64_t& longest = tree_.nodes[static_cast<size_t>(above)].longest;
      longest = std::max(longest, end);
    }
    return index;
  }

  /// Sequences in [low, high) agree up to `begin`, for which `parent` stands.
  void add_range(size_t low, size_t high, int64_t begin, int parent) {
    const int64_t common = num_common(low, high);
    const bool are_equal = common == std::ssize(at(high - 1));
    const bool makes_node = are_equal || (share_ && common - begin >= min_shared_);
    int node = parent;
    if (makes_node) node = add_node(low, begin, common, parent);
    const int64_t from = makes_node ? common : begin;
    size_t next = low;
    if (makes_node) {
      while (next < high && std::ssize(at(next)) == common)
        tree_.nodes[static_cast<size_t>(node)].ending.push_back(order_[next++]);
    } else {
      // The shortest ends where the others go on, too early for a node of all.
      while (next < high && std::ssize(at(next)) == common) ++next;
      if (next > low) {
        const int own = add_node(low, begin, common, parent);
        for (size_t i = low; i < next; ++i)
          tree_.nodes[static_cast<size_t>(own)].ending.push_back(order_[i]);
      }
    }
    while (next < high) {
      const text::TokenId id = at(next)[static_cast<size_t>(common)];
      size_t end = next + 1;
      while (end < high && at(end)[static_cast<size_t>(common)] == id) ++end;
      add_range(next, end, from, node);
      next = end;
    }
  }

  void sort_by_length(std::vector<int>& nodes) const {
    std::stable_sort(nodes.begin(), nodes.end(), [&](int a, int b) {
      return tree_.nodes[static_cast<size_t>(a)].longest >
             tree_.nodes[static_cast<size_t>(b)].longest;
    });
  }

  const std::vector<Ids>& sequences_;
  const bool share_;
  const int64_t min_shared_;
  std::vector<size_t> order_;
  PrefixTree tree_;
};

}  // namespace

PrefixTree make_prefix_tree(const std::vector<std::span<const text::TokenId>>& sequences,
                            bool share, int64_t min_shared) {
  return Maker(sequences, share, min_shared).make();
}

}  // namespace danlu::infer
