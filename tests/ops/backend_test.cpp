// The table of kernels: what is empty in it is the composite's, and what only other devices fill is
// held against autograd of ATen, on the CPU.
#include "ops/backend.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "finite_differences.h"
#include "ops/dora.h"
#include "ops/embedding.h"
#include "ops/kernels.h"
#include "ops/linear.h"
#include "ops/pointwise.h"
#include "ops/rms_norm.h"
#include "ops/swiglu.h"
#include "support/cpu_table.h"

namespace danlu::ops {
namespace backend_test {

using test::random_f64;
using Tensors = std::vector<at::Tensor>;

TEST(Backend, OfAnUnknownDeviceIsEmptyAndOfTheCpuTakesItsTypes) {
  EXPECT_EQ(backend_of(c10::DeviceType::PrivateUse1).takes, nullptr);
  EXPECT_EQ(backend_of(c10::DeviceType::PrivateUse1).product, nullptr);
  EXPECT_NE(completed_backend(c10::DeviceType::PrivateUse1).take_rows, nullptr);
  const Backend& table = backend_of(c10::DeviceType::CPU);
  for (const Work work : {Work::kProducts, Work::kRows, Work::kDropout}) {
    EXPECT_TRUE(table.takes(work, at::kFloat));
    EXPECT_TRUE(table.takes(work, at::kBFloat16));
    EXPECT_FALSE(table.takes(work, at::kLong));
  }
  EXPECT_FALSE(table.takes(Work::kRows, at::kDouble));
  EXPECT_TRUE(table.takes(Work::kDropout, at::kDouble));
  const at::Tensor x = at::zeros({1}), wide = at::zeros({1}, at::kDouble);
  EXPECT_EQ(fused_for(Work::kRows, x), &table);
  EXPECT_EQ(fused_for(Work::kRows, wide), nullptr);
  set_kernels(Kernels::kComposite);
  EXPECT_EQ(fused_for(Work::kRows, x), nullptr);
  set_kernels(Kernels::kFused);
}

TEST(Backend, AnEmptyEntryMeansTheComposite) {
  const at::Tensor x = random_f64({9, 24}, 1).to(at::kBFloat16),
                   weight = random_f64({24}, 2).to(at::kBFloat16),
                   up = random_f64({9, 24}, 3).to(at::kBFloat16),
                   matrix = random_f64({16, 24}, 4).to(at::kBFloat16);
  Backend table = cpu::backend();
  table.rms_norm = nullptr;
  table.rms_norm_backward = nullptr;
  table.swiglu = nullptr;
  table.swiglu_backward = nullptr;
  table.product = nullptr;
  table.input_grad = table.weight_grad = nullptr;
  table.add_weight_grad = nullptr;
  table.add_product = nullptr;
  const test::CpuTable other(table);
  EXPECT_TRUE(at::equal(rms_norm(x, weight, 1e-5), oracle::rms_norm(x, weight, 1e-5)));
  EXPECT_TRUE(at::equal(swiglu(x, up), oracle::swiglu(x, up)));
  EXPECT_TRUE(at::equal(linear(x, matrix), oracle::linear(x, matrix)));
}

TEST(Backend, RefusesATableWhereForwardHasNoBackward) {
  constexpr auto kWithoutATable = c10::DeviceType::Vulkan;
  Backend lacks = cpu::backend();
  lacks.attention_backward = nullptr;
  EXPECT_THROW(set_backend(kWithoutATable, lacks), ModelError);
  lacks = cpu::backend();
  lacks.add_weight_grad = nullptr;
  EXPECT_THROW(set_backend(kWithoutATable, lacks), ModelError);
  lacks = cpu::backend();
  lacks.takes = nullptr;
  EXPECT_THROW(set_backend(kWithoutATable, lacks), ModelError);
  EXPECT_EQ(backend_of(kWithoutATable).attention, nullptr);
}

TEST(Backend, AnEmptyTableIsCompletedByEveryCompositeThereIs) {
  static_assert(std::is_trivially_copyable_v<Backend>);
  constexpr auto kWithoutATable = c10::DeviceType::Vulkan;
  EXPECT_EQ(std::memcmp(&completed_backend(kWithoutATable), &composite_backend(), sizeof(Backend)),
            0)
      << "an entry of composite_backend() is not in the list of completed() (ops/backend.cpp)";
}

TEST(Backend, AddsToASumOfF32WhateverTheType) {
  for (const int64_t count : {1, 31, 4097, 70000}) {
    const at::Tensor start = random_f64({count}, 1).to(at::kFloat);
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const at::Tensor x = random_f64({count}, 2).to(type), sum = start.clone();
      add_to(sum, x);
      EXPECT_TRUE(at::equal(sum, start + x.to(at::kFloat))) << c10::toString(type);
    }
  }
  const at::Tensor sum = at::zeros({5, 6}), x = random_f64({6, 5}, 3).to(at::kBFloat16);
  add_to(sum, x.t());
  EXPECT_TRUE(at::equal(sum, x.t().to(at::kFloat))) << "rows that lie apart";
  EXPECT_THROW(add_to(at::zeros({5}), x), ModelError) << "rows do not become one";
}

TEST(Backend, SumsOfSquaresAreThoseOfEachChunk) {
  const at::Tensor values = random_f64({100000}, 1).to(at::kFloat);
  const std::vector<Chunk> chunks = chunks_of({{3, 20}, {20, 90001}, {99999, 100000}});
  const std::vector<double> sums = sums_of_squares(values, chunks);
  ASSERT_EQ(sums.size(), chunks.size());
  for (size_t i = 0; i < chunks.size(); ++i) {
    long double expected = 0;
    for (int64_t j = chunks[i].at.begin; j < chunks[i].at.end; ++j) {
      const long double value = values.data_ptr<float>()[j];
      expected += value * value;
    }
    EXPECT_NEAR(sums[i], static_cast<double>(expected), 1e-11 * static_cast<double>(expected));
  }
  EXPECT_EQ(oracle::sums_of_squares(values, chunks).size(), chunks.size());
}

TEST(Backend, FindsTheOneNumberThatIsNotFinite) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    const at::Tensor x = at::full({33, 7}, 3, type);
    EXPECT_TRUE(all_finite(x)) << c10::toString(type);
    for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
      const at::Tensor broken = x.clone();
      broken[32][6].fill_(bad);
      EXPECT_FALSE(all_finite(broken)) << c10::toString(type);
      EXPECT_FALSE(all_finite(broken.t())) << c10::toString(type);
      EXPECT_TRUE(all_finite(broken.narrow(0, 0, 32))) << c10::toString(type);
    }
  }
}

