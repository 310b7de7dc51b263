#include "ops/token_logprobs.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/max.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <limits>
#include <vector>

#include "device/sent.h"
#include "ops/backend.h"
#include "ops/check.h"
#include "ops/head_factor.h"
#include "ops/logprob_chunks.h"
#include "ops/pointwise.h"

namespace danlu::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Rows, which ascend, and ids.
struct Pairs {
  at::Tensor rows_M;  ///< on the host: of the rows that are used
  at::Tensor ids_M;   ///< on the device
  int64_t first = 0;  ///< which of all pairs is the first of these

  /// The pairs whose rows are in [begin, end), with rows on the device, counted from `begin`.
  Pairs of_rows(int64_t begin, int64_t end) const {
    const int64_t* rows = rows_M.data_ptr<int64_t>();
    const int64_t* const all = rows + rows_M.numel();
    const int64_t from = std::lower_bound(rows, all, begin) - rows;
    const int64_t count = (std::lower_bound(rows, all, end) - rows) - from;
    return {device::sent(rows_M.narrow(0, from, count) - begin, ids_M.device()),
            ids_M.narrow(0, from, count), from};
  }
};

/// What forward and backward of one call share, beside the factors.
struct LogprobsCall : torch::CustomClassHolder {
  Pairs pairs;
  HeadOptions options;
  LogprobOptions how;
  MainGradPtr low_main;
  int64_t chunk = 0;
  at::Tensor norms_U;              ///< of each row that is used
  bool by_table = false;           ///< ATen computes nothing on the device
  at::Tensor largest_U1, total_U;  ///< by_table: as ChunkNumbers has them, and on the host

  /// The pairs whose rows are in [begin, end), counted from `begin`.
  ChunkPairs pairs_of(int64_t begin, int64_t end) const {
    const Pairs here = pairs.of_rows(begin, end);
    return {here.rows_M, here.ids_M};
  }
};

at::Tensor elements(const at::Tensor& matrix_CV, const at::Tensor& rows_M,
                    const at::Tensor& columns_M) {
  return matrix_CV.reshape({-1}).index_select(0, rows_M * matrix_CV.size(1) + columns_M);
}

/// sum of probability · logit over the columns that are here. No probability, no part of the sum:
/// a logit may be -inf.
at::Tensor expected_logits(const at::Tensor& logits_CV, const at::Tensor& norms_C) {
  const at::Tensor probabilities_CV = (logits_CV - norms_C.unsqueeze(1)).exp();
  return at::where(probabilities_CV > 0, probabilities_CV * logits_CV, at::zeros_like(logits_CV))
      .sum(1);
}

/// The K largest of each row over all ranks; -inf where fewer are there.
at::Tensor largest_of_rows(const at::Tensor& logits_Cv, int64_t count,
                           const VocabularyShare& share) {
  const int64_t rows = logits_Cv.size(0), own = std::min(count, logits_Cv.size(1));
  const at::Tensor best_Ck = own > 0 ? std::get<0>(at::topk(logits_Cv, own, 1))
                                     : at::empty({rows, 0}, logits_Cv.options());
  if (!share.is_part()) return best_Ck;
  // Each rank has places of its own in the sums; where nobody has a number, none is there.
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
  all_CK.masked_fill_((there_K == 0).unsqueeze(0), -std::numeric_limits<double>::infinity());
  return std::get<0>(at::topk(all_CK, std::min(count, share.vocab), 1));
}

/// Entropy of the distribution that the likeliest ids of each row are alone.
at::Tensor entropy_of_largest(const at::Tensor& logits_Cv, int64_t count,
                              const VocabularyShare& share) {
  const at::Tensor logprobs_CK = at::log_softmax(largest_of_rows(logits_Cv, count, share), 1);
  return -(logprobs_CK.exp() * logprobs_CK).sum(1);
}

