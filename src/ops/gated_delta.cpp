#include "ops/gated_delta.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "device/dtype.h"
#include "ops/autograd.h"
#include "ops/backend.h"
#include "ops/check.h"

namespace danlu::ops {
namespace {

using List = torch::autograd::variable_list;

void check_delta(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                 const at::Tensor& decay, const at::Tensor& step,
                 const std::vector<int64_t>& starts, const at::Tensor& memory) {
  require(q.dim() == 3 && k.sizes() == q.sizes() && v.dim() == 3 && v.size(0) == q.size(0) &&
              q.size(1) > 0 && v.size(1) % q.size(1) == 0,
          "gated_delta", "q ", q.sizes(), ", k ", k.sizes(), " and v ", v.sizes(),
          " must be [N, G, K], [N, G, K] and [N, H, V] where G divides H");
  const std::vector<int64_t> of_heads = {v.size(0), v.size(1)};
  require(decay.sizes() == at::IntArrayRef(of_heads) && step.sizes() == decay.sizes(),
          "gated_delta", "decay ", decay.sizes(), " and step ", step.sizes(), " must be [N, H] of ",
          v.sizes());
  require(!starts.empty() && starts.front() == 0 && starts.back() == v.size(0), "gated_delta",
          "the last sequence ends at ", starts.empty() ? 0 : starts.back(), " of ", v.size(0),
          " tokens");
  const std::vector<int64_t> of_memory = {static_cast<int64_t>(starts.size()) - 1, v.size(1),
                                          q.size(2), v.size(2)};
  require(!memory.defined() || memory.sizes() == at::IntArrayRef(of_memory), "gated_delta",
          "memory ", memory.defined() ? memory.sizes() : at::IntArrayRef(),
          " must be [S, H, K, V] = ", at::IntArrayRef(of_memory));
}

// --- the convolution ----------------------------------------------------------------------------

/// Rows of sequences with `kernel - 1` rows before each, and where they stand among these.
struct Padded {
  at::Tensor rows_PC, places_N;  ///< wide; of token t: the place of the first row that it sees
};

at::Tensor to_device(const std::vector<int64_t>& numbers, const at::Device& device) {
  const at::Tensor made =
      at::empty({static_cast<int64_t>(numbers.size())}, at::TensorOptions(at::kLong));
  std::copy(numbers.begin(), numbers.end(), made.data_ptr<int64_t>());
  return made.to(device);
}

Padded padded(const at::Tensor& x_NC, int64_t kernel, const std::vector<int64_t>& starts,
              const at::Tensor& before_SKC) {
  const int64_t more = kernel - 1, sequences = static_cast<int64_t>(starts.size()) - 1;
  std::vector<int64_t> places(static_cast<size_t>(starts.back())), first;
  for (int64_t s = 0; s < sequences; ++s) {
    const auto at = static_cast<size_t>(s);
    for (int64_t t = starts[at]; t < starts[at + 1]; ++t)
      places[static_cast<size_t>(t)] = t + s * more;
    for (int64_t row = 0; row < more; ++row) first.push_back(starts[at] + s * more + row);
  }
  const at::ScalarType wide = device::wide_type(x_NC.scalar_type());
  Padded result;
  result.rows_PC =
      at::zeros({x_NC.size(0) + sequences * more, x_NC.size(1)}, x_NC.options().dtype(wide));
  result.places_N = to_device(places, x_NC.device());
  result.rows_PC.index_copy_(0, result.places_N + more, x_NC.to(wide));
  if (before_SKC.defined() && more > 0) {
    result.rows_PC.index_copy_(0, to_device(first, x_NC.device()),
                               before_SKC.reshape({sequences * more, x_NC.size(1)}).to(wide));
  }
  return result;
}

at::Tensor sums_of(const Padded& of, const at::Tensor& weight_CK) {
  const at::Tensor weight_KC = weight_CK.t().to(of.rows_PC.scalar_type());
  at::Tensor sum_NC;
  for (int64_t j = 0; j < weight_KC.size(0); ++j) {
    const at::Tensor part = of.rows_PC.index_select(0, of.places_N + j) * weight_KC.select(0, j);
    sum_NC = sum_NC.defined() ? sum_NC.add_(part) : part;
  }
  return sum_NC;
}

at::Tensor silu_of(const at::Tensor& x) { return x * x.sigmoid(); }

/// Keeps x and the weight.
class OwnConvolution : public torch::autograd::Function<OwnConvolution> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x_NC,
                            const at::Tensor& weight_CK, const std::vector<int64_t>& starts) {
    ctx->save_for_backward({x_NC, weight_CK});
    ctx->saved_data["starts"] = starts;
    return silu_of(sums_of(padded(x_NC, weight_CK.size(1), starts, {}), weight_CK))
        .to(x_NC.scalar_type());
  }

  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const List saved = ctx->get_saved_variables();
    const at::Tensor &x_NC = saved[0], &weight_CK = saved[1];
    const int64_t kernel = weight_CK.size(1);
    const Padded of = padded(x_NC, kernel, ctx->saved_data["starts"].toIntVector(), {});
    const at::Tensor sum_NC = sums_of(of, weight_CK), open_NC = sum_NC.sigmoid();
    const at::Tensor found_NC =
        grads[0].to(sum_NC.scalar_type()) * open_NC * (1 + sum_NC * (1 - open_NC));
    at::Tensor dx_NC, d_weight_CK;
    if (ctx->needs_input_grad(0)) {
      const at::Tensor weight_KC = weight_CK.t().to(sum_NC.scalar_type());
      const at::Tensor d_rows_PC = at::zeros(of.rows_PC.sizes(), of.rows_PC.options());
      for (int64_t j = 0; j < kernel; ++j)
        d_rows_PC.index_add_(0, of.places_N + j, found_NC * weight_KC.select(0, j));
      dx_NC = d_rows_PC.index_select(0, of.places_N + (kernel - 1)).to(x_NC.scalar_type());
    }
    if (ctx->needs_input_grad(1)) {
      d_weight_CK = at::zeros(weight_CK.sizes(), sum_NC.options());
      for (int64_t j = 0; j < kernel; ++j) {
        d_weight_CK.select(1, j).copy_(
            (found_NC * of.rows_PC.index_select(0, of.places_N + j)).sum(0));
      }
      d_weight_CK = d_weight_CK.to(weight_CK.scalar_type());
    }
    return {dx_NC, d_weight_CK, {}};
  }
};

