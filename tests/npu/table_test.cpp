// Each entry of the NPU's table against the composite of the same numbers in f64, and against the
// CPU where there is no rounding.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "npu/support.h"
#include "ops/attention.h"
#include "ops/backend.h"
#include "ops/dropout.h"
#include "ops/optimizer.h"
#include "ops/rms_norm.h"
#include "ops/rotary.h"
#include "ops/swiglu.h"

namespace danlu::npu::test {
namespace {

using ops::Backend;

const Backend& npu_table() { return ops::backend_of(npu().type()); }
const Backend& composite() { return ops::composite_backend(); }

/// What results of operands of this type may be off by. f16 has three bits more than bf16.
double limit_of(at::ScalarType type) {
  return type == at::kFloat ? 2e-6 : type == at::kHalf ? 1e-3 : 8e-3;
}
const std::vector<at::ScalarType>& types() {
  static const std::vector<at::ScalarType> all = {at::kFloat, at::kBFloat16, at::kHalf};
  return all;
}
at::Tensor wide(const at::Tensor& x) { return x.to(at::kDouble); }

TEST(NpuTable, MultipliesAnyShapesAndStrides) {
  for (const at::ScalarType type : types()) {
    for (const auto& [n, i, o] : {std::tuple(1, 1, 1), std::tuple(7, 129, 33),
                                  std::tuple(64, 32, 48), std::tuple(130, 17, 3)}) {
      SCOPED_TRACE(testing::Message() << c10::toString(type) << ' ' << n << ' ' << i << ' ' << o);
      const double limit = limit_of(type);
      const at::Tensor x = normal({n, i}, 1, type), w = normal({o, i}, 2, type),
                       bias = normal({o}, 3, type), dy = normal({o, n}, 4, type).t();
      const at::Tensor X = x.to(npu()), W = w.to(npu()), B = bias.to(npu()),
                       DY = dy.t().to(npu()).t();
      const at::Tensor y = wide(x).mm(wide(w).t());
      EXPECT_LE(distance(npu_table().product(X, W, {}, type), y), limit);
      EXPECT_LE(distance(npu_table().product(X, W, {}, at::kFloat), y), 2e-6);
      EXPECT_LE(distance(npu_table().product(X, W, B, type), y + wide(bias)), limit);
      EXPECT_LE(distance(npu_table().input_grad(DY, W, type), wide(dy).mm(wide(w))), limit);
      const at::Tensor d_w = wide(dy).t().mm(wide(x));
      EXPECT_LE(distance(npu_table().weight_grad(DY, X, type), d_w), limit);
      // Rows of the sum lie apart.
      const at::Tensor sum = normal({o, i + 5}, 5), SUM = sum.to(npu());
      npu_table().add_weight_grad(DY, X, SUM.narrow(1, 2, i), false);
      EXPECT_LE(distance(SUM.narrow(1, 2, i), wide(sum.narrow(1, 2, i)) + d_w), 2e-6);
      EXPECT_EQ(distance(SUM.narrow(1, 0, 2), sum.narrow(1, 0, 2)), 0);
      npu_table().add_weight_grad(DY, X, SUM.narrow(1, 2, i), true);
      EXPECT_LE(distance(SUM.narrow(1, 2, i), d_w), 2e-6);
      const at::Tensor more = normal({n, o}, 6), MORE = more.to(npu());
      npu_table().add_product(X, W, MORE);
      EXPECT_LE(distance(MORE, wide(more) + y), 2e-6);
    }
  }
}

TEST(NpuTable, NormalisesRows) {
  for (const at::ScalarType type : types()) {
    const double limit = limit_of(type);
    for (const int64_t width : {16, 48, 130}) {
      const at::Tensor x = normal({3, 5, width}, 1, type), w = normal({width}, 2, type),
                       dy = normal({3, 5, width}, 3, type);
      at::Tensor x64 = wide(x).requires_grad_(), w64 = wide(w).requires_grad_();
      const at::Tensor y64 = ops::oracle::rms_norm(x64, w64, 1e-5);
      y64.backward(wide(dy));
      const at::Tensor X = x.to(npu()), W = w.to(npu());
      const auto [y, rstd] = npu_table().rms_norm(X, W, 1e-5);
      EXPECT_LE(distance(y, y64.detach()), limit) << c10::toString(type);
      const auto [dx, dw] = npu_table().rms_norm_backward(X, W, rstd, dy.to(npu()), true, true);
      EXPECT_LE(distance(dx, x64.grad()), limit) << c10::toString(type);
      EXPECT_LE(distance(dw, w64.grad()), 1e-5) << c10::toString(type);
    }
  }
}

TEST(NpuTable, TurnsHeadsBothWays) {
  const at::Tensor positions = at::tensor({0, 1, 2, 5, 900, 33}, at::kLong);
  for (const auto& [width, turning] : {std::pair(16, 16), std::pair(24, 8)}) {
    const at::Tensor inv_freq = at::pow(10000.0, -at::arange(turning / 2) / (turning / 2.0));
    const ops::RotaryTable expected_table =
        composite().rotary_table(positions, inv_freq.to(at::kFloat), 1.25);
    const ops::RotaryTable own =
        npu_table().rotary_table(positions.to(npu()), inv_freq.to(at::kFloat).to(npu()), 1.25);
    EXPECT_LE(distance(own.cos_NE, expected_table.cos_NE), 1e-5);
    EXPECT_LE(distance(own.sin_NE, expected_table.sin_NE), 1e-5);
    for (const bool is_pairwise : {false, true}) {
      for (const at::ScalarType type : types()) {
        const at::Tensor x = normal({6, 3, width}, 4, type);
        const ops::RotaryTable host{expected_table.cos_NE, expected_table.sin_NE, is_pairwise};
        const ops::RotaryTable there{host.cos_NE.to(npu()), host.sin_NE.to(npu()), is_pairwise};
        const at::Tensor expected = ops::oracle::rotary(wide(x), host);
        EXPECT_LE(distance(npu_table().rotary(x.to(npu()), there, false), expected),
                  limit_of(type));
        const ops::RotaryTable back{host.cos_NE, -host.sin_NE, is_pairwise};
        EXPECT_LE(distance(npu_table().rotary(x.to(npu()), there, true),
                           ops::oracle::rotary(wide(x), back)),
                  limit_of(type));
      }
    }
  }
}

TEST(NpuTable, GatesUps) {
  for (const at::ScalarType type : types()) {
    const at::Tensor gate = normal({5, 33}, 1, type), up = normal({5, 33}, 2, type),
                     dy = normal({33, 5}, 3, type).t();
    at::Tensor gate64 = wide(gate).requires_grad_(), up64 = wide(up).requires_grad_();
    const at::Tensor y64 = ops::oracle::swiglu(gate64, up64);
    y64.backward(wide(dy));
    const at::Tensor GATE = gate.to(npu()), UP = up.to(npu());
    EXPECT_LE(distance(npu_table().swiglu(GATE, UP), y64.detach()), limit_of(type));
    const auto [d_gate, d_up] = npu_table().swiglu_backward(GATE, UP, dy.t().to(npu()).t());
    EXPECT_LE(distance(d_gate, gate64.grad()), limit_of(type));
    EXPECT_LE(distance(d_up, up64.grad()), limit_of(type));
  }
}

/// Spans of packed sequences, of caches, of parts of keys, and of pictures.
std::vector<ops::Spans> meetings() {
  return {{{0, 12, 0, 12, 0}},
          {{0, 5, 0, 5, 0}, {5, 7, 5, 7, 0}},
          {{0, 1, 0, 7, 6}, {1, 11, 7, 5, 0, false}},
          {{2, 6, 1, 9, 3}},
          {{0, 12, 0, 12, 4}},
          {{0, 12, 0, 12, -5}},
          {{0, 4, 0, 12, 1}, {4, 8, 0, 12, 20}}};
}

TEST(NpuTable, AttendsOverSpansAsTheComposite) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const double limit = type == at::kFloat ? 5e-6 : 1e-2;
    for (const auto& [window, alibi] :
         {std::pair(0, false), std::pair(3, false), std::pair(7, false), std::pair(0, true),
          std::pair(4, true)}) {
      for (size_t m = 0; m < meetings().size(); ++m) {
        if ((window > 0 || alibi) && m == 2) continue;  // both are for causal spans
        SCOPED_TRACE(testing::Message() << c10::toString(type) << ", meeting " << m << ", window "
                                        << window << (alibi ? ", ALiBi" : ""));
        const ops::Spans spans = meetings()[m];
        const at::Tensor q = normal({12, 4, 16}, 1, type), k = normal({12, 2, 16}, 2, type),
                         v = normal({12, 2, 16}, 3, type), d_out = normal({12, 4, 16}, 4, type);
        ops::AttentionOptions options;
        options.scale = 0.25;
        options.window = window;
        const at::Tensor slopes = at::tensor({0.5, 0.25, 0.7071, 0.3536}, at::kFloat);
        if (alibi) options.alibi_slopes_Q = slopes;
        const auto expected =
            ops::oracle::attention_part(wide(q), wide(k), wide(v), spans, options);
        const at::Tensor Q = q.to(npu()), K = k.to(npu()), V = v.to(npu());
        ops::AttentionOptions there = options;
        if (alibi) there.alibi_slopes_Q = slopes.to(npu());
        const auto own = npu_table().attention(Q, K, V, spans, there, type);
        EXPECT_LE(distance(own.out_NQD, expected.out_NQD), limit);
        const at::Tensor seen = expected.lse_QN.isfinite();
        const at::Tensor lse = own.lse_QN.to(at::kCPU).to(at::kDouble);
        EXPECT_TRUE(lse.isfinite().equal(seen));
        EXPECT_LE(distance(lse.masked_fill(~seen, 0), expected.lse_QN.masked_fill(~seen, 0)),
                  limit);
        // A part of the keys is given the whole's sums, which every query has.
        const at::Tensor whole_lse = expected.lse_QN.masked_fill(~seen, 0);
        const at::Tensor delta = ops::attention_delta(wide(d_out), expected.out_NQD);
        const auto grads = ops::oracle::attention_part_backward(
            wide(q), wide(k), wide(v), spans, options, wide(d_out), whole_lse, delta);
        const auto found = npu_table().attention_backward(Q, K, V, spans, there, d_out.to(npu()),
                                                          expected.lse_QN.to(at::kFloat).to(npu()),
                                                          delta.to(at::kFloat).to(npu()));
        EXPECT_LE(distance(found.q_NQD, grads.q_NQD), 3 * limit);
        EXPECT_LE(distance(found.k_MKD, grads.k_MKD), 3 * limit);
        EXPECT_LE(distance(found.v_MKD, grads.v_MKD), 3 * limit);
        EXPECT_LE(distance(npu_table().attention_delta(d_out.to(npu()), own.out_NQD), delta),
                  4 * limit);
      }
    }
  }
}