/// logits_CV [C, V]; rows_M in [0, C). norms_C: of each row.
TokenLogprobs of_logits(const at::Tensor& logits_CV, const at::Tensor& rows_M,
                        const at::Tensor& ids_M, const LogprobOptions& how, at::Tensor& norms_C) {
  norms_C = at::logsumexp(logits_CV, {1});
  const at::Tensor norms_M = norms_C.index_select(0, rows_M);
  const at::Tensor logits_M = elements(logits_CV, rows_M, ids_M);
  const at::Tensor best_C = std::get<1>(at::max(logits_CV, 1));
  TokenLogprobs result = {logits_M - norms_M, logits_M, norms_M,
                          best_C.index_select(0, rows_M) == ids_M};
  if (how.entropy) {
    const at::Tensor entropies_C = how.top_of_entropy > 0
                                       ? entropy_of_largest(logits_CV, how.top_of_entropy, {})
                                       : norms_C - expected_logits(logits_CV, norms_C);
    result.entropies_M = entropies_C.index_select(0, rows_M);
  }
  return result;
}

TokenLogprobs joined(const std::vector<TokenLogprobs>& parts) {
  const auto all = [&](at::Tensor TokenLogprobs::* member) {
    std::vector<at::Tensor> tensors;
    for (const TokenLogprobs& part : parts) tensors.push_back(part.*member);
    return at::cat(tensors);
  };
  return {all(&TokenLogprobs::logprobs_M), all(&TokenLogprobs::logits_M),
          all(&TokenLogprobs::norms_M), all(&TokenLogprobs::is_largest_M),
          parts[0].entropies_M.defined() ? all(&TokenLogprobs::entropies_M) : at::Tensor()};
}

/// Numbers in the wide type that exist beside a chunk's logits, of which there is more than one
/// copy: fewer on the host, whose caches are small, than a device is kept busy by.
int64_t wide_numbers(const c10::Device& device) {
  return int64_t{has_logits_on_host(device) ? 2 : 16} << 20;
}

/// visit(first, count): rows of the chunk, a block after another.
template <typename Visit>
void each_block(const at::Tensor& logits_CV, const Visit& visit) {
  const int64_t rows = logits_CV.size(0), columns = std::max<int64_t>(1, logits_CV.size(1));
  const int64_t block = std::max<int64_t>(1, wide_numbers(logits_CV.device()) / columns);
  for (int64_t first = 0; first < rows; first += block) visit(first, std::min(block, rows - first));
}

/// The first of all ranks' columns whose logit is the row's largest, as a floating number.
at::Tensor first_largest(const at::Tensor& logits_Cv, const at::Tensor& largest_C,
                         const VocabularyShare& share) {
  // The largest that ranks agree on is that of the negative column.
  at::Tensor negative_C =
      at::full({logits_Cv.size(0)}, -static_cast<double>(share.vocab), largest_C.options());
  if (logits_Cv.size(1) > 0) {
    const auto [own_C, column_C] = at::max(logits_Cv, 1);
    const at::Tensor column_here_C = (column_C + share.first_row).to(largest_C.scalar_type());
    negative_C = at::where(own_C == largest_C, column_here_C.neg(), negative_C);
  }
  share.max_over_ranks(negative_C);
  return negative_C.neg();
}

/// of_logits where this rank has some columns of the logits.
TokenLogprobs of_share(const at::Tensor& logits_Cv, const Pairs& pairs,
                       const VocabularyShare& share, const LogprobOptions& how,
                       at::Tensor& norms_C) {
  const auto& [rows_M, ids_M, first] = pairs;
  const int64_t columns = logits_Cv.size(1);
  at::Tensor largest_C = columns > 0 ? at::amax(logits_Cv, {1})
                                     : at::full({logits_Cv.size(0)}, -1e30, logits_Cv.options());
  share.max_over_ranks(largest_C);
  at::Tensor total_C = (logits_Cv - largest_C.unsqueeze(1)).exp().sum(1);
  share.sum_over_ranks(total_C);
  norms_C = total_C.log() + largest_C;
  const at::Tensor own_M = ids_M - share.first_row;
  const at::Tensor is_here_M = (own_M >= 0).logical_and(own_M < columns);
  at::Tensor logits_M = at::zeros({ids_M.size(0)}, logits_Cv.options());
  if (columns > 0) {
    const at::Tensor column_M = own_M.clamp(0, columns - 1);
    logits_M = at::where(is_here_M, elements(logits_Cv, rows_M, column_M), logits_M);
  }
  share.sum_over_ranks(logits_M);
  const at::Tensor norms_M = norms_C.index_select(0, rows_M);
  const at::Tensor best_C = first_largest(logits_Cv, largest_C, share).to(at::kLong);
  TokenLogprobs result = {logits_M - norms_M, logits_M, norms_M,
                          best_C.index_select(0, rows_M) == ids_M};
  if (how.entropy && how.top_of_entropy > 0) {
    result.entropies_M =
        entropy_of_largest(logits_Cv, how.top_of_entropy, share).index_select(0, rows_M);
  } else if (how.entropy) {
    at::Tensor expected_C = expected_logits(logits_Cv, norms_C);
    share.sum_over_ranks(expected_C);
    result.entropies_M = (norms_C - expected_C).index_select(0, rows_M);
  }
  return result;
}

