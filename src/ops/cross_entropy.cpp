#include "ops/cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "device/dtype.h"
#include "device/sent.h"
#include "ops/backend.h"
#include "ops/check.h"
#include "ops/head_factor.h"
#include "ops/linear.h"
#include "ops/pointwise.h"
#include "ops/weight_grad.h"

namespace danlu::ops {
namespace {

/// Indices of targets that count. Errors: a target outside the vocabulary.
at::Tensor counted(const at::Tensor& targets_N, int64_t rows, int64_t vocab) {
  require(targets_N.dim() == 1 && targets_N.size(0) == rows, "cross_entropy", "targets ",
          targets_N.sizes(), " must be [N] with N = ", rows);
  const at::Tensor index_n = at::nonzero(targets_N != kIgnoreLabel).squeeze(1);
  if (index_n.numel() > 0) {
    const at::Tensor used = targets_N.index_select(0, index_n);
    const int64_t low = used.min().item<int64_t>(), high = used.max().item<int64_t>();
    require(low >= 0 && high < vocab, "cross_entropy", "target ", low < 0 ? low : high,
            " is outside the vocabulary of ", vocab, " (", kIgnoreLabel, " means no target)");
  }
  return index_n;
}

/// Losses of one chunk of logits; turns `logits_CV` (wide) into its gradient in place when asked.
struct ChunkLoss {
  at::Tensor sum, correct;
};
ChunkLoss chunk_loss(at::Tensor& logits_CV, const at::Tensor& targets_C, double z_weight,
                     bool make_grad) {
  const at::Tensor column = targets_C.unsqueeze(1);
  const auto [largest_C1, at_C1] = logits_CV.max(1, true);
  const at::Tensor target_C1 = logits_CV.gather(1, column);
  const at::Tensor correct = (target_C1 >= largest_C1).sum();
  logits_CV.sub_(largest_C1).exp_();
  const at::Tensor total_C1 = logits_CV.sum(1, true);
  at::Tensor sum = (total_C1.log() + largest_C1 - target_C1).sum();
  if (z_weight > 0) sum = sum + largest_C1.square().sum() * z_weight;
  if (make_grad) {
    logits_CV.div_(total_C1);
    logits_CV.scatter_add_(1, column, at::full_like(target_C1, -1.0));
    if (z_weight > 0) logits_CV.scatter_add_(1, at_C1, largest_C1 * (2 * z_weight));
  }
  return {sum, correct};
}

/// What a loss comes to, chunk by chunk.
struct LossSums {
  at::Tensor sum, correct;
};
/// The same where ranks hold some columns of the logits each.
at::Tensor add_shared_chunk(const LossSums& sums, const SharedChunk& chunk, double z_weight,
                            double grad_scale, bool make_grad, const VocabularyShare& share) {
  const auto& table = completed_backend(chunk.logits_Cv.device().type());
  const at::Tensor own_C1 = table.largest_of_share(chunk.logits_Cv);
  at::Tensor largest_C1 = own_C1.clone(), first_C1;
  share.max_over_ranks(largest_C1);
  at::Tensor sums_C2 = table.sums_of_share(chunk, largest_C1);
  share.sum_over_ranks(sums_C2);
  if (z_weight > 0 && make_grad) {
    // Where logits are equal, the first counts, on whichever rank it is.
    first_C1 = table.place_of_largest(own_C1, largest_C1, chunk.first_row);
    share.max_over_ranks(first_C1);
  }
  table.loss_of_share({chunk, own_C1, largest_C1, sums_C2, first_C1, sums.sum, sums.correct,
                       z_weight, grad_scale, make_grad});
  return chunk.logits_Cv;
}

/// Adds a chunk's; gives the gradient of its logits times grad_scale, made in their memory where
/// possible.
at::Tensor add_chunk(const LossSums& sums, const at::Tensor& logits_CV, const at::Tensor& targets_C,
                     double z_weight, double grad_scale, bool make_grad,
                     const VocabularyShare& share) {
  const Backend* const table = fused_for(Work::kRows, logits_CV);
  if (!share.is_part() && table && table->cross_entropy) {
    table->cross_entropy(
        {logits_CV, targets_C, sums.sum, sums.correct, z_weight, grad_scale, make_grad});
    return logits_CV;
  }
  at::Tensor wide_CV = logits_CV.to(device::wide_type(logits_CV.scalar_type()));
  if (share.is_part()) {
    return add_shared_chunk(sums, {wide_CV, targets_C, share.first_row}, z_weight, grad_scale,
                            make_grad, share);
  }
  const ChunkLoss loss = chunk_loss(wide_CV, targets_C, z_weight, make_grad);
  if (make_grad && grad_scale != 1.0) wide_CV.mul_(grad_scale);
  add_to(sums.sum, loss.sum);
  add_to(sums.correct, loss.correct);
  return wide_CV;
}

/// Where weights' gradients go that backward finds made.
struct HeldMainGrads : torch::CustomClassHolder {
  MainGradPtr weight, low;
  std::unique_ptr<HeadBias> bias;
};

class HeadCrossEntropy : public torch::autograd::Function<HeadCrossEntropy> {
 public:
  using List = torch::autograd::variable_list;
  struct Settings {
    double z_weight, grad_scale;
    int64_t chunk_tokens;
    bool recording;
    VocabularyShare share;
    MainGradPtr weight_main, low_main, bias_main;
    double softcap;
    at::Tensor factor;  ///< grad_scale
  };
  /// Returns {sum, correct}.
  static List forward(torch::autograd::AutogradContext* ctx, const at::Tensor& hidden_nH,
                      const at::Tensor& weight_VH, const at::Tensor& low_nR,
                      const at::Tensor& weight_VR, const at::Tensor& bias_V,
                      const at::Tensor& targets_n, const Settings& settings) {
    const at::ScalarType dtype = hidden_nH.scalar_type(), wide = device::wide_type(dtype);
    HeadFactor head(hidden_nH, weight_VH, settings.weight_main, settings.recording);
    HeadFactor low(low_nR, weight_VR, settings.low_main, settings.recording);
    auto bias = std::make_unique<HeadBias>(bias_V, settings.bias_main, settings.recording);
    const bool make_grad = head.needs_grad() || low.needs_grad() || bias->needs_grad;
    const bool is_plain = low.is_absent() && bias->is_absent();
    const at::TensorOptions wide_options = hidden_nH.options().dtype(wide);
    const LossSums sums{at::zeros({}, wide_options), at::zeros({}, wide_options.dtype(at::kLong))};
    const int64_t rows = hidden_nH.size(0);
    for (int64_t begin = 0; begin < rows; begin += settings.chunk_tokens) {
      const int64_t count = std::min(settings.chunk_tokens, rows - begin);
      at::Tensor logits_CV = head.logits(begin, count, is_plain ? dtype : wide);
      if (!low.is_absent()) low.add_logits(logits_CV, begin);
      logits_CV = capped(bias->added(logits_CV).to(dtype), settings.softcap);
      // The loss leaves its gradient where the logits were, and the cap's slope needs these.
      const bool keeps = settings.softcap > 0 && make_grad;
      const at::Tensor kept_CV = keeps ? logits_CV.clone() : logits_CV;
      const at::Tensor d_logits_CV =
          add_chunk(sums, logits_CV, targets_n.narrow(0, begin, count), settings.z_weight,
                    settings.grad_scale, make_grad, settings.share);
      if (!make_grad) continue;
      const at::Tensor d_logits = through_cap(d_logits_CV, kept_CV, settings.softcap).to(dtype);
      head.add_gradients(d_logits, begin);
      low.add_gradients(d_logits, begin);
      bias->add_gradient(d_logits);
    }
    head.finish();
    low.finish();
    auto held = c10::make_intrusive<HeldMainGrads>();
    held->weight = settings.weight_main;
    held->low = settings.low_main;
    held->bias = std::move(bias);
    ctx->saved_data["main"] = at::IValue::make_capsule(held);
    ctx->saved_data["type"] = weight_VH.scalar_type();
    ctx->saved_data["scale_is_fixed"] = head.main.defined() || low.main.defined();
    ctx->saved_data["d_hidden"] = head.d_input;
    ctx->saved_data["d_weight"] = head.d_weight;
    ctx->saved_data["d_low"] = low.d_input;
    ctx->saved_data["d_low_weight"] = low.d_weight;
    // Backward receives the scale as autograd carries it, in the loss's own type.
    const double scale = settings.grad_scale;
    ctx->saved_data["factor"] = settings.factor;
    ctx->saved_data["grad_scale"] =
        wide == at::kFloat ? static_cast<double>(static_cast<float>(scale)) : scale;
    ctx->mark_non_differentiable({sums.correct});
    return {sums.sum, sums.correct};
  }

  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const bool is_known = grads[0].is_alias_of(ctx->saved_data["factor"].toTensor());
    const double factor =
        is_known ? 1.0 : grads[0].item<double>() / ctx->saved_data["grad_scale"].toDouble();
    if (factor != 1.0 && ctx->saved_data["scale_is_fixed"].toBool()) {
      throw InternalError(
          "[head] the loss was made for another factor, and its weights have their "
          "gradients already");
    }
    const auto scaled = [&](const char* name) {
      const at::Tensor grad = ctx->saved_data[name].toTensor();
      return !grad.defined() || factor == 1.0 ? grad : ops::scaled(grad, factor);
    };
    const auto holder = ctx->saved_data["main"].toCapsule();
    const auto& main = static_cast<const HeldMainGrads&>(*holder);
    const at::ScalarType type = ctx->saved_data["type"].toScalarType();
    const auto of_weight = [&](const char* name, const MainGradPtr& into) {
      const at::Tensor grad = scaled(name);
      if (!grad.defined() || !into) return grad;
      if (!takes_grad(into)) return grad.to(type);
      add_to(into->sum, grad);
      return at::Tensor();
    };
    List result{scaled("d_hidden"),
                of_weight("d_weight", main.weight),
                scaled("d_low"),
                of_weight("d_low_weight", main.low),
                main.bias->finish(factor),
                {},
                {}};
    ctx->saved_data.clear();
    return result;
  }
};

}  // namespace

