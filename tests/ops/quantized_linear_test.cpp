// Products with quantised weights, for every type of blocks, against f64 products of the numbers
// that the blocks stand for.
#include "ops/quantized_linear.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <random>
#include <span>

#include "base/dtype.h"
#include "base/error.h"
#include "finite_differences.h"
#include "ops/backend.h"
#include "random_blocks.h"
#include "support/cpu_table.h"
#include "support/throws.h"

namespace danlu::ops {
namespace {

using test::kBlockTypes;
using test::Matrix;
using test::random_matrix;

std::string name_of(BlockType type) { return std::string(block_traits(type).name); }

TEST(BlockWeight, HoldsTheNumbersOfItsBlocks) {
  for (const BlockType type : kBlockTypes) {
    for (const int64_t rows : {1, 15, 16, 17, 50}) {
      const Matrix matrix = random_matrix(type, rows, 512);
      EXPECT_TRUE(at::equal(matrix.weight.dense().to(at::kDouble), matrix.dense_OI))
          << name_of(type) << " " << rows;
    }
  }
}

TEST(BlockWeight, TakesTheMemoryOfItsBlocks) {
  for (const BlockType type : kBlockTypes) {
    const double blocks = static_cast<double>(block_bytes(type, 256 * 512));
    const double bytes = static_cast<double>(random_matrix(type, 512, 256).weight.size_bytes());
    EXPECT_LE(bytes, blocks * (type == BlockType::kQ4_K ? 1.028 : 1.0)) << name_of(type);
  }
}

/// Inputs that are whole multiples of a 127th of their group's largest lose nothing: what is left
/// are f32 sums.
TEST(QuantizedLinear, IsExactWhereTheInputIsWholeMultiples) {
  for (const BlockType type : kBlockTypes) {
    for (const auto& [n, outputs, inputs] : {std::tuple(1, 48, 256),
                                             {2, 17, 512},
                                             {3, 16, 256},
                                             {7, 33, 768},
                                             {8, 5, 256},
                                             {70, 40, 512}}) {
      const Matrix matrix = random_matrix(type, outputs, inputs);
      at::Tensor codes = at::randint(-127, 128, {n, inputs / 32, 32}, at::kDouble);
      codes.select(2, 0).fill_(127);
      const at::Tensor x =
          (codes * (at::randint(1, 9, {n, inputs / 32, 1}, at::kDouble) / 16)).view({n, inputs});
      const at::Tensor bias = test::random_f64({outputs}, 3).to(at::kFloat);
      const at::Tensor y = quantized_linear(x.to(at::kFloat), matrix.weight, bias);
      const at::Tensor exact = x.matmul(matrix.dense_OI.t()) + bias.to(at::kDouble);
      // At most `inputs` / 32 f32 additions of products rounded a few times.
      const at::Tensor sums = x.abs().matmul(matrix.dense_OI.abs().t()) + bias.abs();
      const double limit = static_cast<double>(inputs / 32 + 16) * 0x1p-24;
      EXPECT_LT(((y.to(at::kDouble) - exact).abs() / sums).max().item<double>(), limit)
          << name_of(type) << " " << n << " x " << inputs << " -> " << outputs;
    }
  }
}

/// The bound of the header: half a 127th of the group's largest, on every weight of the group.
TEST(QuantizedLinear, IsOffByHalfAStepOfTheInputAtMost) {
  for (const BlockType type : kBlockTypes) {
    const Matrix matrix = random_matrix(type, 40, 1024);
    const at::Tensor x = test::random_f64({9, 1024}, 7);
    const at::Tensor y = quantized_linear(x.to(at::kFloat), matrix.weight).to(at::kDouble);
    const at::Tensor exact = x.matmul(matrix.dense_OI.t());
    const at::Tensor steps = x.view({9, 32, 32}).abs().amax({2}) / 127 / 2;
    const at::Tensor bound = steps.matmul(matrix.dense_OI.view({40, 32, 32}).abs().sum(2).t());
    EXPECT_LE(((y - exact).abs() / bound).max().item<double>(), 1.0 + 1e-4) << name_of(type);
    // And it is no general slack: errors of a random sign are far below.
    EXPECT_LE((y - exact).abs().mean().item<double>(), 0.05 * bound.mean().item<double>())
        << name_of(type);
  }
}

TEST(QuantizedLinear, ARowDoesNotDependOnTheOthersNorOnThreads) {
  const Matrix matrix = random_matrix(BlockType::kQ4_K, 100, 512);
  const at::Tensor x = test::random_f64({75, 512}, 1).to(at::kBFloat16);
  const at::Tensor together = quantized_linear(x, matrix.weight);
  EXPECT_EQ(together.scalar_type(), at::kBFloat16);
  std::vector<at::Tensor> apart;
  for (int64_t i = 0; i < 75; ++i)
    apart.push_back(quantized_linear(x.narrow(0, i, 1), matrix.weight));
  EXPECT_TRUE(at::equal(together, at::cat(apart)));
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  EXPECT_TRUE(at::equal(together, quantized_linear(x, matrix.weight)));
  at::set_num_threads(threads);
}

/// Inputs of a power of two times whole numbers lose nothing in bf16 and to the CPU's codes.
TEST(QuantizedLinear, OfFewRowsIsRoundedOnceAndEachIsItsOwn) {
  for (const BlockType type : kBlockTypes) {
    const Matrix matrix = random_matrix(type, 37, 768);
    at::Tensor codes = at::randint(-127, 128, {8, 24, 32}, at::kDouble);
    codes.select(2, 0).fill_(127);
    const at::Tensor x = (codes / 64).view({8, 768});
    const at::Tensor bias = test::random_f64({37}, 5).to(at::kBFloat16);
    const at::Tensor together = quantized_linear(x.to(at::kBFloat16), matrix.weight, bias);
    const at::Tensor exact = x.matmul(matrix.dense_OI.t()) + bias.to(at::kDouble);
    const at::Tensor sums = x.abs().matmul(matrix.dense_OI.abs().t());
    const at::Tensor limit = exact.abs() * 0x1p-8 + sums * 40 * 0x1p-24;
    EXPECT_LE(((together.to(at::kDouble) - exact).abs() / limit).max().item<double>(), 1)
        << name_of(type);
    for (const int64_t rows : {1, 3, 7}) {
      const at::Tensor some = x.narrow(0, 8 - rows, rows).to(at::kBFloat16);
      EXPECT_TRUE(at::equal(quantized_linear(some, matrix.weight, bias),
                            together.narrow(0, 8 - rows, rows)))
          << name_of(type) << " " << rows;
    }
  }
}

TEST(QuantizedLinear, SeveralWeightsGiveWhatEachGivesAlone) {
  const Matrix first = random_matrix(BlockType::kQ4_K, 1000, 512),
               second = random_matrix(BlockType::kQ8_0, 7, 512),
               third = random_matrix(BlockType::kQ6_K, 700, 512);
  const int threads = at::get_num_threads();
  uint64_t seed = 1;  // each its own: memory that is used again must not hold what is expected
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int used : {1, 3}) {
      at::set_num_threads(used);
      const at::Tensor x = test::random_f64({2, 3, 512}, seed++).to(type);
      const at::Tensor bias = test::random_f64({700}, 2).to(type);
      const auto together =
          quantized_linears(x, {{first.weight}, {second.weight}, {third.weight, bias}});
      ASSERT_EQ(together.size(), 3u);
      EXPECT_TRUE(at::equal(together[0], quantized_linear(x, first.weight)));
      EXPECT_TRUE(at::equal(together[1], quantized_linear(x, second.weight)));
      EXPECT_TRUE(at::equal(together[2], quantized_linear(x, third.weight, bias)));
    }
  }
  at::set_num_threads(threads);
}

