#include <gmock/gmock.h>

#include "base/error.h"
#include "plan/estimate.h"
#include "support/throws.h"

namespace danlu::plan {
namespace {

using settings::Sharding;
using testing::HasSubstr;

/// The model whose bytes bench/results/parallel_bytes_2026-11-23.md has counted.
Request measured(int64_t ranks, Sharding sharding, int64_t passes) {
  Request request;
  const Json json = Json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "vocab_size": 32000, "hidden_size": 512, "num_hidden_layers": 12, "num_attention_heads": 8,
    "intermediate_size": 1536, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": false, "hidden_act": "silu"})");
  request.model = arch::parse_model_config(json, "test");
  request.mesh.data = ranks;
  request.sharding = sharding;
  request.tokens = 128;
  request.num_micro_batches = passes;
  return request;
}

struct Measured {
  Sharding sharding;
  int64_t ranks, passes;
  double kept, sent;  ///< bytes a parameter
};

TEST(Plan, KeepsAndSendsWhatTheEngineWasSeenTo) {
  for (const Measured& row : std::vector<Measured>{{Sharding::kNone, 2, 1, 18, 4},
                                                   {Sharding::kState, 4, 4, 9, 4.5},
                                                   {Sharding::kGradients, 4, 4, 6, 13.5},
                                                   {Sharding::kParameters, 2, 4, 9, 14.221},
                                                   {Sharding::kParameters, 8, 1, 2.25, 6.223}}) {
    const Request request = measured(row.ranks, row.sharding, row.passes);
    const arch::Stage whole = arch::whole_of(request.model);
    const auto parameters = static_cast<double>(arch::parameter_count(request.model));
    const auto kept = static_cast<double>(memory_of(request, whole, {}).kept());
    EXPECT_NEAR(kept / parameters, row.kept, 0.002 * row.kept);
    EXPECT_NEAR(traffic_of(request, whole).data / parameters, row.sent, 0.005 * row.sent);
  }
}

TEST(Plan, StagesHoldTheWholeModelBetweenThem) {
  Request request = measured(1, Sharding::kNone, 4);
  request.pipeline.stages = request.mesh.pipeline = 4;
  int64_t sum = 0;
  for (const arch::Stage& stage : arch::stages_of(request.model, request.pipeline))
    sum += elements_of(request, stage).all;
  EXPECT_EQ(sum, arch::parameter_count(request.model));
}

TEST(Plan, RecomputeTradesTimeForMemory) {
  const Machine machine = load_machine("a100-80g");
  Request request = measured(1, Sharding::kNone, 4);
  const Plan none = make_plan(request, machine);
  request.recompute.granularity = "selective";
  const Plan selective = make_plan(request, machine);
  request.recompute.granularity = "full";
  const Plan full = make_plan(request, machine);
  const auto kept = [](const Plan& plan) { return plan.stages[0].memory.activations; };
  EXPECT_GT(kept(none), kept(selective));
  EXPECT_GT(kept(selective), kept(full));
  // Three forwards' worth of operations; of layers, not of the head, four. A token's, by hand:
  const double layers = 12 * (2.0 * (4 * 512 * 512 + 3 * 512 * 1536) + 4 * 64 * 512);
  const double head = 2.0 * 32000 * 512;
  EXPECT_NEAR(full.simulated.seconds / none.simulated.seconds,
              (4 * layers + 3 * head) / (3 * layers + 3 * head), 1e-9);
  EXPECT_GT(selective.simulated.seconds, none.simulated.seconds);
  EXPECT_LT(selective.simulated.seconds, full.simulated.seconds);
}

TEST(Plan, AutoShowsTheFastestThatFit) {
  const Machine machine = load_machine("a100-80g");
  const auto plans = search_plans(measured(1, Sharding::kNone, 1), machine, 8, 64, 10);
  ASSERT_EQ(plans.size(), 10U);
  for (size_t i = 0; i < plans.size(); ++i) {
    EXPECT_TRUE(plans[i].fits());
    EXPECT_EQ(plans[i].world(), 8);
    if (i > 0) {
      EXPECT_GE(plans[i].step_s, plans[i - 1].step_s);
    }
  }
}

TEST(Machine, TheShippedFilesAreRead) {
  for (const std::string& name : machine_names()) {
    const Machine machine = load_machine(name);
    EXPECT_GT(machine.memory_bytes, 1e9) << name;
    EXPECT_GE(machine.node.bytes_per_s, machine.network.bytes_per_s) << name;
  }
  EXPECT_DOUBLE_EQ(load_machine("a100-80g").bf16_flops, 312e12);
}

std::string error_of(const std::string& text) {
  return test::error_of<UsageError>([&] { parse_machine(text, "my.yaml"); });
}

TEST(Machine, ErrorsNameTheLineAndTheRule) {
  EXPECT_THAT(error_of("devices_per_node: 8\nmemory_gbs: 80\n"),
              HasSubstr("my.yaml:2: unknown key memory_gbs"));
  EXPECT_THAT(error_of("memory_gb: -1\n"),
              HasSubstr("memory_gb must be a number above 0, got '-1'"));
  EXPECT_THAT(error_of("memory_gb: 80\n"), HasSubstr("devices_per_node"));
  std::string whole;
  for (const char* key : {"memory_gb", "host_memory_gb", "bf16_tflops", "f16_tflops", "f32_tflops",
                          "memory_gb_per_s", "node_link_gb_per_s", "node_link_latency_us",
                          "network_gb_per_s", "network_latency_us", "disk_gb_per_s",
                          "allocator_share"})
    whole += std::string(key) + ": 1\n";
  EXPECT_THAT(error_of(whole + "reachable_share: 1\ndevices_per_node: 0.5\n"),
              HasSubstr("a whole number"));
  EXPECT_THAT(error_of(whole + "reachable_share: 60\ndevices_per_node: 8\n"),
              HasSubstr("at most 1"));
}

}  // namespace
}  // namespace danlu::plan
