// Masters of bf16 weights in two halves, against ATen's rounding and against f32 masters.
#include "ops/optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/rng.h"

namespace danlu::ops {
namespace optimizer_test {

struct Halves {
  explicit Halves(int64_t count)
      : weight(at::zeros({count}, at::kBFloat16)), low(at::zeros({count}, at::kShort)) {}
  at::Tensor weight, low;
};

struct Functions {
  const char* name;
  decltype(&split_master) split;
  decltype(&join_master) join;
  decltype(&adamw_update) update;
};
const std::vector<Functions> kBoth = {
    {"kernel", &split_master, &join_master, &adamw_update},
    {"oracle", &oracle::split_master, &oracle::join_master, &oracle::adamw_update}};

uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

/// Every upper half (normal numbers, denormal ones, zeros, infinities and NaNs of both signs), with
/// lower halves around what rounds up, around none, and at random.
at::Tensor masters_of_all_kinds() {
  const std::vector<uint32_t> lower = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  const int64_t kinds = static_cast<int64_t>(lower.size()) + 2;
  at::Tensor masters = at::empty({kinds << 16});
  auto* to = static_cast<uint32_t*>(masters.data_ptr());
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t low : lower) *to++ = upper << 16 | low;
    for (uint64_t k = 0; k < 2; ++k)
      *to++ = upper << 16 | static_cast<uint32_t>(mix64(upper, k) & 0xffff);
  }
  return masters;
}

/// What is wrong with the halves of a master; empty if nothing is. nearest: ATen's rounding, whose
/// ties go to even.
std::string fault_of(float master, float weight, int16_t low, float joined, float nearest) {
  if (std::isnan(master)) {
    return std::isnan(weight) && std::isnan(joined) &&
                   std::signbit(master) == std::signbit(weight) &&
                   std::signbit(master) == std::signbit(joined)
               ? ""
               : "no NaN of that sign";
  }
  if (bits_of(joined) != bits_of(master)) return "another master";
  if ((bits_of(master) & 0xffff) != (static_cast<uint32_t>(low) & 0xffff)) return "another half";
  if ((bits_of(master) & 0xffff) == 0x8000) {
    if (std::fabs(weight) <= std::fabs(master)) return "a tie is not away from zero";
  } else if (bits_of(weight) != bits_of(nearest)) {
    return "not the nearest";
  }
  if (std::isinf(weight)) return "";
  // Seven bits behind the first one; denormal numbers are as far apart as the smallest others.
  const int exponent = master == 0 ? -126 : std::max(std::ilogb(master), -126);
  const double off = std::fabs(static_cast<double>(weight) - static_cast<double>(master));
  return off <= std::ldexp(0.5, exponent - 7) ? "" : "more than half a step off";
}

TEST(OptimizerMaster, IsTheSameBitsBehindASplit) {
  const at::Tensor masters = masters_of_all_kinds(),
                   nearest = masters.to(at::kBFloat16).to(at::kFloat);
  const int64_t count = masters.numel();
  for (const Functions& functions : kBoth) {
    const Halves halves(count);
    functions.split(masters, halves.weight, halves.low);
    const at::Tensor joined = functions.join(halves.weight, halves.low),
                     weights = halves.weight.to(at::kFloat);
    int64_t faults = 0;
    std::string first;
    for (int64_t i = 0; i < count; ++i) {
      const float master = masters.data_ptr<float>()[i];
      const std::string fault =
          fault_of(master, weights.data_ptr<float>()[i], halves.low.data_ptr<int16_t>()[i],
                   joined.data_ptr<float>()[i], nearest.data_ptr<float>()[i]);
      if (!fault.empty() && ++faults == 1) first = fault + ": " + std::to_string(bits_of(master));
    }
    EXPECT_EQ(faults, 0) << functions.name << ", " << first;
  }
}

