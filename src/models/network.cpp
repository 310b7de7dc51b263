#include "models/network.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "arch/embedding_noise.h"
#include "arch/gated_delta.h"
#include "arch/layer_kind.h"
#include "arch/learned_positions.h"
#include "base/error.h"
#include "device/late_memory.h"
#include "layers/decoder_layer.h"
#include "layers/encoder_layer.h"
#include "layers/experts.h"
#include "layers/gated_delta.h"
#include "layers/latent_attention.h"
#include "models/stage_parameters.h"
#include "ops/alibi.h"

namespace danlu::models {

using arch::Role;

namespace {

/// Whether this rank has any of the parameter: of experts, its own.
bool is_held(const arch::ModelConfig& config, const arch::Stage& stage, const parallel::Mesh& mesh,
             const arch::ParamSpec& spec) {
  return stage.holds(spec) && (spec.expert < 0 || !arch::shard(config, spec, mesh.coord()).empty());
}

/// This rank's share of the heads; of key heads, which several ranks may share, at least one.
int64_t heads_of_rank(int64_t heads, const parallel::Mesh& mesh) {
  return std::max<int64_t>(1, heads / mesh.shape().tensor);
}

/// Slopes of this rank's heads.
at::Tensor alibi_slopes(const arch::ModelConfig& config, const parallel::Mesh& mesh,
                        const at::Device& device) {
  if (!config.alibi) return {};
  const int64_t heads = heads_of_rank(config.num_heads, mesh);
  return at::tensor(ops::alibi_slopes(config.num_heads), at::TensorOptions(at::kFloat))
      .narrow(0, mesh.coord().tp_rank * heads, heads)
      .to(device);
}

layers::Norm norm_of(const arch::ModelConfig& config, const StageParameters& parameters, Role role,
                     int64_t layer) {
  const bool has_bias = config.norm == arch::NormKind::kLayer;
  return {parameters.weight(role, layer), config.norm_eps, config.norm,
          has_bias ? parameters.optional(role, layer, /*is_bias=*/true) : Parameter{}};
}

/// What every kind of attention has.
void place_attention(const BlockPlace& at, layers::SelfAttention& attention) {
  const arch::ModelConfig& config = at.config;
  attention.layer = arch::place_of_key_layer(config, at.layer);
  attention.num_heads = heads_of_rank(config.num_heads, at.mesh);
  attention.options.scale = config.attention_scale > 0
                                ? config.attention_scale
                                : 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  if (!config.sliding_window.empty())
    attention.options.window = config.sliding_window[config.last_like(at.layer)];
  attention.options.alibi_slopes_Q = at.alibi_slopes_Q;
  attention.options.softcap = config.attention_softcap;
  attention.o = at.parameters.linear(Role::kO, at.layer);
  attention.region = at.mesh.region();
  attention.context = &at.mesh.context();
}

layers::LatentAttention latent_attention(const BlockPlace& at) {
  const arch::LatentConfig& latent = *at.config.latent;
  const StageParameters& parameters = at.parameters;
  layers::LatentAttention result;
  place_attention(at, result);
  result.nope_dim = latent.nope_dim;
  result.rope_dim = latent.rope_dim;
  result.v_dim = latent.v_dim;
  result.kv_rank = latent.kv_rank;
  if (latent.q_rank > 0) {
    result.q_down = parameters.linear(Role::kQDown, at.layer);
    result.q_norm = layers::Norm{parameters.weight(Role::kQDownNorm, at.layer), latent.norm_eps};
  }
  result.q = parameters.linear(Role::kQ, at.layer);
  result.kv_down = parameters.linear(Role::kKvDown, at.layer);
  result.kv_norm = {parameters.weight(Role::kKvDownNorm, at.layer), latent.norm_eps};
  result.kv_up = parameters.linear(Role::kKvUp, at.layer);
  return result;
}

layers::Attention plain_attention(const BlockPlace& at) {
  const arch::ModelConfig& config = at.config;
  const parallel::Mesh& mesh = at.mesh;
  const StageParameters& parameters = at.parameters;
  const int64_t layer = at.layer;
  layers::Attention result;
  place_attention(at, result);
  result.num_kv_heads = heads_of_rank(config.num_kv_heads, mesh);
  result.head_dim = config.head_dim;
  result.qkv_layout = config.qkv_layout;
  if (config.qkv_layout == arch::QkvLayout::kSeparate) {
    result.q = parameters.linear(Role::kQ, layer);
    result.k = parameters.linear(Role::kK, layer);
    result.v = parameters.linear(Role::kV, layer);
  } else {
    result.qkv = parameters.linear(Role::kQkv, layer);
  }
  if (config.qk_norm) {
    result.q_norm = norm_of(config, parameters, Role::kQNorm, layer);
    result.k_norm = norm_of(config, parameters, Role::kKNorm, layer);
  }
  result.has_window_rotary = config.window_rope && result.options.window > 0;
  const auto& unrotated = config.unrotated_layers;
  result.is_rotated = std::find(unrotated.begin(), unrotated.end(), layer) == unrotated.end();
  if (result.is_rotated) result.options.chunk = config.attention_chunk;
  if (result.is_rotated && config.norms_rotated) result.rotated_norm_eps = config.norm_eps;
  result.grows_queries = !result.is_rotated && config.query_growth > 0;
  result.has_gate = arch::gates_attention(config);
  return result;
}

layers::GatedDeltaAttention linear_attention(const BlockPlace& at, const arch::GatedDelta& sizes) {
  using Names = arch::GatedDeltaNames;
  const StageParameters& parameters = at.parameters;
  const auto linear = [&](const char* name) { return parameters.own_linear(name, at.layer); };
  layers::GatedDeltaAttention result;
  place_attention(at, result);
  result.layer = at.layer;
  result.num_heads = sizes.value_heads;
  result.sizes = sizes;
  if (sizes.joins_inputs) {
    result.joined_inputs = linear(Names::kJoinedInputs);
    result.joined_steps = linear(Names::kJoinedSteps);
  } else {
    result.inputs = linear(Names::kInputs);
    result.gate = linear(Names::kGate);
    result.step = linear(Names::kStep);
    result.decay = linear(Names::kDecay);
  }
  result.convolution = parameters.own(std::string(Names::kConvolution) + ".weight", at.layer);
  result.decay_bias = parameters.own(Names::kDecayBias, at.layer);
  result.decay_rate = parameters.own(Names::kDecayRate, at.layer);
  result.norm = {parameters.own(std::string(Names::kNorm) + ".weight", at.layer),
                 at.config.norm_eps};
  return result;
}

std::unique_ptr<layers::SelfAttention> self_attention(const BlockPlace& at) {
  if (const auto delta = arch::gated_delta_of(at.config, at.layer))
    return std::make_unique<layers::GatedDeltaAttention>(linear_attention(at, *delta));
  if (at.config.latent) return std::make_unique<layers::LatentAttention>(latent_attention(at));
  return std::make_unique<layers::Attention>(plain_attention(at));
}

ops::RoutingRule routing_rule(const arch::ExpertConfig& experts) {
  using arch::RouterScore;
  ops::RoutingRule rule{.per_token = experts.per_token,
                        .groups = experts.groups,
                        .chosen_groups = experts.chosen_groups,
                        .sums_two_of_group = experts.sums_two_of_group,
                        .norm = experts.norm_topk,
                        .weight_scale = experts.weight_scale,
                        .jitter = experts.jitter};
  if (experts.score == RouterScore::kSigmoid) {
    rule.score = ops::RouterScore::kSigmoid;
    rule.norm_add = 1e-20;  // scores may all be 0; DeepSeek-V3's own number
  }
  if (experts.score == RouterScore::kSparseMixer) rule.score = ops::RouterScore::kSparseMixer;
  return rule;
}

layers::Mlp gated_mlp(const BlockPlace& at, Role gate, Role up, Role down) {
  layers::Mlp mlp(at.mesh.region());
  mlp.gate = at.parameters.linear(gate, at.layer);
  mlp.up = at.parameters.linear(up, at.layer);
  mlp.down = at.parameters.linear(down, at.layer);
  return mlp;
}

layers::Mlp dense_mlp(const BlockPlace& at) {
  const StageParameters& parameters = at.parameters;
  layers::Mlp mlp(at.mesh.region());
  if (!at.config.is_gated) {
    mlp.up = parameters.linear(Role::kUp, at.layer);
  } else if (at.config.joins_gate_up) {
    mlp.gate_up = parameters.linear(Role::kGateUp, at.layer);
  } else {
    mlp.gate = parameters.linear(Role::kGate, at.layer);
    mlp.up = parameters.linear(Role::kUp, at.layer);
  }
  mlp.down = parameters.linear(Role::kDown, at.layer);
  mlp.activation = at.config.activation;
  return mlp;
}

std::unique_ptr<layers::FeedForward> feed_forward(const BlockPlace& at) {
  if (!at.config.is_sparse(at.layer)) return std::make_unique<layers::Mlp>(dense_mlp(at));
  const arch::ExpertConfig& config = at.config.experts;
  const StageParameters& parameters = at.parameters;
  auto result = std::make_unique<layers::Experts>(at.mesh.region());
  result->router = parameters.linear(Role::kRouter, at.layer);
  result->choice_bias = parameters.optional(Role::kRouterBias, at.layer, false);
  result->rule = routing_rule(config);
  result->scales_input = config.scales_input;
  result->owners = &at.mesh.cutting({arch::Axis::kExpert});
  result->dealers = at.mesh.shape().expert_dealers;
  result->dealer = at.mesh.coord().tp_rank / at.mesh.shape().expert_tensor();
  // Between regions a rank has its share of the rows, and may as well send no others.
  if (at.mesh.region().is_sequence() && !result->owners->is_alone())
    result->cutters = &at.mesh.neighbours(at.mesh.shape().expert_tensor());
  result->layer = at.layer;
  result->num_layers = at.config.num_layers + at.config.num_predictions();
  for (int64_t expert = 0; expert < config.count; ++expert) {
    if (!parameters.optional(Role::kExpertGate, at.layer, false, expert).defined()) continue;
    result->experts.push_back({parameters.linear(Role::kExpertGate, at.layer, expert),
                               parameters.linear(Role::kExpertUp, at.layer, expert),
                               parameters.linear(Role::kExpertDown, at.layer, expert)});
  }
  if (config.shared_ffn_size > 0) {
    result->shared = gated_mlp(at, Role::kSharedGateProj, Role::kSharedUp, Role::kSharedDown);
    result->beside = at.mesh.experts_beside();
  }
  if (config.shared_gate)
    result->shared_gate = parameters.linear(Role::kSharedExpertGate, at.layer);
  return result;
}

/// The decoder's own kind of layer.
std::unique_ptr<layers::Block> decoder_layer(const BlockPlace& at) {
  const StageParameters& parameters = at.parameters;
  const int64_t i = at.layer;
  const auto norm = [&](Role role) { return norm_of(at.config, parameters, role, i); };
  auto layer = std::make_unique<layers::DecoderLayer>();
  layer->attention_norm = norm(Role::kAttentionNorm);
  layer->attention = self_attention(at);
  layer->mlp_norm = norm(Role::kMlpNorm);
  layer->mlp = feed_forward(at);
  if (at.config.has_post_norms) {
    layer->attention_post_norm = norm(Role::kPostAttentionNorm);
    layer->mlp_post_norm = norm(Role::kPostMlpNorm);
  }
  layer->residual_scale = at.config.residual_scale;
  return layer;
}

std::unique_ptr<layers::Block> encoder_layer(const BlockPlace& at) {
  auto layer = std::make_unique<layers::EncoderLayer>();
  layer->attention = self_attention(at);
  layer->attention_norm = norm_of(at.config, at.parameters, Role::kAttentionNorm, at.layer);
  layer->mlp = feed_forward(at);
  layer->mlp_norm = norm_of(at.config, at.parameters, Role::kMlpNorm, at.layer);
  return layer;
}

/// A layer of its own kind, by the kind's name.
std::map<std::string, MakeBlock>& own_kinds() {
  static std::map<std::string, MakeBlock> makers;
  return makers;
}

std::unique_ptr<layers::Block> block(const BlockPlace& at) {
  const arch::LayerKind* kind = at.config.own_kind(at.layer);
  if (!kind) return at.config.encoder ? encoder_layer(at) : decoder_layer(at);
  const auto found = own_kinds().find(kind->name);
  if (found == own_kinds().end())
    throw InternalError("[network] nothing makes layers of the kind " + kind->name);
  return found->second(at);
}

}  // namespace

void add_layer_kind(const arch::LayerKind& kind, MakeBlock make) { own_kinds()[kind.name] = make; }

StageParameters::StageParameters(const arch::ModelConfig& config, const arch::Stage& stage,
                                 const parallel::Mesh& mesh, const at::TensorOptions& options) {
  std::map<std::string, at::Tensor> tensors;
  for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
    if (!is_held(config, stage, mesh, spec)) continue;
    if (!spec.tied_to.empty() && !tensors.count(spec.tied_to))
      throw InternalError("[network] the tied ends of a model must be in one stage");
    Parameter parameter;
    if (spec.tied_to.empty()) {
      parameter = describe(config, mesh, spec, options);
      if (spec.role == Role::kEmbedding && arch::shares_table(config) &&
          stage.has_embedding() != stage.has_head())
        parameter.in_both_ends = true;
    } else {
      parameter.spec = spec;
      parameter.rects = parallel::held_rects(config, spec, mesh.coord());
      parameter.tensor = tensors.at(spec.tied_to);
    }
    parameter.place = stage.place_of(spec);
    tensors[spec.name] = parameter.tensor;
    if (spec.role == Role::kOwn) {
      by_name_.emplace(std::pair(spec.layer, spec.name), parameter);
    } else {
      by_role_[{spec.role, spec.layer, spec.is_bias, spec.expert}] = parameter;
    }
  }
}

