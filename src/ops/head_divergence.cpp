#include "ops/head_divergence.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <cmath>
#include <limits>
#include <vector>

#include "device/sent.h"
#include "ops/check.h"
#include "ops/divergence_by_table.h"
#include "ops/head_factor.h"

namespace danlu::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kNever = -std::numeric_limits<double>::infinity();

/// What forward and backward of one call share, beside the factors.
struct DivergenceCall : torch::CustomClassHolder {
  at::Tensor ids_M;
  OtherLogits other;
  HeadOptions options;
  DivergenceOptions how;
  MainGradPtr low_main;
  HeadColumns columns;
};

void sum_of_all(const VocabularyShare& share, at::Tensor& tensor) {
  if (share.is_part()) share.sum_over_ranks(tensor);
}

/// Log-probabilities over the columns of all ranks that are not -inf.
at::Tensor normalised(const at::Tensor& logits_Cv, const VocabularyShare& share) {
  // A rank may have no column, and none of its own need count; some rank's does.
  const bool has_columns = logits_Cv.size(1) > 0;
  at::Tensor largest_C = has_columns ? at::amax(logits_Cv, {1}).clamp_min(-1e30)
                                     : at::full({logits_Cv.size(0)}, -1e30, logits_Cv.options());
  if (share.is_part()) share.max_over_ranks(largest_C);
  at::Tensor total_C = (logits_Cv - largest_C.unsqueeze(1)).exp().sum(1);
  sum_of_all(share, total_C);
  return logits_Cv - (total_C.log() + largest_C).unsqueeze(1);
}

/// The least of each row's `count` largest over all ranks: [C, 1].
at::Tensor least_of_largest(const at::Tensor& logits_Cv, int64_t count,
                            const VocabularyShare& share) {
  const int64_t rows = logits_Cv.size(0), own = std::min(count, logits_Cv.size(1));
  const at::Tensor best_Ck = own > 0 ? std::get<0>(at::topk(logits_Cv, own, 1))
                                     : at::empty({rows, 0}, logits_Cv.options());
  if (!share.is_part()) return best_Ck.narrow(1, own - 1, 1);
  // Each rank has places of its own in the sums; where nobody has a number, nothing is counted.
  const int64_t ranks = (share.vocab + share.max_rows - 1) / share.max_rows;
  at::Tensor all_CK = at::zeros({rows, ranks * count}, logits_Cv.options());
  at::Tensor there_K = at::zeros({ranks * count}, logits_Cv.options());
  if (own > 0) {
    const int64_t place = share.first_row / share.max_rows * count;
    all_CK.narrow(1, place, own).copy_(best_Ck);
    there_K.narrow(0, place, own).fill_(1);
  }
  share.sum_over_ranks(all_CK);
  share.sum_over_ranks(there_K);
  all_CK.masked_fill_((there_K == 0).unsqueeze(0), kNever);
  const int64_t wanted = std::min(count, share.vocab);
  return std::get<0>(at::topk(all_CK, wanted, 1)).narrow(1, wanted - 1, 1);
}

/// Whether each is one of its row's `count` largest over all ranks; of equal ones the first are.
at::Tensor among_largest(const at::Tensor& logits_Cv, int64_t count, const VocabularyShare& share) {
  const at::Tensor least_C1 = least_of_largest(logits_Cv, count, share);
  const at::Tensor above_Cv = logits_Cv > least_C1, equal_Cv = logits_Cv == least_C1;
  // How many are above, and how many are equal on ranks with columns before these.
  at::Tensor above_C = above_Cv.sum(1), before_C = at::zeros_like(above_C);
  if (share.is_part()) {
    const int64_t ranks = (share.vocab + share.max_rows - 1) / share.max_rows;
    at::Tensor counts_CR = at::zeros({logits_Cv.size(0), ranks + 1}, logits_Cv.options());
    const bool has_columns = logits_Cv.size(1) > 0;
    const int64_t own = share.first_row / share.max_rows;
    counts_CR.select(1, ranks).copy_(above_C);
    if (has_columns) counts_CR.select(1, own).copy_(equal_Cv.sum(1));
    share.sum_over_ranks(counts_CR);
    above_C = counts_CR.select(1, ranks);
    if (has_columns) before_C = counts_CR.narrow(1, 0, own).sum(1);
  }
  const at::Tensor wanted_C1 = (count - above_C - before_C).unsqueeze(1);
  return above_Cv.logical_or(equal_Cv.logical_and(equal_Cv.cumsum(1, at::kInt) <= wanted_C1));
}

