#include "plan/memory.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "arch/layer_kind.h"
#include "arch/shard.h"
#include "base/pattern.h"
#include "weights/lora/adapter_places.h"

namespace danlu::plan {
namespace {

using settings::LayerRecompute, settings::Sharding;

bool is_product(const arch::ParamSpec& spec) {
  return spec.shape.size() == 2 && spec.role != arch::Role::kEmbedding;
}

int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// What training does with a parameter of the model.
struct Use {
  bool is_trained = true;
  int64_t adapter_rank = 0;  ///< 0: it has none
};
using Uses = std::map<std::string, Use>;

Uses uses_of(const Request& request) {
  Uses uses;
  const std::vector<arch::ParamSpec> specs = arch::parameters_of(request.model);
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

int64_t share(int64_t bytes, bool shared, int64_t ranks) {
  return shared ? up(bytes, ranks) : bytes;
}

/// As ParameterStore reads them. held: elements by place.
void put_read_again(const arch::Stage& stage, const std::map<int64_t, int64_t>& held,
                    Elements& elements) {
  int64_t first_trained = stage.chain.size();
  for (const auto& [place, trained] : elements.trained_by_place) {
    if (trained > 0 && stage.has(place)) first_trained = std::min(first_trained, place);
  }
  for (const arch::PlaceRange& chunk : stage.chunks) {
    int64_t last = 0;
    for (int64_t place = chunk.first; place < chunk.end; ++place) {
      const auto found = held.find(place);
      const bool is_unread = place == stage.chain.embedding() ||
                             (stage.chain.has_tower() && place == stage.chain.patches());
      if (found == held.end() || is_unread) continue;
      if (chunk.first == 0 && place < first_trained) continue;
      elements.again += found->second;
      if (place + 1 == chunk.end) last = found->second;
    }
    elements.last.push_back(last);
  }
}

}  // namespace

Elements elements_of(const Request& request, const arch::Stage& stage) {
  if (request.mesh.tensor > 1) arch::require_divides(request.model, request.mesh.tensor);
  const arch::Coord coord{.tp_size = request.mesh.tensor};
  const Uses uses = uses_of(request);
  Elements elements;
  const arch::Stage whole = arch::whole_of(request.model);
  std::map<int64_t, int64_t> units, held;
  std::map<int64_t, int64_t>& trained_units = elements.trained_by_place;
  for (const arch::ParamSpec& spec : arch::parameters_of(request.model)) {
    if (!stage.holds(spec)) continue;
    int64_t own = 0, rows = 0, cols = 0;
    for (const arch::Rect& rect : arch::shard(request.model, spec, coord)) {
      own += rect.rows * rect.cols;
      rows += rect.rows;
      cols = rect.cols;
    }
    if (is_product(spec)) elements.products += own;
    const bool alias = !spec.tied_to.empty() && stage.has_embedding();
    if (alias || (!spec.tied_to.empty() && stage.copies_embedding)) continue;
    const Use& use = uses.at(spec.name);
    const int64_t adapter = use.adapter_rank * (rows + cols);  // A [r, in] and B [out, r]
    const int64_t trained = adapter + (use.is_trained ? own : 0);
    const int64_t place = whole.place_of(spec);
    elements.all += own + adapter;
    elements.trained += trained;
    held[stage.place_of(spec)] += own + adapter;
    const bool is_tied = request.model.tie_embeddings && spec.role == arch::Role::kEmbedding;
    if (is_tied && stage.has_embedding() && stage.has_head()) elements.met_twice += own;
    const bool in_both_ends =
        request.model.tie_embeddings && stage.has_embedding() != stage.has_head();
    if (in_both_ends && spec.role == arch::Role::kEmbedding && use.is_trained) elements.tied += own;
    units[place] += own + adapter;
    trained_units[place] += trained;
  }
  for (const auto& [place, size] : units)
    elements.largest_unit = std::max(elements.largest_unit, size);
  for (const auto& [place, size] : trained_units)
    elements.largest_trained_unit = std::max(elements.largest_trained_unit, size);
  put_read_again(stage, held, elements);
  return elements;
}

namespace {

/// Bytes of the tensors of one layer and one micro-batch, on a rank.
struct Sizes {
  int64_t rows;    ///< a hidden state between regions, where tensor ranks may have a part each
  int64_t inside;  ///< the same inside a region
  int64_t query, key, ffn;
  int64_t met_key;  ///< of the heads that attention meets: as many as ranks that exchange heads
  /// In f32: a number of each row, of each row and head; a query, a key and a value.
  int64_t rstd, per_head, wide_qkv;
  int64_t wide_parts;  ///< keys' and values' gradients of the parts of groups of heads but one
};

/// The parts of one sample in attention's backward: parts_of_group in ops/attention_cpu.cpp.
constexpr int64_t kAttentionParts = 64;

Sizes sizes_of(const Request& request) {
  const arch::ModelConfig& model = request.model;
  const int64_t tp = request.mesh.tensor, tokens = request.pass_tokens();
  const int64_t bytes = tokens * request.element_bytes();
  const int64_t cut = request.mesh.sequence_parallel ? tp : 1;
  const int64_t heads = up(model.num_heads, tp), kv_heads = up(model.num_kv_heads, tp);
  // Each rank of a group has all rows of one head at least.
  const int64_t met_heads = std::max(kv_heads, request.mesh.context.ulysses);
  const int64_t parts = std::clamp<int64_t>(up(kAttentionParts, met_heads), 1, heads / met_heads);
  return {.rows = bytes * model.hidden_size / cut,
          .inside = bytes * model.hidden_size,
          .query = bytes * heads * model.head_dim,
          .key = bytes * kv_heads * model.head_dim,
          .ffn = bytes * up(model.ffn_size, tp),
          .met_key = bytes * met_heads * model.head_dim,
          .rstd = tokens * 4 / cut,
          .per_head = tokens * 4 * heads,
          .wide_qkv = tokens * 4 * (heads + 2 * met_heads) * model.head_dim,
          .wide_parts = tokens * 4 * 2 * met_heads * model.head_dim * (parts - 1)};
}

/// How often a layer keeps what its products are made of: once for all that take it as it is, once
/// for each adapter that drops some of it, not at all for what is not trained.
struct Inputs {
  int64_t qkv = 0, seen = 0, gate_up = 0, product = 0;
  int64_t low = 0;  ///< elements of a row that adapters make between their two products

