#include "arch/pipeline.h"

#include <algorithm>

#include "base/error.h"

namespace danlu::arch {

bool Stage::has(int64_t place) const {
  return std::any_of(chunks.begin(), chunks.end(),
                     [&](const PlaceRange& range) { return range.has(place); });
}

bool Stage::holds(const ParamSpec& spec) const {
  return has(place_of(spec)) || (spec.role == Role::kEmbedding && copies_embedding);
}

int64_t Stage::place_of(const ParamSpec& spec) const {
  if (spec.tower_place >= 0) return spec.tower_place;
  // Layers that predict further ahead stand with the head, whose input they read.
  if (spec.layer >= 0) return spec.layer < chain.layers ? chain.layer(spec.layer) : chain.head();
  if (spec.role == Role::kEmbeddingNorm || spec.role == Role::kPositions ||
      spec.role == Role::kTokenTypes)
    return chain.embedding();
  return spec.role == Role::kEmbedding && !copies_embedding ? chain.embedding() : chain.head();
}

namespace {

/// The numbers of what stands at the places of `range`, where number 0 stands at `first`.
LayerRange numbers_in(const PlaceRange& range, int64_t first, int64_t count) {
  const int64_t begin = std::clamp<int64_t>(range.first - first, 0, count);
  return {begin, std::max(begin, std::clamp<int64_t>(range.end - first, 0, count))};
}

}  // namespace

LayerRange Stage::layers_of(int64_t number) const {
  return numbers_in(chunk(number), chain.layer(0), chain.layers);
}

LayerRange Stage::blocks_of(int64_t number) const {
  if (!chain.has_tower()) return {};
  return numbers_in(chunk(number), chain.block(0), chain.blocks);
}

std::vector<int64_t> Stage::layers() const {
  std::vector<int64_t> all;
  for (int64_t number = 0; number < num_chunks(); ++number) {
    const LayerRange range = layers_of(number);
    for (int64_t layer = range.first; layer < range.end; ++layer) all.push_back(layer);
  }
  return all;
}

Stage whole_of(const ModelConfig& config) {
  const Chain chain = chain_of(config);
  return {.chain = chain, .chunks = {{0, chain.size()}}};
}

namespace {

/// Cuts the chain where `blocks[i]` and `layers[i]` numbers of blocks and layers follow each other.
/// What stands before the first of a kind goes with it, and what stands after the last one too.
std::vector<PlaceRange> cut_chain(const Chain& chain, const std::vector<int64_t>& blocks,
                                  const std::vector<int64_t>& layers) {
  std::vector<PlaceRange> ranges;
  int64_t place = 0, block = 0, layer = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    const int64_t first = place;
    if (blocks[i] > 0) {
      block += blocks[i];
      place = block == chain.blocks ? chain.merger() + 1 : chain.block(block);
    }
    // Without a tower the embedding is the first stage's, even if no layer follows it there.
    if (layers[i] > 0 || (i == 0 && !chain.has_tower())) {
      layer += layers[i];
      place = chain.layer(layer);
    }
    if (i + 1 == layers.size()) place = chain.size();
    ranges.push_back({first, place});
  }
  return ranges;
}

int64_t real_layers(const std::vector<int64_t>& slots) {
  return static_cast<int64_t>(slots.size()) - std::count(slots.begin(), slots.end(), kNoopLayer);
}

}  // namespace

bool shares_table(const ModelConfig& config) {
  return config.tie_embeddings || config.num_predictions() > 0;
}

std::vector<Stage> stages_of(const ModelConfig& config, const PipelineLayers& split) {
  const Chain chain = chain_of(config);
  const Placement placement = place_layers(split, config.num_layers);
  const std::vector<std::vector<int64_t>> blocks = place_blocks(split, placement, chain.blocks);
  const size_t num_stages = placement.size(), num_chunks = placement.front().size();
  std::vector<int64_t> blocks_in_order, layers_in_order;
  for (size_t chunk = 0; chunk < num_chunks; ++chunk) {
    for (size_t s = 0; s < num_stages; ++s) {
      blocks_in_order.push_back(blocks[chunk][s]);
      layers_in_order.push_back(real_layers(placement[s][chunk]));
    }
  }
  const std::vector<PlaceRange> ranges = cut_chain(chain, blocks_in_order, layers_in_order);
  std::vector<Stage> stages(num_stages);
  for (size_t s = 0; s < num_stages; ++s) {
    Stage& stage = stages[s];
    stage.chain = chain;
    for (size_t chunk = 0; chunk < num_chunks; ++chunk)
      stage.chunks.push_back(ranges[chunk * num_stages + s]);
    int64_t num_blocks = 0;
    for (size_t chunk = 0; chunk < num_chunks; ++chunk) num_blocks += blocks[chunk][s];
    if (stage.layers().empty() && num_blocks == 0 && num_stages > 1) {
      throw UsageError(tr("[split] pipeline stage {} of {} is left without a layer", s, num_stages),
                       tr("the model has {} layers: take fewer stages, or another --num-layer-list",
                          config.num_layers));
    }
    stage.copies_embedding = stage.has_head() && !stage.has_embedding() && shares_table(config);
  }
  if (shares_table(config) && !stages.front().has_embedding()) {
    throw UsageError(tr("[split] the head is tied to the embedding, which must then stand in the "
                        "first pipeline stage"),
                     tr("give the first stage all blocks of the vision tower and a layer of the "
                        "decoder"));
  }
  return stages;
}

