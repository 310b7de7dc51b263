#include "infer/prefix_index.h"

#include <gtest/gtest.h>

#include <map>

#include "base/rng.h"

namespace danlu::infer {
namespace prefix_index_test {

constexpr int64_t kPage = ops::kPageTokens;
using Ids = std::vector<text::TokenId>;

std::span<const text::TokenId> page_of(const Ids& ids, int64_t number) {
  return std::span(ids).subspan(static_cast<size_t>(number * kPage), kPage);
}

TEST(PrefixIndex, FindsFullPagesAloneAndOnlyBehindTheirOwnBeginning) {
  PrefixIndex index;
  Ids ids(3 * kPage, 7);
  const auto root = PrefixIndex::root("a");
  const auto first = index.add(root, page_of(ids, 0), 10);
  const auto second = index.add(first, page_of(ids, 1), 11);
  index.add(second, page_of(ids, 2), 12);
  EXPECT_EQ(index.find(root, ids, 9 * kPage).pages, (std::vector<int32_t>{10, 11, 12}));
  EXPECT_EQ(index.find(root, ids, 2 * kPage).pages, (std::vector<int32_t>{10, 11}));
  EXPECT_TRUE(index.find(PrefixIndex::root("b"), ids, 9 * kPage).pages.empty()) << "another's salt";
  Ids shorter(ids.begin(), ids.end() - 1);
  EXPECT_EQ(index.find(root, shorter, 9 * kPage).pages.size(), 2u);
  ids[0] = 8;
  EXPECT_TRUE(index.find(root, ids, 9 * kPage).pages.empty())
      << "equal pages behind another first one";
}

TEST(PrefixIndex, TheFirstPageOfSomethingStays) {
  PrefixIndex index;
  const Ids ids(kPage, 3);
  const auto root = PrefixIndex::root("");
  const auto place = index.add(root, ids, 1);
  EXPECT_EQ(index.add(root, ids, 2), place);
  EXPECT_FALSE(index.has(2));
  index.forget(1);
  EXPECT_TRUE(index.find(root, ids, kPage).pages.empty());
}

TEST(PrefixIndex, AnEndWithinAPageIsFoundAsFarAsItIsCommon) {
  PrefixIndex index;
  Ids ids(2 * kPage, 7);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<text::TokenId>(i);
  const auto root = PrefixIndex::root("a");
  const auto first = index.add(root, page_of(ids, 0), 10);
  index.add_part(first, std::span(ids).subspan(kPage, 6), 11);
  index.add_part(first, std::span(ids).subspan(kPage, 9), 12);
  const auto found = [&](const Ids& text, int64_t most) {
    const PrefixIndex::Found all = index.find(root, text, most);
    EXPECT_LE(all.places.size(), all.pages.size());
    return std::pair(all.pages, all.tokens);
  };
  using Pages = std::vector<int32_t>;
  EXPECT_EQ(found(ids, 64), std::pair(Pages({10, 12}), kPage + 9));
  EXPECT_EQ(found(ids, kPage + 5), std::pair(Pages({10, 11}), kPage + 5));
  EXPECT_EQ(found(ids, kPage), std::pair(Pages({10}), kPage));
  EXPECT_EQ(found(ids, kPage - 1), std::pair(Pages(), int64_t{0}));
  Ids other = ids;
  other[kPage + 4] = 99;
  EXPECT_EQ(found(other, 64), std::pair(Pages({10, 11}), kPage + 4)) << "half of it or more";
  other[kPage + 2] = 99;
  EXPECT_EQ(found(other, 64), std::pair(Pages({10}), kPage));
  index.forget(12);
  EXPECT_EQ(found(ids, 64), std::pair(Pages({10, 11}), kPage + 6));
  index.add_part(first, std::span(ids).subspan(kPage, 20), 11);
  EXPECT_EQ(found(ids, 64), std::pair(Pages({10, 11}), kPage + 20));
  index.add(first, page_of(ids, 1), 11);
  EXPECT_EQ(found(ids, 64), std::pair(Pages({10, 11}), 2 * kPage));
  EXPECT_EQ(index.size(), 2u);
}

/// Against a map of whole beginnings.
TEST(PrefixIndex, IsAMapOfBeginnings) {
  PrefixIndex index;
  PythonRandom rng(5);
  std::map<Ids, int32_t> truth;
  std::map<int32_t, Ids> of_page;
  for (int round = 0; round < 3000; ++round) {
    Ids ids;
    for (uint64_t pages = 1 + rng.below(4); pages-- > 0;)
      ids.insert(ids.end(), kPage, static_cast<text::TokenId>(rng.below(2)));
    const auto found = index.find(PrefixIndex::root(""), ids, 9 * kPage);
    Ids prefix;
    size_t known = 0;
    for (; known * kPage < ids.size(); ++known) {
      prefix.insert(prefix.end(), page_of(ids, static_cast<int64_t>(known)).begin(),
                    page_of(ids, static_cast<int64_t>(known)).end());
      const auto truly = truth.find(prefix);
      if (truly == truth.end()) break;
      ASSERT_LT(known, found.pages.size());
      ASSERT_EQ(found.pages[known], truly->second);
    }
    ASSERT_EQ(found.pages.size(), known);
    if (known * kPage < ids.size()) {
      const auto page = static_cast<int32_t>(rng.below(40));
      if (of_page.contains(page)) {
        // What stood behind the page is lost with it.
        const Ids lost = of_page[page];
        for (auto it = truth.begin(); it != truth.end();) {
          const bool goes = it->first.size() >= lost.size() &&
                            std::equal(lost.begin(), lost.end(), it->first.begin());
          if (goes) {
            index.forget(it->second);
            of_page.erase(it->second);
          }
          it = goes ? truth.erase(it) : std::next(it);
        }
        continue;
      }
      index.add(found.places.empty() ? PrefixIndex::root("") : found.places.back(),
                page_of(ids, static_cast<int64_t>(known)), page);
      truth[prefix] = page;
      of_page[page] = prefix;
    }
    ASSERT_EQ(index.size(), truth.size());
  }
}

}  // namespace prefix_index_test
}  // namespace danlu::infer