  int64_t attention(const Sizes& of) const { return qkv * of.inside + seen * of.query; }
  int64_t mlp(const Sizes& of) const { return gate_up * of.inside + product * of.ffn; }
};

Inputs inputs_of(const Request& request, const Uses& uses, int64_t layer,
                 const std::vector<arch::ParamSpec>& specs) {
  Inputs inputs, as_it_is;
  const bool drops = request.adapters && request.adapters->dropout > 0;
  for (const arch::ParamSpec& spec : specs) {
    if (spec.layer != layer || spec.is_bias || !is_product(spec)) continue;
    int64_t Inputs::* input = &Inputs::qkv;
    if (spec.role == arch::Role::kO) input = &Inputs::seen;
    if (spec.role == arch::Role::kGate || spec.role == arch::Role::kUp) input = &Inputs::gate_up;
    if (spec.role == arch::Role::kDown) input = &Inputs::product;
    const Use& use = uses.at(spec.name);
    inputs.low += use.adapter_rank;
    if (use.adapter_rank > 0 && drops) ++(inputs.*input);
    if (use.is_trained || (use.adapter_rank > 0 && !drops)) as_it_is.*input = 1;
  }
  for (int64_t Inputs::* input : {&Inputs::qkv, &Inputs::seen, &Inputs::gate_up, &Inputs::product})
    inputs.*input += as_it_is.*input;
  return inputs;
}

/// What one layer keeps for its backward, and what exists beside that at once while it runs.
struct LayerBytes {
  int64_t kept = 0, backward = 0;
  int64_t passing = 0;  ///< in a forward that keeps nothing
  int64_t later = 0;    ///< kept for weights' gradients that are made later
  int64_t gone = 0;     ///< of `kept`, elsewhere between forward and backward
  int64_t gradients = 0;
};

/// The gradient of the hidden state and of what attention gave; the gradients found, in f32; keys
/// twice and values packed for products, or, when these are gone, the gradients narrow. See
/// ops/attention_cpu.cpp.
int64_t attention_backward_bytes(const Request& request, const Sizes& of) {
  const bool is_wide = request.precision == settings::Precision::kF32,
             widens = request.widens && !is_wide;
  const int64_t dim = request.model.head_dim, panel = request.packed_columns;
  const int64_t padded = (dim + panel - 1) / panel * panel;
  const int64_t packed =
      (2 * of.met_key + of.met_key * padded / dim) * (widens ? 4 / request.element_bytes() : 1);
  const int64_t narrow = is_wide ? 0 : of.query + 2 * of.met_key;
  const int64_t copy = widens ? of.query * 4 / request.element_bytes() : 0;
  return of.rows + of.query + of.wide_qkv + of.wide_parts + of.per_head + std::max(packed, narrow) +
         copy;
}

/// What a sum over the tensor axis takes at once: a copy, and what pieces are received and summed
/// in. See Group::reduce in parallel/group.cpp.
int64_t exchange_bytes(const Request& request, const Sizes& of) {
  const int64_t ranks = request.mesh.tensor;
  if (ranks == 1) return 0;
  const int64_t piece = std::min(int64_t{4} << 20, of.inside);
  const int64_t wide = request.precision == settings::Precision::kF32 ? 0 : 3 * 2 * piece;
  if (request.mesh.sequence_parallel) return of.rows + 2 * piece + wide / ranks;
  if (ranks == 2) return of.inside + 4 * piece + wide;
  return of.inside + 2 * piece + (2 * piece + wide) / ranks;
}

LayerBytes layer_bytes(const Request& request, const Inputs& inputs, LayerRecompute kind) {
  const Sizes of = sizes_of(request);
  const arch::ModelConfig& model = request.model;
  const bool all = kind != LayerRecompute::kSelective;
  Inputs kept_inputs = inputs;
  if (!all || kind == LayerRecompute::kActivationFunction) kept_inputs.product = 0;
  if (kind == LayerRecompute::kNorm) kept_inputs.qkv = kept_inputs.gate_up = 0;
  // Norms keep their inputs. Rotated queries and keys are tensors of their own, and views of a
  // fused projection keep it whole.
  // Run again, attention is given what it was before heads were exchanged for tokens.
  int64_t attention =
      of.rows + of.rstd + kept_inputs.attention(of) + of.query + 2 * (all ? of.met_key : of.key);
  if (inputs.seen == 0 && all) attention += of.query;
  if (model.qkv_layout != arch::QkvLayout::kSeparate && !model.alibi)
    attention += of.query + of.key;
  if (model.qk_norm) attention += of.query + of.key + of.rstd + of.per_head;
  if (all) attention += of.per_head;  // log-sum-exp
  // What heads give for all tokens of a group, and what is exchanged for it.
  const bool exchanges = request.mesh.context.ulysses > 1;
  if (exchanges && all) attention += of.query;
  const int64_t low = inputs.low * request.pass_tokens() * request.element_bytes();
  const int64_t mlp = of.rows + of.rstd + kept_inputs.mlp(of) + 2 * of.ffn + low;

  LayerBytes bytes{.kept = attention + mlp};
  const int64_t product = inputs.product * of.ffn;
  int64_t in_mlp = of.rows + 3 * of.ffn + (all ? -product : of.inside);
  if (kind == LayerRecompute::kActivationFunction) in_mlp += 2 * product;
  if (kind == LayerRecompute::kNorm) in_mlp += inputs.gate_up * of.inside;
  // What attention gives, and where heads are exchanged what it was given.
  const int64_t core_again = of.query + of.per_head + (exchanges ? of.query + 2 * of.met_key : 0);
  const int64_t in_attention = attention_backward_bytes(request, of) - mlp + (all ? 0 : core_again);
  const int64_t at_border = request.mesh.tensor > 1 ? of.inside + exchange_bytes(request, of) : 0;
  bytes.backward = std::max({in_mlp, in_attention, at_border});
  const settings::ActivationOffload& leaves = request.offload;
  const int64_t norm = of.rows + of.rstd;
  // Where a norm's output is made again, its input leaves with what takes that output too.
  const bool made = kind == LayerRecompute::kNorm;
  const bool first = leaves.input_norm && (!made || leaves.self_attention),
             second = leaves.post_attention_norm && (!made || leaves.mlp);
  bytes.gone = (first ? norm : 0) + (leaves.self_attention ? attention - norm : 0) +
               (second ? norm : 0) + (leaves.mlp ? mlp - norm : 0);
  // Inputs of the products and the gradients of what they gave.
  bytes.later =
      inputs.attention(of) + inputs.mlp(of) + of.query + 2 * of.key + of.rows + 2 * of.ffn;
  return bytes;
}

/// What there is at once where the loss is made, beside what the layers keep.
int64_t head_bytes(const Request& request) {
  const Sizes of = sizes_of(request);
  const int64_t vocab = up(request.model.vocab_size, request.mesh.tensor);
  // A chunk of logits, which become their gradient; see ops/cross_entropy.cpp.
  const int64_t rows =
      std::min(request.pass_tokens(), std::clamp<int64_t>((int64_t{16} << 20) / vocab, 256, 8192));
  const bool is_wide = request.precision == settings::Precision::kF32,
             shared = request.mesh.tensor > 1;
  int64_t element = request.element_bytes();
  if (shared && !is_wide) element = 8;
  const int64_t made =
      rows * (vocab * element + request.model.hidden_size * request.element_bytes());
  // Inputs of the last norm and of the head, and the gradient of that.
  return of.rows + of.rstd + 2 * of.inside + made;
}

/// Bytes of a micro-batch under way: angles of the positions, what ranks are given as integers.
int64_t pass_bytes(const Request& request) {
  const int64_t angles = request.model.alibi ? 0 : request.model.head_dim * 4;
  return request.pass_tokens() * (angles + 24);
}

/// Chosen to fit the peaks in bench/results/parallel_bytes_2026-11-23.md (one model, four ranks),
/// not derived: two units gathered, though up to three may be; two with gradients; one on its way.
int64_t communication_bytes(const Request& request, const Elements& elements) {
  const int64_t ranks = request.sharers();
  int64_t bytes = 0;
  if (request.mesh.model_copies() > 1)
    bytes += elements.largest_trained_unit * 4 * (ranks - 1) / ranks;
  if (ranks > 1 && request.sharding >= Sharding::kGradients)
    bytes += 2 * elements.largest_trained_unit * 4;
  if (ranks > 1 && request.sharding == Sharding::kParameters)
    bytes += 2 * elements.largest_unit * request.element_bytes();
  const int64_t hidden =
      request.pass_tokens() * request.model.hidden_size * request.element_bytes();
  if (request.mesh.pipeline > 1) bytes += 2 * hidden;
  return bytes;
}

/// Bytes of a run of layers of a stage.
struct ChunkBytes {
  int64_t kept = 0, later = 0;
  /// Beside what all chunks keep, at most: of a backward with all its gradients, and of one that
  /// leaves weights' for later. What is kept and done with by then is taken off.
  int64_t backward = 0, backward_input = 0;
  /// Bytes of the backward that its gradients come with; what of these has no memory by then is
  /// taken off too.
  int64_t first_backward = 0;
  int64_t gradients = 0;
  int64_t leaving = 0;  ///< on its way out when the forward is over
  int64_t passing = 0;  ///< at most, of layers that keep nothing
};

/// The first layer of the model with something trained in or before it: no gradient is asked for
/// below. Stages behind the first take gradients for what came to them in any case.
int64_t first_trained_layer(const Uses& uses, const std::vector<arch::ParamSpec>& specs,
                            int64_t num_layers) {
  int64_t first = num_layers;
  for (const arch::ParamSpec& spec : specs) {
    const Use& use = uses.at(spec.name);
    if (!use.is_trained && use.adapter_rank == 0) continue;
    if (spec.role == arch::Role::kEmbedding) return 0;
    if (spec.layer >= 0) first = std::min(first, spec.layer);
  }
  return first;
}

/// Bytes of layers that no gradient goes through: a hidden state in and out, and the widest
/// between.
LayerBytes passing_bytes(const Request& request) {
  const Sizes of = sizes_of(request);
  const int64_t attention = 2 * (of.query + 2 * of.met_key) + of.query;
  return {.passing = 2 * of.rows + of.inside + std::max(3 * of.ffn, attention)};
}

/// Bytes of a layer of its own kind.
LayerBytes own_bytes(const Request& request, const arch::LayerKind& kind) {
  const arch::LayerCost cost = kind.cost(request.model, pass_of(request));
  return {.kept = cost.kept, .backward = cost.backward, .passing = cost.passing};
}

/// The most bytes of layers that keep nothing.
LayerBytes passing_bytes_of(const Request& request, const settings::RecomputeGroup& group,
                            int64_t first_layer) {
  LayerBytes bytes;
  for (int64_t layer = first_layer + group.first; layer < first_layer + group.end; ++layer) {
    const arch::LayerKind* own = request.model.own_kind(layer);
    const LayerBytes one = own ? own_bytes(request, *own) : passing_bytes(request);
    bytes.passing = std::max(bytes.passing, one.passing);
  }
  return bytes;
}

/// Bytes of one group, in the order of forward.
LayerBytes group_bytes(const Request& request, const Uses& uses,
                       const std::vector<arch::ParamSpec>& specs,
                       const settings::RecomputeGroup& group, int64_t first_layer) {
  LayerBytes bytes;
  for (int64_t layer = first_layer + group.first; layer < first_layer + group.end; ++layer) {
    const arch::LayerKind* own = request.model.own_kind(layer);
    const LayerBytes of_layer =
        own ? own_bytes(request, *own)
            : layer_bytes(request, inputs_of(request, uses, layer, specs), group.kind);
    bytes.kept += of_layer.kept;
    bytes.later += of_layer.later;
    bytes.gone += of_layer.gone;
    bytes.backward = std::max(bytes.backward, of_layer.backward);
  }
  if (group.kind == LayerRecompute::kFull) {  // its input alone, and all of it made again
    bytes.backward += bytes.kept;
    bytes.kept = sizes_of(request).rows;
    bytes.gone = request.offload.input_norm ? bytes.kept : 0;
  }
  if (!request.offload.takes(group.first)) bytes.gone = 0;
  return bytes;
}

ChunkBytes bytes_of_groups(const std::vector<LayerBytes>& groups, int64_t of_pass) {
  ChunkBytes chunk{.kept = of_pass};
  for (const LayerBytes& group : groups) {
    chunk.kept += group.kept - group.gone;
    chunk.later += group.later;
    chunk.passing = std::max(chunk.passing, group.passing);
    chunk.gradients += group.gradients;
  }
  if (groups.empty()) return chunk;
  chunk.leaving = groups.back().gone;
  chunk.backward = chunk.backward_input = chunk.first_backward =
      std::numeric_limits<int64_t>::min();
  int64_t done = 0, later = 0;  // of the groups behind
  int64_t to_come = chunk.gradients;
  for (size_t g = groups.size(); g-- > 0;) {
    const LayerBytes& group = groups[g];
    // It is back, and the one before it on its way.
    const int64_t back = group.gone + (g > 0 ? groups[g - 1].gone : 0);
    to_come -= group.gradients;
    chunk.backward = std::max(chunk.backward, group.backward + back - done);
    chunk.first_backward = std::max(chunk.first_backward, group.backward + back - done - to_come);
    chunk.backward_input = std::max(chunk.backward_input, group.backward + back - done + later);
    done += group.kept - group.gone;
    later += group.later;
  }
  return chunk;
}

/// gradients: of layers, by place.
std::vector<ChunkBytes> chunk_bytes(const Request& request, const arch::Stage& stage,
                                    const std::map<int64_t, int64_t>& gradients) {
  const Uses uses = uses_of(request);
  const std::vector<arch::ParamSpec> specs = arch::parameters_of(request.model);
  const int64_t first_trained = first_trained_layer(uses, specs, request.model.num_layers);
  std::vector<ChunkBytes> chunks;
  for (int64_t number = 0; number < stage.num_chunks(); ++number) {
    const arch::LayerRange range = stage.layers_of(number);
    const bool begins = stage.begins_at(number);
    std::vector<LayerBytes> groups;
    for (const settings::RecomputeGroup& group :
         settings::recompute_groups(request.recompute, range.end - range.first)) {
      if (begins && range.first + group.end <= first_trained) {
        groups.push_back(passing_bytes_of(request, group, range.first));
        continue;
      }
      groups.push_back(group_bytes(request, uses, specs, group, range.first));
      for (int64_t layer = range.first + group.first; layer < range.first + group.end; ++layer) {
        const auto found = gradients.find(stage.chain.layer(layer));
        if (found != gradients.end()) groups.back().gradients += found->second;
      }
      // What came from another stage is held until its gradient is sent.
      const bool comes = group.first == 0 && !begins;
      if (comes && groups.back().gone > 0 && request.offload.input_norm)
        groups.back().gone -= sizes_of(request).rows;
    }
    chunks.push_back(bytes_of_groups(groups, pass_bytes(request)));
  }
  return chunks;
}

/// Bytes of gradients by place that come with the first backward, which is before they are shared.
std::map<int64_t, int64_t> coming_gradients(const Request& request, const Elements& elements) {
  std::map<int64_t, int64_t> bytes;
  if (request.sharding >= Sharding::kGradients) return bytes;
  for (const auto& [place, trained] : elements.trained_by_place) bytes[place] = trained * 4;
  return bytes;
}

/// The most at any time of the step, and how much of it is kept for backwards.
void add_passes(const Request& request, const arch::Stage& stage, const arch::Schedule& schedule,
                const Elements& elements, Memory& memory) {
  using arch::Work;
  const std::map<int64_t, int64_t> gradients = coming_gradients(request, elements);
  std::vector<ChunkBytes> chunks = chunk_bytes(request, stage, gradients);
  int64_t kept = 0, to_come = 0;
  for (const ChunkBytes& chunk : chunks) to_come += chunk.gradients;
  // The head's is made where the loss is; so is that of a table it is tied to.
  const int64_t embedding = stage.chain.embedding();
  const bool waits = gradients.count(embedding) > 0 && !request.model.tie_embeddings;
  int64_t table = waits ? gradients.at(embedding) : 0;
  to_come += table;
  const auto need = [&](int64_t working, int64_t still_to_come) {
    if (kept + working - still_to_come <=
        memory.activations + memory.working - memory.gradients_to_come)
      return;
    memory.activations = kept;
    memory.working = working;
    memory.gradients_to_come = still_to_come;
  };
  for (const arch::Action& action : schedule) {
    ChunkBytes& chunk = chunks[static_cast<size_t>(action.chunk)];
    if (action.work == Work::kForward) {
      need(chunk.passing, to_come);
      kept += chunk.kept;
      need(chunk.leaving + (stage.ends_at(action.chunk) ? head_bytes(request) : 0), to_come);
    } else if (action.work == Work::kBackward || action.work == Work::kBackwardInput) {
      to_come -= std::exchange(chunk.gradients, 0);
      const int64_t working = action.work == Work::kBackward
                                  ? std::exchange(chunk.first_backward, chunk.backward)
                                  : chunk.backward_input;
      need(working, to_come);
      if (stage.embeds_at(action.chunk)) to_come -= std::exchange(table, 0);
      kept -= chunk.kept - (action.work == Work::kBackwardInput ? chunk.later : 0);
    } else if (action.work == Work::kBackwardWeight) {
      kept -= chunk.later;
    }
  }
}

}  // namespace

Memory Memory::in_parts() const {
  Memory parts = *this;
  parts.activations += std::min<int64_t>(working, 0);
  parts.working = std::max<int64_t>(working, 0);
  return parts;
}

arch::LayerPass pass_of(const Request& request) {
  const int64_t tokens = request.pass_tokens();
  const int64_t cut = request.mesh.sequence_parallel ? request.mesh.tensor : 1;
  return {.tokens = tokens,
          .rows = up(tokens, cut),
          .tensor = request.mesh.tensor,
          .element_bytes = request.element_bytes()};
}

double share_again(const Request& request, const arch::Stage& stage, LayerRecompute kind) {
  int64_t again = 0;
  const auto layers = static_cast<int64_t>(stage.layers().size());
  for (int64_t chunk = 0; chunk < stage.num_chunks(); ++chunk) {
    const arch::LayerRange range = stage.layers_of(chunk);
    for (const settings::RecomputeGroup& group :
         settings::recompute_groups(request.recompute, range.end - range.first))
      again += group.kind == kind ? group.end - group.first : 0;
  }
  return layers > 0 ? static_cast<double>(again) / static_cast<double>(layers) : 0;
}

Memory memory_of(const Request& request, const arch::Stage& stage, const arch::Schedule& schedule) {
  const Elements elements = elements_of(request, stage);
  const int64_t ranks = request.sharers(), bytes = request.element_bytes();
  const auto shares = [&](Sharding least) { return request.sharding >= least; };
  Memory memory;
  if (!request.parameters_in_files)
    memory.weights = share(elements.all * bytes, shares(Sharding::kParameters), ranks);
  memory.gradients = share(elements.trained * 4, shares(Sharding::kGradients), ranks);
  if (!request.state_in_files) {
    memory.masters =
        share(elements.trained * request.master_bytes(), shares(Sharding::kState), ranks);
    memory.moments = share(elements.trained * 8, shares(Sharding::kState), ranks);
  }
  add_passes(request, stage, schedule, elements, memory);
  memory.communication = communication_bytes(request, elements);
  return memory;
}

arch::Schedule schedule_of(const Request& request, const arch::Stage& stage, int64_t index) {
  const int64_t chunks = stage.num_chunks();
  return arch::schedule_of(chunks > 1 ? arch::PipelineOrder::kInterleaved : request.order, index,
                           request.mesh.pipeline, chunks, request.num_micro_batches);
}

std::vector<StageMemory> memory_by_stage(const Request& request) {
  std::vector<StageMemory> all;
  for (const arch::Stage& stage : arch::stages_of(request.model, request.pipeline)) {
    const auto index = static_cast<int64_t>(all.size());
    all.push_back({stage, memory_of(request, stage, schedule_of(request, stage, index))});
  }
  return all;
}

}  // namespace danlu::plan
