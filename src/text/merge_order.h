// text/merge_order.h: what the merges of a tokenizer.json join, without its vocabulary.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace danlu::text {

/// Pairs of tokens, the first joined first.
using Merges = std::vector<std::pair<std::string, std::string>>;

class MergeOrder {
 public:
  explicit MergeOrder(const Merges& merges);
  /// Whether `token`, cut into characters, is joined to itself again.
  bool reach(std::string_view token) const;

 private:
  std::unordered_map<std::string, size_t> ranks_;  ///< of "left right"
};

/// Whether one of these merges, spelled in the alphabet of bytes, joins two digits (\p{N}).
bool join_digits(const Merges& merges);

}  // namespace danlu::text
