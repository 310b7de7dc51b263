// Entries of the NPU's table for layer norms, GELU, caps, rows in blocks and rows that are put,
// against the composite of the same numbers in f64.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "npu/support.h"
#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/backend.h"
#include "ops/quantized_linear.h"
#include "ops/random_blocks.h"
#include "ops/rms_norm.h"

namespace danlu::npu::test {
namespace {

using ops::Activation;
using ops::Backend;

const Backend& npu_entries() { return ops::backend_of(npu().type()); }
const Backend& expected_table() { return ops::composite_backend(); }
at::Tensor as_f64(const at::Tensor& x) { return x.to(at::kDouble); }

constexpr at::ScalarType kFloatTypes[] = {at::kFloat, at::kBFloat16, at::kHalf};
double limit_by(at::ScalarType type) {
  return type == at::kFloat ? 2e-6 : type == at::kHalf ? 1e-3 : 8e-3;
}

TEST(NpuFamilies, NormalisesLayersAsTheComposite) {
  for (const at::ScalarType type : kFloatTypes) {
    for (const auto& [n, d] : {std::pair(1, 16), std::pair(7, 48), std::pair(33, 130)}) {
      SCOPED_TRACE(testing::Message() << c10::toString(type) << ' ' << n << ' ' << d);
      const double limit = limit_by(type);
      const at::Tensor x = normal({n, d}, 1, type) + 0.5, w = normal({d}, 2, type),
                       b = normal({d}, 3, type), dy = normal({d, n}, 4, type).t();
      const auto expected = expected_table().layer_norm(as_f64(x), as_f64(w), as_f64(b), 1e-5);
      const auto grads = expected_table().layer_norm_backward(
          as_f64(x), as_f64(w), as_f64(b), expected, as_f64(dy), {true, true, true});
      const at::Tensor X = x.to(npu()), W = w.to(npu()), B = b.to(npu()), DY = dy.t().to(npu()).t();
      const auto found = npu_entries().layer_norm(X, W, B, 1e-5);
      EXPECT_EQ(found.y_ND.scalar_type(), type);
      EXPECT_LE(distance(found.y_ND, expected.y_ND), limit);
      EXPECT_LE(distance(found.rstd_N1, expected.rstd_N1), 1e-5);
      const auto all = npu_entries().layer_norm_backward(X, W, B, found, DY, {true, true, true});
      EXPECT_LE(distance(all.x_ND, grads.x_ND), limit);
      EXPECT_LE(distance(all.weight_D, grads.weight_D), 1e-5);
      EXPECT_LE(distance(all.bias_D, grads.bias_D), 1e-5);
      const auto some = npu_entries().layer_norm_backward(X, W, B, found, DY, {true, false, false});
      EXPECT_LE(distance(some.x_ND, grads.x_ND), limit);
      EXPECT_FALSE(some.weight_D.defined());
    }
  }
}

TEST(NpuFamilies, ActivatesInEveryForm) {
  for (const at::ScalarType type : kFloatTypes) {
    for (const Activation kind :
         {Activation::kGelu, Activation::kGeluTanh, Activation::kQuickGelu}) {
      SCOPED_TRACE(testing::Message() << c10::toString(type) << ' ' << static_cast<int>(kind));
      const double limit = limit_by(type);
      const at::Tensor x = normal({5, 33}, 1, type) * 2, up = normal({5, 33}, 2, type),
                       dy = normal({33, 5}, 3, type).t();
      const at::Tensor X = x.to(npu()), UP = up.to(npu()), DY = dy.t().to(npu()).t();
      EXPECT_LE(
          distance(npu_entries().activation(X, kind), expected_table().activation(as_f64(x), kind)),
          limit);
      EXPECT_LE(distance(npu_entries().activation_backward(DY, X, kind),
                         expected_table().activation_backward(as_f64(dy), as_f64(x), kind)),
                limit);
      EXPECT_LE(distance(npu_entries().gated_activation(X, UP, kind),
                         expected_table().gated_activation(as_f64(x), as_f64(up), kind)),
                2 * limit);
      const auto expected =
          expected_table().gated_activation_backward(as_f64(x), as_f64(up), as_f64(dy), kind);
      const auto found = npu_entries().gated_activation_backward(X, UP, DY, kind);
      EXPECT_LE(distance(found.gate, expected.gate), 2 * limit);
      EXPECT_LE(distance(found.up, expected.up), 2 * limit);
    }
    EXPECT_EQ(
        npu_entries().activation(at::zeros({0, 4}, type).to(npu()), Activation::kGelu).numel(), 0);
  }
}

TEST(NpuFamilies, CapsLogits) {
  for (const at::ScalarType type : kFloatTypes) {
    const at::Tensor x = normal({6, 20}, 1, type) * 9, d_y = normal({6, 20}, 2, type);
    const at::Tensor y = expected_table().capped(x, 5);
    EXPECT_LE(distance(npu_entries().capped(x.to(npu()), 5), expected_table().capped(as_f64(x), 5)),
              limit_by(type));
    EXPECT_LE(distance(npu_entries().through_cap(d_y.to(npu()), y.to(npu()), 5),
                       expected_table().through_cap(as_f64(d_y), as_f64(y), 5)),
              limit_by(type));
  }
}

TEST(NpuFamilies, PutsRows) {
  const at::Tensor index = at::tensor({4, 0, 2}, at::kLong), none = at::empty({0}, at::kLong);
  for (const at::ScalarType type : kFloatTypes) {
    const at::Tensor x = normal({5, 8}, 1, type), rows = normal({3, 8}, 2, type);
    EXPECT_EQ(distance(npu_entries().with_rows(x.to(npu()), index.to(npu()), rows.to(npu())),
                       x.index_copy(0, index, rows)),
              0);
    EXPECT_EQ(distance(npu_entries().with_rows(x.to(npu()), index.to(npu()), {}),
                       x.index_fill(0, index, 0)),
              0);
    EXPECT_EQ(distance(npu_entries().with_rows(x.to(npu()), none.to(npu()), {}), x), 0);
  }
}

/// The same on any device, by ops that record gradients.
TEST(NpuFamilies, NormsByOnePlusTheWeightHaveTheGradientsOfTheHost) {
  for (const at::ScalarType type : kFloatTypes) {
    const auto passed = [&](const at::Device& device) {
      at::Tensor x = normal({6, 48}, 1, type).to(device).requires_grad_(),
                 w = (normal({48}, 2) * 0.1).to(type).to(device).requires_grad_();
      const at::Tensor y = ops::rms_norm(x, w, 1e-6, {}, ops::NormWeight::kLessThanOne);
      y.backward(normal({6, 48}, 3, type).to(device));
      return std::vector<at::Tensor>{y.detach(), x.grad(), w.grad()};
    };
    const auto host = passed(at::kCPU), there = passed(npu());
    for (size_t i = 0; i < host.size(); ++i)
      EXPECT_LE(distance(there[i], host[i]), 2 * limit_by(type)) << c10::toString(type) << i;
  }
}

std::vector<ops::Spans> meetings_with_caps() {
  return {{{0, 12, 0, 12, 0}},
          {{0, 5, 0, 5, 0}, {5, 7, 5, 7, 0}},
          {{0, 1, 0, 7, 6}, {1, 11, 7, 5, 0, false}},
          {{2, 6, 1, 9, 3}},
          {{0, 12, 0, 12, 4}},
          {{0, 12, 0, 12, -5}}};
}

TEST(NpuFamilies, AttendsWithACapOnScores) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const double limit = type == at::kFloat ? 5e-6 : 8e-3;
    for (const int64_t window : {0, 3, 7}) {
      for (size_t m = 0; m < meetings_with_caps().size(); ++m) {
        if (window > 0 && m == 2) continue;  // it is for causal spans
        SCOPED_TRACE(testing::Message()
                     << c10::toString(type) << ", meeting " << m << ", window " << window);
        const ops::Spans spans = meetings_with_caps()[m];
        const at::Tensor q = normal({12, 4, 16}, 1, type) * 3, k = normal({12, 2, 16}, 2, type),
                         v = normal({12, 2, 8}, 3, type), d_out = normal({12, 4, 8}, 4, type);
        ops::AttentionOptions options;
        options.scale = 0.25;
        options.window = window;
        options.softcap = 2;
        const auto expected =
            ops::oracle::attention_part(as_f64(q), as_f64(k), as_f64(v), spans, options);
        const at::Tensor Q = q.to(npu()), K = k.to(npu()), V = v.to(npu());
        const auto found = npu_entries().attention(Q, K, V, spans, options, type);
        EXPECT_LE(distance(found.out_NQD, expected.out_NQD), limit);
        const at::Tensor seen = expected.lse_QN.isfinite(), lse = as_f64(found.lse_QN.to(at::kCPU));
        EXPECT_TRUE(lse.isfinite().equal(seen));
        EXPECT_LE(distance(lse.masked_fill(~seen, 0), expected.lse_QN.masked_fill(~seen, 0)), 5e-6);
        const at::Tensor whole_lse = expected.lse_QN.masked_fill(~seen, 0),
                         delta = ops::attention_delta(as_f64(d_out), expected.out_NQD);
        const auto grads = ops::oracle::attention_part_backward(
            as_f64(q), as_f64(k), as_f64(v), spans, options, as_f64(d_out), whole_lse, delta);
        const auto own_grads = npu_entries().attention_backward(
            Q, K, V, spans, options, d_out.to(npu()), whole_lse.to(at::kFloat).to(npu()),
            delta.to(at::kFloat).to(npu()));
        EXPECT_LE(distance(own_grads.q_NQD, grads.q_NQD), 1e-5);
        EXPECT_LE(distance(own_grads.k_MKD, grads.k_MKD), 1e-5);
        EXPECT_LE(distance(own_grads.v_MKD, grads.v_MKD), 1e-5);
      }
    }
  }
}

