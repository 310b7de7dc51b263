#include "npu/attention_bias.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <mutex>
#include <vector>

#include "npu/arithmetic.h"
#include "npu/streams.h"

namespace danlu::npu {
namespace {

constexpr int64_t kDigit = 128;  // a place is written with: bf16 has 8 bits, f16 11
constexpr int64_t kDigits = 3, kTerms = 3, kEdge = 16;

/// The numbers of `type` that add up to a value: as many as there are room for.
std::vector<double> terms_of(double value, at::ScalarType type) {
  std::vector<double> terms;
  for (int64_t i = 0; i < kTerms; ++i) {
    const at::Tensor one = at::zeros({1}, at::kDouble).fill_(value);
    terms.push_back(one.to(type).to(at::kDouble).data_ptr<double>()[0]);
    value -= terms.back();
  }
  return terms;
}

struct Places {
  std::vector<int64_t> of_queries, of_keys;
};
/// Within each span, counted from its first key.
Places places_of(const ops::Spans& spans, int64_t n, int64_t m) {
  Places places{std::vector<int64_t>(static_cast<size_t>(n)),
                std::vector<int64_t>(static_cast<size_t>(m))};
  for (const ops::Span& span : spans) {
    for (int64_t i = 0; i < span.q_len; ++i)
      places.of_queries[static_cast<size_t>(span.q + i)] = span.lead + i;
    for (int64_t j = 0; j < span.k_len; ++j) places.of_keys[static_cast<size_t>(span.k + j)] = j;
  }
  return places;
}

/// What a digit counts is shared by both sides, since f16 ends at 65504.
constexpr double kUnitOfQuery[kDigits] = {1, kDigit, kDigit};
constexpr int64_t kUnitOfKey[kDigits] = {1, 1, kDigit};

/// The digits of each key's place, once for each term of the slope: [M, kDigits * kTerms].
at::Tensor digits_of(const std::vector<int64_t>& places) {
  const at::Tensor digits = at::empty({static_cast<int64_t>(places.size()), kDigits * kTerms});
  float* to = digits.data_ptr<float>();
  for (int64_t place : places) {
    for (int64_t digit = 0; digit < kDigits; ++digit, place /= kDigit) {
      const int64_t own = digit + 1 < kDigits ? place % kDigit : place;
      for (int64_t term = 0; term < kTerms; ++term)
        *to++ = static_cast<float>(own * kUnitOfKey[digit]);
    }
  }
  return digits;
}

/// What meets them in each head: [1, Q, kDigits * kTerms].
at::Tensor weights_of(const at::Tensor& slopes_Q, double scale, at::ScalarType type) {
  const at::Tensor slopes = slopes_Q.to(at::kCPU, at::kFloat).contiguous();
  const at::Tensor weights = at::empty({1, slopes.numel(), kDigits * kTerms});
  float* to = weights.data_ptr<float>();
  for (int64_t head = 0; head < slopes.numel(); ++head) {
    const auto terms = terms_of(slopes.data_ptr<float>()[head] / scale, type);
    for (const double unit : kUnitOfQuery) {
      for (const double term : terms) *to++ = static_cast<float>(term * unit);
    }
  }
  return weights.to(type).to(slopes_Q.device());
}

/// A model's slopes are made once, and read by the host once.
at::Tensor known_weights(const at::Tensor& slopes_Q, double scale, at::ScalarType type) {
  struct Known {
    at::Tensor slopes_Q, weights;
    double scale;
    at::ScalarType type;
  };
  static auto* const all = new std::vector<Known>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  for (const Known& known : *all) {
    if (known.slopes_Q.is_same(slopes_Q) && known.scale == scale && known.type == type)
      return known.weights;
  }
  const Known fresh_one{slopes_Q, weights_of(slopes_Q, scale, type), scale, type};
  const int device = slopes_Q.device().index();
  synchronize(stream_of(device, current_stream(device)));  // other streams use them, too
  constexpr size_t kMost = 64;
  if (all->size() >= kMost) all->erase(all->begin());
  all->push_back(fresh_one);
  return fresh_one.weights;
}

/// [x | more | 0], as wide as the operators are fast with; `more` [rows or 1, heads or 1, width].
at::Tensor with_more_dimensions(const at::Tensor& x, const at::Tensor& more, at::ScalarType type) {
  const int64_t width = x.size(2), own = width + more.size(2),
                all = (own + kEdge - 1) / kEdge * kEdge;
  const at::Tensor wide = fresh(x, {x.size(0), x.size(1), all}, type);
  wide.narrow(2, 0, width).copy_(x);
  wide.narrow(2, width, more.size(2)).copy_(more.to(type).to(x.device()));
  if (all > own) wide.narrow(2, own, all - own).zero_();
  return wide;
}

}  // namespace

Biased::Biased(const at::Tensor& q, const at::Tensor& k, const ops::Spans& spans,
               const ops::AttentionOptions& options, at::ScalarType type) {
  const at::Tensor& slopes_Q = options.alibi_slopes_Q;
  if (!slopes_Q.defined()) {
    q_NQD = cast(q, type);
    k_MKD = cast(k, type);
    return;
  }
  const Places places = places_of(spans, q.size(0), k.size(0));
  q_NQD = with_more_dimensions(q, known_weights(slopes_Q, options.scale, type), type);
  k_MKD = with_more_dimensions(k, digits_of(places.of_keys).unsqueeze(1), type);
  const at::Tensor of_queries = at::empty({1, q.size(0)});
  for (int64_t i = 0; i < q.size(0); ++i) {
    of_queries.data_ptr<float>()[i] = static_cast<float>(places.of_queries[static_cast<size_t>(i)]);
  }
  own_terms_QN_ =
      times(slopes_Q.to(q.device()).to(at::kFloat).reshape({-1, 1}), of_queries.to(q.device()));
}

void Biased::add_to_lse(const at::Tensor& lse_QN, double factor) const {
  if (adds()) add(lse_QN, own_terms_QN_, factor);
}

}  // namespace danlu::npu