/// Result and gradients of `f`, of numbers that make every sum exact.
Tensors exact_gradients(const std::function<at::Tensor(const Tensors&)>& f, Tensors inputs) {
  for (at::Tensor& input : inputs) input = input.detach().clone().requires_grad_(true);
  const at::Tensor result = f(inputs);
  Tensors all = torch::autograd::grad({result.sum()}, inputs);
  all.push_back(result.detach());
  return all;
}

at::Tensor whole_numbers(at::IntArrayRef shape, uint64_t seed) {
  return (random_f64(shape, seed) * 8).round().to(at::kFloat);
}

TEST(Backend, WhatOnlyOtherDevicesFillHasAutogradsGradients) {
  const Tensors inputs{whole_numbers({6, 4}, 1), whole_numbers({6, 4}, 2), whole_numbers({4}, 3),
                       whole_numbers({4, 4}, 4)};
  const at::Tensor index = at::tensor({4, 0, 4}, at::kLong), factor = whole_numbers({3, 4}, 5);
  const auto ours = [&](const Tensors& in) {
    const Tensors x = shared_by(3, in[0]);
    const at::Tensor sum = add(add_bias(x[0], in[2]), scaled(x[1], -3.0));
    const Tensors parts = parts_of(x[2].matmul(in[3]), {1, 3}, 1);
    const at::Tensor rows = take_rows(add(sum, in[1]), index) * factor;
    return rows.sum() + (parts[1] * in[1].narrow(1, 0, 3)).sum();
  };
  const auto plain = [&](const Tensors& in) {
    const at::Tensor sum = in[0] + in[2] + in[0] * -3.0 + in[1];
    const at::Tensor rows = sum.index_select(0, index) * factor;
    return rows.sum() + (in[0].matmul(in[3]).narrow(1, 1, 3) * in[1].narrow(1, 0, 3)).sum();
  };
  const Tensors expected = exact_gradients(plain, inputs);
  const Backend& composite = composite_backend();
  Backend table = cpu::backend();
  table.add_into = composite.add_into;
  table.add_bias = composite.add_bias;
  table.scaled = composite.scaled;
  table.take_rows = composite.take_rows;
  for (const Backend& used : {cpu::backend(), table}) {
    const test::CpuTable other(used);
    const Tensors got = exact_gradients(ours, inputs);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(got[i], expected[i])) << i;
  }
}

