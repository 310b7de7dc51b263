#include "plan/layer_memory.h"

#include <algorithm>

#include "arch/attention_size.h"
#include "arch/gated_delta.h"
#include "arch/layer_kind.h"
#include "arch/learned_positions.h"
#include "base/pattern.h"
#include "plan/expert_memory.h"
#include "plan/layer_work.h"
#include "plan/memory.h"
#include "weights/lora/adapter_places.h"

namespace danlu::plan {
namespace {

using settings::LayerRecompute;

/// The parts of one sample in attention's backward: parts_of_group in ops/attention_cpu.cpp.
constexpr int64_t kAttentionParts = 64;

/// What a layer is made of, beside the tokens that pass it.
struct LayerShape {
  int64_t tokens, hidden, heads, kv_heads, head_dim, value_dim, ffn, met_heads, cut, set;
};

Sizes sizes_of(const Request& request, const LayerShape& shape) {
  const int64_t bytes = shape.tokens * request.element_bytes();
  const int64_t parts =
      std::clamp<int64_t>(up(kAttentionParts, shape.met_heads), 1, shape.heads / shape.met_heads);
  const int64_t met = shape.met_heads * shape.head_dim,
                met_values = shape.met_heads * shape.value_dim;
  return {.tokens = shape.tokens,
          .head_dim = shape.head_dim,
          .value_dim = shape.value_dim,
          .rows = bytes * shape.hidden / shape.cut,
          .inside = bytes * shape.hidden,
          .query = bytes * shape.heads * shape.head_dim,
          .key = bytes * shape.kv_heads * shape.head_dim,
          .value = bytes * shape.kv_heads * shape.value_dim,
          .ffn = bytes * shape.ffn,
          .seen = bytes * shape.heads * shape.value_dim,
          .met_key = bytes * met,
          .met_value = bytes * met_values,
          .stats = shape.tokens * 4 / shape.cut,
          .per_head = shape.tokens * 4 * shape.heads,
          .wide_qkv = shape.tokens * 4 * (shape.heads * shape.head_dim + met + met_values),
          .wide_parts = shape.tokens * 4 * (met + met_values) * (parts - 1),
          .set = shape.set,
          .is_cut = shape.cut > 1};
}

/// How often a layer keeps what its products are made of: once for all that take it as it is, once
/// for each adapter that drops some of it, not at all for what is not trained.
struct Inputs {
  int64_t qkv = 0, seen = 0, gate_up = 0, product = 0;
  int64_t q_short = 0, kv_short = 0;
  int64_t low = 0;  ///< elements of a row that adapters make between their two products