namespace {

/// Appends a stage's work to a schedule, with what it needs and gives.
struct Steps {
  int64_t stage, stages, chunks = 1;
  Schedule schedule = {};

  bool is_first(int64_t chunk) const { return stage == 0 && chunk == 0; }
  bool is_last(int64_t chunk) const { return stage + 1 == stages && chunk + 1 == chunks; }
  void forward(int64_t i, int64_t chunk = 0) {
    if (!is_first(chunk)) schedule.push_back({Work::kReceiveHidden, i, chunk});
    schedule.push_back({Work::kForward, i, chunk});
    if (!is_last(chunk)) schedule.push_back({Work::kSendHidden, i, chunk});
  }
  void backward(Work kind, int64_t i, int64_t chunk = 0) {
    if (!is_last(chunk)) schedule.push_back({Work::kReceiveGrad, i, chunk});
    schedule.push_back({kind, i, chunk});
    if (!is_first(chunk)) schedule.push_back({Work::kSendGrad, i, chunk});
  }
};

/// Sizes of the groups that go through a chunk together.
std::vector<int64_t> group_sizes(int64_t stages, int64_t num_micro_batches) {
  const int64_t groups = std::max<int64_t>(1, num_micro_batches / stages);
  std::vector<int64_t> sizes(static_cast<size_t>(groups), num_micro_batches / groups);
  for (int64_t i = 0; i < num_micro_batches % groups; ++i) ++sizes[static_cast<size_t>(i)];
  return sizes;
}

struct Turn {
  int64_t micro_batch, chunk;
};
std::vector<Turn> forward_turns(int64_t stages, int64_t chunks, int64_t num_micro_batches) {
  std::vector<Turn> turns;
  int64_t first = 0;
  for (const int64_t size : group_sizes(stages, num_micro_batches)) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      for (int64_t i = first; i < first + size; ++i) turns.push_back({i, chunk});
    }
    first += size;
  }
  return turns;
}

}  // namespace

Schedule one_forward_one_backward(int64_t stage, int64_t stages, int64_t num_micro_batches) {
  Steps steps{stage, stages};
  const int64_t ahead = std::min(stages - stage - 1, num_micro_batches);
  for (int64_t i = 0; i < ahead; ++i) steps.forward(i);
  for (int64_t i = ahead; i < num_micro_batches; ++i) {
    steps.forward(i);
    steps.backward(Work::kBackward, i - ahead);
  }
  for (int64_t i = num_micro_batches - ahead; i < num_micro_batches; ++i)
    steps.backward(Work::kBackward, i);
  return steps.schedule;
}

Schedule zero_bubble(int64_t stage, int64_t stages, int64_t num_micro_batches) {
  Steps steps{stage, stages};
  const int64_t ahead = std::min(stages - stage - 1, num_micro_batches);
  int64_t backwards = 0, weights = 0;
  const auto backward = [&](int64_t lag) {
    steps.backward(Work::kBackwardInput, backwards++);
    if (backwards - weights > lag) steps.schedule.push_back({Work::kBackwardWeight, weights++});
  };
  for (int64_t i = 0; i < ahead; ++i) steps.forward(i);
  for (int64_t i = ahead; i < num_micro_batches; ++i) {
    steps.forward(i);
    backward(stage);
  }
  while (backwards < num_micro_batches) backward(0);
  while (weights < num_micro_batches) steps.schedule.push_back({Work::kBackwardWeight, weights++});
  return steps.schedule;
}

Schedule interleaved(int64_t stage, int64_t stages, int64_t chunks, int64_t num_micro_batches) {
  Steps steps{stage, stages, chunks};
  const std::vector<Turn> turns = forward_turns(stages, chunks, num_micro_batches);
  const auto all = static_cast<int64_t>(turns.size());
  const int64_t in_group = group_sizes(stages, num_micro_batches).front();
  const int64_t ahead = std::min(2 * (stages - stage - 1) + (chunks - 1) * in_group, all);
  const auto forward = [&](int64_t i) {
    const Turn& turn = turns[static_cast<size_t>(i)];
    steps.forward(turn.micro_batch, turn.chunk);
  };
  const auto backward = [&](int64_t i) {
    const Turn& turn = turns[static_cast<size_t>(i)];
    steps.backward(Work::kBackward, turn.micro_batch, chunks - 1 - turn.chunk);
  };
  for (int64_t i = 0; i < ahead; ++i) forward(i);
  for (int64_t i = ahead; i < all; ++i) {
    forward(i);
    backward(i - ahead);
  }
  for (int64_t i = all - ahead; i < all; ++i) backward(i);
  return steps.schedule;
}

Schedule schedule_of(PipelineOrder order, int64_t stage, int64_t stages, int64_t chunks,
                     int64_t num_micro_batches) {
  switch (order) {
    case PipelineOrder::kInterleaved:
      return interleaved(stage, stages, chunks, num_micro_batches);
    case PipelineOrder::kZeroBubble:
      return zero_bubble(stage, stages, num_micro_batches);
    case PipelineOrder::kOneForwardOneBackward:
      break;
  }
  return one_forward_one_backward(stage, stages, num_micro_batches);
}

Schedule forward_only(int64_t stage, int64_t stages, int64_t chunks, int64_t num_micro_batches) {
  Steps steps{stage, stages, chunks};
  for (const Turn& turn : forward_turns(stages, chunks, num_micro_batches))
    steps.forward(turn.micro_batch, turn.chunk);
  return steps.schedule;
}

}  // namespace danlu::arch