/// Log-probabilities of both over the tokens that are compared, -inf elsewhere.
struct BothLogprobs {
  at::Tensor own_Cv, other_Cv;
  at::Tensor support_Cv;  ///< where tokens are compared

  /// log a/b within the support, 0 elsewhere.
  at::Tensor log_ratio(const at::Tensor& a_Cv, const at::Tensor& b_Cv) const {
    return at::where(support_Cv, a_Cv - b_Cv, at::zeros_like(a_Cv));
  }
  /// log of β Q + (1 − β) P.
  at::Tensor mixed(double beta) const {
    return at::logaddexp(own_Cv + std::log1p(-beta), other_Cv + std::log(beta));
  }
};

/// The other's logits of a chunk, -inf where it has no such token.
at::Tensor other_logits(const DivergenceCall& call, int64_t begin, int64_t count) {
  const at::Tensor there_Cv = call.other(begin, count, call.columns);
  if (there_Cv.size(1) == call.columns.count) return there_Cv;
  const at::Tensor all_Cv = at::full({count, call.columns.count}, kNever, there_Cv.options());
  all_Cv.narrow(1, 0, there_Cv.size(1)).copy_(there_Cv);
  return all_Cv;
}

/// own_Cv: logits before temperature.
BothLogprobs both_of(const at::Tensor& own_Cv, const at::Tensor& other_Cv,
                     const DivergenceCall& call) {
  const VocabularyShare& share = call.options.share;
  at::Tensor support_Cv = other_Cv > kNever;
  if (call.how.topk > 0)
    support_Cv = support_Cv.logical_and(among_largest(other_Cv, call.how.topk, share));
  const auto over_support = [&](const at::Tensor& logits_Cv) {
    return normalised(
        (logits_Cv / call.how.temperature).masked_fill(support_Cv.logical_not(), kNever), share);
  };
  return {over_support(own_Cv), over_support(other_Cv), support_Cv};
}

/// KL of exp(of) and exp(from), of − from being log_ratio, over the columns of all ranks: [C].
at::Tensor kl_of(const at::Tensor& of_Cv, const at::Tensor& log_ratio_Cv,
                 const VocabularyShare& share) {
  at::Tensor sum_C = (of_Cv.exp() * log_ratio_Cv).sum(1);
  sum_of_all(share, sum_C);
  return sum_C;
}

at::Tensor divergences_of(const BothLogprobs& both, const DivergenceCall& call) {
  const double beta = call.how.beta;
  const VocabularyShare& share = call.options.share;
  const at::Tensor &own = both.own_Cv, &other = both.other_Cv;
  if (beta == 0) return kl_of(other, both.log_ratio(other, own), share);
  if (beta == 1) return kl_of(own, both.log_ratio(own, other), share);
  const at::Tensor mixed = both.mixed(beta);
  return kl_of(other, both.log_ratio(other, mixed), share) * beta +
         kl_of(own, both.log_ratio(own, mixed), share) * (1 - beta);
}

/// The gradient of the divergences by the own logits.
at::Tensor d_divergences(const BothLogprobs& both, const DivergenceCall& call) {
  const double beta = call.how.beta;
  const at::Tensor &own = both.own_Cv, &other = both.other_Cv;
  if (beta == 0) return (own.exp() - other.exp()) / call.how.temperature;
  // d KL(P‖R) / d logits is P (log P − log R − KL); through M nothing more comes.
  const at::Tensor log_ratio_Cv = both.log_ratio(own, beta == 1 ? other : both.mixed(beta));
  const at::Tensor kl_C = kl_of(own, log_ratio_Cv, call.options.share);
  return own.exp() * (log_ratio_Cv - kl_C.unsqueeze(1)) *
         ((beta == 1 ? 1 : 1 - beta) / call.how.temperature);
}

/// Which of this rank's columns each id is, and 1 where it has it, else 0.
struct IdsHere {
  at::Tensor column_C, is_here_C;
};
IdsHere ids_here(const at::Tensor& ids_C, const HeadColumns& columns, const at::Tensor& like) {
  const at::Tensor own_C = ids_C - columns.first;
  return {own_C.clamp(0, std::max<int64_t>(0, columns.count - 1)),
          (own_C >= 0).logical_and(own_C < columns.count).to(like.scalar_type())};
}

