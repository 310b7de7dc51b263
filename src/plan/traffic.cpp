#include "plan/traffic.h"

#include <algorithm>

#include "arch/attention_size.h"
#include "plan/layer_memory.h"

namespace danlu::plan {
namespace {

using settings::Sharding;

/// How often in a step a stage's chunk begins to keep something for a backward.
std::vector<int64_t> beginnings(const Request& request, const arch::Stage& stage) {
  const std::vector<arch::Stage> stages = arch::stages_of(request.model, request.pipeline);
  int64_t index = 0;
  while (index + 1 < static_cast<int64_t>(stages.size()) &&
         stages[static_cast<size_t>(index)].chunks != stage.chunks)
    ++index;
  std::vector<int64_t> counts(stage.chunks.size()), kept(stage.chunks.size());
  for (const arch::Action& action : schedule_of(request, stage, index)) {
    const auto chunk = static_cast<size_t>(action.chunk);
    if (action.work == arch::Work::kForward && kept[chunk]++ == 0) ++counts[chunk];
    if (action.work == arch::Work::kBackward) --kept[chunk];
  }
  return counts;
}

/// Elements that ZeRO-3 gathers in a step: all in a forward, and in a backward those that it reads.
/// What is last in a chunk stays between the two, and so from one pass to the next that has begun.
double gathered(const Request& request, const arch::Stage& stage, const Held& held,
                int64_t tied_in_stage) {
  const int64_t passes = request.num_micro_batches;
  int64_t count = passes * (held.all + held.read_in_backward + tied_in_stage);
  const std::vector<int64_t> times = beginnings(request, stage);
  for (size_t chunk = 0; chunk < times.size(); ++chunk)
    count -= (2 * passes - times[chunk]) * held.read_in_last_place[chunk];
  return static_cast<double>(count);
}

/// Sums of gradients in f32, gathers in the weights' type, as rings send them: a rank of D sends
/// (D - 1) / D of what is summed or gathered. sharers: ranks that share what is held.
double shared_bytes(const Request& request, const arch::Stage& stage, const Held& held,
                    int64_t sharers, int64_t tied_in_stage) {
  const auto ranks = static_cast<double>(sharers);
  const auto passes = static_cast<double>(request.num_micro_batches);
  const auto width = static_cast<double>(request.element_bytes());
  const auto trained = static_cast<double>(held.trained);
  const double part = (ranks - 1) / ranks;
  switch (request.sharding) {
    case Sharding::kNone:
      return part * 2 * 4 * trained;
    case Sharding::kState:
      return part * (4 + width) * trained;
    case Sharding::kGradients:
      return part * (4 * passes + width) * trained;
    case Sharding::kParameters:
      return part * (4 * passes * trained + width * gathered(request, stage, held, tied_in_stage));
  }
  return 0;
}

/// What ranks of equal shares send to one another: once a step the sum of their gradients' shares.
double replica_bytes(const Request& request, const Elements& elements) {
  if (request.sharding == Sharding::kNone) return 0;
  const auto replicas = static_cast<double>(request.replicas());
  return 2 * (replicas - 1) / replicas * 4 * trained_elements_kept(request, elements);
}

double data_bytes(const Request& request, const arch::Stage& stage, const Elements& elements) {
  // Where nothing is shared, all copies sum at once.
  const int64_t apart = request.sharding == Sharding::kNone ? request.replicas() : 1;
  return shared_bytes(request, stage, elements.without_experts(), apart * request.sharers(),
                      elements.tied_in_stage) +
         shared_bytes(request, stage, elements.experts, apart * request.expert_sharers(), 0);
}

/// The bytes that a rank's rows make on their way to the owners of their experts, on average, and
/// on the way back, with how many there are: one pass through a layer with experts.
struct ExpertRows {
  double there = 0, back = 0;
  /// Among neighbours that cut an expert, where each sends the rows of its part of the tokens.
  double gathered = 0;
};
ExpertRows expert_rows_bytes(const Request& request) {
  const auto ranks = static_cast<double>(request.mesh.expert);
  if (ranks == 1) return {};
  const double leaves = static_cast<double>(request.routed_rows()) * (ranks - 1) / ranks;
  const double row = static_cast<double>(request.model.hidden_size * request.element_bytes());
  // The number of rows for each expert, and where adapters drop something, a key of each row.
  const double counts = (ranks - 1) * 8 * static_cast<double>(request.model.experts.count) /
                        static_cast<double>(request.mesh.expert_dealers);
  const bool drops = request.adapters && request.adapters->dropout > 0;
  const int64_t cutters = request.row_senders();
  const auto senders = static_cast<double>(cutters * request.mesh.expert_dealers);
  const double others = static_cast<double>(cutters - 1) / senders;
  const double gathered = static_cast<double>(request.routed_rows()) * others;
  return {.there = leaves / senders * (row + (drops ? 8 : 0)) + counts,
          .back = leaves / senders * row,
          .gathered = gathered * row};
}

/// Layers with experts of the stage, and those of them that are made again from their input.
struct SparseLayers {
  double all = 0, again = 0;
};
/// How a stage's layers that predict further ahead are recomputed: as its last.
settings::LayerRecompute kind_of_predictions(const Request& request, const arch::Stage& stage) {
  const arch::LayerRange range = stage.layers_of(stage.num_chunks() - 1);
  const auto groups = settings::recompute_groups(request.recompute, range.end - range.first);
  return groups.empty() ? settings::LayerRecompute::kNone : groups.back().kind;
}
int64_t predictions_of(const Request& request, const arch::Stage& stage) {
  return stage.has_head() ? request.model.num_predictions() : 0;
}
SparseLayers sparse_layers(const Request& request, const arch::Stage& stage) {
  SparseLayers count;
  if (!request.model.has_experts()) return count;
  for (int64_t chunk = 0; chunk < stage.num_chunks(); ++chunk) {
    const arch::LayerRange range = stage.layers_of(chunk);
    for (const settings::RecomputeGroup& group :
         settings::recompute_groups(request.recompute, range.end - range.first)) {
      for (int64_t layer = range.first + group.first; layer < range.first + group.end; ++layer) {
        if (!request.model.is_sparse(layer)) continue;
        count.all += 1;
        count.again += group.kind == settings::LayerRecompute::kFull ? 1 : 0;
      }
    }
  }
  if (!request.model.is_sparse(request.model.num_layers)) return count;
  const auto ahead = static_cast<double>(predictions_of(request, stage));
  count.all += ahead;
  if (kind_of_predictions(request, stage) == settings::LayerRecompute::kFull) count.again += ahead;
  return count;
}

/// Bytes of one pass through a layer (docs/context_parallel.md): heads exchanged for tokens within
/// a group, keys and values round the ring, their gradients in f32.
struct ContextBytes {
  double heads = 0, keys = 0, gradients = 0;
};
ContextBytes context_bytes(const Request& request) {
  const settings::ContextShape& shape = request.mesh.context;
  const arch::ModelConfig& model = request.model;
  const auto tensor = static_cast<double>(request.mesh.tensor);
  const auto tokens = static_cast<double>(request.pass_tokens());
  // A query and what it sees, or a key and its value.
  const auto both = static_cast<double>(model.head_dim + arch::value_dim(model));
  const double queries = static_cast<double>(model.num_heads) / tensor * both;
  const auto width = static_cast<double>(request.element_bytes());
  const auto members = static_cast<double>(shape.ulysses), groups = static_cast<double>(shape.ring);
  // With fewer key heads than members each goes to every member that takes it.
  const double keys = std::max(members, static_cast<double>(model.num_kv_heads) / tensor) * both;
  ContextBytes bytes{.heads = tokens * (queries + keys) * width * (members - 1) / members};
  if (shape.ring == 1) return bytes;
  bytes.keys = tokens * keys * width * (groups - 1);
  bytes.gradients = tokens * keys * 4 * groups;
  return bytes;
}

/// Sums of the tensor axis over a pass of a tower's part: blocks as layers of the decoder, once in
/// the merger's forward and once after its backward. What is not trained has no backward.
double tower_sums(const Request& request, const arch::Stage& stage, const Elements& elements) {
  const arch::Chain& chain = stage.chain;
  if (!chain.has_tower()) return 0;
  const auto tensor = static_cast<double>(request.mesh.tensor);
  const auto patches = static_cast<double>(block_sizes(request).rows),
             visual = static_cast<double>(visual_bytes(request));
  int64_t first_trained = chain.size();
  for (const auto& [place, trained] : elements.trained_by_place) {
    if (trained > 0) first_trained = std::min(first_trained, place);
  }
  double bytes = 0;
  for (int64_t number = 0; number < stage.num_chunks(); ++number) {
    const arch::PlaceRange& chunk = stage.chunk(number);
    const auto goes_back = [&](int64_t place) { return chunk.first > 0 || place >= first_trained; };
    const arch::LayerRange range = stage.blocks_of(number);
    for (const settings::RecomputeGroup& group :
         settings::recompute_groups(request.recompute, range.end - range.first)) {
      const double again = group.kind == settings::LayerRecompute::kFull ? 2 : 0;
      for (int64_t block = range.first + group.first; block < range.first + group.end; ++block)
        bytes += patches * (goes_back(chain.block(block)) ? 4 + again : 2);
    }
    if (chunk.has(chain.merger())) bytes += visual + (goes_back(chain.merger()) ? patches : 0);
    // Each rank of a sequence gives a part of the gradient of what the tower gave.
    if (chunk.has(chain.embedding()) && request.mesh.sequence_parallel && goes_back(chain.merger()))
      bytes += visual;
  }
  return 2 * (tensor - 1) / tensor * bytes;
}

/// What the chunks of a stage send in a pass, up and down.
double border_bytes(const Request& request, const arch::Stage& stage) {
  double bytes = 0;
  for (const arch::PlaceRange& chunk : stage.chunks) {
    for (const int64_t place : {chunk.first, chunk.end}) {
      if (place > 0 && place < stage.chain.size())
        bytes += static_cast<double>(bytes_before(request, stage.chain, place));
    }
  }
  return bytes;
}

}  // namespace

double tied_bytes(const Request& request, const Elements& elements) {
  // An all-reduce of two sends what is summed once.
  const bool shares = request.sharding >= Sharding::kState;
  return 4 * static_cast<double>(elements.tied) /
         static_cast<double>(shares ? request.sharers() : 1);
}

Traffic traffic_of(const Request& request, const arch::Stage& stage) {
  return traffic_of(request, stage, elements_of(request, stage));
}

Traffic traffic_of(const Request& request, const arch::Stage& stage, const Elements& elements) {
  const auto hidden = static_cast<double>(request.pass_tokens() * request.model.hidden_size *
                                          request.element_bytes());
  const auto ranks = static_cast<double>(request.mesh.tensor);
  const auto passes = static_cast<double>(request.num_micro_batches);
  const auto layers = static_cast<double>(stage.layers().size());
  const double all_reduce = 2 * (ranks - 1) / ranks * hidden;
  const auto share = [&](settings::LayerRecompute kind) {
    return recomputed_share(request, stage, kind);
  };
  using settings::LayerRecompute;
  const double again = share(LayerRecompute::kFull);
  // Norms that are made again where ranks share the rows: half of a sum before each of two parts.
  const double gathered =
      request.mesh.sequence_parallel
          ? share(LayerRecompute::kNorm) + share(LayerRecompute::kNormAndActivation)
          : 0;
  Traffic traffic;
  traffic.replicas = replica_bytes(request, elements);
  traffic.data = data_bytes(request, stage, elements) + traffic.replicas;
  traffic.tied = tied_bytes(request, elements);
  traffic.tensor_of_layer = (4 + 2 * again + gathered) * all_reduce;
  const double ends = (stage.has_embedding() ? 1 : 0) + (stage.has_head() ? 1 : 0);
  traffic.tensor_of_tower = tower_sums(request, stage, elements);
  traffic.tensor =
      passes * (layers * traffic.tensor_of_layer + ends * all_reduce + traffic.tensor_of_tower);
  const auto ahead = static_cast<double>(predictions_of(request, stage));
  const LayerRecompute kind = kind_of_predictions(request, stage);
  const bool is_again = kind == LayerRecompute::kFull,
             is_selective = kind == LayerRecompute::kSelective;
  // Beside the block: the table's row; two hidden states that enter and one that leaves; the head.
  const double of_norms =
      request.mesh.sequence_parallel && settings::makes_norms_again(kind) ? 1 : 0;
  traffic.tensor += passes * ahead * (5 + 4 + (is_again ? 2 : 0) + of_norms) * all_reduce;
  traffic.message = hidden / (request.mesh.sequence_parallel ? ranks : 1);
  const int64_t border = stage.chunks.front().end;
  if (border < stage.chain.size())
    traffic.message = static_cast<double>(bytes_before(request, stage.chain, border));
  const ContextBytes context = context_bytes(request);
  traffic.context_keys = context.keys;
  traffic.context_forward = context.heads + context.keys;
  traffic.context_backward = traffic.context_forward + context.gradients;
  const double core_again = again + share(LayerRecompute::kSelective);
  traffic.context =
      passes * layers * (traffic.context_forward * (1 + core_again) + traffic.context_backward) +
      passes * ahead *
          (traffic.context_forward * (is_again || is_selective ? 2 : 1) + traffic.context_backward);
  const ExpertRows rows = expert_rows_bytes(request);
  const SparseLayers sparse = sparse_layers(request, stage);
  traffic.expert_forward = rows.there + rows.back;
  traffic.expert_backward = 2 * rows.back;
  traffic.expert_gathered = 2 * rows.gathered;
  traffic.tensor += passes * (2 * sparse.all + sparse.again) * traffic.expert_gathered;
  traffic.expert = passes * (sparse.all * (traffic.expert_forward + traffic.expert_backward) +
                             sparse.again * traffic.expert_forward);
  const double messages = request.mesh.pipeline > 1 ? passes * border_bytes(request, stage) : 0;
  traffic.pipeline = messages + traffic.tied;
  return traffic;
}

}  // namespace danlu::plan
