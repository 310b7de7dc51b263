#include "plan/memory.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "arch/gated_delta.h"
#include "arch/shard.h"
#include "plan/layer_memory.h"
#include "plan/optimizer_memory.h"
#include "plan/prediction_memory.h"
#include "plan/rollout_memory.h"
#include "weights/hf/nf4_tensors.h"

namespace danlu::plan {
namespace {

using settings::LayerRecompute, settings::Sharding;

int64_t share(int64_t bytes, bool shared, int64_t ranks) {
  return shared ? up(bytes, ranks) : bytes;
}

/// Counts the weights that a backward reads again, by the rule of ParameterStore. held: elements by
/// place, and those of experts.
void put_read_again(const arch::ModelConfig& model, const arch::Stage& stage,
                    const std::map<int64_t, Elements::Unit>& held, Elements& elements) {
  int64_t first_trained = stage.chain.size();
  for (const auto& [place, trained] : elements.trained_by_place) {
    if (trained > 0 && stage.has(place)) first_trained = std::min(first_trained, place);
  }
  for (const arch::PlaceRange& chunk : stage.chunks) {
    int64_t last = 0, last_experts = 0;
    for (int64_t place = chunk.first; place < chunk.end; ++place) {
      const auto found = held.find(place);
      const bool is_unread = (place == stage.chain.embedding() && !model.norms_embedding) ||
                             (stage.chain.has_tower() && place == stage.chain.patches());
      if (found == held.end() || is_unread) continue;
      if (chunk.first == 0 && place < first_trained) continue;
      elements.read_in_backward += found->second.all;
      elements.experts.read_in_backward += found->second.experts;
      if (place + 1 < chunk.end) continue;
      last = found->second.all;
      last_experts = found->second.experts;
    }
    elements.read_in_last_place.push_back(last);
    elements.experts.read_in_last_place.push_back(last_experts);
  }
}

}  // namespace

Elements elements_of(const Request& request, const arch::Stage& stage) {
  if (request.mesh.tensor > 1) arch::require_divides(request.model, request.mesh.tensor);
  arch::require_whole_sequences(request.model, request.mesh.context.size());
  const arch::Coord coord{.tp_size = request.mesh.tensor,
                          .ep_size = request.mesh.expert,
                          .expert_dealers = request.mesh.expert_dealers};
  const Uses uses = uses_of(request);
  const Listing listing = listing_of(request);
  Elements elements;
  const arch::Stage whole = arch::whole_of(request.model);
  std::map<int64_t, Elements::Unit> held;
  for (const arch::ParamSpec& spec : listing.specs) {
    if (!stage.holds(spec)) continue;
    const bool is_expert = spec.expert >= 0;
    const int64_t each = is_expert ? listing.experts_each : 1;
    int64_t own = 0, rows = 0, cols = 0;
    for (const arch::Rect& rect : arch::shard(request.model, spec, coord)) {
      own += each * rect.rows * rect.cols;
      rows += each * rect.rows;
      cols = each * rect.cols;
    }
    if (is_product(spec)) elements.products += own;
    const bool alias = !spec.tied_to.empty() && stage.has_embedding();
    if (alias || (!spec.tied_to.empty() && stage.copies_embedding)) continue;
    const Use& use = uses.at(spec.name);
    const int64_t adapter = use.adapter_rank * (rows + cols);  // A [r, in] and B [out, r]
    const int64_t trained = adapter + (use.is_trained ? own : 0);
    count_wholes(request, spec, use, each, trained, elements);
    const int64_t place = whole.place_of(spec);
    elements.all += own + adapter;
    elements.trained += trained;
    Elements::Unit& unit = elements.by_place[place];
    Elements::Unit& here = held[stage.place_of(spec)];
    here.all += own + adapter;
    unit.all += own + adapter;
    unit.trained += trained;
    const bool is_nf4 =
        request.nf4_bits > 0 && !use.is_trained && weights::takes_nf4(request.model, spec);
    if (is_nf4) {
      elements.in_nf4 += own;
      if (is_expert) elements.experts.in_nf4 += own;
      if (!is_expert) unit.in_nf4 += own;
    }
    if (is_expert) {
      elements.experts.all += own + adapter;
      elements.experts.trained += trained;
      here.experts += own + adapter;
      unit.experts += own + adapter;
      unit.trained_experts += trained;
    }
    const bool is_shared = arch::shares_table(request.model) && spec.role == arch::Role::kEmbedding;
    if (is_shared && stage.has_embedding() && stage.has_head()) elements.tied_in_stage += own;
    const bool in_both_ends = is_shared && stage.has_embedding() != stage.has_head();
    if (in_both_ends && use.is_trained) elements.tied += own;
    if (spec.layer >= request.model.num_layers) elements.trained_ahead += trained;
    elements.trained_by_place[place] += trained;
  }
  put_read_again(request.model, stage, held, elements);
  return elements;
}

namespace {

/// Chosen to fit the peaks in bench/results/parallel_bytes_2026-11-23.md (one model, four ranks),
/// not derived: two units gathered, though up to three may be; two with gradients; one on its way.
int64_t communication_bytes(const Request& request, const arch::Stage& stage,
                            const Elements& elements) {
  const int64_t ranks = request.sharers(), of_experts = request.expert_sharers();
  int64_t summed = 0, found = 0, gathered = 0;  // of a unit, at most; gathered: bytes
  for (const auto& [place, unit] : elements.by_place) {
    const int64_t trained = unit.trained - unit.trained_experts;
    summed = std::max(summed, trained * (ranks - 1) / ranks +
                                  unit.trained_experts * (of_experts - 1) / of_experts);
    found =
        std::max(found, (ranks > 1 ? trained : 0) + (of_experts > 1 ? unit.trained_experts : 0));
    const int64_t width = request.element_bytes();
    gathered = std::max(
        gathered,
        (ranks > 1 ? (unit.all - unit.experts) * width - request.saved_by_nf4(unit.in_nf4) : 0) +
            (of_experts > 1 ? unit.experts * width : 0));
  }
  int64_t bytes = request.mesh.model_copies() > 1 ? summed * 4 : 0;
  if (request.sharding >= Sharding::kGradients) bytes += 2 * found * 4;
  if (request.sharding == Sharding::kParameters) bytes += 2 * gathered;
  int64_t hidden = request.pass_tokens() * request.model.hidden_size * request.element_bytes();
  for (const arch::PlaceRange& chunk : stage.chunks) {
    for (const int64_t place : {chunk.first, chunk.end}) {
      if (stage.chain.has_tower() && place > 0 && place < stage.chain.size())
        hidden = std::max(hidden, bytes_before(request, stage.chain, place));
    }
  }
  if (request.mesh.pipeline > 1) bytes += 2 * hidden;
  return bytes;
}

/// Bytes of a run of layers of a stage.
struct ChunkBytes {
  int64_t kept = 0, later = 0;
  /// The most that exists beside what all chunks keep: in a backward with all its gradients, and in
  /// one that leaves weights' for later. What is kept and done with by then is taken off.
  int64_t backward = 0, backward_input = 0;
  /// Bytes of the backward that its gradients come with; what of these has no memory by then is
  /// taken off too.
  int64_t first_backward = 0;
  int64_t gradients = 0;
  int64_t leaving = 0;  ///< on its way out when the forward is over
  int64_t passing = 0;  ///< at most, of layers that keep nothing
  int64_t pixels = 0;   ///< until the forward is over
};

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
  int64_t done = 0, later = 0;  // of the groups after this one
  int64_t to_come = chunk.gradients;
  for (size_t g = groups.size(); g-- > 0;) {
    const LayerBytes& group = groups[g];
    // It is back, and the one before it on its way.
    const int64_t back = group.gone + (g > 0 ? groups[g - 1].gone : 0);
    to_come -= group.gradients;
    const int64_t most = std::max(group.backward, group.early),
                  first = std::max(group.backward, group.early - group.experts);
    chunk.backward = std::max(chunk.backward, most + back - done);
    chunk.first_backward = std::max(chunk.first_backward, first + back - done - to_come);
    chunk.backward_input = std::max(chunk.backward_input, most + back - done + later);
    done += group.kept - group.gone;
    later += group.later;
  }
  return chunk;
}

/// What a stage's chunks keep, place by place.
class ChunkPlan {
 public:
  /// gradients: by place; elements: of the stage. All outlive it.
  ChunkPlan(const Request& request, const arch::Stage& stage,
            const std::map<int64_t, int64_t>& gradients, const Elements& elements)
      : request_(request),
        stage_(stage),
        gradients_(gradients),
        elements_(elements),
        uses_(uses_of(request)),
        specs_(listing_of(request).specs) {
    // No gradient is asked for below the first place with something trained in or before it.
    const arch::Stage whole = arch::whole_of(request.model);
    first_trained_ = whole.chain.size();
    for (const arch::ParamSpec& spec : specs_) {
      if (uses_.at(spec.name).learns())
        first_trained_ = std::min(first_trained_, whole.place_of(spec));
    }
  }