Parameter StageParameters::optional(Role role, int64_t layer, bool is_bias, int64_t expert) const {
  const auto found = by_role_.find({role, layer, is_bias, expert});
  return found == by_role_.end() ? Parameter{} : found->second;
}

Parameter StageParameters::weight(Role role, int64_t layer, int64_t expert) const {
  Parameter parameter = optional(role, layer, false, expert);
  if (!parameter.defined()) {
    throw InternalError("[network] the family declares no weight for role " +
                        std::to_string(static_cast<int>(role)) + " of layer " +
                        std::to_string(layer));
  }
  return parameter;
}

layers::Linear StageParameters::linear(Role role, int64_t layer, int64_t expert) const {
  layers::Linear result;
  result.weight = weight(role, layer, expert);
  result.bias = optional(role, layer, true, expert);
  result.path = arch::module_of(result.weight.name());
  return result;
}

Parameter StageParameters::own(const std::string& name, int64_t layer) const {
  for (auto at = by_name_.lower_bound({layer, ""}); at != by_name_.end(); ++at) {
    if (at->first.first != layer) break;
    if (at->first.second.ends_with("." + name)) return at->second;
  }
  return {};
}

layers::Linear StageParameters::own_linear(const std::string& name, int64_t layer) const {
  layers::Linear result;
  result.weight = own(name + ".weight", layer);
  if (!result.weight.defined()) {
    throw InternalError("[network] layer " + std::to_string(layer) + " declares no weight " + name);
  }
  result.bias = own(name + ".bias", layer);
  result.path = arch::module_of(result.weight.name());
  return result;
}

