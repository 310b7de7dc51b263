// Attention and its gradients against sums in double that are written out here and share nothing
// with ops, over random spans.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <random>
#include <sstream>

#include "base/error.h"
#include "finite_differences.h"
#include "ops/alibi.h"
#include "ops/attention.h"
#include "ops/kernels.h"

namespace danlu::ops {
namespace {

struct GoldenCase {
  int64_t heads, kv_heads, key_dim, value_dim;
  Segments segments;
  double scale = 1;
  int64_t window = 0;
  std::vector<double> slopes = {};  ///< of ALiBi; empty: none

  AttentionOptions options() const {
    AttentionOptions result{scale, window, {}};
    if (!slopes.empty()) result.alibi_slopes_Q = at::tensor(slopes, at::kFloat);
    return result;
  }
};

std::ostream& operator<<(std::ostream& out, const GoldenCase& c) {
  out << c.heads << '/' << c.kv_heads << " heads of " << c.key_dim << ", " << c.value_dim
      << ", window " << c.window << (c.slopes.empty() ? "" : ", ALiBi") << ", segments";
  for (size_t s = 1; s < c.segments.q_starts.size(); ++s) {
    out << ' ' << c.segments.q_starts[s] - c.segments.q_starts[s - 1] << 'x'
        << c.segments.k_starts[s] - c.segments.k_starts[s - 1]
        << (c.segments.is_causal(s - 1) ? "" : "*");
  }
  return out;
}

/// q, k, v, and the gradient of the result.
struct GoldenInputs {
  at::Tensor q, k, v, out_grad;

  GoldenInputs(const GoldenCase& c, uint64_t seed) {
    const int64_t n = c.segments.q_starts.back(), m = c.segments.k_starts.back();
    q = test::random_f64({n, c.heads, c.key_dim}, seed);
    k = test::random_f64({m, c.kv_heads, c.key_dim}, seed + 1);
    v = test::random_f64({m, c.kv_heads, c.value_dim}, seed + 2);
    out_grad = test::random_f64({n, c.heads, c.value_dim}, seed + 3);
  }
  GoldenInputs to(at::ScalarType type) const {
    GoldenInputs result(*this);
    for (at::Tensor* x : {&result.q, &result.k, &result.v, &result.out_grad}) *x = x->to(type);
    return result;
  }
};

/// What attention gives: lse [Q, N], the others as their inputs.
struct Found {
  at::Tensor out, lse, dq, dk, dv;
};

/// A [rows, heads, D] tensor of doubles.
struct DoubleRows {
  double* data;
  int64_t heads, dim;

