#include <gmock/gmock.h>

#include <algorithm>

#include "base/error.h"
#include "plan/estimate.h"
#include "plan/rank_memory.h"
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
  for (const Measured& row : std::vector<Measured>{{Sharding::kNone, 2, 1, 16, 4},
                                                   {Sharding::kState, 4, 4, 8.5, 4.5},
                                                   {Sharding::kGradients, 4, 4, 5.5, 13.5},
                                                   {Sharding::kParameters, 2, 4, 8, 14.221},
                                                   {Sharding::kParameters, 8, 1, 2, 6.223}}) {
    const Request request = measured(row.ranks, row.sharding, row.passes);
    const arch::Stage whole = arch::whole_of(request.model);
    const auto parameters = static_cast<double>(arch::parameter_count(request.model));
    const auto kept = static_cast<double>(memory_of(request, whole, {}).kept());
    EXPECT_NEAR(kept / parameters, row.kept, 0.002 * row.kept);
    EXPECT_NEAR(traffic_of(request, whole).data / parameters, row.sent, 0.005 * row.sent);
  }
}

/// As counted by the transport: bench/results/schedule_amd-epyc-avx512bf16-2cores_2026-11-25.md.
TEST(Plan, SendsOverTheContextAxisWhatTheEngineWasSeenTo) {
  struct Row {
    int64_t kv_heads, ranks;
    double ring, heads;  ///< bytes of a layer, forward and backward
  };
  for (const Row& row : std::vector<Row>{{8, 2, 2097152, 1048576},
                                         {8, 8, 2883584, 458752},
                                         {2, 4, 655360, 589824},
                                         {2, 8, 720896, 458752}}) {
    Request request;
    request.model = arch::parse_model_config(Json{{"model_type", "llama"},
                                                  {"architectures", {"LlamaForCausalLM"}},
                                                  {"vocab_size", 256},
                                                  {"hidden_size", 256},
                                                  {"intermediate_size", 768},
                                                  {"num_hidden_layers", 1},
                                                  {"num_attention_heads", 8},
                                                  {"num_key_value_heads", row.kv_heads},
                                                  {"rms_norm_eps", 1e-6},
                                                  {"max_position_embeddings", 512},
                                                  {"tie_word_embeddings", false},
                                                  {"hidden_act", "silu"}},
                                             "test");
    request.precision = settings::Precision::kF32;
    request.tokens = 512;
    const arch::Stage whole = arch::whole_of(request.model);
    request.mesh.context = {.ring = row.ranks};
    EXPECT_EQ(traffic_of(request, whole).context, row.ring) << row.kv_heads << " " << row.ranks;
    request.mesh.context = {.ulysses = row.ranks};
    EXPECT_EQ(traffic_of(request, whole).context, row.heads) << row.kv_heads << " " << row.ranks;
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
  // Forwards of the layers once more, of nothing else: a quarter of all but the head's part.
  const double more = full.simulated.seconds / none.simulated.seconds;
  EXPECT_GT(more, 1.2);
  EXPECT_LT(more, 4.0 / 3);
  EXPECT_GT(selective.simulated.seconds, none.simulated.seconds);
  EXPECT_LT(selective.simulated.seconds, full.simulated.seconds);
}

TEST(Plan, AutoShowsTheFastestThatFit) {
  const Machine machine = load_machine("a100-80g");
  const auto plans =
      search_plans(measured(1, Sharding::kNone, 1), machine, {.world = 8, .samples = 64});
  ASSERT_EQ(plans.size(), 10U);
  for (size_t i = 0; i < plans.size(); ++i) {
    EXPECT_TRUE(plans[i].fits());
    EXPECT_EQ(plans[i].world(), 8);
    if (i > 0) {
      EXPECT_GE(plans[i].step_s, plans[i - 1].step_s);
    }
  }
}

TEST(Plan, AStageAloneHasTheMemoryThatItHasInTheModel) {
  for (const char* recompute : {"none", "selective", "full"}) {
    Request request = measured(4, Sharding::kState, 6);
    request.pipeline = {.stages = 3, .virtual_stages = 2};
    request.mesh.pipeline = 3;
    request.mesh.ring = true;
    request.order = arch::PipelineOrder::kInterleaved;
    request.recompute = {.granularity = recompute};
    const std::vector<StageMemory> all = memory_by_stage(request);
    for (size_t s = 0; s < all.size(); ++s) {
      const auto index = static_cast<int64_t>(s);
      EXPECT_EQ(memory_alone(request, all[s].stage, index).total(), all[s].memory.total());
      EXPECT_EQ(elements_alone(request, all[s].stage).products,
                elements_of(request, all[s].stage).products);
    }
  }
}

TEST(Plan, ExchangesGoThroughTheLinksThatTheirRanksHave) {
  // rank = ((stage · dp + data) · cp + context) · tp + tensor, nodes of 8.
  Request request = measured(4, Sharding::kNone, 4);
  request.mesh.tensor = 2;
  request.pipeline.stages = request.mesh.pipeline = 2;
  const Plan plan = make_plan(request, load_machine("a100-80g"));
  const StagePlan& stage = plan.stages[0];
  EXPECT_EQ(stage.tensor.network, 0);
  EXPECT_EQ(stage.data.network, 0);   // four copies, two ranks apart: one node
  EXPECT_EQ(stage.pipeline.node, 0);  // the next stage is the next node
  EXPECT_DOUBLE_EQ(stage.pipeline.network, stage.traffic.pipeline);
  request.mesh.data = 8;
  const Plan wide = make_plan(request, load_machine("a100-80g"));
  // Rings of eight over two nodes: of four ranks of a node one sends to the other.
  EXPECT_DOUBLE_EQ(wide.stages[0].data.network, 0.25 * wide.stages[0].traffic.data);
}

TEST(Plan, MoreThanABackwardCanHideIsExposed) {
  const Machine machine = load_machine("a100-80g");
  Request request = measured(64, Sharding::kNone, 1);
  const Plan one = make_plan(request, machine);
  EXPECT_GT(one.exposed_s, 0);
  request.num_micro_batches = 8;
  // The same sums, once a step.
  EXPECT_NEAR(make_plan(request, machine).exposed_s, one.exposed_s, 1e-3 * one.exposed_s);
  request.sharding = Sharding::kGradients;  // a half of the sum, but in every pass
  EXPECT_GT(make_plan(request, machine).exposed_s, one.exposed_s);
}

TEST(Plan, OffloadTakesStateToTheHostAndTime) {
  const Machine machine = load_machine("a100-80g");
  Request request = measured(1, Sharding::kNone, 1);
  const Plan here = make_plan(request, machine);
  request.state_in_files = true;
  const Plan there = make_plan(request, machine);
  const auto parameters = static_cast<double>(here.parameters);
  EXPECT_DOUBLE_EQ(there.host_bytes, 12 * parameters);
  EXPECT_LT(there.memory(), here.memory());
  // Down in f32, up in bf16.
  EXPECT_GT(there.optimizer_s, parameters * (4 + 2) / machine.host_link_bytes_per_s);
}

TEST(Plan, ActivationsThatLeaveTakeTheirWayBesideTheWork) {
  Machine machine = load_machine("a100-80g");
  Request request = measured(1, Sharding::kNone, 4);
  request.tokens = 4096;
  const Plan here = make_plan(request, machine);
  request.offload.to = settings::OffloadTo::kHost;
  const Plan there = make_plan(request, machine);
  EXPECT_LT(there.memory(), here.memory());
  EXPECT_GT(there.away_bytes, 0.5 * static_cast<double>(here.stages[0].memory.activations));
  EXPECT_DOUBLE_EQ(there.host_bytes, there.away_bytes);  // one pass under way
  // So slow a link that nothing hides it: out and back in every pass.
  machine.host_link_bytes_per_s = 1e6;
  const Plan slow = make_plan(request, machine);
  EXPECT_NEAR(slow.simulated.seconds, 4 * 2 * slow.away_bytes / 1e6, 1e-3 * slow.simulated.seconds);
  machine.host_link_bytes_per_s = 1e15;
  EXPECT_DOUBLE_EQ(make_plan(request, machine).step_s, here.step_s);
}

TEST(Plan, AFailureCostsHalfAnIntervalAndReading) {
  Plan plan = make_plan(measured(1, Sharding::kNone, 1), load_machine("a100-80g"));
  EXPECT_EQ(plan.failure_s(), 0);
  plan.save_steps = 100;
  EXPECT_DOUBLE_EQ(plan.failure_s(), 50 * plan.step_s + plan.restart_s);
  EXPECT_DOUBLE_EQ(plan.restart_bytes, 14.0 * static_cast<double>(plan.parameters));
}

// Square products of an Ascend 910B2 in bf16, TFLOP/s: zzc0721/torch-performance-test-data, issue
// 109.
TEST(LayerTime, ProductsOfEverySizeTakeWhatWasMeasured) {
  Machine machine = load_machine("atlas-800t-a2");
  machine.reachable = 0.89;  // single products; the file's is that of a training
  for (const auto& [size, tflops] : std::vector<std::pair<double, double>>{
           {1024, 99.86}, {2048, 248.3}, {4096, 315.36}, {8192, 301.23}, {10240, 300.94}}) {
    const double seconds = product_seconds({size, size, size}, machine, machine.bf16_flops, 2);
    EXPECT_NEAR(2 * size * size * size / seconds / 1e12, tflops, 0.1 * tflops) << size;
  }
}

// gameofdimension/limulidae: all-gathers of a 910B node among 2, 4 and 8, GB/s of the whole result.
TEST(Machine, AFullMeshGivesSmallGroupsLess) {
  const Machine machine = load_machine("atlas-800t-a2");
  for (const auto& [members, speed] :
       std::vector<std::pair<int64_t, double>>{{2, 38}, {4, 64}, {8, 149}}) {
    const auto ranks = static_cast<double>(members);
    const double sent = speed * 1e9 * (ranks - 1) / ranks;
    EXPECT_NEAR(machine.path(members, 1).link.bytes_per_s, sent, 0.2 * sent) << members;
  }
}

TEST(Machine, RingsUseTheNetworkPortOfEachMember) {
  const Machine machine = load_machine("a100-80g");
  EXPECT_EQ(machine.path(8, 1).network_share, 0);
  const Path alone = machine.path(4, 8);  // one rank of each node
  EXPECT_EQ(alone.network_share, 1);
  EXPECT_DOUBLE_EQ(alone.link.bytes_per_s, 0.7 * 25e9);
  const Path four = machine.path(16, 2);
  EXPECT_EQ(four.network_share, 0.25);
  EXPECT_DOUBLE_EQ(four.link.bytes_per_s, 0.7 * 100e9);
}

TEST(Machine, TheShippedFilesAreRead) {
  for (const std::string& name : machine_names()) {
    const Machine machine = load_machine(name);
    EXPECT_GT(machine.memory_bytes, 1e9) << name;
    EXPECT_GE(machine.node.bytes_per_s, machine.network.bytes_per_s) << name;
  }
  EXPECT_DOUBLE_EQ(load_machine("a100-80g").bf16_flops, 312e12);
  EXPECT_FALSE(load_machine("a100-80g").is_host);
  EXPECT_TRUE(load_machine("cpu-node").is_host);
}

TEST(Machine, WhereDevicesAreTheHostASearchOffloadsNothingToIt) {
  // Room for weights and gradients, and not for the state.
  const Request request = measured(1, Sharding::kNone, 1);
  Machine machine = load_machine("cpu-node");
  const auto offloads = [&] {
    const auto plans = search_plans(request, machine, {.world = 1, .samples = 8});
    return std::any_of(plans.begin(), plans.end(),
                       [](const Plan& plan) { return plan.request.state_in_files; });
  };
  Request alone = request;
  const int64_t whole = make_plan(alone, machine).memory();
  alone.state_in_files = true;
  machine.memory_bytes = static_cast<double>(whole + make_plan(alone, machine).memory()) / 2;
  EXPECT_FALSE(offloads());
  machine.is_host = false;
  EXPECT_TRUE(offloads());
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
  EXPECT_THAT(error_of("is_host: 1\n"), HasSubstr("is_host must be true or false, got '1'"));
  std::string whole;
  for (const char* key : {"memory_gb",          "host_memory_gb",
                          "bf16_tflops",        "f16_tflops",
                          "f32_tflops",         "memory_gb_per_s",
                          "node_link_gb_per_s", "node_link_latency_us",
                          "network_gb_per_s",   "network_latency_us",
                          "disk_gb_per_s",      "allocator_share",
                          "attention_share",    "matrix_units",
                          "tile_rows",          "tile_columns",
                          "kernel_us",          "reachable_memory_share",
                          "node_links",         "reachable_link_share",
                          "host_link_gb_per_s", "host_memory_gb_per_s"})
    whole += std::string(key) + ": 1\n";
  EXPECT_THAT(error_of(whole + "reachable_share: 1\ndevices_per_node: 0.5\n"),
              HasSubstr("a whole number"));
  EXPECT_THAT(error_of(whole + "reachable_share: 60\ndevices_per_node: 8\n"),
              HasSubstr("at most 1"));
}

}  // namespace
}  // namespace danlu::plan