  int64_t attention(const Sizes& of) const {
    return qkv * of.inside + seen * of.seen + q_short * of.q_short + kv_short * of.kv_short;
  }
  int64_t mlp(const Sizes& of) const { return gate_up * of.inside + product * of.ffn; }
};

using Input = int64_t Inputs::*;

Input input_of_layer(const arch::ModelConfig& model, const arch::ParamSpec& spec) {
  using arch::Role;
  switch (spec.role) {
    case Role::kO:
      return &Inputs::seen;
    case Role::kQ:
      return model.latent && model.latent->q_rank > 0 ? &Inputs::q_short : &Inputs::qkv;
    case Role::kKvUp:
      return &Inputs::kv_short;
    case Role::kGate:
    case Role::kUp:
    case Role::kGateUp:
      return &Inputs::gate_up;
    case Role::kDown:
      return &Inputs::product;
    default:
      return &Inputs::qkv;
  }
}

/// The tower's parameters are known by their names.
Input input_of_block(const arch::ModelConfig& /*model*/, const arch::ParamSpec& spec) {
  const std::string module = arch::module_of(spec.name), name = arch::last_name(module);
  if (name == "proj") return &Inputs::seen;
  if (name == "gate_proj" || name == "up_proj" || name == "fc1") return &Inputs::gate_up;
  return name == "down_proj" || name == "fc2" ? &Inputs::product : &Inputs::qkv;
}

template <typename IsThere>
Inputs inputs_of(const Request& request, const Uses& uses,
                 const std::vector<arch::ParamSpec>& specs,
                 Input (*input_of)(const arch::ModelConfig&, const arch::ParamSpec&),
                 const IsThere& is_there) {
  Inputs inputs, as_it_is;
  const bool drops = request.adapters && request.adapters->dropout > 0;
  for (const arch::ParamSpec& spec : specs) {
    if (!is_there(spec) || spec.is_bias || !is_product(spec)) continue;
    const Input input = input_of(request.model, spec);
    const Use& use = uses.at(spec.name);
    inputs.low += use.adapter_rank;
    if (use.adapter_rank > 0 && drops) ++(inputs.*input);
    if (use.is_trained || (use.adapter_rank > 0 && !drops)) as_it_is.*input = 1;
  }
  for (const Input input : {&Inputs::qkv, &Inputs::seen, &Inputs::gate_up, &Inputs::product,
                            &Inputs::q_short, &Inputs::kv_short})
    inputs.*input += as_it_is.*input;
  return inputs;
}

/// How many times as wide packed numbers are.
int64_t packed_width(const Request& request) {
  const bool widens = request.widens && request.precision != settings::Precision::kF32;
  return widens ? 4 / request.element_bytes() : 1;
}

/// Keys (or values) packed for products of attention on a CPU: turned, where the keys of a set are
/// filled up to whole panels; and stacked, where the columns are.
int64_t turned_bytes(const Request& request, const Sizes& of, int64_t met) {
  const int64_t panel = request.packed_columns, set = std::max<int64_t>(1, of.set);
  const int64_t keys = up(set, panel) * panel;
  return packed_width(request) * met * keys / set;
}
int64_t stacked_bytes(const Request& request, const Sizes& of) {
  const int64_t panel = request.packed_columns;
  return packed_width(request) * of.met_key * (up(of.head_dim, panel) * panel) / of.head_dim;
}

/// The gradient of the hidden state and of what attention gave; the gradients found, in f32; keys
/// twice and values packed for products, or, when these are gone, the gradients narrow. See
/// ops/attention_cpu.cpp.
int64_t attention_backward_bytes(const Request& request, const Sizes& of) {
  const bool is_wide = request.precision == settings::Precision::kF32,
             widens = request.widens && !is_wide;
  // Scores, weights, gradient and slope of the cap, and what is hidden of them; keys and values
  // wide. See oracle::attention_part_backward in ops/attention.cpp.
  if (of.scores > 0) return of.rows + of.query + 2 * of.wide_qkv + of.per_head + of.scores * 9 / 2;
  const int64_t packed = turned_bytes(request, of, of.met_key) +
                         turned_bytes(request, of, of.met_value) + stacked_bytes(request, of);
  const int64_t narrow = is_wide ? 0 : of.query + of.met_key + of.met_value;
  const int64_t copy = widens ? of.query * 4 / request.element_bytes() : 0;
  return of.rows + of.seen + of.wide_qkv + of.wide_parts + of.per_head + std::max(packed, narrow) +
         copy;
}

/// What a sum over the tensor axis takes at once: a copy, and what pieces are received and summed
/// in. See Group::reduce in parallel/group.cpp.
int64_t exchange_bytes(const Request& request, const Sizes& of) {
  const int64_t ranks = request.mesh.tensor;
  if (ranks == 1) return 0;
  const int64_t piece = std::min(int64_t{4} << 20, of.inside);
  const int64_t wide = request.precision == settings::Precision::kF32 ? 0 : 3 * 2 * piece;
  if (of.is_cut) return of.rows + 2 * piece + wide / ranks;
  if (ranks == 2) return of.inside + 4 * piece + wide;
  return of.inside + 2 * piece + (2 * piece + wide) / ranks;
}

/// What the composite of a gated GELU has beside the kernel of SwiGLU: everything in f32. See
/// ops/activation.cpp.
int64_t gelu_backward_bytes(const Request& request, const Sizes& of) {
  if (!of.is_gated || request.model.activation == arch::Activation::kSilu) return 0;
  return request.precision == settings::Precision::kF32 ? of.ffn : 7 * of.ffn;
}

/// What the backward of quick GELU makes at once: its gradient, and seven or eight tensors in f32
/// (ops/activation.cpp).
int64_t activation_backward_bytes(const Request& request, const Sizes& of) {
  // A decoder's GELU is one operator of ATen, a tower's QuickGELU is several.
  if (!request.model.is_gated)
    return request.precision == settings::Precision::kF32 ? 2 * of.ffn : 8 * of.ffn;
  const int64_t wide = of.ffn * 4 / request.element_bytes();
  return wide == of.ffn ? 7 * wide : of.ffn + 8 * wide;
}

/// A feed-forward part with its norm: what it keeps; the most beside all that the layer keeps while
/// its backward runs; what is kept for weights' gradients that are made later.
struct FeedForward {
  int64_t kept = 0, backward = 0, later = 0;
};

FeedForward dense_bytes(const Request& request, const Sizes& of, const Inputs& inputs,
                        LayerRecompute kind) {
  const bool all = kind != LayerRecompute::kSelective;
  Inputs kept_inputs = inputs;
  if (!all || settings::makes_activation_again(kind)) kept_inputs.product = 0;
  if (settings::makes_norms_again(kind)) kept_inputs.gate_up = 0;
  const int64_t entered = of.is_gated ? 2 * of.ffn : of.ffn;
  const int64_t product = inputs.product * of.ffn;
  const int64_t found = of.is_gated ? 3 * of.ffn : activation_backward_bytes(request, of);
  FeedForward bytes{.kept = kept_inputs.mlp(of) + entered,
                    .backward = of.rows + found + (all ? -product : of.inside),
                    .later = inputs.mlp(of) + entered};
  bytes.backward += gelu_backward_bytes(request, of);
  if (settings::makes_activation_again(kind)) bytes.backward += 2 * product;
  if (settings::makes_norms_again(kind)) bytes.backward += inputs.gate_up * of.inside;
  return bytes;
}

LayerBytes bytes_of(const Request& request, const Sizes& of, const Inputs& inputs,
                    const FeedForward& feed_forward, LayerRecompute kind) {
  const bool all = kind != LayerRecompute::kSelective;
  Inputs kept_inputs = inputs;
  if (settings::makes_norms_again(kind)) kept_inputs.qkv = 0;
  // Norms keep their inputs. Rotated queries and keys are tensors of their own, and views of a
  // fused projection keep it whole.
  // Run again, attention is given what it was before heads were exchanged for tokens.
  int64_t attention = of.rows + of.stats + kept_inputs.attention(of) + of.query +
                      (all ? of.met_key + of.met_value : of.key + of.value);
  // What the norms of the short vectors read, and a number of each row.
  if (of.is_latent) attention += of.q_short + of.kv_short + (of.q_short > 0 ? 2 : 1) * of.stats;
  if (inputs.seen == 0 && all) attention += of.seen;
  if (of.is_fused) attention += of.query + of.key;
  if (of.norms_heads) attention += of.query + of.key + of.stats + of.per_head;
  if (all) attention += of.per_head;  // log-sum-exp
  attention += of.kept_beside;
  const int64_t norm_of_result = of.norms_results ? of.rows + of.stats : 0;
  attention += norm_of_result;
  // What heads give for all tokens of a group, and what is exchanged for it.
  const bool exchanges = of.exchanges_heads;
  if (exchanges && all) attention += of.seen;
  const int64_t low = inputs.low * of.tokens * request.element_bytes();
  const int64_t mlp = of.rows + of.stats + feed_forward.kept + low + norm_of_result;

  LayerBytes bytes{.kept = attention + mlp};
  // What attention gives, and where heads are exchanged what it was given.
  const int64_t core_again =
      of.seen + of.per_head + (exchanges ? of.query + of.met_key + of.met_value : 0);
  const int64_t in_attention =
      attention_backward_bytes(request, of) - mlp + (all ? 0 : core_again) + of.backward_beside;
  const int64_t at_border = request.mesh.tensor > 1 ? of.inside + exchange_bytes(request, of) : 0;
  bytes.backward = std::max({feed_forward.backward, in_attention, at_border});
  const settings::ActivationOffload& leaves = request.offload;
  const int64_t norm = of.rows + of.stats;
  // Where a norm's output is made again, its input leaves with what takes that output too.
  const bool made = settings::makes_norms_again(kind);
  const bool first = leaves.input_norm && (!made || leaves.self_attention),
             second = leaves.post_attention_norm && (!made || leaves.mlp);
  bytes.gone = (first ? norm : 0) + (leaves.self_attention ? attention - norm : 0) +
               (second ? norm : 0) + (leaves.mlp ? mlp - norm : 0);
  // Inputs of the products and the gradients of what they gave.
  bytes.later = inputs.attention(of) + of.query + of.key + of.value + of.rows + feed_forward.later;
  return bytes;
}

/// The bytes of a layer of its own kind.
LayerBytes own_bytes(const Request& request, const arch::LayerKind& kind) {
  const arch::LayerCost cost = kind.cost(request.model, pass_of(request));
  return {.kept = cost.kept, .backward = cost.backward, .passing = cost.passing};
}

int64_t passing_attention(const Sizes& of) {
  return 2 * (of.query + of.met_key + of.met_value) + of.seen + 4 * of.scores + of.kept_beside;
}

/// A hidden state in and out, and the widest between.
int64_t passing_bytes(const Request& request, const Sizes& of) {
  const int64_t mlp = of.is_gated ? 3 * of.ffn : of.ffn + 3 * of.ffn * 4 / request.element_bytes();
  return 2 * of.rows + of.inside + std::max(mlp, passing_attention(of));
}

}  // namespace

bool is_product(const arch::ParamSpec& spec) {
  return spec.shape.size() == 2 && !arch::is_table(spec);
}

namespace {

/// Whether something of the request may name an expert by its number.
bool may_name_experts(const Request& request) {
  if (!request.freeze.empty()) return true;
  if (!request.adapters) return false;
  const weights::PeftConfig& peft = *request.adapters;
  const bool is_pattern = peft.targets_are_pattern && peft.target_modules.front() != "all-linear";
  if (is_pattern || peft.excludes_are_pattern || !peft.rank_pattern.empty()) return true;
  for (const auto* names : {&peft.target_modules, &peft.exclude_modules, &peft.modules_to_save}) {
    for (const std::string& name : *names) {
      if (name.find("experts.") != std::string::npos) return true;
    }
  }
  return false;
}

}  // namespace

Listing listing_of(const Request& request) {
  if (!request.model.has_experts() || may_name_experts(request))
    return {arch::parameters_of(request.model)};
  arch::ModelConfig one = request.model;
  one.experts.count = 1;
  Listing listing{arch::parameters_of(one), request.model.experts.count / request.expert_owners()};
  for (arch::ParamSpec& spec : listing.specs) {
    if (spec.role == arch::Role::kRouter || spec.role == arch::Role::kRouterBias)
      spec.shape.front() = request.model.experts.count;
  }
  return listing;
}

Uses uses_of(const Request& request) {
  Uses uses;
  const std::vector<arch::ParamSpec> specs = listing_of(request).specs;
  for (const arch::ParamSpec& spec : specs) uses[spec.name].is_trained = !request.adapters;
  for (const std::string& pattern : request.freeze) {
    const bool thaws = pattern.starts_with('!');
    const Pattern expression(thaws ? pattern.substr(1) : pattern);
    for (auto& [name, use] : uses) {
      if (expression.is_found_in(name)) use.is_trained = thaws;
    }
  }
  if (!request.adapters) return uses;
  for (const arch::ParamSpec& spec : specs) {
    const std::string module = arch::module_of(spec.name);
    for (const std::string& whole : request.adapters->modules_to_save)
      uses[spec.name].is_trained |= weights::is_within(module, whole);
    if (!spec.is_bias && weights::must_be_adapted(*request.adapters, spec))
      uses[spec.name].adapter_rank = request.adapters->rank_of(module);
  }
  return uses;
}

bool tower_learns(const Request& request) {
  if (!request.model.vision) return false;
  const Uses uses = uses_of(request);
  const std::vector<arch::ParamSpec> specs = arch::parameters_of(request.model);
  return std::any_of(specs.begin(), specs.end(), [&](const arch::ParamSpec& spec) {
    return spec.tower_place >= 0 && uses.at(spec.name).learns();
  });
}

namespace {

/// Linear attention in place of attention over keys (layers/gated_delta.cpp).
void make_linear(const Request& request, const arch::GatedDelta& delta, Sizes& of) {
  const int64_t bytes = of.tokens * request.element_bytes(), wide = of.tokens * 4;
  of.head_dim = delta.key_dim;
  of.value_dim = delta.value_dim;
  of.query = of.key = of.met_key = bytes * delta.keys();
  of.value = of.seen = of.met_value = bytes * delta.values();
  of.per_head = wide * delta.value_heads;
  of.wide_qkv = wide * delta.channels();
  of.wide_parts = 0;
  of.norms_heads = false;
  // What the convolution reads, the gate, results before and behind their norm; numbers of heads.
  of.kept_beside = bytes * (delta.channels() + 3 * delta.values()) + 4 * of.per_head;
  // The convolution's rows, their sums, what its function gives and the gradients of these.
  of.backward_beside = 5 * wide * delta.channels();
}

}  // namespace

Sizes layer_sizes(const Request& request, int64_t layer) {
  const arch::ModelConfig& model = request.model;
  const int64_t tp = request.mesh.tensor, kv_heads = up(model.num_kv_heads, tp);
  Sizes of = sizes_of(request, {.tokens = request.pass_tokens(),
                                .hidden = model.hidden_size,
                                .heads = up(model.num_heads, tp),
                                .kv_heads = kv_heads,
                                .head_dim = model.head_dim,
                                .value_dim = arch::value_dim(model),
                                .ffn = up(model.ffn_size, tp),
                                // Each rank of a group has all rows of one head at least.
                                .met_heads = std::max(kv_heads, request.mesh.context.ulysses),
                                .cut = request.mesh.sequence_parallel ? tp : 1,
                                .set = request.packed_columns});
  of.is_fused = model.qkv_layout != arch::QkvLayout::kSeparate && model.rope.enabled;
  of.is_gated = model.is_gated;
  of.norms_heads = model.qk_norm;
  of.exchanges_heads = request.mesh.context.ulysses > 1;
  of.norms_results = model.has_post_norms;
  if (model.norm == arch::NormKind::kLayer) of.stats *= 2;  // a mean beside the root
  if (model.attention_softcap > 0)
    of.scores = 4 * up(model.num_heads, tp) * request.tokens * request.tokens;
  if (model.latent) {
    of.is_latent = true;
    of.q_short = of.tokens * request.element_bytes() * model.latent->q_rank;
    of.kv_short = of.tokens * request.element_bytes() * model.latent->kv_rank;
  }
  // The gate beside the query, its sigmoid, and what that multiplies.
  if (arch::gates_attention(model)) of.kept_beside = 2 * of.query + of.seen;
  const auto delta = layer < 0 ? std::nullopt : arch::gated_delta_of(model, layer);
  if (delta) make_linear(request, *delta, of);
  return of;
}

Sizes block_sizes(const Request& request, int64_t block) {
  const arch::VisionConfig& vision = *request.model.vision;
  const int64_t tp = request.mesh.tensor, heads = up(vision.num_heads, tp);
  // Between blocks every rank has all patches.
  Sizes of = sizes_of(request, {.tokens = request.pass_patches(),
                                .hidden = vision.width,
                                .heads = heads,
                                .kv_heads = heads,
                                .head_dim = vision.width / vision.num_heads,
                                .value_dim = vision.width / vision.num_heads,
                                .ffn = up(vision.ffn_size, tp),
                                .met_heads = heads,
                                .cut = 1,
                                .set = patches_seen(request, block)});
  of.is_fused = true;
  of.is_gated = vision.is_gated;
  if (!vision.is_gated) of.stats *= 2;  // a mean beside the root
  return of;
}

LayerBytes layer_bytes(const Request& request, const Uses& uses,
                       const std::vector<arch::ParamSpec>& specs, int64_t layer,
                       LayerRecompute kind) {
  if (const arch::LayerKind* own = request.model.own_kind(layer)) return own_bytes(request, *own);
  const Sizes of = layer_sizes(request, layer);
  const Inputs inputs = inputs_of(
      request, uses, specs, input_of_layer,
      [layer](const arch::ParamSpec& spec) { return spec.layer == layer && !is_of_experts(spec); });
  if (!request.model.is_sparse(layer))
    return bytes_of(request, of, inputs, dense_bytes(request, of, inputs, kind), kind);
  const ExpertBytes experts = expert_bytes(request, uses, specs, layer, kind);
  // Where the norm's output is made again, it is there as long as something reads it.
  const int64_t again = settings::makes_norms_again(kind) ? of.inside : 0;
  LayerBytes bytes = bytes_of(
      request, of, inputs, {experts.kept, of.rows + experts.backward + again, experts.later}, kind);
  bytes.early = of.rows + experts.early + again;
  return bytes;
}

LayerBytes block_bytes(const Request& request, const Uses& uses,
                       const std::vector<arch::ParamSpec>& specs, int64_t block,
                       LayerRecompute kind) {
  const int64_t place = arch::chain_of(request.model).block(block);
  const Inputs inputs =
      inputs_of(request, uses, specs, input_of_block,
                [place](const arch::ParamSpec& spec) { return spec.tower_place == place; });
  // A block makes no norm again, and an activation alone only where it is gated.
  LayerRecompute done = kind;
  if (settings::makes_norms_again(kind) || settings::makes_activation_again(kind)) {
    const bool has_some = settings::makes_activation_again(kind) && request.model.vision->is_gated;
    done = has_some ? LayerRecompute::kActivationFunction : LayerRecompute::kNone;
  }
  const Sizes of = block_sizes(request, block);
  LayerBytes bytes = bytes_of(request, of, inputs, dense_bytes(request, of, inputs, done), done);
  bytes.gone = 0;  // a tower's activations stay
  return bytes;
}

LayerBytes merger_bytes(const Request& request, const Uses& uses,
                        const std::vector<arch::ParamSpec>& specs) {
  const Sizes of = block_sizes(request);
  const int64_t place = arch::chain_of(request.model).merger();
  // Each of both products takes the patches of a token side by side, some of them on each rank.
  const int64_t wide = of.rows / request.mesh.tensor;
  LayerBytes bytes{.kept = of.rows + of.stats + wide};
  for (const arch::ParamSpec& spec : specs) {
    if (spec.tower_place != place || !is_product(spec) || !uses.at(spec.name).learns()) continue;
    bytes.kept += bytes.later == 0 ? of.rows : wide;
    bytes.later += bytes.later == 0 ? of.rows : wide;
  }
  bytes.backward = visual_bytes(request) + 2 * wide * 4 / request.element_bytes();
  return bytes;
}

LayerBytes patches_bytes(const Request& request) {
  const Sizes of = block_sizes(request);
  const int64_t pixels =
      of.tokens * request.model.vision->patch_columns() * request.element_bytes();
  return {.kept = pixels, .backward = of.rows};
}

LayerBytes passing_layer_bytes(const Request& request, int64_t layer) {
  const arch::LayerKind* own = request.model.own_kind(layer);
  if (own) return {.passing = own_bytes(request, *own).passing};
  const Sizes of = layer_sizes(request, layer);
  if (!request.model.is_sparse(layer)) return {.passing = passing_bytes(request, of)};
  return {.passing = 2 * of.rows + of.inside +
                     std::max(passing_expert_bytes(request).passing, passing_attention(of))};
}

LayerBytes passing_block_bytes(const Request& request, int64_t block) {
  const Sizes of = block_sizes(request, block);
  // The block's input, what its norm gives, and what attention or the MLP makes.
  const int64_t attention = 2 * of.query + 2 * of.key + of.per_head +
                            turned_bytes(request, of, of.met_key) + stacked_bytes(request, of);
  const int64_t wide = of.ffn * 4 / request.element_bytes();
  const int64_t mlp = of.is_gated ? 3 * of.ffn : wide == of.ffn ? 4 * of.ffn : of.ffn + 4 * wide;
  return {.passing = 2 * of.rows + std::max(mlp, attention)};
}

LayerBytes passing_merger_bytes(const Request& request) {
  const Sizes of = block_sizes(request);
  return {.passing = of.rows + 4 * of.rows / request.mesh.tensor + visual_bytes(request)};
}

int64_t pixel_bytes(const Request& request) {
  return request.pass_patches() * request.model.vision->patch_columns() * 4;
}

int64_t visual_bytes(const Request& request) {
  const int64_t merge = request.model.vision->merge_size;
  return request.pass_patches() / (merge * merge) * request.model.hidden_size *
         request.element_bytes();
}

int64_t bytes_before(const Request& request, const arch::Chain& chain, int64_t place) {
  if (!chain.has_tower() || place > chain.embedding()) return layer_sizes(request).rows;
  return place > chain.merger() ? visual_bytes(request) : block_sizes(request).rows;
}

int64_t head_bytes(const Request& request) {
  const Sizes of = layer_sizes(request);
  // Numbers for a few tokens take nothing.
  if (request.model.score) return of.rows + of.stats + 2 * of.inside;
  const int64_t vocab = up(request.model.vocab_size, request.mesh.tensor);
  // A chunk of logits, which become their gradient; see ops/cross_entropy.cpp.
  const int64_t rows =
      std::min(request.pass_tokens(), std::clamp<int64_t>((int64_t{16} << 20) / vocab, 256, 8192));
  const bool is_wide = request.precision == settings::Precision::kF32,
             shared = request.mesh.tensor > 1;
  int64_t element = request.element_bytes();
  if (shared && !is_wide) element = 8;
  int64_t of_row = vocab * element;
  if (request.teacher) {
    // The two logits, their probabilities and what is worked out of them; ops/head_divergence.cpp.
    constexpr int64_t kCompared = 12;
    of_row = vocab * kCompared * 4;
    // Vocabularies of two sizes are cut in other places: each rank gathers all of the teacher's.
    const int64_t gathered = request.teacher->vocab_size;
    if (shared && gathered != request.model.vocab_size)
      of_row = std::max(of_row, gathered * request.element_bytes() + 2 * vocab * 4);
  }
  int64_t made = rows * (of_row + request.model.hidden_size * request.element_bytes());
  // Log-probabilities are made of a few rows at a time, by ranks that share them of all.
  constexpr int64_t kWideNumbers = 2 << 20;
  const int64_t wide =
      shared ? rows * vocab : std::min(rows * vocab, std::max(vocab, kWideNumbers));
  made += wide * 4 * std::max<int64_t>(0, request.wide_logits - (is_wide ? 1 : 0));
  // Inputs of the last norm and of the head, and the gradient of that.
  return of.rows + of.stats + 2 * of.inside + made;
}

int64_t pass_bytes(const Request& request) {
  const int64_t tables = request.model.window_rope ? 2 : 1;
  const int64_t angles =
      !request.model.rope.enabled ? 0 : tables * arch::rotated_dims(request.model) * 4;
  return request.pass_tokens() * (angles + 24);
}

int64_t tower_pass_bytes(const Request& request) {
  // The angles of a patch, and where it comes from.
  const Sizes of = block_sizes(request);
  return of.tokens * (of.head_dim * 4 + 8);
}

}  // namespace danlu::plan