class HeadDivergences : public torch::autograd::Function<HeadDivergences> {
 public:
  /// Gives {divergences}, or with how.with_logprobs {divergences, logprobs}.
  static variable_list forward(AutogradContext* ctx, const at::Tensor& hidden_MH,
                               const at::Tensor& weight_VH, const at::Tensor& low_MR,
                               const at::Tensor& weight_VR, const at::Tensor& bias_V,
                               const c10::intrusive_ptr<DivergenceCall>& call) {
    const HeadFactor head(hidden_MH, weight_VH, {}, false), low(low_MR, weight_VR, {}, false);
    const HeadBias bias(bias_V, {}, false);
    ctx->save_for_backward({hidden_MH, weight_VH, low_MR, weight_VR, bias_V});
    ctx->saved_data["call"] = at::IValue::make_capsule(call);
    ctx->set_materialize_grads(false);
    std::vector<at::Tensor> divergences, logprobs;
    for_chunks(*call, hidden_MH.size(0), [&](int64_t begin, int64_t count) {
      const at::Tensor logits_Cv =
          head_logits(head, low, bias, call->options.softcap, begin, count);
      const BothLogprobs both = both_of(logits_Cv, other_logits(*call, begin, count), *call);
      divergences.push_back(divergences_of(both, *call));
      if (call->how.with_logprobs)
        logprobs.push_back(at_ids(normalised(logits_Cv, call->options.share), *call, begin));
    });
    if (!call->how.with_logprobs) return {at::cat(divergences)};
    return {at::cat(divergences), at::cat(logprobs)};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto holder = ctx->saved_data["call"].toCapsule();
    const auto& call = static_cast<const DivergenceCall&>(*holder);
    return head_gradients(
        ctx->get_saved_variables(), call.options, call.low_main, call.options.chunk_tokens,
        [&](const HeadFactor& head, const HeadFactor& low, const HeadBias& bias, int64_t begin,
            int64_t count) { return d_logits(head, low, bias, call, begin, count, grads); });
  }

 private:
  static void for_chunks(const DivergenceCall& call, int64_t rows,
                         const std::function<void(int64_t begin, int64_t count)>& body) {
    const int64_t chunk = call.options.chunk_tokens;
    for (int64_t begin = 0; begin < rows; begin += chunk)
      body(begin, std::min(chunk, rows - begin));
  }

  static at::Tensor at_ids(const at::Tensor& logprobs_Cv, const DivergenceCall& call,
                           int64_t begin) {
    const int64_t count = logprobs_Cv.size(0);
    at::Tensor found_C = at::zeros({count}, logprobs_Cv.options());
    if (call.columns.count > 0) {
      const IdsHere ids = ids_here(call.ids_M.narrow(0, begin, count), call.columns, logprobs_Cv);
      found_C = logprobs_Cv.gather(1, ids.column_C.unsqueeze(1)).squeeze(1) * ids.is_here_C;
    }
    sum_of_all(call.options.share, found_C);
    return found_C;
  }

  /// The gradient of a chunk's logits before their cap, in the type of the products. grads: of
  /// divergences and of log-probabilities; one that nobody asked for is undefined.
  static at::Tensor d_logits(const HeadFactor& head, const HeadFactor& low, const HeadBias& bias,
                             const DivergenceCall& call, int64_t begin, int64_t count,
                             const variable_list& grads) {
    const double cap = call.options.softcap;
    const at::Tensor logits_Cv = head_logits(head, low, bias, cap, begin, count);
    at::Tensor d_logits_Cv = at::zeros_like(logits_Cv);
    // Ranks exchange in both parts, so that what is asked for must be the same on all of them: it
    // is, for it follows from the objective.
    if (grads[0].defined()) {
      const BothLogprobs both = both_of(logits_Cv, other_logits(call, begin, count), call);
      d_logits_Cv = d_divergences(both, call) * grads[0].narrow(0, begin, count).unsqueeze(1);
    }
    if (grads.size() > 1 && grads[1].defined()) {
      const at::Tensor grad_C = grads[1].narrow(0, begin, count);
      d_logits_Cv =
          d_logits_Cv - normalised(logits_Cv, call.options.share).exp() * grad_C.unsqueeze(1);
      if (call.columns.count > 0) {
        const IdsHere ids = ids_here(call.ids_M.narrow(0, begin, count), call.columns, logits_Cv);
        d_logits_Cv.scatter_add_(1, ids.column_C.unsqueeze(1),
                                 (grad_C * ids.is_here_C).unsqueeze(1));
      }
    }
    return through_cap(d_logits_Cv, logits_Cv, cap).to(head.input_nX.scalar_type());
  }
};

