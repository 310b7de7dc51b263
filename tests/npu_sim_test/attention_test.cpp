// Attention against sums over pairs, its gradients against differences.
#include <algorithm>
#include <cmath>

#include "card.h"

namespace npu_sim_test {
namespace {

/// Which key a query sees: (query, key, queries, keys of the sequence).
using Sees = std::function<bool(int64_t, int64_t, int64_t, int64_t)>;
bool everything(int64_t, int64_t, int64_t, int64_t) { return true; }
bool up_to_itself(int64_t i, int64_t j, int64_t q, int64_t k) { return j <= i + k - q; }

struct Problem {
  int64_t heads = 4, kv_heads = 2, width = 8;
  std::vector<int64_t> q_ends = {3, 3, 8}, k_ends = {4, 4, 9};  // the second sequence is empty
  double scale = 0.4;
  int64_t q_tokens() const { return q_ends.back(); }
  int64_t k_tokens() const { return k_ends.back(); }
};

/// [T,N,D] layouts; `keep` is 1 or says what a pair's probability is multiplied by.
Numbers attend(const Problem& p, const Numbers& q, const Numbers& k, const Numbers& v,
               const Sees& sees,
               const std::function<double(size_t, int64_t, int64_t, int64_t)>& keep = {}) {
  Numbers out(q.size());
  int64_t q0 = 0, k0 = 0;
  for (size_t s = 0; s < p.q_ends.size(); ++s) {
    const int64_t ql = p.q_ends[s] - q0, kl = p.k_ends[s] - k0;
    for (int64_t n = 0; n < p.heads; ++n) {
      const int64_t m = n / (p.heads / p.kv_heads);
      for (int64_t i = 0; i < ql; ++i) {
        double sum = 0;
        const int64_t row = ((q0 + i) * p.heads + n) * p.width;
        Numbers weights(static_cast<size_t>(kl));
        for (int64_t j = 0; j < kl; ++j) {
          if (!sees(i, j, ql, kl)) continue;
          double dot = 0;
          for (int64_t d = 0; d < p.width; ++d) {
            dot += q[static_cast<size_t>(row + d)] *
                   k[static_cast<size_t>(((k0 + j) * p.kv_heads + m) * p.width + d)];
          }
          weights[static_cast<size_t>(j)] = std::exp(dot * p.scale);
          sum += weights[static_cast<size_t>(j)];
        }
        for (int64_t j = 0; j < kl; ++j) {
          const double w = weights[static_cast<size_t>(j)] / sum * (keep ? keep(s, n, i, j) : 1);
          for (int64_t d = 0; d < p.width; ++d) {
            out[static_cast<size_t>(row + d)] +=
                w * v[static_cast<size_t>(((k0 + j) * p.kv_heads + m) * p.width + d)];
          }
        }
      }
    }
    q0 = p.q_ends[s];
    k0 = p.k_ends[s];
  }
  return out;
}

class Attention : public Card {
 protected:
  static constexpr int64_t kAll = 2147483647;

  void SetUp() override {
    Card::SetUp();
    q = noise(p.q_tokens() * p.heads * p.width);
    k = noise(p.k_tokens() * p.kv_heads * p.width);
    v = noise(p.k_tokens() * p.kv_heads * p.width);
    put_all();
  }

  void put_all() {
    const Dims qd = {p.q_tokens(), p.heads, p.width}, kd = {p.k_tokens(), p.kv_heads, p.width};
    aq = put(qd, q);
    ak = put(kd, k);
    av = put(kd, v);
    out = empty(qd);
    most = empty({p.q_tokens(), p.heads, 8});
    sum = empty({p.q_tokens(), p.heads, 8});
    none = empty({0});
  }

  /// 1 strictly above the diagonal.
  Array triangle() {
    static const std::string bytes = [] {
      std::string made(2048 * 2048, 0);
      for (size_t i = 0; i < 2048; ++i) std::fill_n(made.begin() + i * 2048 + i + 1, 2047 - i, 1);
      return made;
    }();
    const Array mask = empty({2048, 2048}, ACL_BOOL);
    EXPECT_EQ(
        aclrtMemcpy(mask.data, bytes.size(), bytes.data(), bytes.size(), ACL_MEMCPY_HOST_TO_DEVICE),
        0);
    return mask;
  }