TEST(OptimizerMaster, ThatIsInfiniteIsAnInfiniteWeight) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Functions& functions : kBoth) {
    for (const float master : {infinity, -infinity}) {
      const at::Tensor masters = at::empty({1}).fill_(master);
      const Halves halves(1);
      functions.split(masters, halves.weight, halves.low);
      EXPECT_EQ(halves.weight.to(at::kFloat).item<float>(), master) << functions.name;
      EXPECT_EQ(halves.low.item<int16_t>(), 0) << functions.name;
    }
  }
}

float random_number(uint64_t step, int64_t i, double scale) {
  const double unit =
      static_cast<double>(mix64(step, static_cast<uint64_t>(i)) >> 11) * std::ldexp(1.0, -53);
  return static_cast<float>((2 * unit - 1) * scale);
}

at::Tensor random_numbers(int64_t count, uint64_t step, double scale) {
  at::Tensor out = at::empty({count});
  for (int64_t i = 0; i < count; ++i) out.data_ptr<float>()[i] = random_number(step, i, scale);
  return out;
}

/// 20 updates of weights of 1e-5 … 1e4 by steps of 1e-3: some move by many of a bf16's steps, some
/// by a thousandth of one. Two parameters of two rates, with a gap.
void expect_same_masters(const Functions& functions, int64_t count) {
  const AdamWScalars slow{0.9f, 0.95f, 0.1f, 0.05f, 1e-8f, 1e-3f, 1.7f, 0.999f, 0.5f};
  AdamWScalars fast = slow;
  fast.step_size *= 2;
  const int64_t half = count / 2, after_gap = std::min(count, half + 3);
  const std::vector<Chunk> chunks = chunks_of({{0, half}, {after_gap, count}});
  const Halves halves(count);
  halves.weight.copy_(random_numbers(count, 1, 1));
  for (int64_t i = 0; i < count; ++i)
    halves.weight.narrow(0, i, 1).mul_(std::pow(10.0, i % 9 - 4.0));
  const at::Tensor master = halves.weight.to(at::kFloat), gap = halves.weight.clone();
  const at::Tensor rounded = halves.weight.clone();
  at::Tensor exp_avg[2], exp_avg_sq[2];
  for (size_t k = 0; k < 2; ++k) {
    exp_avg[k] = at::zeros({count});
    exp_avg_sq[k] = at::zeros({count});
  }
  for (uint64_t step = 2; step < 22; ++step) {
    const at::Tensor grad = random_numbers(count, step, 3);
    functions.update({master, exp_avg[0], exp_avg_sq[0], grad, rounded}, chunks,
                     std::vector{slow, fast});
    functions.update({{}, exp_avg[1], exp_avg_sq[1], grad, halves.weight, halves.low}, chunks,
                     std::vector{slow, fast});
    const at::Tensor joined = join_master(halves.weight, halves.low);
    ASSERT_TRUE(at::equal(joined.view(at::kInt), master.view(at::kInt))) << step;
    ASSERT_TRUE(at::equal(halves.weight.view(at::kShort), rounded.view(at::kShort))) << step;
  }
  EXPECT_TRUE(at::equal(exp_avg[0], exp_avg[1]));
  EXPECT_TRUE(at::equal(exp_avg_sq[0], exp_avg_sq[1]));
  EXPECT_TRUE(at::equal(halves.weight.narrow(0, half, after_gap - half),
                        gap.narrow(0, half, after_gap - half)));
}

TEST(OptimizerMaster, InHalvesBecomesWhatAWholeOneDoes) {
  for (const Functions& functions : kBoth) {
    // Lengths around the vector widths, and more than a chunk.
    for (const int64_t count : {1, 7, 16, 33, 1000, 70000}) {
      SCOPED_TRACE(functions.name + std::string(", ") + std::to_string(count));
      expect_same_masters(functions, count);
    }
  }
}

