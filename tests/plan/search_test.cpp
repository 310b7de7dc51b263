// What --auto leaves out without simulating it, against what the simulation says.
#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "plan/bounds.h"
#include "plan/estimate.h"

namespace danlu::plan {
namespace search_test {

using settings::Sharding;

arch::ModelConfig llama(int64_t layers, int64_t hidden, int64_t ffn, int64_t vocab) {
  return arch::parse_model_config(Json{{"model_type", "llama"},
                                       {"architectures", {"LlamaForCausalLM"}},
                                       {"vocab_size", vocab},
                                       {"hidden_size", hidden},
                                       {"intermediate_size", ffn},
                                       {"num_hidden_layers", layers},
                                       {"num_attention_heads", 32},
                                       {"num_key_value_heads", 8},
                                       {"rms_norm_eps", 1e-5},
                                       {"max_position_embeddings", 8192},
                                       {"tie_word_embeddings", vocab % 2 == 1},
                                       {"hidden_act", "silu"}},
                                  "test");
}

void expect_bound(const Request& request, const Machine& machine) {
  const double step = make_plan(request, machine).step_s,
               bound = Bounds(request, machine).seconds(request);
  EXPECT_LE(bound, step * (1 + 1e-9))
      << request.mesh.pipeline << " stages of " << request.model.num_layers << " layers, "
      << request.num_micro_batches << " micro-batches";
}

TEST(Search, TheBoundOfADeepPipelineWithALargeHeadIsBelowItsStep) {
  Request request;
  request.model = llama(32, 4096, 14336, 128256);  // Llama-3-8B
  request.pipeline.stages = request.mesh.pipeline = 16;
  request.tokens = 4096;
  request.num_micro_batches = 16;
  const Machine machine = load_machine("a100-80g");
  expect_bound(request, machine);
  // And says something: messages between stages are all that it leaves out.
  EXPECT_GT(Bounds(request, machine).seconds(request), 0.9 * make_plan(request, machine).step_s);
}

TEST(Search, NoStepIsShorterThanItsBound) {
  std::mt19937 random(11);
  const auto one_of = [&](const std::vector<int64_t>& values) {
    return values[random() % values.size()];
  };
  for (int round = 0; round < 300; ++round) {
    Request request;
    const int64_t stages = one_of({1, 2, 4, 8}), runs = stages > 1 ? one_of({1, 1, 2, 4}) : 1;
    const int64_t layers = stages * runs * one_of({1, 2, 3});
    request.model = llama(layers, 1024, one_of({512, 4096}), one_of({1000, 1001, 150000, 150001}));
    if (round % 3 == 0) {  // some layers see less: stages differ
      for (int64_t layer = 0; layer < layers; ++layer)
        request.model.sliding_window.push_back(one_of({0, 128}));
    }
    request.mesh = {.tensor = one_of({1, 2}),
                    .data = one_of({1, 4, 16}),
                    .pipeline = stages,
                    .context = {.ulysses = one_of({1, 2}), .ring = one_of({1, 2})},
                    .sequence_parallel = true,
                    .ring = runs > 1};
    request.pipeline = {.stages = stages, .virtual_stages = runs > 1 ? runs : 0};
    request.order =
        runs > 1 ? arch::PipelineOrder::kInterleaved : arch::PipelineOrder::kOneForwardOneBackward;
    request.sharding = static_cast<Sharding>(random() % 4);
    request.state_in_files = random() % 2 == 0;
    request.tokens = one_of({256, 4096});
    request.num_micro_batches = std::max(one_of({1, 3, 16}), runs > 1 ? stages : 1);
    if (random() % 2 == 0)
      request.recompute = {.granularity = "full", .method = "block", .num_layers = 1};
    expect_bound(request, load_machine(random() % 2 == 0 ? "a100-80g" : "atlas-800t-a2"));
  }
}

/// One device has nothing to split, so that recompute and offload are all there is to choose.
Request of_one_device() {
  Request request;
  request.model = llama(16, 2048, 5632, 32000);
  request.tokens = 4096;
  return request;
}

/// Every combination that --auto may choose for `request`.
std::vector<Plan> all_choices(const Request& request, const Machine& machine) {
  std::vector<Plan> all;
  for (const settings::RecomputeFlags& recompute : std::vector<settings::RecomputeFlags>{
           {},
           {.granularity = "selective"},
           {.granularity = "full", .method = "block", .num_layers = 4},
           {.granularity = "full", .method = "block", .num_layers = 8},
           {.granularity = "full"}}) {
    for (const bool offload : {false, true}) {
      Request one = request;
      one.recompute = recompute;
      one.state_in_files = offload;
      all.push_back(make_plan(one, machine));
    }
  }
  return all;
}

TEST(Search, ChoosesTheFastestThatFitsDeviceAndHost) {
  Machine machine = load_machine("a100-80g");
  int compared = 0, none = 0;
  for (const double host : {1e9, 2e12}) {
    for (double memory = 8e9; memory < 36e9; memory += 0.5e9) {
      machine.memory_bytes = memory;
      machine.host_bytes = host;
      const Plan found =
          search_plans(of_one_device(), machine, {.world = 1, .samples = 1, .limit = 1}).at(0);
      double fastest = 0;
      for (const Plan& plan : all_choices(of_one_device(), machine)) {
        if (plan.fits() && (fastest == 0 || plan.step_s < fastest)) fastest = plan.step_s;
      }
      EXPECT_EQ(found.fits(), fastest > 0) << memory;
      if (found.fits()) {
        EXPECT_NEAR(found.step_s, fastest, 1e-9 * fastest) << memory;
      }
      ++(fastest > 0 ? compared : none);
    }
  }
  EXPECT_GT(compared, 10);
  EXPECT_GT(none, 10);
}

TEST(Search, ActivationsThatLeaveFillTheHostToo) {
  Machine machine = load_machine("a100-80g");
  Request request = of_one_device();
  request.offload.to = settings::OffloadTo::kHost;
  request.recompute = {.granularity = "selective"};
  machine.memory_bytes = 1e12;
  for (const double share : {0.99, 1.01}) {
    request.mesh.pipeline = request.pipeline.stages = 4;
    request.num_micro_batches = 8;
    machine.host_bytes = share * make_plan(request, machine).host_bytes;
    Bounds bounds(request, machine);
    EXPECT_NEAR(bounds.host_bytes(request), make_plan(request, machine).host_bytes, 1);
    EXPECT_EQ(make_plan(request, machine).fits(), share > 1);
  }
}

}  // namespace search_test
}  // namespace danlu::plan
