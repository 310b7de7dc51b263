#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "base/error.h"
#include "data/sample_order.h"

namespace danlu::data {
namespace {

using ::testing::ElementsAre;

TEST(SampleOrder, EveryEpochIsAPermutation) {
  for (const int64_t count : {1, 2, 3, 7, 64, 1000, 1024, 1025, 5000}) {
    const SampleOrder order(count, 42, true);
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<char> seen(static_cast<size_t>(count), 0);
      for (int64_t i = 0; i < count; ++i) ++seen[static_cast<size_t>(order.at(epoch * count + i))];
      EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](char times) { return times == 1; }))
          << count;
    }
  }
}

TEST(SampleOrder, WithoutShufflingItIsFileOrder) {
  const SampleOrder order(3, 42, false);
  std::vector<int64_t> seen;
  for (int64_t i = 0; i < 7; ++i) seen.push_back(order.at(i));
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 0, 1, 2, 0));
}

TEST(SampleOrder, OneOrderMayBeEveryEpochs) {
  const SampleOrder each(20, 42, true), once(20, 42, true, /*same_every_epoch=*/true);
  bool differs = false;
  for (int64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(once.at(i), each.at(i));
    EXPECT_EQ(once.at(20 + i), once.at(i));
    differs |= each.at(20 + i) != each.at(i);
  }
  EXPECT_TRUE(differs);
}

TEST(SampleOrder, DependsOnSeedAndEpoch) {
  const auto list = [](uint64_t seed, int64_t epoch) {
    const SampleOrder order(100, seed, true);
    std::vector<int64_t> samples;
    for (int64_t i = 0; i < 100; ++i) samples.push_back(order.at(epoch * 100 + i));
    return samples;
  };
  EXPECT_EQ(list(1, 0), list(1, 0));
  EXPECT_NE(list(1, 0), list(2, 0));
  EXPECT_NE(list(1, 0), list(1, 1));
}

TEST(SampleOrder, AllOrdersOfFourSamplesAreEquallyLikely) {
  std::map<std::array<int64_t, 4>, int> counts;
  constexpr int kEpochs = 24000;
  const SampleOrder order(4, 7, true);
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    std::array<int64_t, 4> seen;
    for (int64_t i = 0; i < 4; ++i) seen[static_cast<size_t>(i)] = order.at(epoch * 4 + i);
    ++counts[seen];
  }
  EXPECT_EQ(counts.size(), 24u);
  double chi_square = 0;
  for (const auto& [seen, count] : counts)
    chi_square += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi_square, 49.7);  // 23 degrees of freedom, 0.1 %; the outcome is fixed by the seed
}

TEST(SampleOrder, RefusesAnEmptyDataset) { EXPECT_THROW(SampleOrder(0, 1, true), DataError); }

}  // namespace
}  // namespace danlu::data