  aclnnStatus forward(aclTensor* mask, int64_t mode, int64_t before = kAll, int64_t after = 0,
                      double keep = 1, aclTensor* drop = nullptr) {
    char layout[] = "TND";
    return RUN(aclnnFlashAttentionVarLenScore, of(aq), of(ak), of(av), nullptr, drop, nullptr, mask,
               nullptr, ints(p.q_ends), ints(p.k_ends), p.scale, keep, before, after, p.heads,
               layout, int64_t{0}, mode, of(most), of(sum), of(none), of(out));
  }

  aclnnStatus backward(const Array& up, const Array& dq, const Array& dk, const Array& dv,
                       aclTensor* mask, int64_t mode, double keep = 1, aclTensor* drop = nullptr) {
    char layout[] = "TND";
    return RUN(aclnnFlashAttentionUnpaddingScoreGrad, of(aq), of(ak), of(av), of(up), nullptr, drop,
               nullptr, mask, of(most), of(sum), nullptr, of(out), nullptr, ints(p.q_ends),
               ints(p.k_ends), p.scale, keep, kAll, int64_t{0}, p.heads, layout, int64_t{0}, mode,
               of(dq), of(dk), of(dv), nullptr);
  }

  /// The gradient of sum(up · attention) for one of the inputs by differences.
  Numbers differences(Numbers& x, const Numbers& up, const std::function<Numbers()>& f) {
    Numbers grad(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const double kept = x[i];
      x[i] = kept + 1e-5;
      const Numbers above = f();
      x[i] = kept - 1e-5;
      const Numbers below = f();
      x[i] = kept;
      for (size_t j = 0; j < up.size(); ++j) grad[i] += up[j] * (above[j] - below[j]) / 2e-5;
    }
    return grad;
  }

