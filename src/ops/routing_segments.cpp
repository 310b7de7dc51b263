// Choices of routers that are made over whole segments, and the noise of single
// tokens.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/rng.h"
#include "device/dtype.h"
#include "ops/check.h"
#include "ops/routing.h"

namespace danlu::ops {
namespace {

/// Steps of an even share, within which balanced values are the same.
constexpr int64_t kSteps = 1 << 14;

at::Tensor wide_on_host(const at::Tensor& x) {
  return x.detach().cpu().to(at::kDouble).contiguous();
}

/// Makes rows of exp(logit) `[rows, experts]` into their balanced form.
void balance_rows(double* rows, size_t count, size_t experts) {
  constexpr double kTolerance = 1e-4, kAdded = 1e-8;
  std::vector<double> of_row(count), of_column(experts, 1.0), before(experts);
  double change = 1;
  for (int64_t round = 0; round < kSinkhornRounds && change > kTolerance; ++round) {
    for (size_t n = 0; n < count; ++n) {
      const double sum =
          std::inner_product(of_column.begin(), of_column.end(), rows + n * experts, 0.0);
      of_row[n] = 1 / (static_cast<double>(count) * (sum + kAdded));
    }
    before = of_column;
    change = 0;
    for (size_t e = 0; e < experts; ++e) {
      double sum = 0;
      for (size_t n = 0; n < count; ++n) sum += of_row[n] * rows[n * experts + e];
      of_column[e] = 1 / (static_cast<double>(experts) * (sum + kAdded));
      change += std::abs(of_column[e] - before[e]) / static_cast<double>(experts);
    }
  }
  for (size_t n = 0; n < count; ++n) {
    for (size_t e = 0; e < experts; ++e) rows[n * experts + e] *= of_row[n] * of_column[e];
  }
}

at::Tensor times_factors(const at::Tensor& x_NH, const at::Tensor& keys_N, uint64_t salt,
                         double eps) {
  // Factors of all rows at once would be several times x.
  constexpr int64_t kRowsAtATime = 64;
  const at::ScalarType wide = device::wide_type(x_NH.scalar_type());
  const at::Tensor result = at::empty_like(x_NH);
  for (int64_t row = 0; row < x_NH.size(0); row += kRowsAtATime) {
    const int64_t count = std::min(kRowsAtATime, x_NH.size(0) - row);
    const at::Tensor factors =
        jitter_factors(keys_N.narrow(0, row, count), salt, x_NH.size(1), eps);
    result.narrow(0, row, count)
        .copy_(x_NH.narrow(0, row, count).to(wide) * factors.to(x_NH.device(), wide));
  }
  return result;
}

class Jittered : public torch::autograd::Function<Jittered> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x_NH,
                            const at::Tensor& keys_N, int64_t salt, double eps) {
    // Keys are the host's: they do not go where saved tensors go.
    ctx->saved_data["keys"] = keys_N;
    ctx->saved_data["salt"] = salt;
    ctx->saved_data["eps"] = eps;
    return times_factors(x_NH, keys_N, static_cast<uint64_t>(salt), eps);
  }
  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    return {times_factors(grads[0], ctx->saved_data["keys"].toTensor(),
                          static_cast<uint64_t>(ctx->saved_data["salt"].toInt()),
                          ctx->saved_data["eps"].toDouble()),
            {},
            {},
            {}};
  }
};

}  // namespace

at::Tensor sinkhorn(const at::Tensor& logits_NE, const std::vector<SegmentPart>& parts) {
  require(logits_NE.dim() == 2, "routing", "logits ", logits_NE.sizes(), " must be [N, E]");
  const at::Tensor logits = wide_on_host(logits_NE);
  const at::Tensor result = at::zeros(logits.sizes(), logits.options());
  const int64_t experts = logits.size(1);
  for (const SegmentPart& part : parts) {
    if (part.begin == part.end) continue;
    const int64_t count = part.end - part.begin;
    const double* const from = logits.data_ptr<double>() + part.begin * experts;
    double* const to = result.data_ptr<double>() + part.begin * experts;
    std::transform(from, from + count * experts, to, [](double logit) { return std::exp(logit); });
    balance_rows(to, static_cast<size_t>(count), static_cast<size_t>(experts));
  }
  return result;
}

