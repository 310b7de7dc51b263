// The model of AMX's registers against sums by hand and in integers; the check that a processor
// must pass, by registers that do something else; and the processor's own registers where they are.
#include "base/tile_registers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "base/error.h"

namespace danlu::tiles {
namespace tile_registers_test {

/// Numbers that bf16 has; more bits are cut off.
uint16_t bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>(bits >> 16);
}

Configuration shapes(size_t m, size_t n, size_t pairs) {
  Configuration result;
  result.set(0, m, n * sizeof(float));
  result.set(1, m, pairs * 4);
  result.set(2, pairs, n * 4);
  return result;
}

/// sum + a product of pairs: one row of a, one column of b.
float dot(const std::vector<float>& a, const std::vector<float>& b, float sum = 0) {
  std::vector<uint16_t> left, right;
  for (const float value : a) left.push_back(bf16(value));
  for (const float value : b) right.push_back(bf16(value));
  Model::configure(shapes(1, 1, a.size() / 2));
  Model::load<0>(&sum, sizeof sum);
  Model::load<1>(left.data(), 64);
  Model::load<2>(right.data(), 4);
  Model::multiply_add<0, 1, 2>();
  Model::store<0>(&sum, sizeof sum);
  Model::release();
  return sum;
}

TEST(TileModel, MultipliesWholeNumbersExactly) {
  std::mt19937 random(3);
  for (const auto& [m, n, pairs] : {std::array<size_t, 3>{16, 16, 16}, {1, 1, 1}, {5, 11, 7}}) {
    std::vector<int> a(m * 2 * pairs), b(2 * pairs * n);
    for (int& value : a) value = static_cast<int>(random() % 17) - 8;
    for (int& value : b) value = static_cast<int>(random() % 17) - 8;
    std::vector<uint16_t> left, right(b.size());
    for (const int value : a) left.push_back(bf16(static_cast<float>(value)));
    for (size_t k = 0; k < 2 * pairs; ++k)  // [2 pairs, n] as pairs along k
      for (size_t j = 0; j < n; ++j)
        right[(k / 2 * n + j) * 2 + k % 2] = bf16(static_cast<float>(b[k * n + j]));
    std::vector<float> sums(m * n, 100.0f);
    Model::configure(shapes(m, n, pairs));
    Model::load<0>(sums.data(), n * 4);
    Model::load<1>(left.data(), pairs * 4);
    Model::load<2>(right.data(), n * 4);
    Model::multiply_add<0, 1, 2>();
    Model::store<0>(sums.data(), n * 4);
    Model::release();
    for (size_t i = 0; i < m; ++i) {
      for (size_t j = 0; j < n; ++j) {
        int expected = 100;
        for (size_t k = 0; k < 2 * pairs; ++k) expected += a[i * 2 * pairs + k] * b[k * n + j];
        EXPECT_EQ(sums[i * n + j], static_cast<float>(expected)) << m << ' ' << i << ' ' << j;
      }
    }
  }
}

TEST(TileModel, SumsFirstAndSecondMembersApartAndRoundsToEven) {
  constexpr float kLarge = 0x1p24f;  // one more is lost, two are not
  // One after the other the ones would be lost each time.
  EXPECT_EQ(dot({kLarge, 1, 0, 1}, {1, 1, 1, 1}), kLarge + 2);
  EXPECT_EQ(dot({1, kLarge, 1, 0}, {1, 1, 1, 1}), kLarge + 2);
  EXPECT_EQ(dot({kLarge, 0, 1, 0, 1, 0}, {1, 1, 1, 1, 1, 1}), kLarge);
  // What is there comes last.
  EXPECT_EQ(dot({1, 1}, {1, 1}, kLarge), kLarge + 2);
  EXPECT_EQ(dot({1, 0}, {1, 1}, kLarge), kLarge);
  EXPECT_EQ(dot({3, 0}, {1, 1}, kLarge), kLarge + 4);
  // Fused: a product that f32 cannot hold is added as it is.
  EXPECT_EQ(dot({-0x1p127f, 0, 0x1p64f, 0}, {1, 1, 0x1p64f, 1}), 0x1p127f);
}

TEST(TileModel, DenormalNumbersAreZeroOnTheirWayInAndOut) {
  EXPECT_EQ(dot({0x1p-127f, 0}, {0x1p100f, 1}), 0.0f);
  EXPECT_EQ(dot({0x1p100f, 0}, {0x1p-127f, 1}), 0.0f);
  EXPECT_EQ(dot({0x1p-70f, 0}, {0x1p-57f, 1}), 0.0f);  // 2^-127
  EXPECT_EQ(dot({0x1p-70f, 0}, {0x1p-56f, 1}), 0x1p-126f);
  EXPECT_EQ(dot({0, 0}, {1, 1}, 0x1p-127f), 0.0f);
  EXPECT_EQ(dot({0x1p-126f, 0}, {1, 1}, -0x1.8p-126f), 0.0f);
  EXPECT_TRUE(std::signbit(dot({0x1p-126f, 0}, {1, 1}, -0x1.8p-126f)));
  EXPECT_TRUE(std::isnan(dot({std::numeric_limits<float>::infinity(), 0}, {0, 1})));
}

TEST(TileModel, WritesConfiguredRowsAndBytesAndClearsOtherRows) {
  std::vector<float> memory(20 * 20, 7.0f), source(16 * 16, 3.0f);
  Configuration small;
  small.set(5, 3, 20);
  Model::configure(small);
  Model::load<5>(source.data(), 64);
  Model::store<5>(memory.data(), 20 * sizeof(float));
  for (size_t i = 0; i < 20; ++i)
    for (size_t j = 0; j < 20; ++j)
      EXPECT_EQ(memory[i * 20 + j], i < 3 && j < 5 ? 3.0f : 7.0f) << i << ' ' << j;
  Model::zero<5>();
  Model::store<5>(memory.data(), 20 * sizeof(float));
  EXPECT_EQ(memory[0], 0.0f);
  EXPECT_TRUE(Model::is_configured());
  Model::release();
  EXPECT_FALSE(Model::is_configured());
}

TEST(TileModel, RefusesWhereTheProcessorFaults) {
  float memory[256] = {};
  Model::release();
  EXPECT_THROW(Model::zero<0>(), InternalError);
  Model::configure(shapes(4, 4, 4));
  EXPECT_THROW((Model::load<3>(memory, 64)), InternalError);  // not used
  Model::configure(shapes(4, 4, 4));
  EXPECT_THROW((Model::multiply_add<1, 0, 1>()), InternalError);
  for (const auto& [tile, rows, bytes] :
       {std::array<size_t, 3>{1, 3, 16}, {1, 4, 12}, {2, 3, 16}, {2, 4, 12}, {0, 4, 20}}) {
    Configuration other = shapes(4, 4, 4);
    other.set(tile, rows, bytes);
    Model::configure(other);
    EXPECT_THROW((Model::multiply_add<0, 1, 2>()), InternalError) << tile << rows << bytes;
  }
  for (const auto& [rows, bytes] : {std::pair<size_t, size_t>{17, 64}, {16, 68}, {0, 4}, {4, 0}}) {
    Configuration wrong;
    wrong.set(0, rows, bytes);
    EXPECT_THROW(Model::configure(wrong), InternalError) << rows << ' ' << bytes;
  }
  Model::release();
}

struct Overwriting : Model {
  template <int kSums, int kA, int kB>
  static void multiply_add() {
    zero<kSums>();
    Model::multiply_add<kSums, kA, kB>();
  }
};
struct Shifted : Model {
  template <int kTile>
  static void load(const void* from, size_t stride) {
    Model::load<kTile>(static_cast<const char*>(from) + (kTile == 6 ? 4 : 0), stride);
  }
};
struct PairsTurned : Model {
  template <int kTile>
  static void load(const void* from, size_t stride) {
    if (kTile != 4) return Model::load<kTile>(from, stride);
    std::vector<char> turned(SmallProduct::kM * stride);
    std::memcpy(turned.data(), from, turned.size());
    for (size_t i = 0; i < turned.size(); i += 4)
      std::swap_ranges(&turned[i], &turned[i] + 2, &turned[i + 2]);
    Model::load<kTile>(turned.data(), stride);
  }
};
struct Idle : Model {
  template <int kSums, int kA, int kB>
  static void multiply_add() {}
};

TEST(TileCheck, PassesWhatMultipliesAsTheManualSaysAlone) {
  EXPECT_TRUE(multiply_like_the_model<Model>());
  EXPECT_FALSE(multiply_like_the_model<Overwriting>());
  EXPECT_FALSE(multiply_like_the_model<Shifted>());
  EXPECT_FALSE(multiply_like_the_model<PairsTurned>());
  EXPECT_FALSE(multiply_like_the_model<Idle>());
  SmallProduct got = small_product();
  const SmallProduct expected = got;
  got.sums[12][15] += 1e-4f;
  EXPECT_TRUE(are_close(got, expected));
  got.sums[12][15] += 0.01f;
  EXPECT_FALSE(are_close(got, expected));
  got.sums[12][15] = std::nanf("");
  EXPECT_FALSE(are_close(got, expected));
}

TEST(TileCheck, WithoutRegistersTheSystemRefusesThem) {
  if (are_there()) GTEST_SKIP() << "this processor has them";
  EXPECT_NE(ask_for_permission(), 0);
}

#if defined(__x86_64__)
/// What the manual leaves open to doubt: the order of sums, and denormal numbers.
TEST(TileHardware, GivesTheBitsOfTheModel) {
  if (!are_there() || ask_for_permission() != 0) GTEST_SKIP() << "no AMX, or it is not granted";
  std::mt19937 random(9);
  for (int round = 0; round < 200; ++round) {
    SmallProduct got = small_product();
    // Exponents around 1, and in odd rounds such that products are denormal.
    const auto number = [&] {
      const unsigned exponent = (round % 2 == 0 ? 120 : 60) + random() % 10;
      return static_cast<uint16_t>((random() & 0x807f) | exponent << 7);
    };
    for (auto& step : got.a)
      for (auto& row : step)
        for (uint16_t& value : row) value = number();
    for (auto& step : got.b)
      for (auto& row : step)
        for (uint16_t& value : row) value = number();
    if (round % 2 == 1) std::memset(got.sums, 0, sizeof got.sums);
    SmallProduct expected = got;
    multiply_small<Hardware>(got);
    multiply_small<Model>(expected);
    ASSERT_EQ(std::memcmp(got.sums, expected.sums, sizeof got.sums), 0) << round;
  }
}
#endif

}  // namespace tile_registers_test
}  // namespace danlu::tiles