Parameter StageParameters::of_tower(const std::string& name) const {
  const auto found = by_name_.find({-1, name});
  return found == by_name_.end() ? Parameter{} : found->second;
}

layers::Linear StageParameters::linear_of_tower(const std::string& name) const {
  layers::Linear result;
  result.weight = of_tower(name + ".weight");
  if (!result.weight.defined())
    throw InternalError("[network] the vision tower declares no weight " + name);
  result.bias = of_tower(name + ".bias");
  result.path = name;
  return result;
}

Parameter describe(const arch::ModelConfig& config, const parallel::Mesh& mesh,
                   const arch::ParamSpec& spec, const at::TensorOptions& options) {
  Parameter parameter;
  parameter.spec = spec;
  parameter.rects = parallel::held_rects(config, spec, mesh.coord());
  parameter.tensor =
      device::tensor_without_memory(parallel::joined_shape(spec.shape, parameter.rects), options)
          .requires_grad_(true);
  // The tower's patches are not cut by rows (layers/vision.h).
  const bool cuts_rows = mesh.shape().sequence_parallel && spec.tower_place < 0;
  if (spec.role == Role::kRouterBias) {
    // The bias moves by rates that 16 bits lose, and no gradient moves it.
    parameter.tensor =
        device::tensor_without_memory(parameter.tensor.sizes(), options.dtype(at::kFloat));
    parameter.trainable = false;
  }
  parameter.sums_over_tensor = spec.cut != arch::Cut::kCopiedBetween || cuts_rows;
  return parameter;
}

