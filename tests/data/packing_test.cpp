// Which samples share a sequence.
#include "data/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/rng.h"

namespace danlu::data {
namespace {

using ::testing::ElementsAre;

std::vector<int32_t> random_lengths(size_t count, int32_t max_length) {
  std::vector<int32_t> lengths(count);
  for (size_t i = 0; i < count; ++i) {
    lengths[i] = 1 + static_cast<int32_t>(mix64(7, i) % static_cast<uint64_t>(max_length));
  }
  return lengths;
}

void expect_each_sample_once(const Packs& packs, size_t count) {
  std::vector<int64_t> all = packs.samples;
  std::sort(all.begin(), all.end());
  std::vector<int64_t> expected(count);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(all, expected);
}

int64_t tokens_in(const Packs& packs, int64_t group, const std::vector<int32_t>& lengths) {
  int64_t sum = 0;
  for (const int64_t sample : packs.group(group)) sum += lengths[static_cast<size_t>(sample)];
  return sum;
}

TEST(PackGreedy, TakesTheLongestThatFitsAndTheLastOfEquals) {
  // Capacity 7: 5 (sample 3, the later of two fives) + 2; 5 + 1; 3.
  const std::vector<int32_t> lengths{3, 5, 2, 5, 1};
  const Packs packs = pack_greedy(lengths, 7);
  EXPECT_THAT(packs.samples, ElementsAre(3, 2, 1, 4, 0));
  EXPECT_THAT(packs.starts, ElementsAre(0, 2, 4, 5));
}

TEST(PackGreedy, EqualsTheTextbookKnapsackOnManyLengths) {
  const std::vector<int32_t> lengths = random_lengths(500, 90);
  // The reference keeps a sorted list and removes from it by bisection.
  std::vector<int32_t> sorted = lengths;
  std::sort(sorted.begin(), sorted.end());
  std::map<int32_t, std::vector<int64_t>> by_length;
  for (size_t i = 0; i < lengths.size(); ++i)
    by_length[lengths[i]].push_back(static_cast<int64_t>(i));
  std::vector<int64_t> expected, starts{0};
  while (!sorted.empty()) {
    for (int32_t room = 100;;) {
      const auto end = std::upper_bound(sorted.begin(), sorted.end(), room);
      if (end == sorted.begin()) break;
      const int32_t length = *(end - 1);
      room -= length;
      expected.push_back(by_length[length].back());
      by_length[length].pop_back();
      sorted.erase(end - 1);
    }
    starts.push_back(static_cast<int64_t>(expected.size()));
  }
  const Packs packs = pack_greedy(lengths, 100);
  EXPECT_EQ(packs.samples, expected);
  EXPECT_EQ(packs.starts, starts);
}

TEST(PackBestFit, HoldsEverySampleOnceWithinCapacity) {
  const std::vector<int32_t> lengths = random_lengths(5000, 300);
  const Packs packs = pack_best_fit(lengths, 300, 42, 1000);
  expect_each_sample_once(packs, lengths.size());
  int64_t used = 0;
  for (int64_t group = 0; group < packs.size(); ++group) {
    const int64_t tokens = tokens_in(packs, group, lengths);
    EXPECT_LE(tokens, 300);
    EXPECT_GT(tokens, 0);
    used += tokens;
  }
  // Best fit leaves little room: more than 97 % of the sequences is filled.
  EXPECT_GT(static_cast<double>(used) / static_cast<double>(300 * packs.size()), 0.97);
}

TEST(PackBestFit, PutsEachSampleWhereTheLeastRoomIsLeft) {
  // 6 | 5 | then 4 fits into both: it goes to the 6 (room 4), then 3 to the 5.
  const std::vector<int32_t> lengths{4, 6, 3, 5};
  const Packs packs = pack_best_fit(lengths, 10, 1);
  EXPECT_THAT(packs.samples, ElementsAre(1, 0, 3, 2));
  EXPECT_THAT(packs.starts, ElementsAre(0, 2, 4));
}

TEST(PackBestFit, IsAFunctionOfTheSeed) {
  const std::vector<int32_t> lengths = random_lengths(500, 50);
  EXPECT_EQ(pack_best_fit(lengths, 64, 1, 100).samples, pack_best_fit(lengths, 64, 1, 100).samples);
  EXPECT_NE(pack_best_fit(lengths, 64, 1, 100).samples, pack_best_fit(lengths, 64, 2, 100).samples);
}

TEST(Packing, OfNothingIsNothing) {
  EXPECT_EQ(pack_greedy({}, 10).size(), 0);
  EXPECT_EQ(pack_best_fit({}, 10, 1).size(), 0);
}

}  // namespace
}  // namespace danlu::data