  explicit DoubleRows(const at::Tensor& x)
      : data(x.data_ptr<double>()), heads(x.size(1)), dim(x.size(2)) {}
  double* of(int64_t row, int64_t head) const { return data + (row * heads + head) * dim; }
};

double dot(const double* a, const double* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}
void add_times(double* to, double factor, const double* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += factor * x[i];
}

/// A query, at its place in the keys of its segment, which it sees from `first` to before `end`.
struct Query {
  int64_t row, head, place, first_key_row, first, end;
};

void add_query(const GoldenCase& c, const GoldenInputs& in, const Query& query, const Found& into) {
  const DoubleRows q(in.q), k(in.k), v(in.v), grad(in.out_grad);
  const DoubleRows out(into.out), dq(into.dq), dk(into.dk), dv(into.dv);
  const int64_t head = query.head, kv_head = head / (c.heads / c.kv_heads);
  const double* const own = q.of(query.row, head);
  const double* const d_out = grad.of(query.row, head);
  std::vector<double> weight;
  double largest = -std::numeric_limits<double>::infinity(), sum = 0, delta = 0;
  for (int64_t j = query.first; j < query.end; ++j) {
    double score = c.scale * dot(own, k.of(query.first_key_row + j, kv_head), c.key_dim);
    // The slopes that ops are given are floats.
    if (!c.slopes.empty())
      score += static_cast<double>(static_cast<float>(c.slopes[static_cast<size_t>(head)])) *
               static_cast<double>(j - query.place);
    weight.push_back(score);
    largest = std::max(largest, score);
  }
  for (double& w : weight) sum += w = std::exp(w - largest);
  into.lse.data_ptr<double>()[head * in.q.size(0) + query.row] = largest + std::log(sum);
  for (int64_t j = query.first; j < query.end; ++j) {
    const int64_t key = query.first_key_row + j;
    double& w = weight[static_cast<size_t>(j - query.first)];
    w /= sum;
    add_times(out.of(query.row, head), w, v.of(key, kv_head), c.value_dim);
    add_times(dv.of(key, kv_head), w, d_out, c.value_dim);
    delta += w * dot(d_out, v.of(key, kv_head), c.value_dim);
  }
  for (int64_t j = query.first; j < query.end; ++j) {
    const int64_t key = query.first_key_row + j;
    const double d_score = weight[static_cast<size_t>(j - query.first)] * c.scale *
                           (dot(d_out, v.of(key, kv_head), c.value_dim) - delta);
    add_times(dq.of(query.row, head), d_score, k.of(key, kv_head), c.key_dim);
    add_times(dk.of(key, kv_head), d_score, own, c.key_dim);
  }
}

/// `in` is f64.
Found written_out(const GoldenCase& c, const GoldenInputs& in) {
  const int64_t n = in.q.size(0);
  const Found found{at::zeros_like(in.out_grad),
                    at::full({c.heads, n}, -std::numeric_limits<double>::infinity(), at::kDouble),
                    at::zeros_like(in.q), at::zeros_like(in.k), at::zeros_like(in.v)};
  for (size_t s = 1; s < c.segments.q_starts.size(); ++s) {
    const int64_t q = c.segments.q_starts[s - 1], queries = c.segments.q_starts[s] - q;
    const int64_t k = c.segments.k_starts[s - 1], keys = c.segments.k_starts[s] - k;
    for (int64_t i = 0; i < queries; ++i) {
      const int64_t place = keys - queries + i;
      int64_t first = 0, end = keys;
      if (c.segments.is_causal(s - 1)) end = place + 1;
      if (c.window > 0) first = std::max<int64_t>(0, place + 1 - c.window);
      for (int64_t head = 0; head < c.heads; ++head)
        add_query(c, in, {q + i, head, place, k, first, end}, found);
    }
  }
  return found;
}

// ---- cases ----

class Chooser {
 public:
  explicit Chooser(unsigned seed) : random_(seed) {}
  int64_t between(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }
  bool one_in(int64_t count) { return between(1, count) == 1; }
  template <typename T>
  T of(std::initializer_list<T> values) {
    return *(values.begin() + between(0, std::ssize(values) - 1));
  }