at::Tensor capped(const at::Tensor& x, double cap) {
  return cap == 0 ? x : completed_backend(x.device().type()).capped(x, cap);
}

CrossEntropy cross_entropy(const at::Tensor& logits_NV, const at::Tensor& targets_N,
                           double z_loss_weight) {
  const at::Tensor index_n = counted(targets_N, logits_NV.size(0), logits_NV.size(1));
  const at::Tensor logits =
      logits_NV.index_select(0, index_n).to(device::wide_type(logits_NV.scalar_type()));
  const at::Tensor column = targets_N.index_select(0, index_n).unsqueeze(1);
  const at::Tensor target = logits.gather(1, column);
  at::Tensor sum = (at::logsumexp(logits, {1}, true) - target).sum();
  const at::Tensor largest = at::amax(logits, {1}, true);
  if (z_loss_weight > 0) sum = sum + largest.square().sum() * z_loss_weight;
  return {sum, index_n.numel(), (target >= largest).sum()};
}

CrossEntropy oracle::head_cross_entropy(const at::Tensor& hidden_NH, const at::Tensor& weight_VH,
                                        const at::Tensor& targets_N, const HeadOptions& options,
                                        const HeadAddition& addition) {
  at::Tensor logits_NV = ops::linear(hidden_NH, weight_VH);
  if (addition.low_NR.defined())
    logits_NV = logits_NV + ops::linear(addition.low_NR, addition.weight_VR);
  if (options.bias_V.defined()) logits_NV = logits_NV + options.bias_V;
  return cross_entropy(capped(logits_NV, options.softcap), targets_N, options.z_loss_weight);
}