TEST(Optimizer, UpdatesAsTheComposite) {
  const AdamWScalars slow{0.9f, 0.95f, 0.1f, 0.05f, 1e-8f, 1e-2f, 1.7f, 0.9f, 0.5f};
  AdamWScalars fast = slow;
  fast.step_size *= 2;
  constexpr int64_t kCount = 700;
  const std::vector<Chunk> chunks = chunks_of({{0, 300}, {303, kCount}});
  // Signs under which no sum cancels, so that a relative limit holds for every element.
  const at::Tensor master = -random_numbers(kCount, 1, 1).abs(),
                   exp_avg = random_numbers(kCount, 2, 1).abs(),
                   exp_avg_sq = random_numbers(kCount, 3, 1).abs(),
                   grad = random_numbers(kCount, 4, 1).abs();
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf, at::kFloat}) {
    AdamWState states[2];
    for (size_t i = 0; i < 2; ++i) {
      states[i] = {master.clone(), exp_avg.clone(), exp_avg_sq.clone(), grad,
                   at::zeros({kCount}, type)};
      if (type == at::kFloat) states[i].weight = at::Tensor();
      kBoth[i].update(states[i], chunks, std::vector{slow, fast});
    }
    EXPECT_TRUE(at::allclose(states[0].master, states[1].master, 1e-6, 0));
    EXPECT_TRUE(at::allclose(states[0].exp_avg, states[1].exp_avg, 1e-6, 0));
    EXPECT_TRUE(at::allclose(states[0].exp_avg_sq, states[1].exp_avg_sq, 1e-6, 0));
    EXPECT_TRUE(at::equal(states[0].master.narrow(0, 300, 3), master.narrow(0, 300, 3)));
    if (type != at::kFloat) {
      EXPECT_TRUE(at::allclose(states[0].weight.to(at::kFloat), states[1].weight.to(at::kFloat),
                               0.01, 1e-6));
    }
  }
}

/// Kernels write by address: what is not as long as said would be written past its end.
TEST(Optimizer, RefusesTensorsThatDoNotFit) {
  const at::Tensor f32 = at::zeros({20}), bf16 = f32.to(at::kBFloat16), low = f32.to(at::kShort);
  const std::vector<Chunk> all = chunks_of({{0, 20}});
  const AdamWScalars scalars{.9f, .999f, .1f, .001f, 1e-8f, 1e-3f, 1, 1, 1};
  const auto update = [&](const AdamWState& state, const std::vector<Chunk>& chunks) {
    adamw_update(state, chunks, std::vector{scalars});
  };
  ASSERT_NO_THROW(update({f32, f32.clone(), f32.clone(), f32, bf16}, all));
  ASSERT_NO_THROW(update({{}, f32.clone(), f32.clone(), f32, bf16, low}, all));
  const at::Tensor shorter = at::zeros({19}), apart = at::zeros({40}).slice(0, 0, 40, 2);
  for (const at::Tensor& bad : {shorter, apart, f32.to(at::kDouble), f32.view({4, 5})}) {
    EXPECT_THROW(update({bad, f32, f32, f32, bf16}, all), ModelError);
    EXPECT_THROW(update({f32, bad, f32, f32, bf16}, all), ModelError);
    EXPECT_THROW(update({f32, f32, bad, f32, bf16}, all), ModelError);
    EXPECT_THROW(update({f32, f32, f32, bad, bf16}, all), ModelError);
    EXPECT_THROW(update({{}, f32, f32, f32, bad, low}, all), ModelError);
    EXPECT_THROW(update({{}, f32, f32, f32, bf16, bad}, all), ModelError);
    EXPECT_THROW(split_master(bad, bf16, low), ModelError);
    EXPECT_THROW(join_master(bf16, bad), ModelError);
  }
  EXPECT_THROW(update({f32, f32, f32, f32, shorter}, all), ModelError);
  EXPECT_THROW(update({f32, f32, f32, f32, {}}, chunks_of({{0, 21}})), ModelError);
  EXPECT_THROW(update({f32, f32, f32, f32, {}}, chunks_of({{0, 10}, {10, 20}})), ModelError);
  EXPECT_THROW(sums_of_squares(f32, chunks_of({{0, 21}})), ModelError);
  EXPECT_THROW(sums_of_squares(apart, all), ModelError);
}

}  // namespace optimizer_test
}  // namespace danlu::ops