  ChunkBytes bytes_of(int64_t number) {
    const arch::Chain& chain = stage_.chain;
    chunk_ = stage_.chunk(number);
    groups_.clear();
    int64_t of_pass = pass_bytes(request_), pixels = 0;
    if (request_.model.norms_embedding && chunk_.has(chain.embedding())) {
      const Sizes of = layer_sizes(request_);
      of_pass += of.rows + of.stats;
    }
    if (chain.has_tower()) {
      const bool sees = chunk_.has(chain.patches());
      const bool keeps_pixels = sees && first_trained_ == chain.patches();
      const bool are_as_given = request_.element_bytes() == 4 && !request_.model.vision->is_gated;
      if (sees && !(keeps_pixels && are_as_given)) pixels = pixel_bytes(request_);
      if (chain.is_in_tower(chunk_.first)) of_pass += tower_pass_bytes(request_);
      add(chain.patches(), patches_bytes(request_), {});
      add_run(stage_.blocks_of(number), /*is_tower=*/true);
      add(chain.merger(), merger_bytes(request_, uses_, specs_), passing_merger_bytes(request_));
      // What a tower elsewhere gave is held until its gradient is sent.
      if (chunk_.first == chain.embedding()) of_pass += visual_bytes(request_);
    }
    add_run(stage_.layers_of(number), /*is_tower=*/false);
    if (stage_.ends_at(number)) add_predictions(stage_.layers_of(number));
    ChunkBytes chunk = bytes_of_groups(groups_, of_pass);
    chunk.pixels = pixels;
    return chunk;
  }