 private:
  std::mt19937 random_;
};

/// One in four is longer than a tile of queries and a block of keys (attention_blocks_cpu.h).
GoldenCase random_golden(Chooser& choose) {
  const bool is_long = choose.one_in(4);
  GoldenCase c{
      0, choose.between(1, 3), choose.of<int64_t>({1, 3, 8, 16, 18, 24, 72}), 0, {{0}, {0}}};
  c.heads = c.kv_heads * choose.of<int64_t>({1, 2, 3, 7});
  if (is_long) c.heads = c.kv_heads = 1 + choose.between(0, 1);
  c.value_dim = choose.one_in(2) ? c.key_dim : choose.of<int64_t>({1, 5, 8, 16, 30, 64});
  c.scale = 0.2 + 0.1 * static_cast<double>(choose.between(0, 5));
  const bool is_windowed = choose.one_in(3), is_biased = choose.one_in(3);
  if (is_windowed) c.window = choose.of<int64_t>({1, 2, 7, 33, 300});
  if (is_biased) c.slopes = alibi_slopes(c.heads);
  const int64_t count = choose.between(1, 6), the_long_one = choose.between(0, count - 1);
  for (int64_t s = 0; s < count; ++s) {
    const bool causal = is_windowed || is_biased || choose.one_in(2);
    int64_t queries = choose.one_in(6) ? 0 : choose.between(1, 25);
    int64_t keys = queries + (choose.one_in(3) ? choose.between(0, 40) : 0);
    if (is_long && s == the_long_one) {
      queries = choose.between(90, 300);
      keys = queries + choose.between(0, 300);
    }
    // Pictures may be asked by more queries than they have keys.
    if (!causal && queries > 1 && choose.one_in(3)) keys = choose.between(1, queries);
    c.segments.q_starts.push_back(c.segments.q_starts.back() + queries);
    c.segments.k_starts.push_back(c.segments.k_starts.back() + keys);
    if (!causal || choose.one_in(2)) {
      c.segments.causal.resize(static_cast<size_t>(s) + 1, true);
      c.segments.causal[static_cast<size_t>(s)] = causal;
    }
  }
  return c;
}

// ---- comparison ----

/// The greatest difference, as a share of the largest number that is to be there, or of `instead`
/// where all of them are 0.
double golden_distance(const at::Tensor& got, const at::Tensor& expected, double instead = 1) {
  if (expected.numel() == 0) return got.numel() == 0 ? 0 : HUGE_VAL;
  if (got.sizes() != expected.sizes()) return HUGE_VAL;
  const double largest = expected.abs().max().item<double>();
  const double far = (got.to(at::kDouble) - expected).abs().max().item<double>();
  if (!std::isfinite(far)) return HUGE_VAL;
  return far / (largest < 1e-9 ? instead : largest);
}

void expect_near(const Found& got, const Found& expected, double limit, const std::string& what) {
  // The gradient of a query that sees one key is the difference of two equal sums of so many terms.
  const double apart = static_cast<double>(got.dv.size(2));
  EXPECT_LE(golden_distance(got.out, expected.out), limit) << what << ": result";
  EXPECT_LE(golden_distance(got.dq, expected.dq, apart), limit) << what << ": gradient of q";
  EXPECT_LE(golden_distance(got.dk, expected.dk, apart), limit) << what << ": gradient of k";
  EXPECT_LE(golden_distance(got.dv, expected.dv), limit) << what << ": gradient of v";
}

Found by_attention(const GoldenCase& c, const GoldenInputs& in) {
  std::vector<at::Tensor> qkv;
  for (const at::Tensor& x : {in.q, in.k, in.v})
    qkv.push_back(x.detach().clone().requires_grad_(true));
  const at::Tensor out = attention(qkv[0], qkv[1], qkv[2], c.segments, c.options());
  const auto grads = torch::autograd::grad({out}, qkv, {in.out_grad}, {}, false, true);
  const auto found = [&](size_t i) {
    return grads[i].defined() ? grads[i] : at::zeros_like(qkv[i]);
  };
  return {out.detach(), {}, found(0), found(1), found(2)};
}

/// The keys of each segment cut into parts, of which each call takes one of every segment.
std::vector<Spans> cut_into_calls(const Segments& segments, Chooser& choose) {
  const int64_t calls = choose.between(2, 4);
  std::vector<Spans> result(static_cast<size_t>(calls));
  for (Span span : spans_of(segments)) {
    int64_t cut = 0;
    for (int64_t call = 0; call < calls; ++call) {
      const int64_t left = span.k_len - cut;
      const int64_t count = call + 1 == calls ? left : choose.between(0, left);
      if (count > 0) {
        Span part = span;
        part.k += cut;
        part.k_len = count;
        part.lead -= cut;
        // Half of the queries apart: two spans of the same keys.
        if (const int64_t half = part.q_len / 2; half > 0 && choose.one_in(2)) {
          Span first = part;
          first.q_len = half;
          result[static_cast<size_t>(call)].push_back(first);
          part.q += half;
          part.q_len -= half;
          part.lead += half;
        }
        result[static_cast<size_t>(call)].push_back(part);
      }
      cut += count;
    }
  }
  return result;
}

Found by_parts(const GoldenCase& c, const GoldenInputs& in, const std::vector<Spans>& calls) {
  PartialAttention all;
  for (const Spans& spans : calls) merge(all, attention_part(in.q, in.k, in.v, spans, c.options()));
  const at::Tensor out_grad = in.out_grad.to(all.out_NQD.scalar_type());
  const at::Tensor delta_QN = attention_delta(out_grad, all.out_NQD);
  Found found{all.out_NQD, all.lse_QN, {}, {}, {}};
  for (const Spans& spans : calls) {
    const AttentionGrads part = attention_part_backward(in.q, in.k, in.v, spans, c.options(),
                                                        out_grad, all.lse_QN, delta_QN);
    found.dq = found.dq.defined() ? found.dq + part.q_NQD : part.q_NQD;
    found.dk = found.dk.defined() ? found.dk + part.k_MKD : part.k_MKD;
    found.dv = found.dv.defined() ? found.dv + part.v_MKD : part.v_MKD;
  }
  return found;
}

/// Queries that see nothing have -inf on both sides.
double lse_distance(const at::Tensor& got, const at::Tensor& expected) {
  const at::Tensor none = expected.isinf();
  if (!at::equal(got.isinf(), none)) return HUGE_VAL;
  return golden_distance(got.masked_fill(none, 0), expected.masked_fill(none, 0));
}

struct Precision {
  at::ScalarType type;
  double limit;      ///< of what attention gives, in its type
  double composite;  ///< of the same of the composite, which rounds every step to it
};
// One rounding of the result and of the gradients, and, where products are made in 16 bits, of
// weights: 2^-9 of bf16, 2^-12 of f16, a few of them.
const std::vector<Precision> kPrecisions{{at::kDouble, 1e-12, 1e-12},
                                         {at::kFloat, 5e-6, 5e-6},
                                         {at::kBFloat16, 0.02, 0.04},
                                         {at::kHalf, 0.02 / 8, 0.04 / 8}};

class AttentionGolden : public testing::TestWithParam<Kernels> {
 protected:
  void SetUp() override { set_kernels(GetParam()); }
  void TearDown() override { set_kernels(before_); }
  const Kernels before_ = kernels();
};

TEST_P(AttentionGolden, IsTheDefinitionAndSoAreItsGradients) {
  const bool is_fused = GetParam() == Kernels::kFused;
  Chooser choose(11);
  for (int round = 0; round < 48; ++round) {
    const GoldenCase c = random_golden(choose);
    std::ostringstream what;
    what << "round " << round << ", " << c;
    const GoldenInputs inputs(c, static_cast<uint64_t>(100 * round + 1));
    const std::vector<Spans> calls = cut_into_calls(c.segments, choose);
    for (const auto& [type, limit, composite] : kPrecisions) {
      SCOPED_TRACE(testing::Message() << what.str() << ", " << c10::toString(type));
      const GoldenInputs in = inputs.to(type);
      const Found expected = written_out(c, in.to(at::kDouble));
      expect_near(by_attention(c, in), expected, is_fused ? limit : composite, "whole");
      const Found parts = by_parts(c, in, calls);
      expect_near(parts, expected, limit, "in parts");
      EXPECT_LE(lse_distance(parts.lse, expected.lse), limit);
    }
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, AttentionGolden,
                         testing::Values(Kernels::kFused, Kernels::kComposite),
                         [](const auto& info) {
                           return info.param == Kernels::kFused ? "fused" : "composite";
                         });

/// The loop's own gradients, so that both sides are not wrong in one way.
TEST(AttentionGoldenLoop, HasTheGradientsOfItsResult) {
  Chooser choose(5);
  for (int round = 0; round < 6; ++round) {
    GoldenCase c = random_golden(choose);
    c.segments = {{0, 3, 3, 7}, {0, 5, 6, 10}, {c.window > 0 || !c.slopes.empty(), true}};
    const GoldenInputs in(c, static_cast<uint64_t>(round + 1));
    const Found found = written_out(c, in);
    const auto loss = [&] { return (written_out(c, in).out * in.out_grad).sum().item<double>(); };
    for (const auto& [x, grad] :
         {std::pair(in.q, found.dq), std::pair(in.k, found.dk), std::pair(in.v, found.dv)}) {
      for (int64_t trial = 0; trial < 12; ++trial) {
        double& element = x.data_ptr<double>()[choose.between(0, x.numel() - 1)];
        const int64_t index = &element - x.data_ptr<double>();
        const double original = element;
        element = original + 1e-5;
        const double above = loss();
        element = original - 1e-5;
        const double below = loss();
        element = original;
        EXPECT_NEAR(grad.data_ptr<double>()[index], (above - below) / 2e-5, 1e-8) << c;
      }
    }
  }
}

TEST(AttentionMasks, AWindowAndAlibiAreForCausalSegments) {
  const at::Tensor x = test::random_f64({6, 2, 4}, 1);
  const Segments mixed{{0, 2, 6}, {0, 2, 6}, {true, false}};
  const Spans spans = spans_of(mixed);
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_TRUE(spans[0].causal);
  EXPECT_FALSE(spans[1].causal);
  ASSERT_NO_THROW(attention(x, x, x, mixed, {}));
  const AttentionOptions windowed{1, 3, {}};
  const AttentionOptions biased{1, 0, at::tensor({0.5, 0.25})};
  for (const AttentionOptions& options : {windowed, biased}) {
    EXPECT_THROW(attention(x, x, x, mixed, options), ModelError);
    EXPECT_THROW(attention_part(x, x, x, spans, options), ModelError);
    EXPECT_NO_THROW(attention(x, x, x, {{0, 2, 6}, {0, 2, 6}, {true, true}}, options));
  }
  EXPECT_THROW(attention(x, x, x, {{0, 6}, {0, 6}, {true, false}}, {}), ModelError);
  // Queries without a key to see have no result.
  EXPECT_THROW(attention(x, x.narrow(0, 0, 2), x.narrow(0, 0, 2),
                         {{0, 2, 6}, {0, 2, 2}, {false, false}}, {}),
               ModelError);
}

}  // namespace
}  // namespace danlu::ops
