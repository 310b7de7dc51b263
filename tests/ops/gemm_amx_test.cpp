// Products in the tile registers of AMX, in the model of them and, where the processor has them, in
// its own: against f64, with edges in every direction. ctest's ops_tiles runs the other tests of
// products in the model too (DANLU_TEST_TILES).
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/cpu_class.h"
#include "base/error.h"
#include "base/tile_registers.h"
#include "finite_differences.h"
#include "ops/gemm_cpu.h"
#include "ops/gemm_kernels_cpu.h"

namespace danlu::ops {
namespace gemm_amx_test {

using cpu::Arithmetic;
using cpu::Element;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class AmxProducts : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    was_modelled_ = cpu_class() != CpuClass::kAmx && cpu::arithmetic_of(true) == Arithmetic::kAmx;
    if (is_modelled()) return cpu::multiply_in_model(true);
    if (cpu_class() != CpuClass::kAmx) GTEST_SKIP() << "this processor has no AMX";
    cpu::multiply_in_model(false);
  }
  void TearDown() override { cpu::multiply_in_model(was_modelled_); }
  static bool is_modelled() { return std::string(GetParam()) == "model"; }

 private:
  bool was_modelled_ = false;
};
INSTANTIATE_TEST_SUITE_P(In, AmxProducts, testing::Values("model", "processor"),
                         [](const auto& info) { return std::string(info.param); });

at::Tensor random_bf16(at::IntArrayRef sizes, uint64_t seed) {
  return test::random_f64(sizes, seed).to(at::kBFloat16);
}

/// What is summed in f32 in some order is so near to the exact sum.
void expect_close(const at::Tensor& got, const at::Tensor& exact, const at::Tensor& magnitudes,
                  double digits, const std::string& what) {
  ASSERT_EQ(got.sizes(), exact.sizes());
  if (exact.numel() == 0) return;
  const at::Tensor bound = exact.abs() * std::pow(2.0, -digits) + magnitudes * 0x1p-20 + 1e-30;
  const double worst = ((got.to(at::kDouble) - exact).abs() / bound).max().item<double>();
  EXPECT_LE(worst, 1.0) << what;
}

/// `count` columns, of [k, count], as a panel.
std::vector<uint32_t> panel_of(const at::Tensor& right_KN) {
  const auto k = static_cast<size_t>(right_KN.size(0)),
             count = static_cast<size_t>(right_KN.size(1));
  const size_t columns = cpu::panel_columns(Arithmetic::kAmx);
  std::vector<uint32_t> panel(cpu::steps_of(Arithmetic::kAmx, k) * columns, 0x7fc07fc0u);
  cpu::pack(Arithmetic::kAmx, {Element::kBF16, right_KN.data_ptr(), count, 1}, k, count, columns,
            panel.data());
  return panel;
}

TEST_P(AmxProducts, TilesWriteTheirRowsAndColumnsAndNothingBeside) {
  constexpr int64_t kRow = 41, kMore = 33;
  for (const int64_t rows : {1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49, 96}) {
    for (const int64_t columns : {1, 16, 17, 32}) {
      for (const int64_t k : {0, 1, 31, 32, 95}) {
        const at::Tensor left_MK = random_bf16({rows, k}, 1),
                         right_KN = random_bf16({k, columns}, 2);
        const std::vector<uint32_t> panel = panel_of(right_KN);
        const auto m = static_cast<size_t>(rows), depth = static_cast<size_t>(k);
        std::vector<char> block(cpu::left_bytes(Arithmetic::kAmx, depth, m), char{0x7f});
        cpu::pack_left(Arithmetic::kAmx,
                       {Element::kBF16, left_MK.data_ptr(), 1, static_cast<size_t>(k)}, depth, m, m,
                       block.data());
        const cpu::LeftRows left = cpu::packed_left(Arithmetic::kAmx, depth, m, block.data());
        for (const bool add : {false, true}) {
          const at::Tensor c = at::full({rows + kMore, kRow}, add ? 0.5 : kNan, at::kFloat);
          c.narrow(0, rows, kMore).fill_(9);
          c.narrow(1, 32, kRow - 32).fill_(9);
          {
            const cpu::TileShapes shapes(Arithmetic::kAmx);
            cpu::multiply_tile(Arithmetic::kAmx, {m, cpu::steps_of(Arithmetic::kAmx, depth),
                                                  left.data, left.row, left.step, panel.data(),
                                                  c.data_ptr<float>(), static_cast<size_t>(kRow),
                                                  add, nullptr, 0, static_cast<size_t>(columns)});
          }
          const at::Tensor l = left_MK.to(at::kDouble), r = right_KN.to(at::kDouble);
          const std::string what = std::to_string(rows) + " x " + std::to_string(columns) + " x " +
                                   std::to_string(k) + (add ? " added" : "");
          expect_close(c.narrow(0, 0, rows).narrow(1, 0, columns), l.matmul(r) + (add ? 0.5 : 0.0),
                       l.abs().matmul(r.abs()) + 1, 24, what);
          EXPECT_TRUE((c.narrow(0, rows, kMore) == 9).all().item<bool>()) << what;
          EXPECT_TRUE((c.narrow(1, 32, kRow - 32) == 9).all().item<bool>()) << what;
        }
      }
    }
  }
}