 private:
  /// Stages after the first take gradients for what came to them in any case.
  bool passes(int64_t place) const { return chunk_.first == 0 && place < first_trained_; }
  int64_t gradients_at(int64_t place) const {
    const auto found = gradients_.find(place);
    return found == gradients_.end() ? 0 : found->second;
  }

  /// What comes with the experts' first gradient: they are one unit with the rest of their layer,
  /// which a shared expert brings before, unless ranks divide them.
  int64_t experts_at(int64_t place) const {
    const auto found = elements_.by_place.find(place);
    if (gradients_.empty() || found == elements_.by_place.end()) return 0;
    if (found->second.trained_experts == 0) return 0;
    if (request_.mesh.expert > 1) return found->second.trained_experts * 4;
    return request_.model.experts.shared_ffn_size > 0 ? 0 : gradients_at(place);
  }

  void add(int64_t place, const LayerBytes& kept, const LayerBytes& passing) {
    if (!chunk_.has(place)) return;
    groups_.push_back(passes(place) ? passing : kept);
    if (!passes(place)) groups_.back().gradients = gradients_at(place);
  }

  void add_run(const arch::LayerRange& range, bool is_tower) {
    const arch::Chain& chain = stage_.chain;
    for (const settings::RecomputeGroup& group :
         settings::recompute_groups(request_.recompute, range.end - range.first)) {
      const int64_t first = range.first + group.first, end = range.first + group.end;
      const int64_t place = is_tower ? chain.block(first) : chain.layer(first);
      if (passes(place + end - first - 1)) {
        LayerBytes bytes;
        for (int64_t i = first; i < end; ++i) {
          const LayerBytes one =
              is_tower ? passing_block_bytes(request_, i) : passing_layer_bytes(request_, i);
          bytes.passing = std::max(bytes.passing, one.passing);
        }
        groups_.push_back(bytes);
        continue;
      }
      groups_.push_back(group_bytes(group, range.first, is_tower));
      for (int64_t i = 0; i < end - first; ++i) groups_.back().gradients += gradients_at(place + i);
      groups_.back().experts = experts_at(place + end - first - 1);
      // What came from another stage is held until its gradient is sent.
      const bool comes = place == chunk_.first && chunk_.first > 0;
      if (comes && groups_.back().gone > 0 && request_.offload.input_norm)
        groups_.back().gone -= layer_sizes(request_).rows;
    }
  }

