#include "text/tokenizer/prefix_tree.h"

#include <algorithm>

namespace danlu::text {

PrefixTree::PrefixTree(std::vector<Entry> entries) {
  std::sort(entries.begin(), entries.end());
  nodes_.emplace_back();
  std::vector<Work> work = {{0, entries.data(), entries.data() + entries.size(), 0}};
  while (!work.empty()) {  // not recursive: a token may be very long
    const Work item = work.back();
    work.pop_back();
    add_children(item, work);
  }
}

void PrefixTree::add_children(const Work& item, std::vector<Work>& work) {
  const Entry* begin = item.begin;
  if (begin < item.end && begin->first.size() == item.depth) {
    nodes_[item.node].id = begin->second;
    ++begin;
  }
  const auto first = static_cast<uint32_t>(nodes_.size());
  while (begin < item.end) {
    const char byte = begin->first[item.depth];
    const Entry* last = begin;
    while (last < item.end && last->first[item.depth] == byte) ++last;
    work.push_back({static_cast<uint32_t>(nodes_.size()), begin, last, item.depth + 1});
    nodes_.emplace_back().byte = static_cast<unsigned char>(byte);
    begin = last;
  }
  const auto count = static_cast<uint16_t>(nodes_.size() - first);
  nodes_[item.node].num_children = count;
  nodes_[item.node].first_child = first;
  if (count <= kFewChildren) return;
  nodes_[item.node].first_child = static_cast<uint32_t>(tables_.size());
  std::array<uint32_t, 256>& table = tables_.emplace_back();
  table.fill(0);
  for (uint32_t at = first; at < first + count; ++at) table[nodes_[at].byte] = at;
}

}  // namespace danlu::text
