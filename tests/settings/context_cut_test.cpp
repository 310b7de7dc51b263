// Which tokens the ranks of a context axis hold.
#include "settings/context_cut.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace danlu::settings {
namespace {

TEST(ContextCut, RanksHoldEveryTokenOnceAndAboutAsManyAsEachOther) {
  for (int64_t ulysses = 1; ulysses <= 4; ++ulysses) {
    for (int64_t ring = 1; ring <= 5; ++ring) {
      const ContextShape shape{ulysses, ring, ring};
      for (const int64_t tokens : {0, 1, 5, 64, 1000, 1003}) {
        std::vector<int> held(static_cast<size_t>(tokens), 0);
        for (int64_t rank = 0; rank < shape.size(); ++rank) {
          int64_t count = 0, last = -1;
          for (const RowRange& rows : context_rows(shape, rank, tokens)) {
            EXPECT_GT(rows.size(), 0);
            EXPECT_GT(rows.begin, last);
            last = rows.end - 1;
            for (int64_t i = rows.begin; i < rows.end; ++i) ++held[static_cast<size_t>(i)];
            count += rows.size();
          }
          EXPECT_EQ(count, count_context_rows(shape, rank, tokens));
          EXPECT_NEAR(static_cast<double>(count),
                      static_cast<double>(tokens) / static_cast<double>(shape.size()), 2.0);
        }
        EXPECT_TRUE(std::all_of(held.begin(), held.end(), [](int times) { return times == 1; }));
      }
    }
  }
}

TEST(ContextCut, AGroupsPairOfChunksCostsTheSameInCausalAttention) {
  const ContextShape shape{1, 4, 4};
  for (int64_t group = 0; group < 4; ++group) {
    int64_t met = 0;
    for (const RowRange& rows : context_rows(shape, group, 800)) {
      for (int64_t i = rows.begin; i < rows.end; ++i) met += i + 1;
    }
    EXPECT_EQ(met, 800 * 801 / 2 / 4);
  }
  EXPECT_EQ(context_rows({1, 2, 2}, 0, 8), (std::vector<RowRange>{{0, 2}, {6, 8}}));
  EXPECT_EQ(context_rows({1, 2, 2}, 1, 8), (std::vector<RowRange>{{2, 4}, {4, 6}}));
  EXPECT_EQ(context_rows({2, 2, 2}, 1, 8), (std::vector<RowRange>{{6, 8}}));
  EXPECT_EQ(context_rows({4, 1, 1}, 1, 8), (std::vector<RowRange>{{2, 4}}));
}

}  // namespace
}  // namespace danlu::settings
