// bench/virtual_training.h: a few training steps on ranks that are threads, in virtual time or the
// wall's.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <vector>

#include "arch/model_config.h"
#include "base/clock.h"
#include "bench/statistics.h"
#include "data/batch.h"
#include "models/causal_lm.h"
#include "models/training_memory.h"
#include "models/weight_files.h"
#include "parallel/comm/local.h"
#include "train/action_trace.h"
#include "train/step.h"

namespace danlu::bench {

struct Shape {
  int64_t layers = 16, hidden = 256, ffn = 768, heads = 8, kv_heads = 8, vocab = 256;

  arch::ModelConfig config() const {
    const Json json = {{"model_type", "llama"},
                       {"vocab_size", vocab},
                       {"hidden_size", hidden},
                       {"intermediate_size", ffn},
                       {"num_hidden_layers", layers},
                       {"num_attention_heads", heads},
                       {"num_key_value_heads", kv_heads},
                       {"max_position_embeddings", 8192},
                       {"rms_norm_eps", 1e-6},
                       {"rope_theta", 10000.0},
                       {"tie_word_embeddings", false}};
    return arch::family_of(json).parse(json);
  }
};

/// One training: micro-batches of one sample each, f32.
struct Training {
  Shape shape = {};
  parallel::MeshShape mesh = {};
  parallel::Sharding sharding = parallel::Sharding::kNone;
  arch::PipelineOrder order = arch::PipelineOrder::kOneForwardOneBackward;
  int64_t chunks = 1;
  int64_t micro_batches = 4;  ///< of a rank of the data axis
  int64_t tokens = 256;

  arch::PipelineLayers split() const {
    return {.stages = mesh.pipeline, .virtual_stages = chunks > 1 ? chunks : 0};
  }
  data::StepBatches batches() const {
    data::Sample sample;
    for (int64_t i = 0; i < tokens; ++i)
      sample.ids.push_back(static_cast<int32_t>((7 * i + 3) % shape.vocab));
    sample.labels = sample.ids;
    data::StepBatches step;
    for (int64_t i = 0; i < micro_batches; ++i)
      step.micro_batches.push_back(data::make_batch({sample}));
    step.num_tokens = micro_batches * tokens;
    step.num_targets = micro_batches * (tokens - 1);
    return step;
  }
};

/// One step, of all ranks.
struct Step {
  double seconds = 0;
  std::vector<std::vector<train::ActionSpan>> spans;  ///< of each rank
  parallel::ExchangeTimes exchanges;                  ///< sums over ranks; zeros by the wall
  double update_s = 0;  ///< another update of the optimizer, on the first rank
};

inline double now() {
  const parallel::VirtualClock* clock = parallel::VirtualClock::of_thread();
  return clock ? clock->now() : steady_now_s();
}

/// A rank's model and what trains it.
inline train::TrainState state_of(const Training& training, const train::TrainConfig& config,
                                  const parallel::Mesh& mesh) {
  const arch::ModelConfig model = training.shape.config();
  const auto stages = arch::stages_of(model, training.split());
  train::TrainState state;
  state.model = std::make_unique<models::CausalLM>(model, stages[static_cast<size_t>(mesh.stage())],
                                                   mesh, at::kFloat, at::Device(at::kCPU));
  models::initialize(*state.model, 1);
  parallel::ParameterStore& store = models::keep(*state.model, {.sharding = training.sharding});
  state.gradients = std::make_unique<optim::GradBuffer>(store);
  state.optimizer = std::make_unique<optim::AdamW>(store, config.adamw);
  state.links = std::make_unique<train::StageLinks>(*state.model);
  return state;
}

inline parallel::ExchangeTimes operator-(const parallel::ExchangeTimes& a,
                                         const parallel::ExchangeTimes& b) {
  return {a.modelled - b.modelled, a.exposed - b.exposed, a.late - b.late};
}

/// `count` steps after one that is not counted. time: virtual; nullptr: the wall's. alone: each of
/// as many ranks trains a whole model for itself, which keeps as many processors busy.
inline std::vector<Step> train_steps(const Training& training, int count,
                                     const parallel::VirtualTime* time, int64_t alone = 0) {
  std::vector<Step> steps(static_cast<size_t>(count));
  std::mutex mutex;
  const int64_t ranks = alone > 0 ? alone : training.mesh.size();
  for (Step& step : steps) step.spans.resize(static_cast<size_t>(ranks));
  parallel::run_local_ranks(
      ranks,
      [&](parallel::World& world) {
        const auto everybody = world.make_group_of_all();
        const auto own =
            alone > 0 ? nullptr : std::make_unique<parallel::Mesh>(world, training.mesh);
        const parallel::Mesh& mesh = own ? *own : parallel::Mesh::single();
        train::TrainConfig config;
        config.order = training.order;
        config.schedule.shape.kind = settings::ScheduleKind::kConstant;
        train::TrainState state = state_of(training, config, mesh);
        const data::StepBatches batches = training.batches();
        train::ActionTrace trace;
        state.observer = &trace;
        const auto exchanged = [] {
          const auto* clock = parallel::VirtualClock::of_thread();
          return clock ? clock->exchanges() : parallel::ExchangeTimes{};
        };
        run_step(state, batches, config, config.schedule.shape);
        for (Step& step : steps) {
          trace.clear();
          everybody->barrier();
          const double begin = now();
          const parallel::ExchangeTimes before = exchanged();
          run_step(state, batches, config, config.schedule.shape);
          const parallel::ExchangeTimes mine = exchanged() - before;
          everybody->barrier();
          const double end = now();
          const std::lock_guard lock(mutex);
          step.spans[static_cast<size_t>(world.rank())] = trace.spans();
          step.exchanges.modelled += mine.modelled;
          step.exchanges.exposed += mine.exposed;
          step.exchanges.late += mine.late;
          if (world.rank() == 0) step.seconds = end - begin;
        }
        if (!mesh.all().is_alone()) return;
        for (Step& step : steps) {
          everybody->barrier();
          const double begin = now();
          state.optimizer->step(*state.gradients, 1e-4, 1);
          if (world.rank() == 0) step.update_s = now() - begin;
        }
      },
      1, time);
  return steps;
}

}  // namespace danlu::bench