TEST(NpuTable, JoinsAttentionOverPartsOfTheKeys) {
  const auto part = [](uint64_t seed, int64_t blind) {
    ops::PartialAttention made{normal({6, 2, 8}, seed), normal({2, 6}, seed + 1)};
    made.out_NQD.narrow(0, 0, blind).zero_();
    made.lse_QN.narrow(1, 0, blind).fill_(-INFINITY);
    return made;
  };
  ops::PartialAttention into = part(1, 3), more = part(5, 2);
  const ops::PartialAttention own{into.out_NQD.to(npu()), into.lse_QN.to(npu())};
  npu_table().merge(own, {more.out_NQD.to(npu()), more.lse_QN.to(npu())});
  composite().merge(into, more);
  EXPECT_LE(distance(own.out_NQD, into.out_NQD), 1e-6);
  EXPECT_TRUE(at::allclose(own.lse_QN.to(at::kCPU), into.lse_QN, 1e-6, 1e-6));
}

TEST(NpuTable, LosesAsTheComposite) {
  for (const at::ScalarType type : types()) {
    for (const double z_weight : {0.0, 0.01}) {
      const at::Tensor logits = normal({9, 37}, 1, type) * 3;
      const at::Tensor targets = at::arange(9, at::kLong) * 4;
      const at::Tensor LOGITS = logits.to(npu()),
                       SUM = at::empty({}, LOGITS.options().dtype(at::kFloat)),
                       CORRECT = at::empty({}, LOGITS.options().dtype(at::kLong));
      SUM.fill_(2.0);
      CORRECT.fill_(1);
      npu_table().cross_entropy({LOGITS, targets.to(npu()), SUM, CORRECT, z_weight, 0.5, true});
      at::Tensor l64 = wide(logits).requires_grad_();
      const at::Tensor largest = std::get<0>(l64.max(1, true)),
                       target = l64.gather(1, targets.unsqueeze(1));
      const at::Tensor loss =
          (l64.logsumexp(1, true) - target).sum() + largest.square().sum() * z_weight;
      (loss * 0.5).backward();
      EXPECT_NEAR(SUM.item<float>(), 2 + loss.item<double>(), 1e-4 * loss.item<double>());
      EXPECT_EQ(CORRECT.item<int64_t>(), 1 + (target >= largest).sum().item<int64_t>());
      EXPECT_LE(distance(LOGITS, l64.grad()), limit_of(type));
    }
  }
}

