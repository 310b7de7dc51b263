#include <ATen/core/Tensor.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "device/sent.h"
#include "ops/aten/table.h"
#include "ops/cuda/entries.h"

namespace danlu::ops::cuda {
namespace {

/// How sequences lie in the tensors of a call.
struct Sequences {
  std::vector<int32_t> q_starts, k_starts;
  int64_t longest_q = 0, longest_k = 0;
  bool causal = true;
};

/// Sequences that FlashAttention takes: one after the other in both tensors, all causal or none.
/// Where there are more keys than queries its masks have differed from version to version, so
/// causal ones are whole.
std::optional<Sequences> sequences_of(const Spans& spans, int64_t queries, int64_t keys) {
  if (spans.empty()) return {};
  Sequences found{{0}, {0}};
  found.causal = spans.front().causal;
  for (const Span& span : spans) {
    const bool follows = span.q == found.q_starts.back() && span.k == found.k_starts.back();
    const bool is_whole = !span.causal || (span.lead == 0 && span.q_len == span.k_len);
    if (!follows || !is_whole || span.causal != found.causal) return {};
    found.q_starts.push_back(static_cast<int32_t>(span.q + span.q_len));
    found.k_starts.push_back(static_cast<int32_t>(span.k + span.k_len));
    found.longest_q = std::max(found.longest_q, span.q_len);
    found.longest_k = std::max(found.longest_k, span.k_len);
  }
  if (found.q_starts.back() != queries || found.k_starts.back() != keys) return {};
  return found;
}

std::optional<Sequences> taken(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                               const at::Tensor& v_MKD, const Spans& spans,
                               const AttentionOptions& options) {
  constexpr int64_t kWidest = 256, kFactor = 8;
  const int64_t dim = q_NQD.size(2);
  const bool has_type = q_NQD.scalar_type() == at::kBFloat16 || q_NQD.scalar_type() == at::kHalf;
  if (!has_type || dim % kFactor != 0 || dim > kWidest || v_MKD.size(2) != dim ||
      options.alibi_slopes_Q.defined())
    return {};
  return sequences_of(spans, q_NQD.size(0), k_MKD.size(0));
}

at::Tensor starts_on(const std::vector<int32_t>& starts, const at::Device& device) {
  return device::sent(at::tensor(starts, at::kInt), device);
}

/// How many dimensions its logs of sums have: two, [Q, N], or three, [B, Q, longest], in older
/// versions. 0: nothing has been asked yet.
std::atomic<int64_t> log_dims = 0;

at::Tensor logs_of_rows(const at::Tensor& given, const Sequences& sequences, int64_t queries) {
  log_dims = given.dim();
  if (given.dim() == 2) return given;
  const at::Tensor lse_QN = at::empty({given.size(1), queries}, given.options());
  for (size_t s = 1; s < sequences.q_starts.size(); ++s) {
    const int64_t first = sequences.q_starts[s - 1], count = sequences.q_starts[s] - first;
    lse_QN.narrow(1, first, count)
        .copy_(given.select(0, static_cast<int64_t>(s) - 1).narrow(1, 0, count));
  }
  return lse_QN;
}

/// And back.
at::Tensor logs_of_sequences(const at::Tensor& lse_QN, const Sequences& sequences) {
  if (log_dims == 2) return lse_QN.contiguous();
  const auto count = static_cast<int64_t>(sequences.q_starts.size()) - 1;
  const at::Tensor padded =
      at::zeros({count, lse_QN.size(0), sequences.longest_q}, lse_QN.options());
  for (int64_t s = 0; s < count; ++s) {
    const int64_t first = sequences.q_starts[static_cast<size_t>(s)],
                  length = sequences.q_starts[static_cast<size_t>(s) + 1] - first;
    padded.select(0, s).narrow(1, 0, length).copy_(lse_QN.narrow(1, first, length));
  }
  return padded;
}

/// -1: no limit.
int64_t keys_before(const AttentionOptions& options) {
  return options.window > 0 ? options.window - 1 : -1;
}

at::Tensor with_contiguous_rows(const at::Tensor& x) {
  return x.stride(-1) == 1 ? x : x.contiguous();
}

PartialAttention flash(const at::Tensor& q_NQD, const at::Tensor& k_MKD, const at::Tensor& v_MKD,
                       const Spans& spans, const AttentionOptions& options, at::ScalarType result) {
  const auto sequences = taken(q_NQD, k_MKD, v_MKD, spans, options);
  if (!sequences) return aten::attention(q_NQD, k_MKD, v_MKD, spans, options, result);
  const c10::DeviceGuard guard(q_NQD.device());
  const auto found = at::_flash_attention_forward(
      with_contiguous_rows(q_NQD), with_contiguous_rows(k_MKD), with_contiguous_rows(v_MKD),
      starts_on(sequences->q_starts, q_NQD.device()),
      starts_on(sequences->k_starts, q_NQD.device()), sequences->longest_q, sequences->longest_k,
      /*dropout_p=*/0, sequences->causal,
      /*return_debug_mask=*/false, options.scale, keys_before(options), sequences->causal ? 0 : -1);
  return {std::get<0>(found).to(result),
          logs_of_rows(std::get<1>(found), *sequences, q_NQD.size(0))};
}

AttentionGrads flash_backward(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                              const at::Tensor& v_MKD, const Spans& spans,
                              const AttentionOptions& options, const at::Tensor& out_grad_NQD,
                              const at::Tensor& out_NQD, const at::Tensor& lse_QN) {
  const auto sequences = taken(q_NQD, k_MKD, v_MKD, spans, options);
  if (!sequences || log_dims == 0) {
    return aten::attention_backward(q_NQD, k_MKD, v_MKD, spans, options, out_grad_NQD, lse_QN,
                                    attention_delta(out_grad_NQD, out_NQD));
  }
  const c10::DeviceGuard guard(q_NQD.device());
  // The state of a generator, which is asked for although nothing is dropped.
  const at::Tensor state = at::empty({}, at::TensorOptions(at::kLong));
  const auto [d_q, d_k, d_v] = at::_flash_attention_backward(
      out_grad_NQD.to(q_NQD.scalar_type()).contiguous(), with_contiguous_rows(q_NQD),
      with_contiguous_rows(k_MKD), with_contiguous_rows(v_MKD), out_NQD,
      logs_of_sequences(lse_QN, *sequences), starts_on(sequences->q_starts, q_NQD.device()),
      starts_on(sequences->k_starts, q_NQD.device()), sequences->longest_q, sequences->longest_k,
      /*dropout_p=*/0, sequences->causal, state, state, options.scale, keys_before(options),
      sequences->causal ? 0 : -1);
  return {d_q, d_k, d_v};
}

}  // namespace

void add_flash_attention(Backend& table) {
  table.attention = &flash;
  table.whole_attention_backward = &flash_backward;
}

}  // namespace danlu::ops::cuda
