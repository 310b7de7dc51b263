#include "models/causal_lm.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "arch/gated_delta.h"
#include "base/error.h"
#include "base/pattern.h"
#include "device/sent.h"
#include "layers/balance.h"
#include "layers/saved_tensors.h"
#include "models/causal_lm_impl.h"
#include "models/device_parts.h"
#include "models/rope.h"
#include "ops/pointwise.h"

namespace danlu::models {
namespace {

/// `input` with tokens at the end, in a sequence of their own, so that the rows divide over ranks.
ForwardInput padded(const ForwardInput& input, int64_t ranks) {
  const int64_t n = input.ids_N.size(0), more = (ranks - n % ranks) % ranks;
  if (more == 0) return input;
  ForwardInput result = input;
  if (result.num_tokens < 0) result.num_tokens = n;
  result.ids_N = at::constant_pad_nd(input.ids_N, {0, more});
  result.positions_N = at::constant_pad_nd(input.positions_N, {0, more});
  if (input.dropout_keys_N.defined())
    result.dropout_keys_N = at::constant_pad_nd(input.dropout_keys_N, {0, more});
  if (input.noise.is_there()) {
    result.noise = {at::constant_pad_nd(input.noise.sizes_N, {0, more}),
                    at::constant_pad_nd(input.noise.keys_N, {0, more})};
  }
  if (!input.rows.empty()) return result;  // segments are of all ranks' tokens
  result.segments.q_starts.push_back(n + more);
  result.segments.k_starts.push_back(result.segments.k_starts.back() + more);
  return result;
}

/// The tokens of this rank that belong to each of the pass's segments, in the order of its rows.
std::vector<ops::SegmentPart> parts_of(const ForwardInput& input, int64_t segments) {
  std::vector<RowRange> rows = input.rows;
  if (rows.empty()) rows = {{0, input.segments.q_starts[static_cast<size_t>(segments)]}};
  std::vector<ops::SegmentPart> parts;
  int64_t first = 0;  // of the range, among this rank's tokens
  for (const RowRange& range : rows) {
    for (int64_t s = 0; s < segments; ++s) {
      const int64_t begin = std::max(range.begin, input.segments.q_starts[static_cast<size_t>(s)]),
                    end = std::min(range.end, input.segments.q_starts[static_cast<size_t>(s) + 1]);
      if (begin < end) parts.push_back({first + begin - range.begin, first + end - range.begin, s});
    }
    first += range.size();
  }
  return parts;
}

/// What `balance` needs to decide over whole sequences, of whose tokens other ranks have some.
/// Collective over the context axis.
void put_places(const ForwardInput& input, layers::Balance& balance) {
  if (balance.context->is_alone() || !balance.training.looks_at_sequences()) return;
  const auto& starts = input.segments.q_starts;
  balance.starts.assign(starts.begin(),
                        starts.begin() + static_cast<std::ptrdiff_t>(balance.lengths.size()) + 1);
  std::vector<int64_t> places;
  for (const RowRange& range : input.rows) {
    for (int64_t row = range.begin; row < std::min(range.end, balance.starts.back()); ++row)
      places.push_back(row);
  }
  const auto count = static_cast<int64_t>(places.size());
  at::Tensor most = at::full({1}, count, at::kLong);
  balance.context->all_reduce_max(most);
  const at::Tensor mine = at::full({1, most.item<int64_t>()}, int64_t{-1}, at::kLong);
  std::copy(places.begin(), places.end(), mine.data_ptr<int64_t>());
  balance.places_RN = balance.context->all_gather(mine, 0);
}

/// Errors: UsageError where axes of the mesh would cut an encoder.
void require_whole_encoder(const arch::ModelConfig& config, const parallel::Mesh& mesh) {
  const settings::MeshShape& shape = mesh.shape();
  const bool is_cut = shape.tensor > 1 || !mesh.pipeline().is_alone() || !mesh.context().is_alone();
  if (!config.encoder || !is_cut) return;
  throw UsageError(tr("[model] {}: an encoder is not cut by the tensor, pipeline and context axes",
                      config.family),
                   tr("the data axis and ZeRO share the work and its memory"));
}

}  // namespace

void KvCache::with_state(int64_t /*layer*/, const ops::AdvanceState& /*advance*/) {
  throw InternalError("[model] this cache keeps no state of linear attention");
}

AsTheyWere::AsTheyWere(const std::vector<SavedModule>& modules, bool adapters) {
  if (adapters || modules.empty()) return;
  if (at::GradMode::is_enabled())
    throw InternalError("[model] without adapters, passes have no gradient");
  for (const SavedModule& module : modules) {
    Parameter& place = *module.place;
    trained_.push_back({&place, place.tensor, place.quantized});
    place.tensor = module.original.tensor;
    place.quantized = module.original.quantized;
  }
}

AsTheyWere::~AsTheyWere() {
  for (Trained& module : trained_) {
    module.place->tensor = std::move(module.tensor);
    module.place->quantized = std::move(module.quantized);
  }
}

CausalLM::Impl::Impl(const arch::ModelConfig& model_config, const arch::Stage& part,
                     const parallel::Mesh& of, at::ScalarType scalar_type,
                     const at::Device& at_device)
    : config((model_config.validate(), arch::require_divides(model_config, of.shape().tensor),
              require_whole_encoder(model_config, of),
              arch::require_whole_sequences(model_config, of.shape().context.size()),
              require_parts(model_config, at_device), model_config)),
      mesh(of),
      dtype(scalar_type),
      device(at_device),
      network(config, part, mesh, at::TensorOptions(dtype).device(device)),
      memory(config, mesh, network, device) {
  layers::prepare_saved_tensors();
}

std::vector<Parameter*> CausalLM::Impl::base() {
  std::vector<Parameter*> result = network.parameters;
  for (SavedModule& module : saved_modules)
    std::replace(result.begin(), result.end(), module.place, &module.original);
  return result;
}

void CausalLM::Impl::apply_trainable() {
  for (Parameter* parameter : base()) {
    if (parameter->spec.tied_to.empty()) parameter->tensor.requires_grad_(parameter->trainable);
  }
}

std::shared_ptr<const layers::Pass> CausalLM::Impl::pass_for(const ForwardInput& input) const {
  auto pass = std::make_shared<layers::Pass>();
  pass->segments = input.segments;
  if (config.encoder)
    pass->segments.causal.assign(static_cast<size_t>(input.segments.count()), false);
  const at::Tensor positions_N = device::sent(input.positions_N, device);
  pass->rotary = rope_table(config, positions_N, input);
  pass->window_rotary = window_rope_table(config, positions_N, input);
  if (config.query_growth > 0) {
    const at::Tensor steps_N =
        ((input.positions_N.cpu() + 1).to(at::kFloat) / config.query_growth_from).floor();
    pass->query_factors_N = device::sent(steps_N.log1p() * config.query_growth + 1, device);
  }
  if (input.cache) {
    pass->attend = [cache = input.cache](int64_t layer, const at::Tensor& q_NQD,
                                         const at::Tensor& k_NKD, const at::Tensor& v_NKD,
                                         const ops::AttentionOptions& options) {
      return cache->attend(layer, q_NQD, k_NKD, v_NKD, options);
    };
    pass->attend_latent = [cache = input.cache](int64_t layer, const ops::LatentQueries& queries,
                                                const ops::AttentionOptions& options) {
      return cache->attend_latent(layer, queries, options);
    };
    pass->with_state = [cache = input.cache](int64_t layer, const ops::AdvanceState& advance) {
      cache->with_state(layer, advance);
    };
  }
  if (input.dropout_keys_N.defined())
    pass->dropout_keys_N = device::sent(input.dropout_keys_N, device);
  const int64_t rows = input.ids_N.size(0) / rows_divide_over();
  const int64_t tokens = input.num_tokens < 0 ? input.ids_N.size(0) : input.num_tokens;
  const int64_t first = rows_divide_over() > 1 ? mesh.region().group().rank() * rows : 0;
  pass->num_rows = std::clamp<int64_t>(tokens - first, 0, rows);
  pass->num_tokens = tokens;
  pass->adapters = input.adapters;
  pass->adapter_runs = input.adapter_runs;
  pass->balance = balance_for(input);
  pass->results = input.results;
  pass->loss_scale = input.loss_scale;
  return pass;
}

std::shared_ptr<const layers::Balance> CausalLM::Impl::balance_for(
    const ForwardInput& input) const {
  if (!config.has_experts() || !input.routers || !input.routers->training.changes_passes())
    return {};
  auto balance = std::make_shared<layers::Balance>();
  balance->training = input.routers->training;
  balance->context = &mesh.context().all();
  balance->sparse_layers =
      std::count(config.experts.sparse_layer.begin(), config.experts.sparse_layer.end(), true);
  const std::vector<double>& own = input.routers->segment_weights;
  at::Tensor weights = at::empty({static_cast<int64_t>(own.size())}, at::kDouble);
  std::copy(own.begin(), own.end(), weights.data_ptr<double>());
  balance->context->all_reduce_sum(weights);
  balance->weights.assign(weights.data_ptr<double>(), weights.data_ptr<double>() + own.size());
  balance->parts = parts_of(input, static_cast<int64_t>(own.size()));
  const auto& starts = input.segments.q_starts;
  for (size_t s = 0; s < own.size(); ++s) balance->lengths.push_back(starts[s + 1] - starts[s]);
  put_places(input, *balance);
  balance->keys_N = input.routers->keys_N;
  balance->sequences = balance->parts;
  balance->sequence_lengths = balance->lengths;
  if (balance->training.loss == settings::BalanceLoss::kSequence) return balance;
  balance->lengths = {starts[own.size()]};
  balance->weights = {std::accumulate(balance->weights.begin(), balance->weights.end(), 0.0)};
  for (ops::SegmentPart& part : balance->parts) part.segment = 0;
  if (balance->training.loss == settings::BalanceLoss::kModel)
    balance->of_model = std::make_shared<layers::Balance::OfModel>();
  return balance;
}

CausalLM::CausalLM(const arch::ModelConfig& config, const parallel::Mesh& mesh,
                   at::ScalarType dtype, const at::Device& device)
    : CausalLM(config, arch::whole_of(config), mesh, dtype, device) {}
CausalLM::CausalLM(const arch::ModelConfig& config, const arch::Stage& stage,
                   const parallel::Mesh& mesh, at::ScalarType dtype, const at::Device& device)
    : impl_(std::make_unique<Impl>(config, stage, mesh, dtype, device)) {}
CausalLM::~CausalLM() = default;

const arch::ModelConfig& CausalLM::config() const { return impl_->config; }
const arch::Stage& CausalLM::stage() const { return impl_->stage(); }
const parallel::Mesh& CausalLM::mesh() const { return impl_->mesh; }
at::ScalarType CausalLM::dtype() const { return impl_->dtype; }
at::Device CausalLM::device() const { return impl_->device; }
const std::optional<weights::PeftConfig>& CausalLM::lora() const { return impl_->lora; }
TrainingMemory& CausalLM::memory() { return impl_->memory; }
const TrainingMemory& CausalLM::memory() const { return impl_->memory; }

std::vector<Parameter> CausalLM::parameters() const {
  std::vector<Parameter> result;
  for (const Parameter* parameter : impl_->base()) {
    if (parameter->spec.tied_to.empty()) result.push_back(*parameter);
  }
  return result;
}

std::vector<Parameter> CausalLM::trainable_parameters() const {
  std::vector<Parameter> result;
  for (const auto& list : {parameters(), adapter_parameters()}) {
    for (const Parameter& parameter : list) {
      if (parameter.trainable) result.push_back(parameter);
    }
  }
  return result;
}

void CausalLM::freeze(const std::vector<std::string>& patterns) {
  const std::vector<Parameter*> base = impl_->base();
  std::vector<std::string> names;  // of all stages
  for (const arch::ParamSpec& spec : arch::parameters_of(impl_->config)) {
    if (spec.tied_to.empty()) names.push_back(spec.name);
  }
  for (const std::string& pattern : patterns) {
    const bool thaws = pattern.rfind('!', 0) == 0;
    bool matched = false;
    try {
      const Pattern expression(thaws ? pattern.substr(1) : pattern);
      for (Parameter* parameter : base) {
        if (parameter->spec.tied_to.empty() && expression.is_found_in(parameter->name()))
          parameter->trainable = thaws;
      }
      matched = std::any_of(names.begin(), names.end(),
                            [&](const std::string& name) { return expression.is_found_in(name); });
    } catch (const PatternError& error) {
      throw UsageError(tr("[freeze] {}", error.what()), error.hint());
    }
    if (!matched) {
      throw UsageError(tr("[freeze] '{}' matches no parameter; names look like '{}', '{}'", pattern,
                          names.front(), names[names.size() / 2]));
    }
  }
  impl_->apply_trainable();
}

LayerPasses CausalLM::layer_passes() const {
  return {impl_->counters->forward, impl_->counters->backward};
}

at::Tensor CausalLM::Impl::hidden_rows(const ForwardInput& input, at::Tensor hidden_NH,
                                       int64_t chunk) const {
  const int64_t n = input.ids_N.size(0);
  if (input.ids_N.dim() != 1 || input.positions_N.dim() == 0 || input.positions_N.size(-1) != n ||
      input.segments.q_starts.empty() ||
      (input.rows.empty() && input.segments.q_starts.back() != n)) {
    throw InternalError("[model] ids, positions and segments must describe the same tokens; got " +
                        std::to_string(n) + " ids, " + std::to_string(input.positions_N.numel()) +
                        " positions");
  }
  const AsTheyWere as_they_were(saved_modules, input.adapters);
  const auto report = [&](int64_t index, const at::Tensor& hidden_NH) {
    if (input.on_hidden) input.on_hidden(index, hidden_NH);
  };
  if (stage().chain.has_tower() && stage().chain.is_in_tower(stage().chunk(chunk).first)) {
    static const Visuals none;
    // Answers go on token by token, with nothing to see.
    const bool skips = input.cache && !input.visuals && stage().embeds_at(chunk);
    hidden_NH = skips
                    ? at::empty({0, config.hidden_size}, at::TensorOptions(dtype).device(device))
                    : through_tower(input.visuals ? *input.visuals : none, hidden_NH, chunk, input);
  }
  if (stage().embeds_at(chunk)) {
    hidden_NH = memory.pass_place(stage().chain.embedding(), hidden_NH,
                                  [&] { return embedded(input, hidden_NH); });
    report(0, hidden_NH);
  }
  hidden_NH = through_layers(input, hidden_NH, chunk);
  if (!stage().ends_at(chunk)) {
    const parallel::Places::Run run = memory.run_of(chunk);
    if (!run.is_empty()) memory.begin_backward_at(hidden_NH, run.last);
    return hidden_NH;
  }
  memory.enter_place(stage().chain.head(), hidden_NH);
  const bool predicts = input.prediction && !network.predictions.empty();
  const bool is_read = predicts && !input.prediction->normed;
  const auto given = is_read ? ops::shared_by(2, hidden_NH) : std::vector(2, hidden_NH);
  hidden_NH = config.encoder ? given[0] : network.final_norm.forward(given[0]);
  report(config.num_layers, hidden_NH);
  return predicts ? with_predictions(input, given[1], hidden_NH) : hidden_NH;
}

at::Tensor CausalLM::forward_hidden(const ForwardInput& input) const {
  if (!impl_->memory.has_all())
    throw InternalError("[model] in training only losses are asked for");
  if (!impl_->mesh.context().is_alone())
    throw InternalError("[model] hidden states are of all tokens");
  const parallel::Region region = impl_->mesh.region();
  if (!region.is_sequence()) return impl_->hidden_rows(input);
  if (input.cache || input.on_hidden)
    throw InternalError("[model] hidden states and caches are of all rows");
  const auto whole = padded(input, region.group().size());
  return region.enter(impl_->hidden_rows(whole)).narrow(0, 0, input.ids_N.size(0));
}

at::Tensor CausalLM::logits(const at::Tensor& hidden_nH, const layers::AdapterRuns& runs) const {
  arch::require_answers(impl_->config);
  const at::Tensor logits_nV = impl_->network.head.logits(hidden_nH, {.adapter_runs = runs});
  return impl_->dtype == at::kDouble ? logits_nV : logits_nV.to(at::kFloat);
}

std::vector<int64_t> CausalLM::shape_before(int64_t place, const PassSize& size) const {
  const arch::Chain& chain = impl_->stage().chain;
  if (chain.has_tower() && place <= chain.embedding()) {
    const arch::VisionConfig& vision = *impl_->config.vision;
    if (place <= chain.merger()) return {size.patches, vision.width};
    return {size.patches / (vision.merge_size * vision.merge_size), impl_->config.hidden_size};
  }
  const int64_t ranks = impl_->rows_divide_over();
  return {(size.tokens + ranks - 1) / ranks, impl_->config.hidden_size};
}

at::Tensor CausalLM::forward(const ForwardInput& input, const at::Tensor& hidden_nH,
                             int64_t chunk) const {
  return impl_->hidden_rows(padded(input, impl_->rows_divide_over()), hidden_nH, chunk);
}

LossSum CausalLM::loss(const ForwardInput& input, const at::Tensor& targets_N,
                       double grad_scale) const {
  return head_loss(forward(input), input, targets_N, grad_scale);
}

layers::HeadPass CausalLM::Impl::head_pass(const ForwardInput& input) const {
  return {
      input.dropout_keys_N.defined() ? device::sent(input.dropout_keys_N, device) : at::Tensor(),
      input.adapters,
      {}};
}

ops::TokenLogprobs CausalLM::token_logprobs(const at::Tensor& hidden_nH, const ForwardInput& input,
                                            const at::Tensor& rows_M, const at::Tensor& ids_M,
                                            const ops::LogprobOptions& how) const {
  const AsTheyWere as_they_were(impl_->saved_modules, input.adapters);
  const layers::HeadPass pass = impl_->head_pass(
      input.dropout_keys_N.defined() ? padded(input, impl_->rows_divide_over()) : input);
  const ops::TokenLogprobs result =
      impl_->network.head.token_logprobs(hidden_nH, rows_M, ids_M, how, pass);
  const int64_t place = impl_->stage().chain.head();
  impl_->memory.leave_place(place, result.logprobs_M.requires_grad());
  impl_->memory.begin_backward_at(result.logprobs_M, place);
  return result;
}

ops::HeadDivergence CausalLM::divergence(const at::Tensor& hidden_nH, const ForwardInput& input,
                                         const at::Tensor& rows_M, const at::Tensor& ids_M,
                                         const ops::OtherLogits& other,
                                         const ops::DivergenceOptions& how) const {
  const AsTheyWere as_they_were(impl_->saved_modules, input.adapters);
  const layers::HeadPass pass = impl_->head_pass(
      input.dropout_keys_N.defined() ? padded(input, impl_->rows_divide_over()) : input);
  const ops::HeadDivergence result =
      impl_->network.head.divergence(hidden_nH, rows_M, ids_M, other, how, pass);
  const int64_t place = impl_->stage().chain.head();
  impl_->memory.leave_place(place, result.divergences_M.requires_grad());
  impl_->memory.begin_backward_at(result.divergences_M, place);
  return result;
}

at::Tensor CausalLM::scores(const at::Tensor& hidden_nH, const ForwardInput& input,
                            const at::Tensor& rows_M) const {
  if (!impl_->config.score) throw InternalError("[model] scores of a model with a vocabulary");
  const AsTheyWere as_they_were(impl_->saved_modules, input.adapters);
  const at::Tensor scores_ML = impl_->network.score.forward(hidden_nH, rows_M);
  const int64_t place = impl_->stage().chain.head();
  impl_->memory.leave_place(place, scores_ML.requires_grad());
  impl_->memory.begin_backward_at(scores_ML, place);
  return scores_ML;
}

at::Tensor CausalLM::token_vectors(const at::Tensor& hidden_nH, const ForwardInput& input,
                                   const at::Tensor& rows_M) const {
  const AsTheyWere as_they_were(impl_->saved_modules, input.adapters);
  const at::Tensor vectors_MH = layers::vectors_of_rows(hidden_nH, rows_M, impl_->mesh.region());
  const int64_t place = impl_->stage().chain.head();
  impl_->memory.leave_place(place, vectors_MH.requires_grad());
  impl_->memory.begin_backward_at(vectors_MH, place);
  return vectors_MH;
}

at::Tensor CausalLM::logits_of(const at::Tensor& hidden_nH, const ForwardInput& input,
                               const at::Tensor& rows_M, const at::Tensor& ids_K) const {
  const AsTheyWere as_they_were(impl_->saved_modules, input.adapters);
  const at::Tensor logits_MK = impl_->network.head.logits_of(hidden_nH, rows_M, ids_K);
  const int64_t place = impl_->stage().chain.head();
  impl_->memory.leave_place(place, logits_MK.requires_grad());
  impl_->memory.begin_backward_at(logits_MK, place);
  return logits_MK;
}

LossSum CausalLM::head_loss(const at::Tensor& hidden_nH, const ForwardInput& input,
                            const at::Tensor& targets_N, double grad_scale) const {
  arch::require_answers(impl_->config);
  const AsTheyWere as_they_were(impl_->saved_modules, input.adapters);
  const ForwardInput whole = padded(input, impl_->rows_divide_over());
  ops::HeadOptions options;
  options.z_loss_weight = impl_->config.z_loss_weight;
  options.grad_scale = grad_scale;
  const int64_t more = whole.ids_N.size(0) - targets_N.size(0);
  const at::Tensor targets = at::constant_pad_nd(targets_N, {0, more}, kIgnoreLabel);
  const ops::CrossEntropy result =
      impl_->network.head.loss(hidden_nH, targets, options, impl_->head_pass(whole));
  const int64_t place = impl_->stage().chain.head();
  impl_->memory.leave_place(place, result.sum.requires_grad());
  impl_->memory.begin_backward_at(result.sum, place);
  return {result.sum, result.num_targets, result.num_correct, result.factor};
}

}  // namespace danlu::models