  Problem p;
  Numbers q, k, v;
  Array aq, ak, av, out, most, sum, none;
};

TEST_F(Attention, WithoutAMaskEverySequenceSeesAllOfItself) {
  ASSERT_EQ(forward(nullptr, 3), 0) << aclGetRecentErrMsg();
  expect_near(get(out), attend(p, q, k, v, everything), 1e-6);
  EXPECT_EQ(NpuSimCounter("attention.without_mask"), 1);
}

TEST_F(Attention, ModeThreeLetsTheLastQueryStandAtTheLastKey) {
  ASSERT_EQ(forward(of(triangle()), 3), 0) << aclGetRecentErrMsg();
  expect_near(get(out), attend(p, q, k, v, up_to_itself), 1e-6);
}

TEST_F(Attention, ModeTwoCountsFromTheTopLeftAndModeFourIsABand) {
  const Array mask = triangle();
  ASSERT_EQ(forward(of(mask), 2), 0);
  expect_near(get(out),
              attend(p, q, k, v, [](int64_t i, int64_t j, int64_t, int64_t) { return j <= i; }),
              1e-6);
  ASSERT_EQ(forward(of(mask), 4, 1, 0), 0);
  expect_near(get(out),
              attend(p, q, k, v,
                     [](int64_t i, int64_t j, int64_t ql, int64_t kl) {
                       const int64_t from = j - (i + kl - ql);
                       return from <= 0 && from >= -1;
                     }),
              1e-6);
}

TEST_F(Attention, AMaskThatIsNoTriangleFailsWhenItRuns) {
  const Array wrong = empty({2048, 2048}, ACL_BOOL);
  ASSERT_EQ(aclrtMemset(wrong.data, 2048 * 2048, 0, 2048 * 2048), 0);
  ASSERT_EQ(forward(of(wrong), 3), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 507035);
}

TEST_F(Attention, WhatThePagesForbidIsRefusedAtOnce) {
  const Array mask = triangle();
  EXPECT_EQ(forward(of(put({3, 4}, Numbers(12, 0), ACL_BOOL)), 3), 161002);
  EXPECT_EQ(forward(of(empty({2048, 2048})), 3), 161002);
  EXPECT_EQ(forward(of(mask), 4, -1, 0), 161002);
  p.q_ends = {3, 3, 7};
  EXPECT_EQ(forward(of(mask), 3), 161002);
  EXPECT_NE(std::string(aclGetRecentErrMsg()).find("ends at 7"), std::string::npos);
  p.q_ends = {5, 5, 8};  // five queries for four keys
  EXPECT_EQ(forward(of(mask), 3), 161002);
  EXPECT_NE(std::string(aclGetRecentErrMsg()).find("Sq <= Skv"), std::string::npos);
  EXPECT_EQ(forward(of(mask), 2), 0);
}

TEST_F(Attention, ARowThatSeesNothingIsGarbageInTnd) {
  p.q_ends = {2, 2, 8};
  p.k_ends = {4, 4, 9};
  ASSERT_EQ(forward(of(triangle()), 4, 100, -3), 0) << aclGetRecentErrMsg();
  EXPECT_TRUE(std::isnan(get(out)[static_cast<size_t>(2 * p.heads * p.width)]));
}

TEST_F(Attention, StatisticsAreEightCopiesSequenceAfterSequence) {
  ASSERT_EQ(forward(of(triangle()), 3), 0);
  const Numbers m = get(most), s = get(sum);
  for (size_t i = 0; i < m.size(); ++i) EXPECT_EQ(m[i], m[i / 8 * 8]);
  // Head 1 of the first sequence's query 2 stands at row N·S: 1·3 + 2.
  double top = -1e9;
  Numbers scores;
  for (size_t j = 0; j < 4; ++j) {
    double dot = 0;
    for (size_t d = 0; d < 8; ++d) dot += q[(2 * 4 + 1) * 8 + d] * k[(j * 2 + 0) * 8 + d];
    scores.push_back(dot * p.scale);
    top = std::max(top, scores.back());
  }
  double wanted = 0;
  for (const double x : scores) wanted += std::exp(x - top);
  EXPECT_NEAR(m[5 * 8], top, 1e-6);
  EXPECT_NEAR(s[5 * 8], wanted, 1e-5);
}

TEST_F(Attention, GradientsAreTheDifferences) {
  const Array mask = triangle();
  ASSERT_EQ(forward(of(mask), 3), 0);
  const Numbers u = noise(out.numel());
  const Array up = put(out.dims, u), dq = empty(aq.dims), dk = empty(ak.dims), dv = empty(av.dims);
  ASSERT_EQ(backward(up, dq, dk, dv, of(mask), 3), 0) << aclGetRecentErrMsg();
  const auto f = [&] { return attend(p, q, k, v, up_to_itself); };
  expect_near(get(dq), differences(q, u, f), 1e-5);
  expect_near(get(dk), differences(k, u, f), 1e-5);
  expect_near(get(dv), differences(v, u, f), 1e-5);
}

TEST_F(Attention, TheDropoutMaskGoesThroughBothPasses) {
  int64_t bits = 0, q0 = 0, k0 = 0;
  std::vector<int64_t> first;
  for (size_t s = 0; s < p.q_ends.size(); ++s) {
    first.push_back(bits);
    bits += p.heads * (p.q_ends[s] - q0) * (p.k_ends[s] - k0);
    q0 = p.q_ends[s];
    k0 = p.k_ends[s];
  }
  const Array drop = empty({(bits + 127) / 128 * 16}, ACL_UINT8);
  ASSERT_EQ(
      RUN(aclnnDropoutGenMaskV2, ints({bits}), 0.5, int64_t{3}, int64_t{0}, ACL_FLOAT, of(drop)),
      0);
  const Numbers kept = get(drop);
  const auto keep = [&](size_t s, int64_t n, int64_t i, int64_t j) {
    const int64_t ql = s == 0 ? 3 : 5, kl = s == 0 ? 4 : 5;
    const int64_t bit = first[s] + (n * ql + i) * kl + j;
    return static_cast<int>(kept[static_cast<size_t>(bit / 8)]) >> (bit % 8) & 1 ? 2.0 : 0.0;
  };
  EXPECT_EQ(forward(nullptr, 0, kAll, kAll, 0.5, nullptr), 161002);
  ASSERT_EQ(forward(nullptr, 0, kAll, kAll, 0.5, of(drop)), 0) << aclGetRecentErrMsg();
  expect_near(get(out), attend(p, q, k, v, everything, keep), 1e-6);
  const Numbers u = noise(out.numel());
  const Array up = put(out.dims, u), dq = empty(aq.dims), dk = empty(ak.dims), dv = empty(av.dims);
  ASSERT_EQ(backward(up, dq, dk, dv, nullptr, 0, 0.5, of(drop)), 0);
  const auto f = [&] { return attend(p, q, k, v, everything, keep); };
  expect_near(get(dq), differences(q, u, f), 1e-5);
  expect_near(get(dv), differences(v, u, f), 1e-5);
}

TEST_F(Attention, LayoutsOfBatchesNameTheSameNumbers) {
  // Two sequences of 3 queries and 3 keys, as TND and in each batched layout.
  p.q_ends = p.k_ends = {3, 6};
  q = noise(6 * 4 * 8);
  k = noise(6 * 2 * 8);
  v = noise(6 * 2 * 8);
  const Numbers wanted = attend(p, q, k, v, up_to_itself);
  const Array mask = triangle();
  const auto arranged = [](const Numbers& x, int64_t heads, const std::string& layout) {
    Numbers y(x.size());
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t s = 0; s < 3; ++s) {
        for (int64_t n = 0; n < heads; ++n) {
          for (int64_t d = 0; d < 8; ++d) {
            int64_t to = ((b * 3 + s) * heads + n) * 8 + d;
            if (layout == "SBH") to = ((s * 2 + b) * heads + n) * 8 + d;
            if (layout == "BNSD") to = ((b * heads + n) * 3 + s) * 8 + d;
            y[static_cast<size_t>(to)] = x[static_cast<size_t>(((b * 3 + s) * heads + n) * 8 + d)];
          }
        }
      }
    }
    return y;
  };
  for (const std::string name : {"BSH", "SBH", "BSND", "BNSD"}) {
    const auto dims = [&](int64_t n) {
      return name == "BSH"    ? Dims{2, 3, n * 8}
             : name == "SBH"  ? Dims{3, 2, n * 8}
             : name == "BSND" ? Dims{2, 3, n, 8}
                              : Dims{2, n, 3, 8};
    };
    const Array a = put(dims(4), arranged(q, 4, name)), b = put(dims(2), arranged(k, 2, name));
    const Array c = put(dims(2), arranged(v, 2, name)), o = empty(dims(4)), m = empty({2, 4, 3, 8}),
                s = empty({2, 4, 3, 8});
    std::string layout = name;
    ASSERT_EQ(RUN(aclnnFlashAttentionScore, of(a), of(b), of(c), nullptr, nullptr, nullptr,
                  of(mask), nullptr, p.scale, 1.0, kAll, int64_t{0}, int64_t{4}, layout.data(),
                  int64_t{0}, int64_t{3}, of(m), of(s), of(none), of(o)),
              0)
        << aclGetRecentErrMsg();
    expect_near(get(o), arranged(wanted, 4, name), 1e-6);
  }
}