TEST_P(AmxProducts, APackedLeftFactorIsItsRowsWithZerosBehindThem) {
  for (const int64_t k : {1, 2, 31, 32, 33, 130}) {
    for (const int64_t rows : {1, 4, 7, 33}) {
      for (const bool is_turned : {false, true}) {
        // In the midst of a larger matrix of what may not be read.
        const at::Tensor whole = at::full(
            is_turned ? at::IntArrayRef{k + 2, rows + 5} : at::IntArrayRef{rows + 2, k + 5}, kNan,
            at::kBFloat16);
        const at::Tensor own = is_turned ? whole.narrow(0, 1, k).narrow(1, 3, rows)
                                         : whole.narrow(0, 1, rows).narrow(1, 3, k);
        own.copy_(random_bf16(own.sizes(), 4));
        const at::Tensor x_MK = is_turned ? own.t() : own;
        const auto m = static_cast<size_t>(rows), depth = static_cast<size_t>(k);
        std::vector<char> block(cpu::left_bytes(Arithmetic::kAmx, depth, m + 9), char{0x7f});
        cpu::pack_left(Arithmetic::kAmx,
                       {Element::kBF16, own.data_ptr(), static_cast<size_t>(x_MK.stride(1)),
                        static_cast<size_t>(x_MK.stride(0))},
                       depth, m, m + 9, block.data());
        const cpu::LeftRows left = cpu::packed_left(Arithmetic::kAmx, depth, m + 9, block.data());
        EXPECT_EQ(left.step, 4u);
        for (int64_t i = 0; i < rows; ++i) {
          const at::Tensor row = x_MK.select(0, i).contiguous();
          const char* const at = left.data + static_cast<size_t>(i) * left.row;
          EXPECT_EQ(std::memcmp(at, row.data_ptr(), 2 * depth), 0) << k << ' ' << i << is_turned;
          for (size_t byte = 2 * depth; byte < 4 * cpu::steps_of(Arithmetic::kAmx, depth); ++byte)
            ASSERT_EQ(at[byte], 0) << k << ' ' << i << is_turned;
        }
      }
    }
  }
}

struct Case {
  int64_t m, n, k;
  bool left_turned, right_turned, add, bias;
  at::ScalarType result;
  std::string name() const {
    return std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k) + " " +
           c10::toString(result) + (left_turned ? " left turned" : "") +
           (right_turned ? " right turned" : "") + (add ? " added" : "") + (bias ? " bias" : "");
  }
};

/// A matrix [rows, k] in the midst of a larger one of NaN, k contiguous or, turned, rows.
at::Tensor within(int64_t rows, int64_t k, bool is_turned, uint64_t seed) {
  const at::Tensor whole =
      at::full(is_turned ? at::IntArrayRef{k + 3, rows + 7} : at::IntArrayRef{rows + 3, k + 7},
               kNan, at::kBFloat16);
  const at::Tensor own = is_turned ? whole.narrow(0, 1, k).narrow(1, 5, rows).t()
                                   : whole.narrow(0, 1, rows).narrow(1, 5, k);
  own.copy_(random_bf16({rows, k}, seed));
  return own;
}
cpu::Factor factor(const at::Tensor& x_MK) {
  return {Element::kBF16, x_MK.data_ptr(), static_cast<size_t>(x_MK.stride(1)),
          static_cast<size_t>(x_MK.stride(0))};
}

/// The product in a larger matrix, whose other elements must stay.
at::Tensor product(const Case& c, const at::Tensor& left, const at::Tensor& right,
                   const at::Tensor& bias) {
  const at::Tensor whole = at::full({c.m + 2, c.n + 5}, 9, c.result);
  const at::Tensor y = whole.narrow(0, 1, c.m).narrow(1, 2, c.n);
  y.fill_(c.add ? 0.25 : static_cast<double>(kNan));
  const Element element = c.result == at::kFloat      ? Element::kF32
                          : c.result == at::kBFloat16 ? Element::kBF16
                                                      : Element::kF16;
  cpu::multiply({static_cast<size_t>(c.m), static_cast<size_t>(c.n), static_cast<size_t>(c.k),
                 factor(left), factor(right), element, y.data_ptr(),
                 static_cast<size_t>(whole.stride(0)), c.bias ? bias.data_ptr() : nullptr, c.add});
  const at::Tensor result = y.clone();
  y.fill_(9);
  EXPECT_TRUE((whole == 9).all().item<bool>()) << c.name() << ": wrote beside the result";
  return result;
}