/// The logits, and what they are divided by, of a device whose table does it all.
at::Tensor tempered_logits(const HeadFactor& head, const HeadFactor& low, const HeadBias& bias,
                           const LogprobsCall& call, int64_t begin, int64_t count) {
  const at::Tensor logits_CV = head_logits(head, low, bias, call.options.softcap, begin, count);
  return call.how.temperature == 1 ? logits_CV : scaled(logits_CV, 1 / call.how.temperature);
}

/// What `numbers` of chunks come to, on the host.
TokenLogprobs told_to_host(const std::vector<ChunkNumbers>& numbers, LogprobsCall& call) {
  std::vector<at::Tensor> largest, total, expected, logits;
  for (const ChunkNumbers& chunk : numbers) {
    largest.push_back(chunk.largest_C1);
    total.push_back(chunk.total_C1);
    if (call.how.entropy) expected.push_back(chunk.expected_C1);
    logits.push_back(chunk.logits_M1);
  }
  call.largest_U1 = ops::joined(largest, 0);
  std::vector<at::Tensor> all = {call.largest_U1, ops::joined(total, 0), ops::joined(logits, 0)};
  if (call.how.entropy) all.push_back(ops::joined(expected, 0));
  const std::vector<at::Tensor> here = on_host_together(all);
  const at::Tensor &largest_U = here[0], &rows_M = call.pairs.rows_M;
  call.total_U = here[1];
  const at::Tensor norms_U = call.total_U.log() + largest_U;
  const at::Tensor norms_M = norms_U.index_select(0, rows_M);
  TokenLogprobs result = {here[2] - norms_M, here[2], norms_M,
                          here[2] >= largest_U.index_select(0, rows_M)};
  if (call.how.entropy)
    result.entropies_M = (norms_U - here[3] / call.total_U).index_select(0, rows_M);
  return result;
}

class HeadTokenLogprobs : public torch::autograd::Function<HeadTokenLogprobs> {
 public:
  /// Gives {logprobs, logits, norms, is_largest, entropies}.
  static variable_list forward(AutogradContext* ctx, const at::Tensor& hidden_UH,
                               const at::Tensor& weight_VH, const at::Tensor& low_UR,
                               const at::Tensor& weight_VR, const at::Tensor& bias_V,
                               const c10::intrusive_ptr<LogprobsCall>& call) {
    const HeadFactor head(hidden_UH, weight_VH, {}, false), low(low_UR, weight_VR, {}, false);
    const HeadBias bias(bias_V, {}, false);
    ctx->save_for_backward({hidden_UH, weight_VH, low_UR, weight_VR, bias_V});
    ctx->saved_data["call"] = at::IValue::make_capsule(call);
    const TokenLogprobs all = call->by_table ? found_by_table(head, low, bias, *call)
                                             : found_by_aten(head, low, bias, *call);
    variable_list result{all.logprobs_M, all.logits_M, all.norms_M, all.is_largest_M,
                         call->how.entropy ? all.entropies_M : all.norms_M.narrow(0, 0, 0).clone()};
    ctx->mark_non_differentiable({result[1], result[2], result[3], result[4]});
    return result;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto holder = ctx->saved_data["call"].toCapsule();
    const auto& call = static_cast<const LogprobsCall&>(*holder);
    return head_gradients(
        ctx->get_saved_variables(), call.options, call.low_main, call.chunk,
        [&](const HeadFactor& head, const HeadFactor& low, const HeadBias& bias, int64_t begin,
            int64_t count) { return d_logits(head, low, bias, call, begin, count, grads[0]); });
  }