// --- the rule -----------------------------------------------------------------------------------

/// Keeps its inputs.
class OwnDelta : public torch::autograd::Function<OwnDelta> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& q_NGK,
                            const at::Tensor& k_NGK, const at::Tensor& v_NHV,
                            const at::Tensor& decay_NH, const at::Tensor& step_NH,
                            const std::vector<int64_t>& starts) {
    ctx->save_for_backward({q_NGK, k_NGK, v_NHV, decay_NH, step_NH});
    ctx->saved_data["starts"] = starts;
    return backend_of(q_NGK.device().type())
        .gated_delta({q_NGK, k_NGK, v_NHV, decay_NH, step_NH}, starts, {})
        .out_NHV;
  }

  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const List saved = ctx->get_saved_variables();
    const DeltaInputs inputs{saved[0], saved[1], saved[2], saved[3], saved[4]};
    const DeltaInputs found =
        backend_of(saved[0].device().type())
            .gated_delta_backward(inputs, ctx->saved_data["starts"].toIntVector(), grads[0]);
    return {found.q_NGK, found.k_NGK, found.v_NHV, found.decay_NH, found.step_NH, {}};
  }
};

constexpr int64_t kRun = 64;  ///< tokens whose products are made at once
constexpr double kNormEps = 1e-6;