Network::Network(const arch::ModelConfig& config, const arch::Stage& part,
                 const parallel::Mesh& mesh, const at::TensorOptions& options)
    : stage(part) {
  const StageParameters by_role(config, stage, mesh, options);
  if (config.vision) add_tower(config, mesh, by_role);
  if (stage.has_embedding() || stage.copies_embedding)
    embedding = {by_role.weight(Role::kEmbedding), mesh.region(), config.embedding_scale,
                 arch::embedding_noise_is_last(config)};
  if (arch::learned_positions(config) > 0 && stage.has_embedding())
    positions = {by_role.weight(Role::kPositions), mesh.region(),
                 config.encoder ? config.encoder->first_position : 0};
  if (config.encoder && stage.has_embedding())
    token_types = {by_role.weight(Role::kTokenTypes, -1)};
  if (config.norms_embedding && stage.has_embedding())
    embedding_norm = norm_of(config, by_role, Role::kEmbeddingNorm, -1);
  const at::Tensor slopes = alibi_slopes(config, mesh, options.device());
  for (const int64_t i : stage.layers()) layers[i] = block({config, mesh, by_role, i, slopes});
  if (stage.has_head()) {
    if (!config.encoder) final_norm = norm_of(config, by_role, Role::kFinalNorm, -1);
    if (config.score) {
      score = {by_role.linear(Role::kScore, -1), mesh.region()};
      if (config.encoder) score.dense = by_role.linear(Role::kScoreDense, -1);
    } else if (!config.encoder) {
      head = {by_role.linear(Role::kHead, -1), config.norm_head, mesh.region(), config.logit_scale,
              config.logit_softcap};
    }
    for (int64_t depth = 0; depth < config.num_predictions(); ++depth)
      add_prediction(config, mesh, by_role, config.num_layers + depth);
  }

  std::map<std::string, Parameter*> by_name;
  layers::ParameterVisitor name(
      [&](Parameter& parameter) { by_name[parameter.name()] = &parameter; });
  visit(name);
  for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
    if (!is_held(config, stage, mesh, spec)) continue;
    if (!by_name.count(spec.name))
      throw InternalError("[network] no layer takes the parameter " + spec.name);
    parameters.push_back(by_name[spec.name]);
  }
}

