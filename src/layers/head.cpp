#include "layers/head.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tanh.h>

#include "base/error.h"
#include "layers/score_head.h"
#include "ops/dropout.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/noise.h"
#include "ops/norm_head.h"
#include "ops/pointwise.h"
#include "ops/quantized_linear.h"

namespace danlu::layers {
namespace {

/// Makes the noise on embeddings other numbers than adapters' dropout draws from the same keys.
constexpr uint64_t kNoiseSalt = 0x6e6f697365;

/// The first row of the vocabulary that this rank has.
int64_t first_row(const Parameter& weight) {
  return weight.rects.empty() ? weight.spec.shape[0] : weight.rects.front().rect.row;
}

ops::VocabularyShare share_of(const Parameter& weight, const parallel::Region& region) {
  if (region.is_alone()) return {};
  const parallel::Group& group = region.group();
  const int64_t vocab = weight.spec.shape[0];
  return {first_row(weight), vocab, (vocab + group.size() - 1) / group.size(),
          [&group](at::Tensor& tensor) { group.all_reduce_sum(tensor); },
          [&group](at::Tensor& tensor) { group.all_reduce_max(tensor); }};
}

/// What an adapter on the head adds to the logits.
ops::HeadAddition addition(const Linear& head, const at::Tensor& hidden_NH, const HeadPass& pass) {
  if (!head.adapter || !pass.adapters) return {};
  const LoraAdapter& adapter = *head.adapter;
  const at::Tensor& dropout_keys_N = pass.dropout_keys_N;
  const bool drops = dropout_keys_N.defined() && adapter.dropout > 0;
  const at::Tensor input_NH =
      drops ? ops::dropout(hidden_NH, adapter.dropout, dropout_keys_N, adapter.dropout_salt)
            : hidden_NH;
  const at::Tensor low_NR =
      ops::linear(input_NH, adapter.a_RI.tensor, {}, {adapter.a_RI.main_grad});
  return {ops::scaled(low_NR, adapter.scale), adapter.b_OR.tensor, adapter.b_OR.main_grad};
}

}  // namespace

at::Tensor Embedding::rows(const at::Tensor& ids_N) const {
  if (weight.quantized)
    return ops::quantized_embedding(ids_N, *weight.quantized, weight.tensor.scalar_type());
  if (region.is_alone()) return ops::embedding(ids_N, weight.tensor, weight.main_grad);
  return region.leave(ops::embedding_part(ids_N, weight.tensor, first_row(weight),
                                          weight.spec.shape[0], weight.main_grad));
}

at::Tensor Embedding::noisy(const at::Tensor& rows_NH, const EmbeddingNoise& noise) const {
  if (!noise.is_there()) return rows_NH;
  // Under sequence parallelism this rank has some of the rows.
  const int64_t own = rows_NH.size(0),
                first = region.is_sequence() ? region.group().rank() * own : 0;
  return ops::with_noise(rows_NH, noise.sizes_N.narrow(0, first, own),
                         noise.keys_N.narrow(0, first, own), kNoiseSalt);
}

at::Tensor Embedding::forward(const at::Tensor& ids_N, const EmbeddingNoise& noise) const {
  const at::Tensor rows_NH = noise_is_last ? rows(ids_N) : noisy(rows(ids_N), noise);
  if (scale == 1.0) return noise_is_last ? noisy(rows_NH, noise) : rows_NH;
  // The factor is of the model's type too, as Hugging Face has it for Gemma.
  const double factor =
      at::scalar_tensor(scale, at::kDouble).to(rows_NH.scalar_type()).item<double>();
  const at::Tensor scaled_NH = ops::scaled(rows_NH, factor);
  return noise_is_last ? noisy(scaled_NH, noise) : scaled_NH;
}

at::Tensor Head::effective_weight() const {
  return normalised ? ops::norm_head(linear.weight.tensor, linear.weight.main_grad)
                    : linear.weight.tensor;
}

at::Tensor Head::scaled(const at::Tensor& hidden_NH) const {
  return scale == 1.0 ? hidden_NH : ops::scaled(hidden_NH, scale);
}

ops::HeadOptions Head::completed(ops::HeadOptions options) const {
  options.share = share_of(linear.weight, region);
  options.softcap = softcap;
  options.bias_V = linear.bias.tensor;
  options.bias_main = linear.bias.main_grad;
  if (!normalised) options.main_grad = linear.weight.main_grad;
  return options;
}

at::Tensor Head::own_products(const at::Tensor& hidden_nH, const HeadPass& pass) const {
  Pass of_rows;
  of_rows.adapters = pass.adapters;
  of_rows.adapter_runs = pass.adapter_runs;
  if (const LoraAdapter* const of_all = linear.adapter_of_all(of_rows))
    return adapted_linear(hidden_nH, {linear.weight.tensor, linear.weight.quantized}, *of_all);
  const at::Tensor own_nv = linear.weight.quantized
                                ? ops::quantized_linear(hidden_nH, *linear.weight.quantized)
                                : ops::linear(hidden_nH, effective_weight());
  if (linear.is_adapted(of_rows)) adapt_rows(own_nv, hidden_nH, linear, pass.adapter_runs);
  return own_nv;
}

int64_t Head::first_column() const { return region.is_alone() ? 0 : first_row(linear.weight); }

at::Tensor Head::own_logits(const at::Tensor& given_nH, const HeadPass& pass) const {
  const at::Tensor hidden_nH = scaled(given_nH);
  at::Tensor own_nv = own_products(hidden_nH, pass);
  if (linear.bias.defined()) own_nv = ops::add_bias(own_nv, linear.bias.tensor);
  return softcap > 0 ? ops::capped(own_nv, softcap) : own_nv;
}

at::Tensor Head::logits(const at::Tensor& hidden_nH, const HeadPass& pass) const {
  const at::Tensor own_nv = own_logits(hidden_nH, pass);
  if (region.is_alone()) return own_nv;
  const int64_t vocab = linear.weight.spec.shape[0], ranks = region.group().size();
  const int64_t rows = (vocab + ranks - 1) / ranks;
  const at::Tensor padded = at::constant_pad_nd(own_nv, {0, rows - own_nv.size(1)});
  return region.group().all_gather(padded, 1).narrow(1, 0, vocab);
}

ops::CrossEntropy Head::loss(const at::Tensor& hidden_NH, const at::Tensor& targets_N,
                             ops::HeadOptions options, const HeadPass& pass) const {
  const auto inside = ops::shared_by(2, region.enter(scaled(hidden_NH)));
  return ops::head_cross_entropy(inside[0], effective_weight(), targets_N, completed(options),
                                 addition(linear, inside[1], pass));
}

ops::TokenLogprobs Head::token_logprobs(const at::Tensor& hidden_NH, const at::Tensor& rows_M,
                                        const at::Tensor& ids_M, const ops::LogprobOptions& how,
                                        const HeadPass& pass) const {
  const at::Tensor inside_NH = region.enter(hidden_NH);
  const bool wants_grad = at::GradMode::is_enabled() && inside_NH.requires_grad();
  if (wants_grad && linear.weight.quantized)
    throw InternalError("[head] a head in blocks gives log-probabilities without gradient");
  // A device's logits stay there, but for a head in blocks.
  const bool brings_logits =
      !at::GradMode::is_enabled() && ops::has_logits_on_host(hidden_NH.device());
  if (brings_logits || linear.weight.quantized) {
    const auto logits = [&](const at::Tensor& rows_CH) {
      // They come to the host, where ids and rows are.
      return this->logits(rows_CH, {.adapters = pass.adapters}).to(at::kCPU);
    };
    return ops::token_logprobs(inside_NH, rows_M, ids_M, how, linear.weight.spec.shape[0], logits);
  }
  const auto inside = ops::shared_by(2, scaled(inside_NH));
  return ops::head_token_logprobs(inside[0], effective_weight(), rows_M, ids_M, completed({}),
                                  addition(linear, inside[1], pass), how);
}

at::Tensor Head::rows_of(const at::Tensor& ids_K) const {
  if (linear.adapter) throw InternalError("[head] single rows of a head that has adapters");
  if (linear.bias.defined()) {
    throw ModelError(tr("[head] a head with a bias does not rank by two of its tokens"),
                     tr("--task_type reranker gives the model a head of its own for it"));
  }
  const Parameter& weight = linear.weight;
  at::Tensor rows_KH;
  if (weight.quantized) {
    rows_KH = ops::quantized_embedding(ids_K, *weight.quantized, weight.tensor.scalar_type());
  } else if (region.is_alone()) {
    rows_KH = ops::embedding(ids_K, weight.tensor, weight.main_grad);
  } else {
    const parallel::Region whole(region.group(), /*sequence=*/false);
    rows_KH = whole.leave(ops::embedding_part(ids_K, weight.tensor, first_row(weight),
                                              weight.spec.shape[0], weight.main_grad));
    // Ranks that have some of the tokens have some of the gradient.
    if (region.is_sequence()) rows_KH = whole.enter(rows_KH);
  }
  if (!normalised) return rows_KH;
  const at::Tensor numbers_KH = rows_KH.to(at::kFloat);
  return (numbers_KH / numbers_KH.norm(2, 1, /*keepdim=*/true)).to(rows_KH.scalar_type());
}

at::Tensor Head::logits_of(const at::Tensor& hidden_nH, const at::Tensor& rows_M,
                           const at::Tensor& ids_K) const {
  at::Tensor numbers_MK = numbers_of_rows(hidden_nH, rows_M, rows_of(ids_K), {}, region);
  if (scale != 1.0) numbers_MK = numbers_MK * scale;
  return softcap > 0 ? at::tanh(numbers_MK / softcap) * softcap : numbers_MK;
}

ops::HeadDivergence Head::divergence(const at::Tensor& hidden_NH, const at::Tensor& rows_M,
                                     const at::Tensor& ids_M, const ops::OtherLogits& other,
                                     const ops::DivergenceOptions& how,
                                     const HeadPass& pass) const {
  if (linear.weight.quantized)
    throw InternalError("[head] a head in blocks is compared with no other");
  const auto inside = ops::shared_by(2, scaled(region.enter(hidden_NH)));
  return ops::head_divergence(inside[0], effective_weight(), rows_M, ids_M, other, completed({}),
                              addition(linear, inside[1], pass), how);
}

}  // namespace danlu::layers