/// [L, G, D] -> [H, L, D], each key head as often as it has value heads.
at::Tensor by_head(const at::Tensor& x_LGD, int64_t heads) {
  const int64_t each = heads / x_LGD.size(1);
  const at::Tensor x_GLD = x_LGD.transpose(0, 1);
  if (each == 1) return x_GLD;
  return x_GLD.unsqueeze(1)
      .expand({x_GLD.size(0), each, x_GLD.size(1), x_GLD.size(2)})
      .reshape({heads, x_GLD.size(1), x_GLD.size(2)});
}

at::Tensor unit_length(const at::Tensor& x) {
  return x * at::rsqrt((x * x).sum(-1, /*keepdim=*/true) + kNormEps);
}

struct Run {
  at::Tensor q_HLK, k_HLK, v_HLV, decay_HL, step_HL1;
};

/// The results of a run of tokens; moves `memory_HKV` on.
at::Tensor through_run(const Run& run, at::Tensor& memory_HKV) {
  const int64_t length = run.q_HLK.size(1);
  const at::Tensor sum_HL = at::cumsum(run.decay_HL, 1), kept_HL1 = sum_HL.exp().unsqueeze(-1);
  const at::Tensor later = at::ones({length, length}, run.q_HLK.options().dtype(at::kBool)).triu(1);
  const at::Tensor between_HLL = (sum_HL.unsqueeze(-1) - sum_HL.unsqueeze(-2))
                                     .masked_fill(later, -std::numeric_limits<double>::infinity())
                                     .exp();
  const at::Tensor k_HKL = run.k_HLK.transpose(1, 2), stepped_HLK = run.k_HLK * run.step_HL1;
  const at::Tensor system_HLL = at::matmul(stepped_HLK, k_HKL) * between_HLL;
  const auto solved = [&](const at::Tensor& right) {
    return at::linalg_solve_triangular(system_HLL, right, /*upper=*/false, /*left=*/true,
                                       /*unitriangular=*/true);
  };
  const at::Tensor new_HLV =
      solved(run.v_HLV * run.step_HL1) - at::matmul(solved(stepped_HLK * kept_HL1), memory_HKV);
  const at::Tensor seen_HLL = at::matmul(run.q_HLK, k_HKL) * between_HLL;
  const at::Tensor out_HLV =
      at::matmul(run.q_HLK * kept_HL1, memory_HKV) + at::matmul(seen_HLL, new_HLV);
  const at::Tensor last_H1 = sum_HL.narrow(1, length - 1, 1);
  const at::Tensor left_HLK = run.k_HLK * (last_H1 - sum_HL).exp().unsqueeze(-1);
  memory_HKV =
      memory_HKV * last_H1.exp().unsqueeze(-1) + at::matmul(left_HLK.transpose(1, 2), new_HLV);
  return out_HLV;
}

}  // namespace

Convolved causal_convolution(const at::Tensor& x_NC, const at::Tensor& weight_CK,
                             const std::vector<int64_t>& starts, const at::Tensor& before_SKC) {
  require(x_NC.dim() == 2 && weight_CK.dim() == 2 && weight_CK.size(0) == x_NC.size(1) &&
              !starts.empty() && starts.back() == x_NC.size(0),
          "causal_convolution", "x ", x_NC.sizes(), " and weight ", weight_CK.sizes(),
          " must be [N, C] and [C, K], and sequences must end at N");
  if (!before_SKC.defined() && !needs_no_graph({&x_NC, &weight_CK}))
    return {OwnConvolution::apply(x_NC, weight_CK, starts), {}};
  const int64_t more = weight_CK.size(1) - 1, sequences = static_cast<int64_t>(starts.size()) - 1;
  const Padded of = padded(x_NC, weight_CK.size(1), starts, before_SKC);
  Convolved result{silu_of(sums_of(of, weight_CK)).to(x_NC.scalar_type()), {}};
  if (!before_SKC.defined()) return result;
  std::vector<int64_t> last;
  for (int64_t s = 0; s < sequences; ++s) {
    for (int64_t row = 0; row < more; ++row)
      last.push_back(starts[static_cast<size_t>(s) + 1] + s * more + row);
  }
  result.rows_SKC = of.rows_PC.index_select(0, to_device(last, x_NC.device()))
                        .to(x_NC.scalar_type())
                        .view({sequences, more, x_NC.size(1)});
  return result;
}

