// infer/prefix_index.h: which pages hold the beginnings of texts that were computed.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ops/pages.h"
#include "text/tokenizer.h"

namespace danlu::infer {

/// Full pages as a forest: a page stands for its tokens after those of the page before. Equal
/// tokens after equal beginnings are compared, not only their hashes. A page that is not full is a
/// leaf that whoever goes on with it takes away; it is found where half of it or more is common.
class PrefixIndex {
 public:
  /// A beginning: what the pages so far hold.
  using Place = uint64_t;

  /// Before the first token of texts that may share with those of the same key.
  static Place root(std::string_view key);

  struct Found {
    std::vector<int32_t> pages;
    std::vector<Place> places;  ///< after each of the full pages
    int64_t tokens = 0;         ///< in the pages; of one more than full ones the first are meant
  };
  /// What `ids` begins with, at most `most` tokens.
  Found find(Place root, std::span<const text::TokenId> ids, int64_t most) const;

  /// Page `page` holds ids, ops::kPageTokens many, after `before`; gives the place after them. If
  /// another page does so already, it stays the one that is found.
  Place add(Place before, std::span<const text::TokenId> ids, int32_t page);
  /// Page `page` begins with ids, fewer than ops::kPageTokens, after `before`.
  void add_part(Place before, std::span<const text::TokenId> ids, int32_t page);
  /// Its content changes. What stands after it is found no more.
  void forget(int32_t page);
  bool has(int32_t page) const { return by_page_.contains(page); }
  size_t size() const { return by_page_.size() + part_of_page_.size(); }

 private:
  struct Entry {
    Place before, behind;
    std::vector<text::TokenId> ids;
    int32_t page;
  };
  using Entries = std::unordered_multimap<uint64_t, Entry>;  ///< by hash
  struct Part {
    std::vector<text::TokenId> ids;
    int32_t page;
  };
  using Parts = std::multimap<Place, Part>;  ///< by the place before
  static uint64_t hash_of(Place before, std::span<const text::TokenId> ids);
  Entries::const_iterator entry(Place before, std::span<const text::TokenId> ids) const;
  void find_part(Place before, std::span<const text::TokenId> ids, Found& found) const;

  Entries entries_;
  std::unordered_map<int32_t, Entries::const_iterator> by_page_;
  Parts parts_;
  std::unordered_map<int32_t, Parts::const_iterator> part_of_page_;
  Place next_ = 1;
};

}  // namespace danlu::infer
