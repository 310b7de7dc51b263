#include "ops/divergence_by_table.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <vector>

#include "ops/head_factor.h"
#include "ops/logprob_chunks.h"

namespace danlu::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The largest logit of a row over all ranks, and the sum of exp(logit - largest).
struct Norms {
  at::Tensor largest_C1, total_C1;
};

/// What forward and backward of one call share, beside the factors.
struct TableCall : torch::CustomClassHolder {
  at::Tensor ids_M;
  OtherLogits other;
  HeadColumns columns;
  HeadOptions options;
  DivergenceOptions how;
  MainGradPtr low_main;
  // What the forward leaves, a number for each row: on the device, but for the last.
  Norms own, teachers;    ///< of logits divided by the temperature
  at::Tensor own_sum_M1;  ///< the second of Backend::divergence_sums
  at::Tensor largest_M1;  ///< of logits as they are
  at::Tensor total_M;

  ChunkPairs pairs_of(int64_t begin, int64_t count) const {
    return {at::arange(count, at::TensorOptions(at::kLong)), ids_M.narrow(0, begin, count)};
  }
};

/// Changes the logits.
Norms norms_of(const at::Tensor& logits_Cv, const VocabularyShare& share) {
  const Backend& table = completed_backend(logits_Cv.device().type());
  Norms norms;
  norms.largest_C1 = table.largest_of_share(logits_Cv);
  if (share.is_part()) share.max_over_ranks(norms.largest_C1);
  // Any target: nobody asks for its logit.
  const at::Tensor ids_C =
      at::zeros({logits_Cv.size(0)}, at::TensorOptions(at::kLong)).to(logits_Cv.device());
  norms.total_C1 = table
                       .sums_of_share({logits_Cv, ids_C, share.is_part() ? share.first_row : 0},
                                      norms.largest_C1)
                       .narrow(1, 0, 1)
                       .contiguous();
  if (share.is_part()) share.sum_over_ranks(norms.total_C1);
  return norms;
}

/// The logits of a chunk over the columns that both have, divided by the temperature.
TwoShares shares_of(const TableCall& call, const at::Tensor& logits_Cv, int64_t begin) {
  const at::Tensor other_Cv = call.other(begin, logits_Cv.size(0), call.columns);
  const double temperature = call.how.temperature;
  const auto tempered = [&](const at::Tensor& x_Cv) {
    return temperature == 1 ? x_Cv : scaled(x_Cv, 1 / temperature);
  };
  TwoShares shares;
  shares.own_Cv = tempered(logits_Cv.narrow(1, 0, other_Cv.size(1)).contiguous());
  shares.other_Cv = tempered(other_Cv.contiguous());
  shares.beta = call.how.beta;
  return shares;
}

void put_norms(TwoShares& shares, const Norms& own, const Norms& other) {
  shares.own_largest_C1 = own.largest_C1;
  shares.own_total_C1 = own.total_C1;
  shares.other_largest_C1 = other.largest_C1;
  shares.other_total_C1 = other.total_C1;
}

/// Numbers of all chunks, below each other.
struct Gathered {
  std::vector<at::Tensor> own_largest, own_total, other_largest, other_total, sums, largest, total,
      logits;
};

class DivergencesByTable : public torch::autograd::Function<DivergencesByTable> {
 public:
  /// Gives {divergences}, or with how.with_logprobs {divergences, logprobs}.
  static variable_list forward(AutogradContext* ctx, const at::Tensor& hidden_MH,
                               const at::Tensor& weight_VH, const at::Tensor& low_MR,
                               const at::Tensor& weight_VR, const at::Tensor& bias_V,
                               const c10::intrusive_ptr<TableCall>& call) {
    const HeadFactor head(hidden_MH, weight_VH, {}, false), low(low_MR, weight_VR, {}, false);
    const HeadBias bias(bias_V, {}, false);
    ctx->save_for_backward({hidden_MH, weight_VH, low_MR, weight_VR, bias_V});
    ctx->saved_data["call"] = at::IValue::make_capsule(call);
    ctx->set_materialize_grads(false);
    Gathered all;
    const int64_t rows = hidden_MH.size(0), chunk = call->options.chunk_tokens;
    // No rows are one chunk, too: of it comes what autograd is given.
    for (int64_t begin = 0; begin == 0 || begin < rows; begin += chunk) {
      const int64_t count = std::min(chunk, rows - begin);
      add_chunk(all, *call, begin,
                head_logits(head, low, bias, call->options.softcap, begin, count));
    }
    return told_to_host(all, *call);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto holder = ctx->saved_data["call"].toCapsule();
    const auto& call = static_cast<const TableCall&>(*holder);
    const double cap = call.options.softcap;
    return head_gradients(
        ctx->get_saved_variables(), call.options, call.low_main, call.options.chunk_tokens,
        [&](const HeadFactor& head, const HeadFactor& low, const HeadBias& bias, int64_t begin,
            int64_t count) {
          const at::Tensor logits_Cv = head_logits(head, low, bias, cap, begin, count);
          const at::Tensor kept_Cv = cap > 0 ? logits_Cv.clone() : logits_Cv;
          return through_cap(d_logits(call, logits_Cv, begin, grads), kept_Cv, cap)
              .to(head.input_nX.scalar_type());
        });
  }