 private:
  static TokenLogprobs found_by_aten(const HeadFactor& head, const HeadFactor& low,
                                     const HeadBias& bias, LogprobsCall& call) {
    const bool is_shared = call.options.share.is_part();
    const at::ScalarType wide = device::wide_type(head.input_nX.scalar_type());
    std::vector<TokenLogprobs> parts;
    std::vector<at::Tensor> norms;
    const int64_t rows = head.input_nX.size(0);
    for (int64_t begin = 0; begin < rows; begin += call.chunk) {
      const int64_t count = std::min(call.chunk, rows - begin);
      const at::Tensor all_CV =
          narrow_head_logits(head, low, bias, call.options.softcap, begin, count);
      const auto look_at = [&](int64_t first, int64_t length) {
        at::Tensor logits_CV = all_CV.narrow(0, first, length).to(wide);
        if (call.how.temperature != 1) logits_CV = logits_CV / call.how.temperature;
        const Pairs here = call.pairs.of_rows(begin + first, begin + first + length);
        at::Tensor& norms_C = norms.emplace_back();
        parts.push_back(is_shared
                            ? of_share(logits_CV, here, call.options.share, call.how, norms_C)
                            : of_logits(logits_CV, here.rows_M, here.ids_M, call.how, norms_C));
      };
      // Each block would be an exchange of its own.
      is_shared ? look_at(0, count) : each_block(all_CV, look_at);
    }
    call.norms_U = at::cat(norms);
    return joined(parts);
  }

  static TokenLogprobs found_by_table(const HeadFactor& head, const HeadFactor& low,
                                      const HeadBias& bias, LogprobsCall& call) {
    std::vector<ChunkNumbers> parts;
    const int64_t rows = head.input_nX.size(0);
    // No rows are one chunk, too, for the exchanges of ranks.
    for (int64_t begin = 0; begin == 0 || begin < rows; begin += call.chunk) {
      const int64_t count = std::min(call.chunk, rows - begin);
      parts.push_back(numbers_of_chunk(tempered_logits(head, low, bias, call, begin, count),
                                       call.pairs_of(begin, begin + count), call.options.share,
                                       call.how.entropy));
    }
    return told_to_host(parts, call);
  }

  /// The gradient of a chunk's logits before their cap, in the type of the products.
  static at::Tensor d_logits(const HeadFactor& head, const HeadFactor& low, const HeadBias& bias,
                             const LogprobsCall& call, int64_t begin, int64_t count,
                             const at::Tensor& grad_M) {
    const double temperature = call.how.temperature, cap = call.options.softcap;
    if (!call.by_table && cap == 0)
      return d_logits_by_block(narrow_head_logits(head, low, bias, cap, begin, count), call, begin,
                               grad_M);
    const Pairs here = call.pairs.of_rows(begin, begin + count);
    const at::Tensor grad_P = grad_M.narrow(0, here.first, here.ids_M.numel());
    at::Tensor d_logits_CV = head_logits(head, low, bias, cap, begin, count);
    const at::Tensor kept_CV = cap > 0 ? d_logits_CV.clone() : d_logits_CV;
    if (call.by_table) {
      if (temperature != 1) d_logits_CV = scaled(d_logits_CV, 1 / temperature);
      d_logits_CV = grad_of_chunk(d_logits_CV, {here.rows_M, here.ids_M}, call.options.share,
                                  call.largest_U1.narrow(0, begin, count),
                                  call.total_U.narrow(0, begin, count), grad_P);
      if (temperature != 1) d_logits_CV = scaled(d_logits_CV, 1 / temperature);
    } else {
      become_gradient(d_logits_CV, here, call, begin, grad_P);
    }
    return through_cap(d_logits_CV, kept_CV, cap).to(head.input_nX.scalar_type());
  }

  /// The gradient of logits that have no cap, in their place.
  static at::Tensor d_logits_by_block(const at::Tensor& logits_CV, const LogprobsCall& call,
                                      int64_t begin, const at::Tensor& grad_M) {
    const at::ScalarType wide = device::wide_type(logits_CV.scalar_type());
    each_block(logits_CV, [&](int64_t first, int64_t count) {
      const at::Tensor block_CV = logits_CV.narrow(0, first, count);
      at::Tensor wide_CV = block_CV.to(wide);
      const Pairs here = call.pairs.of_rows(begin + first, begin + first + count);
      become_gradient(wide_CV, here, call, begin + first,
                      grad_M.narrow(0, here.first, here.ids_M.numel()));
      if (logits_CV.scalar_type() != wide) block_CV.copy_(wide_CV);
    });
    return logits_CV;
  }

