// Plans of models with experts, by the sizes that their configurations have.
#include <gmock/gmock.h>

#include <ctime>

#include "base/error.h"
#include "plan/estimate.h"
#include "plan/expert_memory.h"
#include "plan/fit.h"
#include "plan/layer_work.h"

namespace danlu::plan {
namespace expert_plan_test {

/// config.json of DeepSeek-V3, without the layer that predicts further ahead.
arch::ModelConfig deepseek_v3() {
  return arch::parse_model_config(
      Json::parse(R"({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
    "vocab_size": 129280, "hidden_size": 7168, "num_hidden_layers": 61, "intermediate_size": 18432,
    "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
    "n_shared_experts": 1, "n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": true,
    "first_k_dense_replace": 3, "moe_layer_freq": 1, "max_position_embeddings": 163840,
    "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false})"),
      "test");
}

arch::ModelConfig qwen3_235b() {
  return arch::parse_model_config(
      Json::parse(R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
    "vocab_size": 151936, "hidden_size": 4096, "num_hidden_layers": 94, "intermediate_size": 12288,
    "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128,
    "num_experts_per_tok": 8, "moe_intermediate_size": 1536, "norm_topk_prob": true,
    "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "hidden_act": "silu",
    "tie_word_embeddings": false})"),
      "test");
}

arch::ModelConfig mixtral_8x22b() {
  return arch::parse_model_config(
      Json::parse(R"({"architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
    "vocab_size": 32000, "hidden_size": 6144, "num_hidden_layers": 56, "intermediate_size": 16384,
    "num_attention_heads": 48, "num_key_value_heads": 8, "num_local_experts": 8,
    "num_experts_per_tok": 2, "max_position_embeddings": 65536, "rms_norm_eps": 1e-5,
    "hidden_act": "silu", "tie_word_embeddings": false})"),
      "test");
}

/// DeepSeek-V3 as MindSpeed-LLM's script lays it out, on 1024 devices.
Request v3_request() {
  Request request;
  request.model = deepseek_v3();
  request.mesh = {.tensor = 4, .data = 32, .pipeline = 8, .sequence_parallel = true, .expert = 8};
  request.pipeline.stages = 8;
  request.pipeline.noop_layers = {61, 62, 63};
  request.sharding = settings::Sharding::kState;
  request.recompute = {.granularity = "full"};
  request.tokens = request.longest = 4096;
  request.num_micro_batches = 120;  // 3840 samples
  return request;
}

Machine atlas() { return load_machine("atlas-800t-a2"); }