at::Tensor balanced_picks(const at::Tensor& balanced_NE, const at::Tensor& logits_NE,
                          int64_t per_token) {
  require(balanced_NE.dim() == 2 && balanced_NE.sizes() == logits_NE.sizes(), "routing",
          "a balance ", balanced_NE.sizes(), " of logits ", logits_NE.sizes());
  const at::Tensor values = wide_on_host(balanced_NE), logits = wide_on_host(logits_NE);
  const int64_t tokens = values.size(0), experts = values.size(1);
  const at::Tensor result = at::empty({tokens, per_token}, at::kLong);
  std::vector<int64_t> order(static_cast<size_t>(experts)), steps(order.size());
  for (int64_t n = 0; n < tokens; ++n) {
    const double* const row = values.data_ptr<double>() + n * experts;
    const double* const logit = logits.data_ptr<double>() + n * experts;
    const double sum = std::accumulate(row, row + experts, 0.0);
    for (size_t e = 0; sum > 0 && e < steps.size(); ++e)
      steps[e] = std::llround(row[e] / sum * static_cast<double>(experts * kSteps));
    std::iota(order.begin(), order.end(), int64_t{0});
    std::partial_sort(
        order.begin(), order.begin() + per_token, order.end(), [&](int64_t a, int64_t b) {
          const int64_t left = steps[static_cast<size_t>(a)], right = steps[static_cast<size_t>(b)];
          if (left != right) return left > right;
          return logit[a] > logit[b] || (logit[a] == logit[b] && a < b);
        });
    std::copy_n(order.begin(), per_token, result.data_ptr<int64_t>() + n * per_token);
  }
  return result;
}

at::Tensor jitter_factors(const at::Tensor& keys_N, uint64_t salt, int64_t columns, double eps) {
  require(keys_N.dim() == 1 && keys_N.scalar_type() == at::kLong, "routing",
          "noise needs one int64 key for each token, got ", keys_N.sizes());
  const at::Tensor result = at::empty({keys_N.size(0), columns}, at::kDouble);
  double* to = result.data_ptr<double>();
  const int64_t* const keys = keys_N.data_ptr<int64_t>();
  for (int64_t n = 0; n < keys_N.size(0); ++n) {
    const uint64_t key = mix64(static_cast<uint64_t>(keys[n]), salt);
    for (int64_t column = 0; column < columns; ++column) {
      const uint64_t bits = mix64(key, static_cast<uint64_t>(column));
      *to++ = 1 + eps * (static_cast<double>(bits >> 11) * 0x1p-52 - 1);
    }
  }
  return result;
}

at::Tensor jittered(const at::Tensor& x_NH, const at::Tensor& keys_N, uint64_t salt, double eps) {
  require(x_NH.dim() == 2 && keys_N.dim() == 1 && keys_N.size(0) == x_NH.size(0), "routing",
          "noise on ", x_NH.sizes(), " needs one key for each row, got ", keys_N.sizes());
  return Jittered::apply(x_NH, keys_N, static_cast<int64_t>(salt), eps);
}

int64_t drop_beyond(double factor, bool by_position, int64_t experts,
                    const std::vector<SegmentPart>& parts, const std::vector<int64_t>& lengths,
                    const at::Tensor& experts_NK, const at::Tensor& weights_NK) {
  const int64_t per_token = experts_NK.size(1);
  int64_t* const picks = experts_NK.data_ptr<int64_t>();
  const at::Tensor weights = wide_on_host(weights_NK);
  const double* const weight = weights.data_ptr<double>();
  // Equal tokens, such as a text that begins with the same word twice, have
  // weights that differ by rounding alone.
  const auto steps = [](double value) { return std::llround(value * 1024); };
  int64_t dropped = 0;
  std::vector<std::vector<int64_t>> of_expert(static_cast<size_t>(experts));
  for (const SegmentPart& part : parts) {
    const double even =
        static_cast<double>(lengths[static_cast<size_t>(part.segment)] * per_token) /
        static_cast<double>(experts);
    const auto room = static_cast<size_t>(std::ceil(even * factor));
    for (auto& list : of_expert) list.clear();
    for (int64_t pick = part.begin * per_token; pick < part.end * per_token; ++pick)
      of_expert[static_cast<size_t>(picks[pick])].push_back(pick);
    for (auto& list : of_expert) {
      if (list.size() <= room) continue;
      if (!by_position) {
        std::stable_sort(list.begin(), list.end(),
                         [&](int64_t a, int64_t b) { return steps(weight[a]) > steps(weight[b]); });
      }
      for (size_t i = room; i < list.size(); ++i, ++dropped) picks[list[i]] = -1;
    }
  }
  return dropped;
}

}  // namespace danlu::ops