TEST(NpuFamilies, MultipliesWeightsInBlocks) {
  for (const BlockType type : danlu::test::kBlockTypes) {
    for (const auto& [rows, columns] : {std::pair(16, 256), std::pair(37, 512)}) {
      SCOPED_TRACE(testing::Message() << block_traits(type).name << ' ' << rows);
      const danlu::test::Matrix matrix = danlu::test::random_matrix(type, rows, columns);
      const auto there = matrix.weight.to(npu());
      const at::Tensor bias = normal({rows}, 2), x = normal({5, columns}, 1);
      EXPECT_LE(distance(ops::quantized_linear(x.to(npu()), *there, bias.to(npu())),
                         as_f64(x).mm(matrix.dense_OI.t()) + as_f64(bias)),
                2e-6);
      const at::Tensor narrow = x.to(at::kBFloat16);
      EXPECT_LE(distance(ops::quantized_linear(narrow.to(npu()), *there, {}),
                         as_f64(narrow).mm(matrix.dense_OI.t())),
                1e-2);
      const at::Tensor ids = at::tensor(std::vector<int64_t>{rows - 1, 3, 0, 3}, at::kLong);
      EXPECT_LE(distance(ops::quantized_embedding(ids.to(npu()), *there, at::kFloat),
                         matrix.dense_OI.index_select(0, ids)),
                1e-7);
    }
  }
}

/// Blocks that are made of a matrix lie where it does.
TEST(NpuFamilies, MakesBlocksOnTheDevice) {
  const at::Tensor weight = normal({32, 64}, 1), x = normal({3, 64}, 2);
  const auto host = ops::quantized(BlockType::kQ8_0, weight, "w"),
             there = ops::quantized(BlockType::kQ8_0, weight.to(npu()), "w");
  EXPECT_LE(distance(ops::quantized_linear(x.to(npu()), *there, {}),
                     as_f64(x).mm(as_f64(host->dense()).t())),
            2e-6);
}

}  // namespace
}  // namespace danlu::npu::test