void Network::add_prediction(const arch::ModelConfig& config, const parallel::Mesh& mesh,
                             const StageParameters& parameters, int64_t layer) {
  layers::Prediction& prediction = predictions.emplace_back();
  prediction.region = mesh.region();
  prediction.embedding = {parameters.weight(Role::kEmbedding, layer), mesh.region(),
                          config.embedding_scale};
  prediction.token_norm = norm_of(config, parameters, Role::kPredictionTokenNorm, layer);
  prediction.hidden_norm = norm_of(config, parameters, Role::kPredictionHiddenNorm, layer);
  prediction.join = parameters.linear(Role::kPredictionJoin, layer);
  const at::Tensor no_slopes;
  prediction.block = block({config, mesh, parameters, layer, no_slopes});
  prediction.norm = norm_of(config, parameters, Role::kPredictionNorm, layer);
  prediction.head = {parameters.linear(Role::kHead, layer), config.norm_head, mesh.region(),
                     config.logit_scale, config.logit_softcap};
}

void Network::add_tower(const arch::ModelConfig& config, const parallel::Mesh& mesh,
                        const StageParameters& parameters) {
  const arch::VisionConfig& vision = *config.vision;
  const arch::Chain& chain = stage.chain;
  const parallel::Region region(mesh.tensor(), /*sequence=*/false);
  const auto norm = [&](const std::string& name) {
    const Parameter bias = parameters.of_tower(name + ".bias");
    return layers::Norm{parameters.of_tower(name + ".weight"), vision.norm_eps,
                        bias.defined() ? arch::NormKind::kLayer : arch::NormKind::kRms, bias};
  };
  const auto linear = [&](const std::string& name) { return parameters.linear_of_tower(name); };
  if (stage.has(chain.patches()))
    patches.weight = parameters.of_tower("visual.patch_embed.proj.weight");
  for (int64_t number = 0; number < chain.blocks; ++number) {
    if (!stage.has(chain.block(number))) continue;
    const std::string name = "visual.blocks." + std::to_string(number) + ".";
    auto block = std::make_unique<layers::VisionBlock>();
    block->norm1 = norm(name + "norm1");
    block->norm2 = norm(name + "norm2");
    block->num_heads = heads_of_rank(vision.num_heads, mesh);
    block->head_dim = vision.width / vision.num_heads;
    block->sees_frame = vision.sees_frame(number);
    block->qkv = linear(name + "attn.qkv");
    block->proj = linear(name + "attn.proj");
    if (vision.is_gated) {
      block->gated = layers::Mlp(region);
      block->gated.gate = linear(name + "mlp.gate_proj");
      block->gated.up = linear(name + "mlp.up_proj");
      block->gated.down = linear(name + "mlp.down_proj");
    } else {
      block->fc1 = linear(name + "mlp.fc1");
      block->fc2 = linear(name + "mlp.fc2");
    }
    block->region = region;
    blocks[number] = std::move(block);
  }
  if (stage.has(chain.merger())) {
    merger = {norm("visual.merger.ln_q"), linear("visual.merger.mlp.0"),
              linear("visual.merger.mlp.2"), region};
  }
}

void Network::visit(layers::Visitor& visitor) {
  patches.visit(visitor);
  for (const auto& [number, block] : blocks) block->visit(visitor);
  merger.visit(visitor);
  embedding.visit(visitor);
  positions.visit(visitor);
  token_types.visit(visitor);
  embedding_norm.visit(visitor);
  for (const auto& [number, block] : layers) block->visit(visitor);
  final_norm.visit(visitor);
  head.visit(visitor);
  score.visit(visitor);
  for (layers::Prediction& prediction : predictions) prediction.visit(visitor);
}

std::vector<layers::Linear*> Network::adaptable() {
  std::vector<layers::Linear*> result;
  layers::LinearVisitor take([&](layers::Linear& linear) { result.push_back(&linear); });
  for (const auto& [number, block] : blocks) block->visit(take);
  merger.visit(take);
  for (const auto& [number, block] : layers) block->visit(take);
  if (head.linear.defined()) result.push_back(&head.linear);
  return result;
}

}  // namespace danlu::models