 private:
  static void add_chunk(Gathered& all, const TableCall& call, int64_t begin,
                        const at::Tensor& logits_Cv) {
    const VocabularyShare& share = call.options.share;
    TwoShares shares = shares_of(call, logits_Cv, begin);
    const Norms own = norms_of(shares.own_Cv.clone(), share),
                other = norms_of(shares.other_Cv.clone(), share);
    put_norms(shares, own, other);
    at::Tensor sums_C2 = completed_backend(logits_Cv.device().type()).divergence_sums(shares);
    if (share.is_part()) share.sum_over_ranks(sums_C2);
    all.own_largest.push_back(own.largest_C1);
    all.own_total.push_back(own.total_C1);
    all.other_largest.push_back(other.largest_C1);
    all.other_total.push_back(other.total_C1);
    all.sums.push_back(sums_C2);
    if (!call.how.with_logprobs) return;
    const ChunkNumbers numbers =
        numbers_of_chunk(logits_Cv, call.pairs_of(begin, logits_Cv.size(0)), share, false);
    all.largest.push_back(numbers.largest_C1);
    all.total.push_back(numbers.total_C1);
    all.logits.push_back(numbers.logits_M1);
  }

  static variable_list told_to_host(const Gathered& all, TableCall& call) {
    call.own = {joined(all.own_largest, 0), joined(all.own_total, 0)};
    call.teachers = {joined(all.other_largest, 0), joined(all.other_total, 0)};
    const at::Tensor sums_M2 = joined(all.sums, 0);
    call.own_sum_M1 = sums_M2.narrow(1, 1, 1).contiguous();
    std::vector<at::Tensor> wanted = {sums_M2.narrow(1, 0, 1).contiguous(), call.own_sum_M1};
    if (call.how.with_logprobs) {
      call.largest_M1 = joined(all.largest, 0);
      wanted.insert(wanted.end(), {call.largest_M1, joined(all.total, 0), joined(all.logits, 0)});
    }
    const std::vector<at::Tensor> here = on_host_together(wanted);
    const double beta = call.how.beta, of_other = beta == 0 ? 1 : beta, of_own = 1 - beta;
    at::Tensor divergences_M = here[0] * of_other + here[1] * (beta == 1 ? 1 : of_own);
    if (!call.how.with_logprobs) return {divergences_M};
    call.total_M = here[3];
    return {divergences_M, here[4] - here[3].log() - here[2]};
  }

  /// The gradient of a chunk's logits, which are changed, before their cap. grads: of divergences
  /// and of log-probabilities; one that nobody asked for is undefined.
  static at::Tensor d_logits(const TableCall& call, const at::Tensor& logits_Cv, int64_t begin,
                             const variable_list& grads) {
    const int64_t count = logits_Cv.size(0);
    at::Tensor sum_Cv;
    if (grads[0].defined())
      sum_Cv = d_divergences(call, logits_Cv, begin, grads[0].narrow(0, begin, count));
    if (grads.size() > 1 && grads[1].defined()) {
      const at::Tensor of_logprobs_Cv =
          grad_of_chunk(logits_Cv, call.pairs_of(begin, count), call.options.share,
                        call.largest_M1.narrow(0, begin, count),
                        call.total_M.narrow(0, begin, count), grads[1].narrow(0, begin, count));
      if (!sum_Cv.defined()) return of_logprobs_Cv;
      add_to(sum_Cv, of_logprobs_Cv);
    }
    return sum_Cv.defined() ? sum_Cv : at::zeros(logits_Cv.sizes(), logits_Cv.options());
  }

  static at::Tensor d_divergences(const TableCall& call, const at::Tensor& logits_Cv, int64_t begin,
                                  const at::Tensor& grad_C) {
    const int64_t count = logits_Cv.size(0);
    const auto of_rows = [&](const at::Tensor& all_M1) { return all_M1.narrow(0, begin, count); };
    TwoShares shares = shares_of(call, logits_Cv, begin);
    put_norms(shares, {of_rows(call.own.largest_C1), of_rows(call.own.total_C1)},
              {of_rows(call.teachers.largest_C1), of_rows(call.teachers.total_C1)});
    const at::Tensor factor_C1 = (grad_C / call.how.temperature)
                                     .unsqueeze(1)
                                     .to(logits_Cv.device(), logits_Cv.scalar_type());
    const at::Tensor grad_Cv = completed_backend(logits_Cv.device().type())
                                   .divergence_grad(shares, of_rows(call.own_sum_M1), factor_C1);
    if (grad_Cv.size(1) == logits_Cv.size(1)) return grad_Cv;
    const at::Tensor padded_Cv = at::zeros(logits_Cv.sizes(), logits_Cv.options());
    padded_Cv.narrow(1, 0, grad_Cv.size(1)).copy_(grad_Cv);
    return padded_Cv;
  }
};

}  // namespace

HeadDivergence divergence_by_table(const at::Tensor& hidden_MH, const at::Tensor& weight_VH,
                                   const at::Tensor& ids_M, const OtherLogits& other,
                                   const HeadColumns& columns, const HeadOptions& options,
                                   const HeadAddition& low, const DivergenceOptions& how) {
  auto call = c10::make_intrusive<TableCall>();
  call->ids_M = ids_M;
  call->other = other;
  call->columns = columns;
  call->options = options;
  call->how = how;
  call->low_main = low.main_grad;
  const at::Tensor none = at::empty({0, 0}, hidden_MH.options());
  const bool has_low = low.low_NR.defined();
  const variable_list result = DivergencesByTable::apply(
      hidden_MH, weight_VH, has_low ? low.low_NR : none, has_low ? low.weight_VR : none,
      options.bias_V.defined() ? options.bias_V : none, call);
  return {result[0], how.with_logprobs ? result[1] : at::Tensor()};
}

}  // namespace danlu::ops