TEST(Backend, RowsOfLengthsOfTheirOwnHaveAutogradsGradients) {
  // Rows of length 2, 5, 0 and 13.
  const at::Tensor squares = at::tensor({4.0f, 25.0f, 0.0f, 169.0f});
  const at::Tensor length = at::tensor({2.0f, 5.0f, 1.0f, 13.0f});
  const Tensors inputs{whole_numbers({6, 4}, 1), whole_numbers({4}, 2)};
  const at::Tensor weights = whole_numbers({6, 4}, 3);
  for (const bool change : {false, true}) {
    const Tensors expected = exact_gradients(
        [&](const Tensors& in) {
          const at::Tensor factor = change ? in[1] / length - 1 : in[1] / length;
          return in[0] * factor * weights;
        },
        inputs);
    Backend table = cpu::backend();
    table.scale_columns = composite_backend().scale_columns;
    for (const Backend& used : {cpu::backend(), table}) {
      const test::CpuTable other(used);
      const Tensors got = exact_gradients(
          [&](const Tensors& in) { return stretched(in[0], in[1], squares, change) * weights; },
          inputs);
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_TRUE(at::allclose(got[i], expected[i], 1e-6, 1e-6)) << i << ", " << change;
    }
  }
  const at::Tensor weight = whole_numbers({5, 8}, 4), a = whole_numbers({2, 8}, 5),
                   b = whole_numbers({5, 2}, 6);
  EXPECT_TRUE(at::allclose(adapted_row_squares(weight, b, a, 0.5),
                           (weight + b.matmul(a) * 0.5).square().sum(1), 1e-6, 0));
}

TEST(Backend, AnEmbeddingOfSomeRowsHasTheGradientsOfItsRows) {
  const at::Tensor ids = at::tensor({7, 2, 3, 7, 0}, at::kLong);
  const at::Tensor whole = whole_numbers({8, 4}, 1), factor = whole_numbers({5, 4}, 2);
  const auto weighted = [&](const at::Tensor& rows) { return rows * factor; };
  const Tensors expected = exact_gradients(
      [&](const Tensors& w) { return weighted(w[0].index_select(0, ids)); }, {whole});
  at::Tensor sum = at::zeros({5, 4});
  for (const int64_t first : {0, 3, 6}) {
    const int64_t rows = first == 6 ? 2 : 3;
    const Tensors got = exact_gradients(
        [&](const Tensors& w) { return weighted(embedding_part(ids, w[0], first, 8)); },
        {whole.narrow(0, first, rows)});
    EXPECT_TRUE(at::equal(got[0], expected[0].narrow(0, first, rows))) << first;
    sum += got[1];
  }
  EXPECT_TRUE(at::equal(sum, expected[1]));
}

}  // namespace backend_test
}  // namespace danlu::ops