TEST_F(Attention, SlopesBendScoresByTheDistance) {
  p.q_ends = p.k_ends = {5};
  q = noise(5 * 4 * 8);
  k = noise(5 * 2 * 8);
  v = noise(5 * 2 * 8);
  put_all();
  const Numbers slopes = {0.5, 0.25, 0.125, 0.0625};
  char layout[] = "TND";
  ASSERT_EQ(RUN(aclnnFlashAttentionVarLenScoreV2, of(aq), of(ak), of(av), of(put({4}, slopes)),
                nullptr, nullptr, of(triangle()), nullptr, ints(p.q_ends), ints(p.k_ends), nullptr,
                nullptr, p.scale, 1.0, kAll, int64_t{0}, p.heads, layout, int64_t{0}, int64_t{3},
                int64_t{2}, of(most), of(sum), of(none), of(out)),
            0)
      << aclGetRecentErrMsg();
  // exp(−slope·distance) is a factor of each weight; for head 0, query 1: keys 0 and 1.
  const auto weight = [&](size_t j) {
    double dot = 0;
    for (size_t d = 0; d < 8; ++d) dot += q[(1 * 4) * 8 + d] * k[(j * 2) * 8 + d];
    return std::exp(dot * p.scale - 0.5 * static_cast<double>(1 - j));
  };
  const double w = weight(0) / (weight(0) + weight(1));
  EXPECT_NEAR(get(out)[1 * 4 * 8], w * v[0] + (1 - w) * v[2 * 8], 1e-6);
}

