#include "arch/pipeline.h"

#include <algorithm>

#include "base/error.h"

namespace danlu::arch {

bool Stage::holds(const ParamSpec& spec) const {
  if (spec.layer >= 0) return spec.layer >= first_layer && spec.layer < end_layer;
  return spec.role == Role::kEmbedding ? has_embedding || copies_embedding : has_head;
}

Stage whole_of(const ModelConfig& config) { return {.end_layer = config.num_layers}; }

std::vector<Stage> stages_of(const ModelConfig& config, const PipelineSplit& split) {
  const Placement placement = place_layers(split, config.num_layers);
  std::vector<Stage> stages;
  int64_t next = 0;
  for (size_t s = 0; s < placement.size(); ++s) {
    const auto& slots = placement[s].front();
    const int64_t layers =
        static_cast<int64_t>(slots.size()) - std::count(slots.begin(), slots.end(), kNoopLayer);
    if (layers == 0 && placement.size() > 1) {
      throw UsageError(
          tr("[split] pipeline stage {} of {} is left without a layer", s, placement.size()),
          tr("the model has {} layers: take fewer stages, or another --num-layer-list",
             config.num_layers));
    }
    Stage stage{.first_layer = next,
                .end_layer = next + layers,
                .has_embedding = s == 0,
                .has_head = s + 1 == placement.size()};
    stage.copies_embedding = stage.has_head && !stage.has_embedding && config.tie_embeddings;
    stages.push_back(stage);
    next = stage.end_layer;
  }
  return stages;
}

namespace {

/// Appends a stage's work to a schedule, with what it needs and gives.
struct Steps {
  bool is_first, is_last;
  Schedule schedule = {};

  void forward(int64_t i) {
    if (!is_first) schedule.push_back({Work::kReceiveHidden, i});
    schedule.push_back({Work::kForward, i});
    if (!is_last) schedule.push_back({Work::kSendHidden, i});
  }
  void backward(Work kind, int64_t i) {
    if (!is_last) schedule.push_back({Work::kReceiveGrad, i});
    schedule.push_back({kind, i});
    if (!is_first) schedule.push_back({Work::kSendGrad, i});
  }
};

}  // namespace

Schedule one_forward_one_backward(int64_t stage, int64_t stages, int64_t num_micro_batches) {
  Steps steps{stage == 0, stage + 1 == stages};
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
  Steps steps{stage == 0, stage + 1 == stages};
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

}  // namespace danlu::arch