CrossEntropy head_cross_entropy(const at::Tensor& hidden_NH, const at::Tensor& weight_VH,
                                const at::Tensor& targets_N, const HeadOptions& options,
                                const HeadAddition& addition) {
  require(hidden_NH.dim() == 2 && weight_VH.dim() == 2 && hidden_NH.size(1) == weight_VH.size(1) &&
              hidden_NH.scalar_type() == weight_VH.scalar_type(),
          "head_cross_entropy", "hidden ", hidden_NH.sizes(), " ", hidden_NH.scalar_type(),
          " and weight ", weight_VH.sizes(), " ", weight_VH.scalar_type(),
          " must be [N, H] and [V, H] of one dtype");
  const at::Tensor &low_NR = addition.low_NR, &weight_VR = addition.weight_VR;
  require(low_NR.defined() == weight_VR.defined() &&
              (!low_NR.defined() ||
               (low_NR.dim() == 2 && weight_VR.dim() == 2 && low_NR.size(1) == weight_VR.size(1) &&
                low_NR.scalar_type() == weight_VR.scalar_type() &&
                weight_VR.scalar_type() == weight_VH.scalar_type() &&
                low_NR.size(0) == hidden_NH.size(0) && weight_VR.size(0) == weight_VH.size(0))),
          "head_cross_entropy", "an addition must be [N, R] and [V, R] beside hidden ",
          hidden_NH.sizes(), " and weight ", weight_VH.sizes(), ", all of one dtype");
  const VocabularyShare& share = options.share;
  const int64_t vocab = share.is_part() ? share.vocab : weight_VH.size(0);
  // They are counted on the host, where they come from, so that no device is waited for.
  const at::Tensor given_N = targets_N.cpu();
  const at::Tensor index_n = counted(given_N, hidden_NH.size(0), vocab);
  const bool all = index_n.numel() == given_N.numel();
  const at::Tensor there_n = device::sent(index_n, hidden_NH.device());
  const auto counted_rows = [&](const at::Tensor& rows_NX) {
    return all ? rows_NX : take_rows(rows_NX, there_n);
  };
  const at::Tensor targets_n =
      device::sent(all ? given_N : given_N.index_select(0, index_n), hidden_NH.device());
  const HeadCrossEntropy::Settings settings{
      options.z_loss_weight,
      options.grad_scale,
      chunk_size(options, share.is_part() ? share.max_rows : vocab),
      at::GradMode::is_enabled(),
      share,
      options.main_grad,
      addition.main_grad,
      options.bias_main,
      options.softcap,
      at::full({}, options.grad_scale,
               hidden_NH.options().dtype(device::wide_type(hidden_NH.scalar_type())))};
  // libtorch 1.13 takes no undefined tensors here: nothing is a factor of width 0.
  const at::Tensor none = at::empty({0, 0}, hidden_NH.options());
  const auto result = HeadCrossEntropy::apply(
      counted_rows(hidden_NH), weight_VH, low_NR.defined() ? counted_rows(low_NR) : none,
      low_NR.defined() ? weight_VR : none, options.bias_V.defined() ? options.bias_V : none,
      targets_n, settings);
  return {result[0], index_n.numel(), result[1], settings.factor};
}

}  // namespace danlu::ops
