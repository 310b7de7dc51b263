// What a pipeline's ranks do, against the simulation of their schedules: passes cost here what the
// simulation is told, in virtual time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "models/weight_files.h"
#include "parallel/comm/local.h"
#include "plan/simulate.h"
#include "train/action_trace.h"
#include "train/support.h"

namespace danlu::train {
namespace virtual_pipeline_test {

using arch::PipelineOrder, arch::Work;

constexpr double kForward = 1, kBackwardInput = 1.5, kBackwardWeight = 0.75;

thread_local double spent_by_thread = 0;

/// Has passes cost a fixed time.
class Costs : public ActionTrace {
 public:
  void begin(const arch::Action& action) override {
    ActionTrace::begin(action);
    switch (action.work) {
      case Work::kForward:
        spent_by_thread += kForward;
        break;
      case Work::kBackward:
        spent_by_thread += kBackwardInput + kBackwardWeight;
        break;
      case Work::kBackwardInput:
        spent_by_thread += kBackwardInput;
        break;
      case Work::kBackwardWeight:
        spent_by_thread += kBackwardWeight;
        break;
      default:
        break;
    }
  }
};

struct Case {
  PipelineOrder order;
  int64_t stages, chunks, micro_batches;
  double message_s = 0, latency_s = 0;
};

constexpr int64_t kTokens = 8;

arch::ModelConfig config_of(const Case& c) {
  Json json = test::tiny_config_json();
  json["num_hidden_layers"] = c.stages * c.chunks;
  return arch::family_of(json).parse(json);
}

std::vector<arch::Stage> stages_of(const Case& c) {
  return arch::stages_of(config_of(c),
                         {.stages = c.stages, .virtual_stages = c.chunks > 1 ? c.chunks : 0});
}

data::StepBatches step_of_equal_batches(const Case& c) {
  data::Sample sample;
  for (int32_t i = 0; i < kTokens; ++i) sample.ids.push_back(3 + i);
  sample.labels = sample.ids;
  data::StepBatches step;
  for (int64_t i = 0; i < c.micro_batches; ++i)
    step.micro_batches.push_back(data::make_batch({sample}));
  step.num_tokens = c.micro_batches * kTokens;
  step.num_targets = c.micro_batches * (kTokens - 1);
  return step;
}

std::vector<std::vector<ActionSpan>> trained(const Case& c) {
  std::vector<std::vector<ActionSpan>> spans(static_cast<size_t>(c.stages));
  parallel::VirtualTime time;
  time.node = {.bytes_per_s = kTokens * 32 * 4 / c.message_s, .latency_s = c.latency_s};
  time.processor_seconds = [] { return spent_by_thread; };
  parallel::run_local_ranks(
      c.stages,
      [&](parallel::World& world) {
        const parallel::Mesh mesh(world, {.pipeline = c.stages, .ring = c.chunks > 1});
        auto model = std::make_unique<models::CausalLM>(
            config_of(c), stages_of(c)[static_cast<size_t>(mesh.stage())], mesh, at::kFloat,
            at::Device(at::kCPU));
        models::initialize(*model, 3);
        TrainConfig config;
        config.order = c.order;
        TrainState state = test::make_state(std::move(model), config);
        Costs costs;
        state.observer = &costs;
        run_step(state, step_of_equal_batches(c), config, config.schedule.shape);
        spans[static_cast<size_t>(world.rank())] = costs.spans();
      },
      1, &time);
  return spans;
}

plan::Simulated simulated(const Case& c) {
  std::vector<arch::Schedule> schedules;
  for (int64_t s = 0; s < c.stages; ++s)
    schedules.push_back(arch::schedule_of(c.order, s, c.stages, c.chunks, c.micro_batches));
  const std::vector<plan::WorkTimes> times(static_cast<size_t>(c.chunks),
                                           {kForward, kBackwardInput, kBackwardWeight});
  const auto stages = static_cast<size_t>(c.stages);
  return plan::simulate(schedules, {stages, times}, {stages, {c.message_s, c.latency_s}});
}

class VirtualPipeline : public testing::TestWithParam<Case> {};

TEST_P(VirtualPipeline, DoesWhatTheSimulationSays) {
  const auto ranks = trained(GetParam());
  const plan::Simulated expected = simulated(GetParam());
  const PipelineTimes times = times_of(ranks);
  EXPECT_NEAR(times.seconds, expected.seconds, 1e-9);
  EXPECT_NEAR(times.bubble(), expected.bubble, 1e-9);
  auto span = expected.spans.begin();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    EXPECT_NEAR(times.busy[rank], expected.busy[rank], 1e-9);
    for (const auto& [action, begin, end] : ranks[rank]) {
      if (action.work != span->work) continue;  // sends and receives
      SCOPED_TRACE(testing::Message() << "stage " << rank << " micro-batch " << action.micro_batch
                                      << " chunk " << action.chunk);
      ASSERT_EQ(span->stage, static_cast<int64_t>(rank));
      EXPECT_EQ(span->micro_batch, action.micro_batch);
      EXPECT_EQ(span->chunk, action.chunk);
      EXPECT_NEAR(span->start, begin, 1e-9);
      EXPECT_NEAR(span->end, end, 1e-9);
      if (++span == expected.spans.end()) break;
    }
  }
  EXPECT_EQ(span, expected.spans.end());
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  const char* const names[] = {"OneForwardOneBackward", "Interleaved", "ZeroBubble"};
  return fmt::format("{}_pp{}{}", names[static_cast<int>(info.param.order)], info.param.stages,
                     info.param.message_s > 0 ? "_links" : "");
}

INSTANTIATE_TEST_SUITE_P(All, VirtualPipeline,
                         testing::Values(Case{PipelineOrder::kOneForwardOneBackward, 2, 1, 5},
                                         Case{PipelineOrder::kOneForwardOneBackward, 4, 1, 8, 0.25,
                                              0.125},
                                         Case{PipelineOrder::kInterleaved, 2, 2, 4, 0.25, 0.125},
                                         Case{PipelineOrder::kInterleaved, 4, 2, 8},
                                         Case{PipelineOrder::kZeroBubble, 4, 1, 8},
                                         Case{PipelineOrder::kZeroBubble, 3, 1, 7, 0.25, 0.125}),
                         name_of);

}  // namespace virtual_pipeline_test
}  // namespace danlu::train