TEST_F(Attention, TwoPartsOfTheKeysMergeToTheWhole) {
  // SBH with one sequence: keys in two halves, merged.
  const int64_t n = 2, d = 8, s = 3;
  const Numbers query = noise(s * n * d), keys = noise(2 * s * n * d),
                values = noise(2 * s * n * d);
  const auto half = [&](const Numbers& x, int64_t part) {
    return put({s, 1, n * d},
               Numbers(x.begin() + part * s * n * d, x.begin() + (part + 1) * s * n * d));
  };
  std::vector<Array> o, m, t;
  char layout[] = "SBH";
  const auto call = [&](const Array& kk, const Array& vv) {
    o.push_back(empty({s, 1, n * d}));
    m.push_back(empty({1, n, s, 8}));
    t.push_back(empty({1, n, s, 8}));
    ASSERT_EQ(RUN(aclnnFlashAttentionScore, of(put({s, 1, n * d}, query)), of(kk), of(vv), nullptr,
                  nullptr, nullptr, nullptr, nullptr, 0.3, 1.0, kAll, kAll, n, layout, int64_t{0},
                  int64_t{0}, of(m.back()), of(t.back()), of(none), of(o.back())),
              0)
        << aclGetRecentErrMsg();
  };
  call(half(keys, 0), half(values, 0));
  call(half(keys, 1), half(values, 1));
  call(put({2 * s, 1, n * d}, keys), put({2 * s, 1, n * d}, values));
  const Array ro = empty({s, 1, n * d}), rm = empty({1, n, s, 8}), rs = empty({1, n, s, 8});
  ASSERT_EQ(RUN(aclnnRingAttentionUpdate, of(o[0]), of(m[0]), of(t[0]), of(o[1]), of(m[1]),
                of(t[1]), nullptr, layout, of(ro), of(rm), of(rs)),
            0)
      << aclGetRecentErrMsg();
  expect_near(get(ro), get(o[2]), 1e-6);
  expect_near(get(rm), get(m[2]), 1e-6);
  expect_near(get(rs), get(t[2]), 1e-6);
}

class Serving : public Card {
 protected:
  static constexpr int64_t kBlock = 128, kHeads = 4, kKv = 2, kWidth = 16;

  aclnnStatus fused(const Array& q, aclTensorList* k, aclTensorList* v, aclTensor* mask,
                    const Dims& lengths, aclTensor* table, int64_t mode, const Array& out,
                    const Array& lse) {
    char layout[] = "BSND";
    return RUN(aclnnFusedInferAttentionScoreV2, of(q), k, v, nullptr, mask, nullptr, ints(lengths),
               nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, table, nullptr,
               nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, kHeads, 0.25,
               int64_t{2147483647}, int64_t{0}, layout, kKv, mode, int64_t{0}, table ? kBlock : 0,
               int64_t{0}, true, int64_t{0}, int64_t{0}, of(out), of(lse));
  }
};