  /// Their blocks are recomputed as the last layers are.
  void add_predictions(const arch::LayerRange& range) {
    const auto groups = settings::recompute_groups(request_.recompute, range.end - range.first);
    const LayerRecompute kind = groups.empty() ? LayerRecompute::kNone : groups.back().kind;
    const int64_t count = request_.model.num_predictions();
    for (int64_t depth = 1; depth <= count; ++depth) {
      groups_.push_back(prediction_bytes(request_, uses_, specs_, depth, kind));
      if (!gradients_.empty()) groups_.back().gradients = elements_.trained_ahead * 4 / count;
    }
  }

  /// Bytes of one group, in the order of forward.
  LayerBytes group_bytes(const settings::RecomputeGroup& group, int64_t first,
                         bool is_tower) const {
    LayerBytes bytes;
    for (int64_t i = first + group.first; i < first + group.end; ++i) {
      const LayerBytes one = is_tower ? block_bytes(request_, uses_, specs_, i, group.kind)
                                      : layer_bytes(request_, uses_, specs_, i, group.kind);
      bytes.kept += one.kept;
      bytes.later += one.later;
      bytes.gone += one.gone;
      bytes.backward = std::max(bytes.backward, one.backward);
      bytes.early = std::max(bytes.early, one.early);
    }
    if (group.kind == LayerRecompute::kFull) {  // its input alone, and all of it made again
      bytes.backward += bytes.kept;
      bytes.early += bytes.kept;
      bytes.kept = is_tower ? block_sizes(request_).rows : layer_sizes(request_).rows;
      bytes.gone = request_.offload.input_norm ? bytes.kept : 0;
    }
    if (is_tower || !request_.offload.takes(group.first)) bytes.gone = 0;
    return bytes;
  }