TEST(NpuTable, FindsTheLikeliestTokens) {
  for (const at::ScalarType type : types()) {
    const at::Tensor logits = normal({9, 37}, 1, type) * 3, LOGITS = logits.to(npu());
    const at::Tensor found = npu_table().likeliest(LOGITS).to(at::kCPU);
    EXPECT_EQ(found.scalar_type(), at::kLong);
    EXPECT_TRUE(at::equal(logits.gather(1, found.unsqueeze(1)), logits.amax(1, true)));
  }
  EXPECT_EQ(npu_table().likeliest(at::zeros({0, 5}).to(npu())).numel(), 0);
}

TEST(NpuTable, LosesWhereRanksShareTheVocabulary) {
  const at::Tensor targets = at::tensor({0, 20, 36, 19, 5}, at::kLong), TARGETS = targets.to(npu());
  const at::Tensor logits = normal({5, 37}, 1) * 3;
  for (const double z_weight : {0.0, 0.01}) {
    for (const auto& [first, count] : {std::pair(0, 20), std::pair(20, 17), std::pair(37, 0)}) {
      const at::Tensor largest = logits.amax(1, true);
      const at::Tensor part = logits.narrow(1, first, count).contiguous(), PART = part.to(npu());
      const at::Tensor own = composite().largest_of_share(part),
                       OWN = npu_table().largest_of_share(PART);
      EXPECT_TRUE(OWN.to(at::kCPU).equal(own));
      const ops::SharedChunk chunk{part, targets, first}, CHUNK{PART, TARGETS, first};
      const at::Tensor sums = composite().sums_of_share(chunk, largest),
                       SUMS = npu_table().sums_of_share(CHUNK, largest.to(npu()));
      EXPECT_TRUE(at::allclose(SUMS.to(at::kCPU), sums, 1e-5, 1e-6));
      const at::Tensor place = composite().place_of_largest(own, largest, first),
                       PLACE = npu_table().place_of_largest(OWN, largest.to(npu()), first);
      EXPECT_TRUE(PLACE.to(at::kCPU).equal(place));
      const at::Tensor whole = at::cat(
          {logits.sub(largest).exp().sum(1, true), logits.gather(1, targets.unsqueeze(1))}, 1);
      const at::Tensor sum = at::zeros({}), correct = at::zeros({}, at::kLong), SUM = sum.to(npu()),
                       CORRECT = correct.to(npu());
      composite().loss_of_share(
          {chunk, own, largest, whole, place, sum, correct, z_weight, 0.5, true});
      npu_table().loss_of_share({CHUNK, OWN, largest.to(npu()), whole.to(npu()), PLACE, SUM,
                                 CORRECT, z_weight, 0.5, true});
      EXPECT_NEAR(SUM.item<float>(), sum.item<float>(), 1e-5 * sum.item<float>());
      EXPECT_EQ(CORRECT.item<int64_t>(), correct.item<int64_t>());
      EXPECT_TRUE(at::allclose(PART.to(at::kCPU), part, 1e-5, 1e-6));
    }
  }
}