TEST_F(Serving, PagesHoldTheSameCacheAsOneTensor) {
  const int64_t batch = 2, most = 200;
  const Dims lengths = {200, 77};
  const Numbers q = noise(batch * kHeads * kWidth, ACL_BF16),
                k = noise(batch * most * kKv * kWidth, ACL_BF16);
  const Numbers v = noise(batch * most * kKv * kWidth, ACL_BF16);
  const Array aq = put({batch, 1, kHeads, kWidth}, q, ACL_BF16), dense = empty(aq.dims, ACL_BF16),
              paged = empty(aq.dims, ACL_BF16);
  const Array lse = empty({batch, kHeads, 1, 1}), lse2 = empty({batch, kHeads, 1, 1});
  const Dims cache = {batch, most, kKv, kWidth};
  ASSERT_EQ(fused(aq, list({put(cache, k, ACL_BF16)}), list({put(cache, v, ACL_BF16)}), nullptr,
                  lengths, nullptr, 0, dense, lse),
            0)
      << aclGetRecentErrMsg();
  // Sequence b's page i is block table[b][i]; tokens behind the length hold NaN.
  const std::vector<int64_t> table = {3, 0, 2, 1};
  const auto pages = [&](const Numbers& x) {
    Numbers y(4 * kBlock * kKv * kWidth, std::nan(""));
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t t = 0; t < lengths[static_cast<size_t>(b)]; ++t) {
        const int64_t page = table[static_cast<size_t>(b * 2 + t / kBlock)];
        for (int64_t e = 0; e < kKv * kWidth; ++e) {
          y[static_cast<size_t>((page * kBlock + t % kBlock) * kKv * kWidth + e)] =
              x[static_cast<size_t>((b * most + t) * kKv * kWidth + e)];
        }
      }
    }
    return put({4, kBlock, kKv * kWidth}, y, ACL_BF16);
  };
  const Array blocks = put({batch, 2}, {3, 0, 2, 1}, ACL_INT32);
  ASSERT_EQ(
      fused(aq, list({pages(k)}), list({pages(v)}), nullptr, lengths, of(blocks), 0, paged, lse2),
      0)
      << aclGetRecentErrMsg();
  EXPECT_EQ(get(paged), get(dense));
  EXPECT_EQ(get(lse), get(lse2));
  // By hand: sequence 1, head 3 (which reads kv head 1), element 5.
  double sum = 0, wanted = 0;
  for (int64_t t = 0; t < 77; ++t) {
    double dot = 0;
    for (int64_t d = 0; d < kWidth; ++d) {
      dot += q[static_cast<size_t>((kHeads + 3) * kWidth + d)] *
             k[static_cast<size_t>(((most + t) * kKv + 1) * kWidth + d)];
    }
    sum += std::exp(0.25 * dot);
    wanted += std::exp(0.25 * dot) * v[static_cast<size_t>(((most + t) * kKv + 1) * kWidth + 5)];
  }
  EXPECT_EQ(get(dense)[static_cast<size_t>((kHeads + 3) * kWidth + 5)],
            rounded(wanted / sum, ACL_BF16));
  EXPECT_NEAR(get(lse)[kHeads + 3], std::log(sum), 1e-6);
}

TEST_F(Serving, APageThatIsNotThereFailsLateAndABadBlockSizeAtOnce) {
  const Array q = put({1, 1, kHeads, kWidth}, Numbers(kHeads * kWidth, 0), ACL_FLOAT16),
              out = empty(q.dims, ACL_FLOAT16);
  const Array lse = empty({1, kHeads, 1, 1}), table = put({1, 1}, {7}, ACL_INT32);
  const Array cache =
      put({2, kBlock, kKv * kWidth}, Numbers(2 * kBlock * kKv * kWidth, 0), ACL_FLOAT16);
  const Array odd = put({2, 120, kKv * kWidth}, Numbers(2 * 120 * kKv * kWidth, 0), ACL_FLOAT16);
  EXPECT_EQ(fused(q, list({odd}), list({odd}), nullptr, {5}, of(table), 0, out, lse), 161002);
  EXPECT_EQ(fused(q, list({cache}), list({cache}), nullptr, {500}, of(table), 0, out, lse), 161002);
  ASSERT_EQ(fused(q, list({cache}), list({cache}), nullptr, {5}, of(table), 0, out, lse), 0)
      << aclGetRecentErrMsg();
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 507035);
}

class Experts : public Card {};

TEST_F(Experts, RowsOfEachGroupMeetTheirWeight) {
  const Numbers x = noise(5 * 3), w = noise(2 * 3 * 4);
  const Array a = put({5, 3}, x), b = put({2, 3, 4}, w), ends = put({2}, {2, 5}, ACL_INT64),
              counts = put({2}, {2, 3}, ACL_INT64);
  Numbers wanted(20);
  for (size_t t = 0; t < 5; ++t) {
    for (size_t n = 0; n < 4; ++n) {
      for (size_t i = 0; i < 3; ++i)
        wanted[t * 4 + n] += x[t * 3 + i] * w[((t < 2 ? 0 : 1) * 3 + i) * 4 + n];
    }
  }
  for (const int64_t type : {0, 1}) {
    const Array out = empty({5, 4});
    ASSERT_EQ(RUN(aclnnGroupedMatmulV4, list({a}), list({b}), nullptr, nullptr, nullptr, nullptr,
                  nullptr, nullptr, of(type == 0 ? ends : counts), nullptr, nullptr, nullptr,
                  int64_t{2}, int64_t{0}, type, int64_t{0}, list({out}), nullptr, nullptr),
              0)
        << aclGetRecentErrMsg();
    expect_near(get(out), wanted, 1e-6);
  }
}