  const Request& request_;
  const arch::Stage& stage_;
  const std::map<int64_t, int64_t>& gradients_;
  const Elements& elements_;
  Uses uses_;
  std::vector<arch::ParamSpec> specs_;
  int64_t first_trained_ = 0;
  arch::PlaceRange chunk_;
  std::vector<LayerBytes> groups_;  ///< of the chunk, in the order of the chain
};

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
  std::vector<ChunkBytes> chunks;
  ChunkPlan places(request, stage, gradients, elements);
  for (int64_t number = 0; number < stage.num_chunks(); ++number)
    chunks.push_back(places.bytes_of(number));
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
      need(chunk.passing + chunk.pixels, to_come);
      kept += chunk.kept;
      need(chunk.pixels + chunk.leaving + (stage.ends_at(action.chunk) ? head_bytes(request) : 0),
           to_come);
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

Held Elements::without_experts() const {
  Held held = *this;
  held.all -= experts.all;
  held.in_nf4 -= experts.in_nf4;
  held.trained -= experts.trained;
  held.by_wholes -= experts.by_wholes;
  held.fewer -= experts.fewer;
  held.read_in_backward -= experts.read_in_backward;
  for (size_t chunk = 0; chunk < held.read_in_last_place.size(); ++chunk)
    held.read_in_last_place[chunk] -= experts.read_in_last_place[chunk];
  return held;
}

double trained_elements_kept(const Request& request, const Elements& elements) {
  return static_cast<double>(elements.without_experts().trained) /
             static_cast<double>(request.sharers()) +
         static_cast<double>(elements.experts.trained) /
             static_cast<double>(request.expert_sharers());
}

Memory Memory::in_parts() const {
  Memory parts = *this;
  parts.activations += std::min<int64_t>(working, 0);
  parts.working = std::max<int64_t>(working, 0) + std::max<int64_t>(0, beside_passes() - pass());
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

double recomputed_share(const Request& request, const arch::Stage& stage, LayerRecompute kind) {
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

namespace {

/// Which of the pipeline's stages it is.
size_t index_of(const Request& request, const arch::Stage& stage) {
  const std::vector<arch::Stage> stages = arch::stages_of(request.model, request.pipeline);
  size_t index = 0;
  while (index + 1 < stages.size() &&
         stages[index].chunks.front().first != stage.chunks.front().first)
    ++index;
  return index;
}

/// The weights of a frozen model's stage that stands beside `stage`.
int64_t frozen_bytes(const Request& request, const Frozen& beside, const arch::Stage& stage) {
  if (request.parameters_in_files) return 0;
  Request frozen = request;
  frozen.model = beside.model;
  frozen.nf4_bits = beside.nf4_bits;
  frozen.adapters = {};
  frozen.freeze = {"."};
  frozen.pipeline =
      arch::split_beside(request.pipeline, request.model.num_layers, beside.model.num_layers);
  const Elements elements =
      elements_of(frozen, arch::stages_of(frozen.model, frozen.pipeline)[index_of(request, stage)]);
  const auto kept = [&](const Held& held, int64_t ranks) {
    return share(held.all * frozen.element_bytes() - frozen.saved_by_nf4(held.in_nf4),
                 request.sharding >= Sharding::kParameters, ranks);
  };
  return kept(elements.without_experts(), request.sharers()) +
         kept(elements.experts, request.expert_sharers());
}

/// What the last stage has of a teacher beside its weights: of a step's tokens the hidden states,
/// and where parameters are shared a copy of the head.
int64_t teacher_bytes(const Request& request, const arch::Stage& stage) {
  if (!request.teacher || !stage.has_head()) return 0;
  const arch::ModelConfig& teacher = *request.teacher;
  const int64_t rows = (teacher.vocab_size + request.mesh.tensor - 1) / request.mesh.tensor;
  const int64_t head = request.sharding >= Sharding::kParameters ? rows : 0;
  return (request.num_micro_batches * request.pass_tokens() + head) * teacher.hidden_size *
         request.element_bytes();
}

/// The critic's training, as if it were alone.
Request of_critic(const Request& request) {
  Request own = request;
  own.model = *request.critic;
  own.critic.reset();
  own.rollout.reset();
  own.frozen.clear();
  own.teacher.reset();
  own.nf4_bits = request.critic_nf4_bits;
  return own;
}

}  // namespace

Memory memory_of(const Request& request, const arch::Stage& stage, const arch::Schedule& schedule) {
  const Elements elements = elements_of(request, stage);
  Memory memory;
  const auto add = [&](const Held& held, int64_t ranks) {
    const auto kept = [&](int64_t bytes, Sharding least) {
      return share(bytes, request.sharding >= least, ranks);
    };
    if (!request.parameters_in_files)
      memory.weights += kept(held.all * request.element_bytes() - request.saved_by_nf4(held.in_nf4),
                             Sharding::kParameters);
    memory.gradients += kept(held.trained * 4, Sharding::kGradients);
    memory.updated += kept(held.trained, Sharding::kState);
    memory.fewer += kept(held.fewer, Sharding::kState);
    if (request.state_in_files) return;
    memory.masters += kept(held.trained * request.master_bytes(), Sharding::kState);
    memory.moments += kept(held.trained * 8 - held.fewer * 4, Sharding::kState);
  };
  for (const Frozen& beside : request.frozen)
    memory.weights += frozen_bytes(request, beside, stage);
  memory.weights += teacher_bytes(request, stage);
  add(elements.without_experts(), request.sharers());
  add(elements.experts, request.expert_sharers());
  leave_one_layer(request, elements, memory);
  if (request.critic) {
    const Request own = of_critic(request);
    const Memory beside = memory_of(
        own, arch::stages_of(own.model, own.pipeline)[index_of(request, stage)], schedule);
    memory.weights += beside.weights;
    memory.gradients += beside.gradients;
    memory.updated += beside.updated;
    memory.fewer += beside.fewer;
    memory.masters += beside.masters;
    memory.moments += beside.moments;
    memory.rollout = beside.pass();
  }
  if (request.rollout) memory.rollout = std::max(memory.rollout, drawing_bytes(request, stage));
  memory.update = update_bytes(request, elements);
  add_passes(request, stage, schedule, elements, memory);
  memory.communication = communication_bytes(request, stage, elements);
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