TEST(NpuTable, DropsWhatTheHostDrops) {
  for (const at::ScalarType type : types()) {
    const at::Tensor x = normal({7, 19}, 1, type), keys = at::arange(7, at::kLong) * 31 + 5;
    const at::Tensor expected = ops::oracle::dropout(x, 0.3, keys, 77, 3);
    EXPECT_EQ(distance(npu_table().dropout(x.to(npu()), 0.3, keys.to(npu()), 77, 3), expected), 0);
  }
}

TEST(NpuTable, AddsAndScales) {
  for (const at::ScalarType type : types()) {
    const at::Tensor a = normal({6, 10}, 1, type), b = normal({6, 10}, 2, type);
    const at::Tensor A = a.to(npu()), B = b.to(npu()), out = at::empty_like(A);
    npu_table().add_into(out, A, B);
    EXPECT_EQ(distance(out, a + b), 0);
    npu_table().larger_into(out, A, B);
    EXPECT_EQ(distance(out, at::maximum(a, b)), 0);
    const at::Tensor sum = normal({6, 20}, 3), SUM = sum.to(npu());
    npu_table().add_to(SUM.narrow(1, 4, 10), A);
    EXPECT_EQ(distance(SUM.narrow(1, 4, 10), sum.narrow(1, 4, 10) + a), 0);
    EXPECT_EQ(distance(npu_table().add_bias(A, B[0]), a + b[0]), 0);
    EXPECT_LE(distance(npu_table().scaled(A, 1.7), a * 1.7), limit_of(type));
    const at::Tensor factor = normal({6}, 4);
    EXPECT_LE(
        distance(npu_table().scale_rows(A, factor.to(npu())), wide(a) * wide(factor).unsqueeze(1)),
        limit_of(type));
    EXPECT_LE(distance(npu_table().row_dots(A, B), (wide(a) * wide(b)).sum(1)), 2e-6);
    EXPECT_LE(distance(npu_table().column_sums(A), wide(a).sum(0)), 2e-6);
  }
}

