#include "base/rng.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

namespace danlu {
namespace {

using testing::ElementsAre;

std::vector<int> counted(int count) {
  std::vector<int> values(count);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

// Every number here was printed by numpy 1.24.2's RandomState.
TEST(NumpyRandomState, DrawsTheWordsOfNumpy) {
  NumpyRandomState random(1234);
  std::vector<uint32_t> words;
  for (int i = 0; i < 5; ++i) words.push_back(random.next_u32());
  EXPECT_THAT(words, ElementsAre(822569775u, 2137449171u, 2671936806u, 3512589365u, 1880026316u));
}

TEST(NumpyRandomState, ContinuesAcrossItsTables) {
  // RandomState(42).randint(0, 2**32, 2000, dtype='uint32')[[623, 624, 1999]]
  NumpyRandomState random(42);
  std::vector<uint32_t> words;
  for (int i = 0; i < 2000; ++i) words.push_back(random.next_u32());
  EXPECT_EQ(words[623], 1077437785u);
  EXPECT_EQ(words[624], 108880612u);
  EXPECT_EQ(words[1999], 2238969328u);
}

TEST(NumpyRandomState, ShufflesAsNumpy) {
  NumpyRandomState random(1234);
  std::vector<int> ten = counted(10), sixteen = counted(16);
  random.shuffle(std::span<int>(ten));
  random.shuffle(std::span<int>(sixteen));
  EXPECT_THAT(ten, ElementsAre(7, 2, 9, 1, 0, 8, 4, 5, 6, 3));
  EXPECT_THAT(sixteen, ElementsAre(7, 13, 2, 3, 1, 15, 5, 4, 0, 8, 6, 14, 12, 11, 10, 9));
}

TEST(NumpyRandomState, ShufflingNothingOrOneDrawsNothing) {
  NumpyRandomState random(1234);
  std::vector<int> none, one = {5};
  random.shuffle(std::span<int>(none));
  random.shuffle(std::span<int>(one));
  EXPECT_EQ(random.bounded(0), 0u);
  EXPECT_EQ(random.next_u32(), 822569775u);
}

TEST(NumpyRandomState, DoublesHaveNumpysBits) {
  NumpyRandomState random(0);
  EXPECT_EQ(random.next_double(), 0.5488135039273248);
  EXPECT_EQ(random.next_double(), 0.7151893663724195);
}

TEST(NumpyRandomState, BoundsAreInclusiveAndWide) {
  NumpyRandomState random(7);
  std::set<uint64_t> seen;
  for (int i = 0; i < 200; ++i) seen.insert(random.bounded(4));
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3, 4));
  bool above_32_bits = false;
  for (int i = 0; i < 50; ++i) {
    const uint64_t value = random.bounded(1ull << 40);
    ASSERT_LE(value, 1ull << 40);
    above_32_bits = above_32_bits || value > 0xffffffffull;
  }
  EXPECT_TRUE(above_32_bits);
}

TEST(Mix64, GivesEachSeedAndIndexItsOwnValue) {
  // SplitMix64 seeded with 0, first output: Steele, Lea & Flood's reference.
  EXPECT_EQ(mix64(0, 0), 0xe220a8397b1dcdafull);
  std::set<uint64_t> values;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    for (uint64_t index = 0; index < 40; ++index) values.insert(mix64(mix64(seed, 0), index));
  }
  EXPECT_EQ(values.size(), 1600u);
}

}  // namespace
}  // namespace danlu