TEST_P(AmxProducts, OfEveryShapeAreTheExactOnesRoundedOnce) {
  std::vector<Case> cases{
      {1, 1, 1, false, false, false, false, at::kFloat},
      {32, 32, 32, false, false, false, false, at::kFloat},
      {33, 65, 64, false, false, true, false, at::kFloat},
      // More than a slice, packed (2048) and in place (8192), of 16 bits and of f32.
      {40, 37, 2400, true, true, false, false, at::kBFloat16},
      {40, 70, 4100, true, false, true, false, at::kFloat},
      {35, 33, 8256, false, false, false, true, at::kBFloat16},
      {300, 16, 96, false, false, false, false, at::kBFloat16},
      {5, 3, 0, false, false, false, true, at::kFloat}};
  std::mt19937 random(5);
  for (int i = 0; i < 60; ++i) {
    const auto size = [&](int64_t most) { return static_cast<int64_t>(random() % most) + 1; };
    const bool add = random() % 4 == 0;
    cases.push_back(
        {size(130), size(130), i % 3 == 0 ? 32 * size(4) : size(150), random() % 2 == 0,
         random() % 2 == 0, add, !add && random() % 2 == 0,
         add ? at::kFloat : std::vector{at::kFloat, at::kBFloat16, at::kHalf}.at(random() % 3)});
  }
  for (const Case& c : cases) {
    if (c.result == at::kHalf && !cpu::rounds_f16()) continue;
    const at::Tensor left = within(c.m, c.k, c.left_turned, 1),
                     right = within(c.n, c.k, c.right_turned, 2),
                     bias = test::random_f64({c.n}, 3).to(c.result);
    const at::Tensor y = product(c, left, right, bias);
    const at::Tensor l = left.to(at::kDouble), r = right.to(at::kDouble);
    at::Tensor exact = l.matmul(r.t()), magnitudes = l.abs().matmul(r.abs().t()) + 0.25;
    if (c.add) exact = exact + 0.25;
    if (c.bias) exact = exact + bias.to(at::kDouble);
    expect_close(y, exact, magnitudes,
                 c.result == at::kFloat      ? 24
                 : c.result == at::kBFloat16 ? 8
                                             : 11,
                 c.name());
  }
}

TEST_P(AmxProducts, HaveTheSameBitsForEveryNumberOfThreads) {
  const int threads = at::get_num_threads();
  for (const Case& c : {Case{203, 171, 2310, true, false, true, false, at::kFloat},
                        Case{203, 171, 4608, false, true, false, true, at::kBFloat16}}) {
    const at::Tensor left = within(c.m, c.k, c.left_turned, 1),
                     right = within(c.n, c.k, c.right_turned, 2),
                     bias = test::random_f64({c.n}, 3).to(c.result);
    at::set_num_threads(1);
    const at::Tensor one = product(c, left, right, bias);
    for (const int more : {2, 5}) {
      at::set_num_threads(more);
      EXPECT_TRUE(at::equal(product(c, left, right, bias), one)) << c.name() << ' ' << more;
    }
    at::set_num_threads(threads);
  }
}

/// A shape for the registers is loaded by who begins, and given up by who ends.
TEST_P(AmxProducts, LeaveTheRegistersInTheirInitialState) {
  if (!is_modelled()) GTEST_SKIP() << "asked of the model";
  EXPECT_FALSE(tiles::Model::is_configured());
  {
    const cpu::TileShapes none(Arithmetic::kF32);
    EXPECT_FALSE(tiles::Model::is_configured());
    const cpu::TileShapes outer(Arithmetic::kAmx);
    {
      const cpu::TileShapes inner(Arithmetic::kAmx);
    }
    EXPECT_TRUE(tiles::Model::is_configured());
  }
  EXPECT_FALSE(tiles::Model::is_configured());
  const Case c{40, 40, 40, false, false, false, false, at::kFloat};
  product(c, within(c.m, c.k, false, 1), within(c.n, c.k, false, 2), {});
  EXPECT_FALSE(tiles::Model::is_configured());
}

TEST_P(AmxProducts, AreThoseOfTwoFactorsOfBf16Alone) {
  EXPECT_EQ(cpu::arithmetic_of(true), Arithmetic::kAmx);
  EXPECT_EQ(cpu::arithmetic_of(false), Arithmetic::kF32);
  // Left factors that registers cannot read.
  const cpu::TileShapes shapes(Arithmetic::kAmx);
  std::vector<float> memory(4096);
  EXPECT_THROW(cpu::multiply_tile(Arithmetic::kAmx, {1, 16, memory.data(), 4, 64, memory.data(),
                                                     memory.data(), 32, false}),
               InternalError);
  EXPECT_THROW(cpu::multiply_tile(Arithmetic::kAmx, {1, 15, memory.data(), 64, 4, memory.data(),
                                                     memory.data(), 32, false}),
               InternalError);
}

}  // namespace gemm_amx_test
}  // namespace danlu::ops