  /// Turns logits before temperature, those of rows from `begin` on, into their gradient.
  static void become_gradient(at::Tensor& logits_CV, const Pairs& here, const LogprobsCall& call,
                              int64_t begin, const at::Tensor& grad_P) {
    const double temperature = call.how.temperature;
    const int64_t count = logits_CV.size(0);
    if (temperature != 1) logits_CV.div_(temperature);
    // d logprob / d logits is 1 at the id, less every id's probability.
    const at::Tensor total_C =
        at::zeros({count}, grad_P.options()).index_put_({here.rows_M}, grad_P, true);
    logits_CV.sub_(call.norms_U.narrow(0, begin, count).unsqueeze(1)).exp_();
    logits_CV.mul_(total_C.neg().unsqueeze(1));
    add_at_ids(logits_CV, here, grad_P, call.options.share);
    if (temperature != 1) logits_CV.div_(temperature);
  }

  static void add_at_ids(at::Tensor& d_logits_CV, const Pairs& pairs, const at::Tensor& grad_P,
                         const VocabularyShare& share) {
    const int64_t columns = d_logits_CV.size(1);
    if (columns == 0) return;
    const at::Tensor own_P = pairs.ids_M - (share.is_part() ? share.first_row : 0);
    const at::Tensor is_here_P = (own_P >= 0).logical_and(own_P < columns);
    const at::Tensor flat_P = pairs.rows_M * columns + own_P.clamp(0, columns - 1);
    d_logits_CV.view({-1}).index_add_(0, flat_P, grad_P * is_here_P);
  }
};

at::Tensor to_tensor(const std::vector<int64_t>& values) {
  const at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), tensor.data_ptr<int64_t>());
  return tensor;
}

void require_pairs(const at::Tensor& rows_M, const at::Tensor& ids_M, int64_t vocab) {
  require(rows_M.dim() == 1 && ids_M.sizes() == rows_M.sizes(), "token_logprobs", "rows ",
          rows_M.sizes(), " and ids ", ids_M.sizes(), " must be [M]");
  if (ids_M.numel() == 0) return;
  const int64_t low = ids_M.min().item<int64_t>(), high = ids_M.max().item<int64_t>();
  require(low >= 0 && high < vocab, "token_logprobs", "id ", low < 0 ? low : high,
          " is outside the vocabulary of ", vocab);
}

/// They hang on the graph of every factor, so that its backward goes through all the same.
TokenLogprobs no_pairs(const std::vector<at::Tensor>& factors, bool with_entropy) {
  const at::Tensor& hidden_NH = factors[0];
  const at::ScalarType wide = device::wide_type(hidden_NH.scalar_type());
  const at::Tensor none = at::empty({0}, hidden_NH.options().dtype(wide));
  at::Tensor logprobs = hidden_NH.narrow(0, 0, 0).sum(1).to(wide);
  for (size_t i = 1; i < factors.size(); ++i) {
    if (factors[i].defined()) logprobs = logprobs + factors[i].narrow(0, 0, 0).sum().to(wide);
  }
  return {logprobs, none, none, none.to(at::kBool), with_entropy ? none : at::Tensor()};
}

/// Rows that are used, once each, and of every pair which of them its row is.
struct UsedRows {
  std::vector<int64_t> rows, place_of_pair;
  at::Tensor take(const at::Tensor& from_NX) const {
    if (static_cast<int64_t>(rows.size()) == from_NX.size(0)) return from_NX;
    return take_rows(from_NX, device::sent(to_tensor(rows), from_NX.device()));
  }
};

UsedRows used_rows(const at::Tensor& rows_M, int64_t num_rows) {
  UsedRows used;
  const int64_t* rows = rows_M.data_ptr<int64_t>();
  for (int64_t i = 0; i < rows_M.numel(); ++i) {
    require(rows[i] >= 0 && rows[i] < num_rows && (i == 0 || rows[i] >= rows[i - 1]),
            "token_logprobs", "row ", rows[i], " of ", num_rows, " must be there and ascend");
    if (used.rows.empty() || used.rows.back() != rows[i]) used.rows.push_back(rows[i]);
    used.place_of_pair.push_back(static_cast<int64_t>(used.rows.size()) - 1);
  }
  return used;
}

}  // namespace

