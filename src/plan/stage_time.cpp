#include "plan/stage_time.h"

#include <algorithm>
#include <set>

#include "plan/layer_work.h"

namespace danlu::plan {
namespace {

using settings::LayerRecompute, settings::Sharding;

int64_t keys_of(const Request& request, int64_t layer) {
  const std::vector<int64_t>& windows = request.model.sliding_window;
  const int64_t window =
      layer < static_cast<int64_t>(windows.size()) ? windows[static_cast<size_t>(layer)] : 0;
  return window > 0 ? std::min(window, request.tokens) : request.tokens;
}

/// Seconds of an all-reduce of `bytes` over a path's ranks: a reduce-scatter, then an all-gather.
double all_reduce_seconds(const Path& path, double bytes) {
  const auto ranks = static_cast<double>(path.members);
  return 2 * path.seconds((ranks - 1) / ranks * bytes);
}
/// Or of an all-gather: half of the above.
double reduce_scatter_seconds(const Path& path, double bytes) {
  return all_reduce_seconds(path, bytes) / 2;
}

/// The time that a full backward spends on running a layer again.
double recompute_seconds(const LayerTimes& layer, const ProgramTraits& program,
                         LayerRecompute kind) {
  switch (kind) {
    case LayerRecompute::kNone:
      return 0;
    case LayerRecompute::kFull:
      return layer.forward;
    case LayerRecompute::kSelective:
      return layer.attention + (program.repeats_attention_alone ? 0 : layer.gated);
    case LayerRecompute::kActivationFunction:
      return layer.activation;
    case LayerRecompute::kNorm:
      return layer.norms;
    case LayerRecompute::kNormAndActivation:
      return layer.norms + layer.activation;
  }
  return 0;
}

/// Layers, and blocks of a tower.
int64_t num_layers_and_blocks(const arch::Stage& stage) {
  auto count = static_cast<int64_t>(stage.layers().size());
  for (int64_t chunk = 0; chunk < stage.num_chunks(); ++chunk) {
    const arch::LayerRange blocks = stage.blocks_of(chunk);
    count += blocks.end - blocks.first;
  }
  return count;
}
/// The same, and 1 for a stage without any, by which it is divided.
double num_parts(const arch::Stage& stage) {
  return static_cast<double>(std::max<int64_t>(1, num_layers_and_blocks(stage)));
}

}  // namespace

Parts& Parts::operator+=(const Parts& other) {
  products += other.products;
  attention += other.attention;
  moved += other.moved;
  recompute += other.recompute;
  tensor += other.tensor;
  context += other.context;
  expert += other.expert;
  offload += other.offload;
  return *this;
}

Parts Parts::operator*(double times) const {
  return {products * times, attention * times, moved * times,  recompute * times,
          tensor * times,   context * times,   expert * times, offload * times};
}

arch::Stage chunk_of(const arch::Stage& stage, int64_t chunk) {
  return {.chain = stage.chain,
          .chunks = {stage.chunk(chunk)},
          .copies_embedding = stage.copies_embedding && stage.ends_at(chunk)};
}

Paths paths_of(const Request& request, const Machine& machine) {
  const settings::MeshShape& mesh = request.mesh;
  return {.tensor = machine.path(mesh.tensor, 1),
          .context = machine.path(mesh.context.size(), mesh.tensor),
          .data = machine.path(request.sharers(), mesh.tensor),
          .expert = machine.path(mesh.expert, mesh.tensor * mesh.context.size()),
          .expert_copies = machine.path(request.expert_sharers(), mesh.tensor * mesh.expert),
          .replicas = machine.path(request.replicas(), mesh.tensor * request.sharers())};
}

StageClock::StageClock(const Request& request, const Machine& machine, const ProgramTraits& program)
    : request_(request), machine_(machine), program_(program), paths_(paths_of(request, machine)) {
  if (request.model.vision) uses_ = uses_of(request);
  if (request.mesh.expert > 1) busiest_ = request.busiest_rank();
}

const LayerTimes& StageClock::layer(int64_t keys, bool sparse) {
  const std::pair key(keys, sparse);
  auto found = layers_.find(key);
  if (found == layers_.end())
    found = layers_.emplace(key, layer_times(request_, machine_, program_, keys, sparse)).first;
  return found->second;
}

void StageClock::add_layers(const arch::Stage& chunk, const Traffic& traffic, ChunkTimes& times) {
  const auto hidden = static_cast<double>(request_.pass_tokens() * request_.model.hidden_size *
                                          request_.element_bytes());
  const double exchange =
      2 * all_reduce_seconds(paths_.tensor, hidden);  // of a forward or backward
  const bool cut = request_.mesh.sequence_parallel;
  WorkTimes& work = times.work;
  Parts& parts = times.parts;
  const arch::LayerRange range = chunk.layers_of(0);
  for (const settings::RecomputeGroup& group :
       settings::recompute_groups(request_.recompute, range.end - range.first)) {
    for (int64_t index = group.first; index < group.end; ++index) {
      const int64_t number = range.first + index;
      const arch::LayerKind* own = request_.model.own_kind(number);
      const LayerTimes layer =
          own ? own_layer_times(request_, machine_, *own)
              : this->layer(keys_of(request_, number), request_.model.is_sparse(number));
      const bool sends = !own && request_.model.is_sparse(number);
      const double again = recompute_seconds(layer, program_, group.kind);
      const bool full = group.kind == LayerRecompute::kFull;
      const bool core_again = full || group.kind == LayerRecompute::kSelective;
      // Only the ring's keys and values travel while attention is computed; the rest is waited for.
      const auto travels = [&](double bytes, double beside) {
        return std::max(0.0, paths_.context.seconds(traffic.context_keys) - beside) +
               paths_.context.seconds(bytes - traffic.context_keys);
      };
      const double context = travels(traffic.context_forward, layer.attention);
      const double context_back =
          travels(traffic.context_backward, layer.attention_back) + (core_again ? context : 0);
      const double exposed =
          std::max(0.0, exchange - (program_.hides_exchanges ? layer.backward_weight : 0));
      // A recomputed norm's output is gathered again, once for attention and once for the MLP.
      const bool gathers = cut && settings::makes_norms_again(group.kind);
      const double tensor_back =
          exposed + (full      ? exchange
                     : gathers ? 2 * reduce_scatter_seconds(paths_.tensor, hidden)
                               : 0);
      // Rows come and go while nothing else can be done. The rank with the most takes longest.
      const auto travels_to_experts = [&](double bytes) {
        return sends ? 2 * paths_.expert.seconds(bytes / 2 * busiest_) : 0;
      };
      const double gathered = sends ? paths_.tensor.seconds(traffic.expert_gathered) : 0;
      const double expert = travels_to_experts(traffic.expert_forward) + gathered;
      const double expert_back =
          travels_to_experts(traffic.expert_backward) + gathered + (full ? expert : 0);
      work.forward += layer.forward + exchange + context + expert;
      work.backward_input +=
          layer.backward_input + again + tensor_back + context_back + expert_back;
      work.backward_weight += layer.backward_weight;
      parts.products += layer.products + layer.products_back + layer.backward_weight;
      parts.attention += layer.attention + layer.attention_back;
      parts.moved += layer.forward - layer.products - layer.attention + layer.backward_input -
                     layer.products_back - layer.attention_back;
      parts.recompute += again;
      parts.tensor += exchange + tensor_back;
      parts.context += context + context_back;
      parts.expert += expert + expert_back;
    }
  }
}

void StageClock::add_tower(const arch::Stage& chunk, const Traffic& traffic,
                           ChunkTimes& times) const {
  const arch::Chain& chain = chunk.chain;
  if (!chain.has_tower() || request_.pass_patches() == 0) return;
  const arch::PlaceRange& places = chunk.chunk(0);
  std::set<int64_t> trained, learning;
  for (const arch::ParamSpec& spec : arch::parameters_of(request_.model)) {
    if (spec.tower_place < 0) continue;
    const Use& use = uses_.at(spec.name);
    if (use.is_trained) trained.insert(spec.tower_place);
    if (use.learns()) learning.insert(spec.tower_place);
  }
  const auto backward_at = [&](int64_t place) {
    const bool is_behind = !learning.empty() && *learning.begin() <= place;
    return TowerBackward{places.first > 0 || is_behind, trained.count(place) > 0};
  };
  const auto add = [&](const LayerTimes& part, LayerRecompute kind) {
    const double again = part.backward_input > 0 ? recompute_seconds(part, program_, kind) : 0;
    times.work.forward += part.forward;
    times.work.backward_input += part.backward_input + again;
    times.work.backward_weight += part.backward_weight;
    times.parts.products += part.products + part.products_back + part.backward_weight;
    times.parts.attention += part.attention + part.attention_back;
    times.parts.moved += part.forward - part.products - part.attention + part.backward_input -
                         part.products_back - part.attention_back;
    times.parts.recompute += again;
  };
  if (places.has(chain.patches()))
    add(patches_times(request_, machine_, backward_at(chain.patches())), LayerRecompute::kNone);
  const arch::LayerRange range = chunk.blocks_of(0);
  for (const settings::RecomputeGroup& group :
       settings::recompute_groups(request_.recompute, range.end - range.first)) {
    for (int64_t block = range.first + group.first; block < range.first + group.end; ++block) {
      add(block_times(request_, machine_, patches_seen(request_, block),
                      backward_at(chain.block(block))),
          group.kind);
    }
  }
  if (places.has(chain.merger()))
    add(merger_times(request_, machine_, backward_at(chain.merger())), LayerRecompute::kNone);
  if (traffic.tensor_of_tower == 0 || !chain.is_in_tower(places.first)) return;
  const double exchange = paths_.tensor.seconds(traffic.tensor_of_tower);
  times.work.forward += exchange / 2;
  times.work.backward_input += exchange / 2;
  times.parts.tensor += exchange;
}

void StageClock::add_ends(const arch::Stage& chunk, ChunkTimes& times) const {
  const auto hidden = static_cast<double>(request_.pass_tokens() * request_.model.hidden_size *
                                          request_.element_bytes());
  const double exchange = all_reduce_seconds(paths_.tensor, hidden);
  const auto add = [&](const EndTimes& end) {
    times.work.forward += end.forward;
    times.work.backward_input += end.backward_input;
    times.work.backward_weight += end.backward_weight;
    times.parts.products += end.products;
    times.parts.moved += end.forward + end.backward_input + end.backward_weight - end.products;
  };
  if (chunk.has_embedding()) {
    add(embedding_times(request_, machine_));
    times.work.forward += exchange;
    times.parts.tensor += exchange;
  }
  if (chunk.has_head()) {
    add(head_times(request_, machine_, program_));
    times.work.backward_input += exchange;
    times.parts.tensor += exchange;
  }
}

/// Adds the layers that predict further ahead. Each costs as much as the last layer, the head, the
/// embedding and the product that joins two hidden states.
void StageClock::add_predictions(const arch::Stage& chunk, const Traffic& traffic,
                                 ChunkTimes& times) {
  const int64_t count = chunk.has_head() ? request_.model.num_predictions() : 0;
  if (count == 0 || chunk.layers().empty()) return;
  arch::Stage ahead = chunk;
  const int64_t head = chunk.chain.head();
  ahead.chunks = {{head - 1, head}};
  ahead.copies_embedding = false;
  const auto hidden = static_cast<double>(request_.pass_tokens() * request_.model.hidden_size *
                                          request_.element_bytes());
  for (int64_t depth = 1; depth <= count; ++depth) {
    add_layers(ahead, traffic, times);
    for (const EndTimes& end :
         {head_times(request_, machine_, program_), joining_times(request_, machine_, program_),
          embedding_times(request_, machine_)}) {
      times.work.forward += end.forward;
      times.work.backward_input += end.backward_input;
      times.work.backward_weight += end.backward_weight;
      times.parts.products += end.products;
      times.parts.moved += end.forward + end.backward_input + end.backward_weight - end.products;
    }
    const double exchange = all_reduce_seconds(paths_.tensor, hidden);
    times.work.forward += 2 * exchange;
    times.work.backward_input += 3 * exchange;
    times.parts.tensor += 5 * exchange;
  }
}

double StageClock::half_sum_of_copies(const Elements& elements, int64_t Held::* which,
                                      double width) const {
  const auto seconds = [&](const Path& path, const Held& held) {
    return reduce_scatter_seconds(path, width * static_cast<double>(held.*which));
  };
  return seconds(paths_.data, elements.without_experts()) +
         (elements.experts.all > 0 ? seconds(paths_.expert_copies, elements.experts) : 0);
}

/// Seconds of summing shares of gradients over replicas; 0 if there are none.
double StageClock::sum_of_replicas(const Elements& elements, double width) const {
  if (paths_.replicas.members == 1) return 0;
  return 2 *
         reduce_scatter_seconds(paths_.replicas, width * trained_elements_kept(request_, elements));
}

/// ZeRO-2 and 3 sum gradients in every pass, beside the backward; ZeRO-3 also gathers parameters,
/// one unit ahead of the work.
void StageClock::add_copies(const arch::Stage& chunk, const Elements& elements, double share,
                            ChunkTimes& times) const {
  times.with_copies = times.work;
  if (request_.sharding < Sharding::kGradients || paths_.data.members == 1) return;
  const double units = num_parts(chunk);
  const double summed = half_sum_of_copies(elements, &Held::trained, 4 * share / units);
  double gathered = 0;
  if (request_.sharding == Sharding::kParameters) {
    const auto width = static_cast<double>(request_.element_bytes());
    gathered = half_sum_of_copies(elements, &Held::all, width * share / units);
  }
  WorkTimes& work = times.with_copies;
  work.forward = gathered + std::max(work.forward, (units - 1) * gathered);
  const double backward = work.backward_input + work.backward_weight;
  const double with = gathered + std::max(backward, units * (gathered + summed) - gathered);
  if (backward > 0) work.backward_input += with - backward;
}

ChunkTimes StageClock::chunk(const arch::Stage& stage, int64_t chunk, const Traffic& traffic,
                             const Elements& elements) {
  const arch::Stage own = chunk_of(stage, chunk);
  ChunkTimes times;
  add_tower(own, traffic, times);
  if (!own.layers().empty()) add_layers(own, traffic, times);
  add_ends(own, times);
  add_predictions(own, traffic, times);
  add_copies(own, elements, static_cast<double>(num_layers_and_blocks(own)) / num_parts(stage),
             times);
  return times;
}

DataExchanges StageClock::exchanges(const arch::Stage& stage, const Elements& elements) const {
  DataExchanges all;
  if (request_.mesh.model_copies() == 1) return all;
  const double units = num_parts(stage);
  const auto width = static_cast<double>(request_.element_bytes());
  const bool in_passes = request_.sharding >= Sharding::kGradients;
  for (int64_t c = 0; c < stage.num_chunks(); ++c) {
    const int64_t count = num_layers_and_blocks(chunk_of(stage, c));
    double summed = half_sum_of_copies(elements, &Held::trained, 4 / units), gathered = 0;
    if (request_.sharding == Sharding::kNone) summed *= 2;
    if (request_.sharding == Sharding::kState || request_.sharding == Sharding::kGradients)
      gathered = half_sum_of_copies(elements, &Held::trained, width / units);
    const double shares = sum_of_replicas(elements, 4 / units);
    // ZeRO-2 and 3 sum during the passes: only the last unit's sum is left for the end or, if there
    // are replicas, the sums of shares, which are made once a step.
    all.summed.push_back({in_passes && shares == 0 ? std::min<int64_t>(1, count) : count,
                          in_passes && shares > 0 ? shares : summed + shares});
    all.gathered.push_back({count, gathered});
  }
  return all;
}

}  // namespace danlu::plan