/// Holds where the processor does not round to the type itself, too: the sums are the same.
TEST(QuantizedLinear, ATypeOf16BitsDiffersByOneRoundingAlone) {
  const Matrix matrix = random_matrix(BlockType::kQ4_0, 33, 512);
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor x = test::random_f64({5, 512}, 1).to(type);
    const at::Tensor bias = test::random_f64({33}, 2).to(type);
    EXPECT_TRUE(
        at::equal(quantized_linear(x, matrix.weight, bias),
                  quantized_linear(x.to(at::kFloat), matrix.weight, bias.to(at::kFloat)).to(type)));
  }
}

TEST(QuantizedLinear, WhatIsNoNumberStaysNone) {
  for (const BlockType type : kBlockTypes) {
    const Matrix matrix = random_matrix(type, 16, 256);
    for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
      at::Tensor x = at::zeros({2, 256}, at::TensorOptions(at::kFloat));
      x[1][77] = bad;
      const at::Tensor y = quantized_linear(x, matrix.weight);
      EXPECT_TRUE(at::equal(y[0], at::zeros({16}))) << name_of(type);
      EXPECT_TRUE(at::isnan(y[1]).all().item<bool>()) << name_of(type);
    }
  }
}

std::atomic<int> products_by_the_table, rows_by_the_table;