bool has_logits_on_host(const c10::Device& device) {
  return computes_numbers(device) && !backend_of(device.type()).likeliest;
}

TokenLogprobs token_logprobs(const at::Tensor& hidden_NH, const at::Tensor& rows_M,
                             const at::Tensor& ids_M, const LogprobOptions& how, int64_t vocab,
                             const std::function<at::Tensor(const at::Tensor&)>& logits_of) {
  const at::NoGradGuard no_grad;
  require_pairs(rows_M, ids_M, vocab);
  if (ids_M.numel() == 0) return no_pairs({hidden_NH}, how.entropy);
  const UsedRows used = used_rows(rows_M.contiguous(), hidden_NH.size(0));
  const Pairs pairs{to_tensor(used.place_of_pair), ids_M};
  HeadOptions options;
  options.chunk_tokens = how.chunk_rows;
  const at::Tensor used_UH = used.take(hidden_NH);
  std::vector<TokenLogprobs> parts;
  const int64_t rows = used_UH.size(0), chunk = chunk_size(options, vocab);
  for (int64_t begin = 0; begin < rows; begin += chunk) {
    const int64_t count = std::min(chunk, rows - begin);
    const at::Tensor all_CV = logits_of(used_UH.narrow(0, begin, count));
    each_block(all_CV, [&](int64_t first, int64_t length) {
      at::Tensor logits_CV =
          all_CV.narrow(0, first, length).to(device::wide_type(all_CV.scalar_type()));
      if (how.temperature != 1) logits_CV = logits_CV / how.temperature;
      const Pairs here = pairs.of_rows(begin + first, begin + first + length);
      at::Tensor norms_C;
      parts.push_back(of_logits(logits_CV, here.rows_M, here.ids_M, how, norms_C));
    });
  }
  return joined(parts);
}

TokenLogprobs head_token_logprobs(const at::Tensor& hidden_NH, const at::Tensor& weight_VH,
                                  const at::Tensor& rows_M, const at::Tensor& ids_M,
                                  const HeadOptions& options, const HeadAddition& addition,
                                  const LogprobOptions& how) {
  require(hidden_NH.dim() == 2 && weight_VH.dim() == 2 && hidden_NH.size(1) == weight_VH.size(1) &&
              hidden_NH.scalar_type() == weight_VH.scalar_type(),
          "token_logprobs", "hidden ", hidden_NH.sizes(), " ", hidden_NH.scalar_type(),
          " and weight ", weight_VH.sizes(), " ", weight_VH.scalar_type(),
          " must be [N, H] and [V, H] of one dtype");
  const int64_t vocab = options.share.is_part() ? options.share.vocab : weight_VH.size(0);
  require_pairs(rows_M, ids_M, vocab);
  const bool by_table = !computes_numbers(hidden_NH.device());
  require(!by_table || how.top_of_entropy == 0, "token_logprobs",
          "entropies of the likeliest ids need a device that computes by ATen");
  if (ids_M.numel() == 0 && !by_table)
    return no_pairs({hidden_NH, weight_VH, addition.low_NR, addition.weight_VR, options.bias_V},
                    how.entropy);
  const UsedRows used = used_rows(rows_M.contiguous(), hidden_NH.size(0));
  auto call = c10::make_intrusive<LogprobsCall>();
  call->by_table = by_table;
  call->pairs = {to_tensor(used.place_of_pair),
                 by_table ? ids_M : device::sent(ids_M, hidden_NH.device())};
  call->options = options;
  if (how.chunk_rows > 0) call->options.chunk_tokens = how.chunk_rows;
  call->how = how;
  call->low_main = addition.main_grad;
  call->chunk = chunk_size(call->options, options.share.is_part() ? options.share.max_rows : vocab);
  const at::Tensor none = at::empty({0, 0}, hidden_NH.options());
  const bool has_low = addition.low_NR.defined();
  const variable_list result = HeadTokenLogprobs::apply(
      used.take(hidden_NH), weight_VH, has_low ? used.take(addition.low_NR) : none,
      has_low ? addition.weight_VR : none, options.bias_V.defined() ? options.bias_V : none, call);
  return {result[0], result[1], result[2], result[3], how.entropy ? result[4] : at::Tensor()};
}

}  // namespace danlu::ops