TEST_F(Experts, WeightGradientsAddUpInF32) {
  const Numbers x = noise(5 * 3, ACL_BF16), d = noise(5 * 4, ACL_BF16);
  const Array a = put({5, 3}, x, ACL_BF16), b = put({5, 4}, d, ACL_BF16),
              ends = put({2}, {2, 5}, ACL_INT64);
  const Array y = put({6, 4}, Numbers(24, 1));
  Numbers wanted(24, 1);
  for (size_t t = 0; t < 5; ++t) {
    for (size_t i = 0; i < 3; ++i) {
      for (size_t n = 0; n < 4; ++n)
        wanted[((t < 2 ? 0 : 1) * 3 + i) * 4 + n] += x[t * 3 + i] * d[t * 4 + n];
    }
  }
  ASSERT_EQ(RUN(aclnnGroupedMatmulAdd, of(a), of(b), of(ends), of(y), true, false, int64_t{2}), 0)
      << aclGetRecentErrMsg();
  expect_near(get(y), wanted, 1e-6);
}

TEST_F(Experts, TokensGoToTheirExpertsAndComeBackWeighted) {
  const Array tokens = put({3, 2}, {1, 2, 3, 4, 5, 6}),
              experts = put({3, 2}, {1, 0, 0, 2, 1, 2}, ACL_INT32);
  const Array sorted = empty({6, 2}), places = empty({6}, ACL_INT32), out = empty({3, 2});
  ASSERT_EQ(
      RUN(aclnnMoeTokenPermute, of(tokens), of(experts), int64_t{0}, false, of(sorted), of(places)),
      0)
      << aclGetRecentErrMsg();
  EXPECT_EQ(get(sorted), (Numbers{1, 2, 3, 4, 1, 2, 5, 6, 3, 4, 5, 6}));
  EXPECT_EQ(get(places), (Numbers{2, 0, 1, 4, 3, 5}));
  const Array probs = put({3, 2}, {0.5, 0.25, 1, 1, 0, 2});
  ASSERT_EQ(RUN(aclnnMoeTokenUnpermute, of(sorted), of(places), of(probs), false, nullptr, of(out)),
            0);
  EXPECT_EQ(get(out), (Numbers{0.75, 1.5, 6, 8, 10, 12}));
  ASSERT_EQ(RUN(aclnnMoeTokenPermuteGrad, of(sorted), of(places), int64_t{2}, false, of(out)), 0);
  EXPECT_EQ(get(out), (Numbers{2, 4, 6, 8, 10, 12}));
  const Array dt = empty({6, 2}), dp = empty({3, 2}), up = put({3, 2}, {1, 1, 1, 1, 1, 1});
  ASSERT_EQ(RUN(aclnnMoeTokenUnpermuteGrad, of(sorted), of(up), of(places), of(probs), false,
                nullptr, of(dt), of(dp)),
            0);
  EXPECT_EQ(get(dp), (Numbers{3, 3, 7, 7, 11, 11}));
  EXPECT_EQ(get(dt), (Numbers{0.25, 0.25, 1, 1, 0.5, 0.5, 0, 0, 1, 1, 2, 2}));
}

TEST_F(Experts, TheGateGivesTheLargestOfTheSoftmax) {
  const Array x = put({1, 3}, {std::log(1), std::log(5), std::log(2)}), y = empty({1, 2}),
              ids = empty({1, 2}, ACL_INT32), all = empty({1, 3});
  ASSERT_EQ(RUN(aclnnMoeGatingTopKSoftmaxV2, of(x), nullptr, int64_t{2}, int64_t{0}, true, of(y),
                of(ids), of(all)),
            0)
      << aclGetRecentErrMsg();
  expect_near(get(y), {5.0 / 8, 2.0 / 8}, 1e-6);
  EXPECT_EQ(get(ids), (Numbers{1, 2}));
  expect_near(get(all), {1.0 / 8, 5.0 / 8, 2.0 / 8}, 1e-6);
  ASSERT_EQ(RUN(aclnnMoeGatingTopKSoftmaxV2, of(x), nullptr, int64_t{2}, int64_t{1}, false, of(y),
                of(ids), nullptr),
            0);
  expect_near(get(y), {5.0 / 7, 2.0 / 7}, 1e-6);
}

}  // namespace
}  // namespace npu_sim_test