/// It hangs on the graph of every factor, so that its backward goes through all the same.
HeadDivergence of_no_rows(const std::vector<at::Tensor>& factors, bool with_logprobs) {
  const at::ScalarType wide = device::wide_type(factors[0].scalar_type());
  at::Tensor none = factors[0].narrow(0, 0, 0).sum(1).to(wide);
  for (size_t i = 1; i < factors.size(); ++i)
    if (factors[i].defined()) none = none + factors[i].narrow(0, 0, 0).sum().to(wide);
  return {none, with_logprobs ? none : at::Tensor()};
}

void require_rows(const at::Tensor& rows_M, const at::Tensor& ids_M, int64_t num_rows,
                  int64_t vocab) {
  require(rows_M.dim() == 1 && ids_M.sizes() == rows_M.sizes(), "head_divergence", "rows ",
          rows_M.sizes(), " and ids ", ids_M.sizes(), " must be [M]");
  const int64_t *rows = rows_M.data_ptr<int64_t>(), *ids = ids_M.data_ptr<int64_t>();
  for (int64_t i = 0; i < rows_M.numel(); ++i) {
    require(rows[i] >= 0 && rows[i] < num_rows && (i == 0 || rows[i] > rows[i - 1]),
            "head_divergence", "row ", rows[i], " of ", num_rows, " must be there and ascend");
    require(ids[i] >= 0 && ids[i] < vocab, "head_divergence", "id ", ids[i],
            " is outside the vocabulary of ", vocab);
  }
}

}  // namespace

HeadDivergence head_divergence(const at::Tensor& hidden_NH, const at::Tensor& weight_VH,
                               const at::Tensor& rows_M, const at::Tensor& ids_M,
                               const OtherLogits& other, const HeadOptions& options,
                               const HeadAddition& addition, const DivergenceOptions& how) {
  const VocabularyShare& share = options.share;
  const int64_t vocab = share.is_part() ? share.vocab : weight_VH.size(0);
  const at::Tensor rows = rows_M.contiguous(), ids = ids_M.contiguous();
  require_rows(rows, ids, hidden_NH.size(0), vocab);
  const bool by_table = !computes_numbers(hidden_NH.device());
  require(!by_table || how.topk == 0, "head_divergence",
          "the likeliest tokens alone are not compared on this device");
  if (rows.numel() == 0 && !by_table)
    return of_no_rows({hidden_NH, weight_VH, addition.low_NR, addition.weight_VR, options.bias_V},
                      how.with_logprobs);
  HeadOptions chunked = options;
  if (how.chunk_rows > 0) chunked.chunk_tokens = how.chunk_rows;
  chunked.chunk_tokens = chunk_size(chunked, share.is_part() ? share.max_rows : vocab);
  const HeadColumns columns{share.is_part() ? share.first_row : 0, weight_VH.size(0), vocab};
  const bool takes_all = rows.numel() == hidden_NH.size(0), has_low = addition.low_NR.defined();
  const at::Tensor index_M = device::sent(rows, hidden_NH.device());
  const auto take = [&](const at::Tensor& from_NX) {
    return takes_all ? from_NX : take_rows(from_NX, index_M);
  };
  if (by_table)
    return divergence_by_table(
        take(hidden_NH), weight_VH, ids, other, columns, chunked,
        {has_low ? take(addition.low_NR) : at::Tensor(), addition.weight_VR, addition.main_grad},
        how);
  auto call = c10::make_intrusive<DivergenceCall>();
  call->ids_M = device::sent(ids, hidden_NH.device());
  call->other = other;
  call->options = chunked;
  call->how = how;
  call->low_main = addition.main_grad;
  call->columns = columns;
  const at::Tensor none = at::empty({0, 0}, hidden_NH.options());
  const variable_list result = HeadDivergences::apply(
      take(hidden_NH), weight_VH, has_low ? take(addition.low_NR) : none,
      has_low ? addition.weight_VR : none, options.bias_V.defined() ? options.bias_V : none, call);
  return {result[0], how.with_logprobs ? result[1] : at::Tensor()};
}

}  // namespace danlu::ops