DeltaResult gated_delta(const at::Tensor& q_NGK, const at::Tensor& k_NGK, const at::Tensor& v_NHV,
                        const at::Tensor& decay_NH, const at::Tensor& step_NH,
                        const std::vector<int64_t>& starts, const at::Tensor& memory_SHKV) {
  check_delta(q_NGK, k_NGK, v_NHV, decay_NH, step_NH, starts, memory_SHKV);
  const Backend* const table = fused_for(Work::kRows, v_NHV);
  if (!table || !table->gated_delta)
    return oracle::gated_delta(q_NGK, k_NGK, v_NHV, decay_NH, step_NH, starts, memory_SHKV);
  if (!memory_SHKV.defined() && !needs_no_graph({&q_NGK, &k_NGK, &v_NHV, &decay_NH, &step_NH}))
    return {OwnDelta::apply(q_NGK, k_NGK, v_NHV, decay_NH, step_NH, starts), {}};
  return table->gated_delta({q_NGK, k_NGK, v_NHV, decay_NH, step_NH}, starts, memory_SHKV);
}

DeltaResult oracle::gated_delta(const at::Tensor& q_NGK, const at::Tensor& k_NGK,
                                const at::Tensor& v_NHV, const at::Tensor& decay_NH,
                                const at::Tensor& step_NH, const std::vector<int64_t>& starts,
                                const at::Tensor& memory_SHKV) {
  check_delta(q_NGK, k_NGK, v_NHV, decay_NH, step_NH, starts, memory_SHKV);
  const at::ScalarType wide = device::wide_type(v_NHV.scalar_type());
  const int64_t heads = v_NHV.size(1), key_dim = q_NGK.size(2);
  const at::Tensor q_HNK = by_head(unit_length(q_NGK.to(wide)), heads) /
                           std::sqrt(static_cast<double>(key_dim)),
                   k_HNK = by_head(unit_length(k_NGK.to(wide)), heads),
                   v_HNV = v_NHV.to(wide).transpose(0, 1), decay_HN = decay_NH.to(wide).t(),
                   step_HN1 = step_NH.to(wide).t().unsqueeze(-1);
  std::vector<at::Tensor> outs, memories;
  for (size_t s = 0; s + 1 < starts.size(); ++s) {
    at::Tensor memory_HKV =
        memory_SHKV.defined()
            ? memory_SHKV.select(0, static_cast<int64_t>(s)).to(wide)
            : at::zeros({heads, key_dim, v_NHV.size(2)}, v_HNV.options().requires_grad(false));
    for (int64_t first = starts[s]; first < starts[s + 1]; first += kRun) {
      const int64_t length = std::min(kRun, starts[s + 1] - first);
      const auto run = [&](const at::Tensor& x) { return x.narrow(1, first, length); };
      outs.push_back(through_run({run(q_HNK), run(k_HNK), run(v_HNV), run(decay_HN), run(step_HN1)},
                                 memory_HKV));
    }
    memories.push_back(memory_HKV);
  }
  if (outs.empty()) return {v_NHV * 0, memory_SHKV};
  DeltaResult result{at::cat(outs, 1).transpose(0, 1).contiguous().to(v_NHV.scalar_type()), {}};
  if (!result.out_NHV.requires_grad()) result.memory_SHKV = at::stack(memories);
  return result;
}

}  // namespace danlu::ops