template <typename Work>
double processor_seconds(const Work& work) {
  const std::clock_t begin = std::clock();
  work();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

TEST(ExpertPlan, OfDeepSeekV3HasTheMemoryOfEachRank) {
  const Request request = v3_request();
  EXPECT_NEAR(static_cast<double>(arch::parameter_count(request.model)), 671.03e9, 0.01e9);
  const Plan plan = make_plan(request, atlas());
  ASSERT_EQ(plan.stages.size(), 8u);
  EXPECT_EQ(plan.parameters, plan.trained);
  const int64_t hidden = 7168;
  // A layer's weights: what each rank of the tensor axis has whole, what they divide, the norms.
  const int64_t attention = (1536 + 576) * hidden + 1536 + 512 +
                            (128 * 192 * 1536 + 128 * 256 * 512 + hidden * 128 * 128) / 4;
  const int64_t norms = 2 * hidden, router = 256 * hidden + 256;
  const int64_t shared = 3 * hidden * 2048 / 4;
  const int64_t experts = 256 * 3 * hidden * 2048 / (8 * 4);
  const int64_t layer = attention + norms + router + shared;
  const Memory& memory = plan.stages[2].memory;
  EXPECT_EQ(memory.weights, 2 * 8 * (layer + experts));
  EXPECT_EQ(memory.gradients, 4 * 8 * (layer + experts));
  // 32 ranks hold the same of a layer, 4 of them the same experts.
  EXPECT_NEAR(static_cast<double>(memory.moments), 8.0 * 8 * (layer / 32 + experts / 4), 1e4);
  EXPECT_NEAR(static_cast<double>(memory.masters), 2.0 * 8 * (layer / 32 + experts / 4), 1e4);
  const Memory& first = plan.stages[0].memory;
  const int64_t dense = 3 * hidden * 18432 / 4;
  EXPECT_EQ(first.weights, 2 * (8 * (attention + norms) + 3 * dense +
                                5 * (router + shared + experts) + 129280 / 4 * hidden));
}

TEST(ExpertPlan, DoraOfOtherProductsLetsRowsTravelBesideTheSharedExpert) {
  const auto bytes = [](const char* target, bool dora) {
    Request request = v3_request();
    request.adapters.emplace();
    request.adapters->target_modules = {target};
    request.adapters->dora = dora;
    const ExpertBytes of = expert_bytes(request, uses_of(request), listing_of(request).specs,
                                        /*layer=*/10, settings::LayerRecompute::kNone);
    return std::pair(of.early, of.backward);
  };
  EXPECT_EQ(bytes("o_proj", true), bytes("o_proj", false));
  EXPECT_NE(bytes("down_proj", true), bytes("down_proj", false)) << "ranks wait in it";
}

TEST(ExpertPlan, OfPublishedModelsTakesLittleTime) {
  Request v3 = v3_request();
  EXPECT_LT(processor_seconds([&] { make_plan(v3, atlas()); }), 3);
  v3.adapters = settings::new_adapters();
  EXPECT_LT(processor_seconds([&] { make_plan(v3, atlas()); }), 3);

  Request qwen;
  qwen.model = qwen3_235b();
  EXPECT_NEAR(static_cast<double>(arch::parameter_count(qwen.model)), 235.09e9, 0.01e9);
  qwen.mesh = {.tensor = 4, .data = 32, .pipeline = 2, .sequence_parallel = true, .expert = 32};
  qwen.pipeline.stages = 2;
  qwen.sharding = settings::Sharding::kState;
  qwen.recompute = {.granularity = "full"};
  qwen.tokens = qwen.longest = 4096;
  qwen.num_micro_batches = 8;
  EXPECT_LT(processor_seconds([&] {
              const Plan plan = make_plan(qwen, atlas());
              EXPECT_GT(plan.memory(), 0);
              for (const StageMemory& stage : memory_by_stage(qwen))
                EXPECT_GT(stage.memory.weights, int64_t{2} * 235 * 1000000000 / 256 / 2);
            }),
            3);

  Request mixtral;
  mixtral.model = mixtral_8x22b();
  EXPECT_NEAR(static_cast<double>(arch::parameter_count(mixtral.model)), 140.62e9, 0.01e9);
  mixtral.mesh = {.tensor = 8, .data = 8, .pipeline = 4, .sequence_parallel = true, .expert = 8};
  mixtral.pipeline.stages = 4;
  mixtral.sharding = settings::Sharding::kState;
  mixtral.tokens = mixtral.longest = 4096;
  mixtral.num_micro_batches = 32;
  Plan plan;
  EXPECT_LT(processor_seconds([&] { plan = make_plan(mixtral, atlas()); }), 3);
  // One expert of a layer on each of eight ranks, in eight parts.
  const int64_t layer = (2 * 6144 * 6144 + 2 * 1024 * 6144) / 8 + 2 * 6144 + 8 * 6144;
  EXPECT_EQ(plan.stages[1].memory.weights, 2 * 14 * (layer + int64_t{3} * 6144 * 16384 / 8));
}

TEST(ExpertPlan, ATokenCostsTheExpertsThatItIsSentTo) {
  const Request request = v3_request();
  Request alone = request;
  alone.mesh = {};
  double products = 0;
  for (int64_t layer = 0; layer < 61; ++layer) products += work_of(alone, layer).products;
  // 37.55e9 parameters are met by a token, less both tables (2 * 0.927e9) and the norms.
  EXPECT_NEAR(products / 2 / 4096, 35.70e9, 0.02e9);
  // On a rank, of the experts' part a fourth, whatever the expert axis.
  const LayerWork work = work_of(request, 10);
  EXPECT_DOUBLE_EQ(work.down, 2.0 * 4096 * 7168 * (8 * 2048 + 2048) / 4);
}

TEST(ExpertPlan, RowsTravelToOtherRanksAloneAndOnceMoreWhereLayersRunAgain) {
  const Request request = v3_request();
  const Plan plan = make_plan(request, atlas());
  // Each of four tensor ranks sends the rows of its own tokens.
  const double rows = 4096.0 / 4 * 8 * 7 / 8, row = 7168 * 2, counts = 7 * 256 * 8;
  const double forward = 2 * rows * row + counts, backward = 2 * rows * row;
  const auto close = [](double value) { return testing::DoubleNear(value, 1e-6 * value); };
  EXPECT_THAT(plan.stages[2].traffic.expert, close(120 * 8 * (2 * forward + backward)));
  EXPECT_THAT(plan.stages[0].traffic.expert, close(120 * 5 * (2 * forward + backward)));
  EXPECT_GT(plan.parts.expert, 0);
  Request kept = request;
  kept.recompute = {};
  EXPECT_THAT(make_plan(kept, atlas()).stages[2].traffic.expert,
              close(120 * 8 * (forward + backward)));
  Request undivided = request;
  undivided.mesh.expert = 1;
  EXPECT_EQ(make_plan(undivided, atlas()).stages[2].traffic.expert, 0);
}

TEST(ExpertPlan, TheRankWithTheMostRowsNeedsMoreMemoryAndTime) {
  Request request = v3_request();
  request.recompute = {};
  const Plan even = make_plan(request, atlas());
  EXPECT_EQ(request.expert_rows(), 4096 * 8);
  request.expert_imbalance = 1.5;
  EXPECT_EQ(request.expert_rows(), 4096 * 8 * 3 / 2);
  const Plan uneven = make_plan(request, atlas());
  EXPECT_GT(uneven.stages[2].memory.activations, even.stages[2].memory.activations);
  EXPECT_EQ(uneven.stages[2].memory.kept(), even.stages[2].memory.kept());
  EXPECT_GT(uneven.step_s, even.step_s);
  EXPECT_EQ(uneven.stages[2].traffic.expert, even.stages[2].traffic.expert);
  // Every token of all ranks may be sent there, as often as it is sent anywhere.
  request.expert_imbalance = 100;
  EXPECT_EQ(request.expert_rows(), 4096 * 8 * 8);
  // Where every rank has every expert, all of its rows are its own.
  request.mesh.expert = 1;
  EXPECT_EQ(request.expert_rows(), 4096 * 8);
}

TEST(ExpertPlan, AutoDividesExpertsWhereThatFits) {
  Request request;
  request.model = qwen3_235b();
  request.tokens = request.longest = 4096;
  std::vector<Plan> plans;
  EXPECT_LT(processor_seconds(
                [&] { plans = search_plans(request, atlas(), {.world = 128, .samples = 128}); }),
            30);
  ASSERT_FALSE(plans.empty());
  bool divides = false;
  for (const Plan& plan : plans) {
    EXPECT_EQ(plan.request.mesh.data % plan.request.mesh.expert, 0);
    EXPECT_EQ(128 % plan.request.mesh.expert, 0);
    divides |= plan.request.mesh.expert > 1;
  }
  EXPECT_TRUE(divides);
}

}  // namespace expert_plan_test
}  // namespace danlu::plan