TEST(NpuTable, TakesAndAddsRows) {
  const at::Tensor index = at::tensor({4, 0, 4, 2}, at::kLong);
  for (const at::ScalarType type : types()) {
    const at::Tensor x = normal({5, 8}, 1, type), rows = normal({4, 8}, 2, type);
    EXPECT_EQ(
        distance(npu_table().take_rows(x.to(npu()), index.to(npu())), x.index_select(0, index)), 0);
    const at::Tensor sum = normal({5, 8}, 3), SUM = sum.to(npu());
    npu_table().add_rows(SUM, index.to(npu()), rows.to(npu()));
    EXPECT_LE(distance(SUM, sum.index_add(0, index, rows.to(at::kFloat))), 1e-7);
  }
}

TEST(NpuTable, HalvesMastersAndJoinsThemToTheBit) {
  const at::Tensor master = normal({1000}, 1);
  float* const at = master.data_ptr<float>();
  at[0] = INFINITY;
  at[1] = -INFINITY;
  at[2] = 0;
  at[3] = 3.3895314e38F;  // the largest, which rounds up to infinity
  at[4] = 1e-42F;
  at::Tensor weight = at::empty({1000}, at::kBFloat16), low = at::empty({1000}, at::kShort);
  composite().split_master(master, weight, low);
  const at::Tensor WEIGHT = at::empty_like(weight, weight.options().device(npu())),
                   LOW = at::empty_like(low, low.options().device(npu()));
  npu_table().split_master(master.to(npu()), WEIGHT, LOW);
  EXPECT_TRUE(WEIGHT.to(at::kCPU).view(at::kShort).equal(weight.view(at::kShort)));
  EXPECT_TRUE(LOW.to(at::kCPU).equal(low));
  EXPECT_TRUE(npu_table()
                  .join_master(WEIGHT, LOW)
                  .to(at::kCPU)
                  .view(at::kInt)
                  .equal(master.view(at::kInt)));
  const at::Tensor broken = at::full({32}, 1.0, at::kFloat);
  broken.view(at::kInt)[7].fill_(0x7fffffff);
  npu_table().split_master(broken.to(npu()), WEIGHT.narrow(0, 0, 32), LOW.narrow(0, 0, 32));
  EXPECT_TRUE(WEIGHT.to(at::kCPU)[7].isnan().item<bool>()) << "never a number again";
}