TEST(QuantizedLinear, IsTheTablesEntry) {
  const Matrix matrix = random_matrix(BlockType::kQ8_0, 20, 256);
  const at::Tensor x = test::random_f64({2, 3, 256}, 1).to(at::kFloat);
  const at::Tensor ids = at::tensor({3, 19, 3}, at::TensorOptions(at::kLong));
  const at::Tensor y = quantized_linear(x, matrix.weight),
                   rows = quantized_embedding(ids, matrix.weight, at::kFloat);
  Backend table = cpu::backend();
  table.block_products = [](const at::Tensor& x_NI, std::span<const BlockFactor> factors) {
    ++products_by_the_table;
    EXPECT_TRUE(x_NI.dim() == 2 && x_NI.is_contiguous());
    return cpu::backend().block_products(x_NI, factors);
  };
  table.block_rows = [](const BlockWeight& weight, const at::Tensor& ids_N, at::ScalarType type) {
    ++rows_by_the_table;
    return cpu::backend().block_rows(weight, ids_N, type);
  };
  {
    const test::CpuTable other(table);
    EXPECT_TRUE(at::equal(quantized_linear(x, matrix.weight), y));
    EXPECT_TRUE(at::equal(quantized_embedding(ids, matrix.weight, at::kFloat), rows));
  }
  EXPECT_EQ(products_by_the_table, 1);
  EXPECT_EQ(rows_by_the_table, 1);
  table.block_products = nullptr;
  EXPECT_THROW(set_backend(c10::DeviceType::Vulkan, table), ModelError);
  table.block_rows = nullptr;
  const test::CpuTable none(table);
  EXPECT_FALSE(multiplies_quantized(c10::DeviceType::CPU));
  EXPECT_THROW(quantized_linear(x, matrix.weight), DeviceError);
}

TEST(QuantizedLinear, RowsOfTheEmbeddingAreThoseOfTheWeight) {
  const Matrix matrix = random_matrix(BlockType::kQ6_K, 20, 256);
  const at::Tensor ids = at::tensor({3, 19, 3}, at::TensorOptions(at::kLong));
  EXPECT_TRUE(at::equal(quantized_embedding(ids, matrix.weight, at::kDouble),
                        matrix.dense_OI.index_select(0, ids)));
}

TEST(Quantized, OfADenseWeightIsWithinHalfAStep) {
  const at::Tensor weight = test::random_f64({33, 96}, 4).to(at::kBFloat16);
  const at::Tensor largest = weight.to(at::kFloat).view({33, 3, 32}).abs().amax({2}, true);
  for (const auto& [type, levels] : {std::pair(BlockType::kQ8_0, 127.0), {BlockType::kQ4_0, 8.0}}) {
    const at::Tensor dense = quantized(type, weight, "w")->dense();
    const at::Tensor off = (dense - weight.to(at::kFloat)).view({33, 3, 32}).abs();
    // Q4_0 has no code for +8 of its steps: there it is a whole one. F16 rounds the scale.
    const double steps = type == BlockType::kQ4_0 ? 1.0 : 0.5;
    EXPECT_LE((off / (largest / levels)).max().item<double>(), steps + levels * 0x1p-11)
        << name_of(type);
  }
}

TEST(Quantized, ANumberWithoutAScaleIsNamed) {
  at::Tensor weight = at::zeros({2, 32}, at::TensorOptions(at::kFloat));
  weight[1][5] = 1e9;
  EXPECT_THAT(test::error_of<ModelError>([&] { quantized(BlockType::kQ4_0, weight, "a.weight"); }),
              testing::HasSubstr("[quantize] a.weight holds a number beyond ±524032"));
  EXPECT_THAT(test::error_of<ModelError>(
                  [] { quantized(BlockType::kQ8_0, at::zeros({16, 48}, at::kFloat), "w"); }),
              testing::HasSubstr("48"));
}

}  // namespace
}  // namespace danlu::ops