TEST(NpuTable, UpdatesAsTheComposite) {
  const std::vector<ops::Chunk> chunks = {{0, {0, 300}}, {0, {300, 512}}, {1, {600, 1000}}};
  const std::vector<ops::AdamWScalars> scalars = {
      {0.9F, 0.95F, 0.1F, 0.05F, 1e-8F, 1e-2F, 4.4F, 0.999F, 0.5F},
      {0.9F, 0.95F, 0.1F, 0.05F, 1e-8F, 1e-3F, 4.4F, 1.0F, 0.5F}};
  for (const bool is_split : {false, true}) {
    ops::AdamWState host{normal({1000}, 1), normal({1000}, 2) * 0.1, normal({1000}, 3).square(),
                         normal({1000}, 4), at::empty({1000}, at::kBFloat16)};
    if (is_split) {
      host.low = at::empty({1000}, at::kShort);
      composite().split_master(host.master, host.weight, host.low);
      host.master = at::Tensor();
    } else {
      host.weight.copy_(host.master);
    }
    const auto there = [](const at::Tensor& x) { return x.defined() ? x.to(npu()) : x; };
    const ops::AdamWState own{there(host.master), there(host.exp_avg), there(host.exp_avg_sq),
                              there(host.grad),   there(host.weight),  there(host.low)};
    composite().adamw_update(host, chunks, scalars);
    npu_table().adamw_update(own, chunks, scalars);
    EXPECT_LE(distance(own.exp_avg, host.exp_avg), 1e-6);
    EXPECT_LE(distance(own.exp_avg_sq, host.exp_avg_sq), 1e-6);
    EXPECT_LE(distance(own.weight, host.weight), 1e-3);
    const at::Tensor master =
        is_split ? composite().join_master(host.weight, host.low) : host.master;
    EXPECT_LE(
        distance(is_split ? npu_table().join_master(own.weight, own.low) : own.master, master),
        1e-6);
  }
}

TEST(NpuTable, SumsSquaresAndFindsWhatIsNotFinite) {
  const at::Tensor values = normal({5000}, 1), there = values.to(npu());
  const std::vector<ops::Chunk> chunks = {
      {0, {0, 1024}}, {0, {1024, 2048}}, {0, {2048, 3000}}, {1, {3000, 3000}}, {1, {4000, 5000}}};
  const auto expected = composite().sums_of_squares(values, chunks);
  const auto own = npu_table().sums_of_squares(there, chunks);
  ASSERT_EQ(own.size(), expected.size());
  for (size_t i = 0; i < own.size(); ++i) EXPECT_NEAR(own[i], expected[i], 1e-6 * expected[i]);
  EXPECT_TRUE(npu_table().all_finite(there));
  there.narrow(0, 4999, 1).fill_(INFINITY);
  EXPECT_FALSE(npu_table().all_finite(there));
}

}  // namespace
}  // namespace danlu::npu::test
