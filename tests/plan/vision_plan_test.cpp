// Plans of models that see pictures, by the sizes that their configurations have.
#include <gmock/gmock.h>

#include "plan/estimate.h"
#include "plan/fit.h"
#include "plan/layer_work.h"
#include "weights/lora/adapter_places.h"

namespace danlu::plan {
namespace vision_plan_test {

/// config.json of Qwen2-VL-7B-Instruct and Qwen2.5-VL-7B-Instruct.
arch::ModelConfig seven_billion(bool is_2_5) {
  Json json = Json::parse(R"({"vocab_size": 152064, "hidden_size": 3584, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944,
    "max_position_embeddings": 128000, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "hidden_act": "silu",
    "tie_word_embeddings": false, "image_token_id": 151655, "video_token_id": 151656,
    "vision_start_token_id": 151652, "vision_end_token_id": 151653})");
  if (is_2_5) {
    json.update(Json::parse(R"({"architectures": ["Qwen2_5_VLForConditionalGeneration"],
      "model_type": "qwen2_5_vl", "vision_config": {"depth": 32, "hidden_size": 1280,
      "intermediate_size": 3420, "num_heads": 16, "out_hidden_size": 3584, "patch_size": 14,
      "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31], "tokens_per_second": 2}})"));
  } else {
    json.update(Json::parse(R"({"architectures": ["Qwen2VLForConditionalGeneration"],
      "model_type": "qwen2_vl", "vision_config": {"depth": 32, "embed_dim": 1280, "mlp_ratio": 4,
      "num_heads": 16, "hidden_size": 3584, "patch_size": 14}})"));
  }
  return arch::parse_model_config(json, "test");
}

/// Guide (d): four stages, the tower and one layer in the first; 1024 tokens, of which the picture
/// has 262144 pixels; the tower and the merger are frozen.
Request guide_request(bool is_2_5) {
  Request request;
  request.model = seven_billion(is_2_5);
  request.mesh = {.data = 2, .pipeline = 4};
  request.pipeline.stages = 4;
  request.pipeline.chunk_list = {{1, 10, 10, 7}};
  request.pipeline.block_list = {{32, 0, 0, 0}};
  request.sharding = settings::Sharding::kState;
  request.freeze = {R"(^visual\.)"};
  request.tokens = request.longest = 1024;
  request.num_micro_batches = 32;
  request.set_visual_tokens(262144 / 784);
  return request;
}

Machine atlas() { return load_machine("atlas-800t-a2"); }

TEST(VisionPlan, OfGuideDHasTheMemoryOfEachRank) {
  for (const bool is_2_5 : {false, true}) {
    const Request request = guide_request(is_2_5);
    EXPECT_NEAR(static_cast<double>(arch::parameter_count(request.model)), 8.29e9, 0.01e9);
    const Plan plan = make_plan(request, atlas());
    ASSERT_EQ(plan.stages.size(), 4u);
    // 2 bytes a weight; of what is trained 4 of gradients, and 2 + 8 shared by two.
    const double tower = is_2_5 ? 676.6e6 : 675.8e6, table = 152064.0 * 3584, layer = 233.06e6;
    const std::vector<std::pair<double, double>> held = {
        {tower, table + layer}, {0, 10 * layer}, {0, 10 * layer}, {0, table + 7 * layer}};
    for (size_t stage = 0; stage < 4; ++stage) {
      const Memory& memory = plan.stages[stage].memory;
      const auto& [frozen, trained] = held[stage];
      EXPECT_NEAR(static_cast<double>(memory.kept()), 2 * frozen + (2 + 4 + 5) * trained,
                  0.01 * static_cast<double>(memory.kept()))
          << stage;
      EXPECT_GT(memory.pass(), 0);
    }
    EXPECT_TRUE(plan.fits());
    const std::string text = describe(plan);
    EXPECT_THAT(text, testing::HasSubstr("334 visual tokens of a sample, 1336 patches"));
    EXPECT_THAT(text, testing::HasSubstr("a rank of each stage"));
  }
}

// Published shapes, 2 a multiplication and a sum: (12 D² + 4 S D) P in a block of Qwen2-VL.
TEST(VisionPlan, OperationsOfABlockAreThoseOfItsShapes) {
  Request request = guide_request(/*is_2_5=*/false);
  const double patches = 1336, width = 1280;
  const LayerWork work = block_work(request, 3);
  EXPECT_NEAR(work.products, 2 * 12 * width * width * patches, 1);
  EXPECT_NEAR(work.core, 4 * patches * patches * width, 1);
  request.model = seven_billion(/*is_2_5=*/true);
  EXPECT_NEAR(block_work(request, 3).core, 4 * patches * 64 * width, 1) << "a window of 8 x 8";
  EXPECT_NEAR(block_work(request, 7).core, 4 * patches * patches * width, 1);
  EXPECT_NEAR(block_work(request, 3).products, 2 * patches * (4 * width * width + 3 * width * 3420),
              1);
}

TEST(VisionPlan, PicturesCostMemoryAndTime) {
  Request with = guide_request(/*is_2_5=*/false), without = with;
  without.set_visual_tokens(0);
  const Plan seeing = make_plan(with, atlas()), blind = make_plan(without, atlas());
  EXPECT_GT(seeing.simulated.busy[0], 1.3 * blind.simulated.busy[0]);
  EXPECT_EQ(seeing.stages[2].memory.total(), blind.stages[2].memory.total());
  // A tower that learns keeps its blocks' activations, of at most four micro-batches.
  Request learning = with;
  learning.freeze.clear();
  const auto pass = [](const Request& request) {
    return static_cast<double>(memory_by_stage(request)[0].memory.pass());
  };
  const double block = 1336.0 * 2 * (9 * 1280 + 2 * 5120) + 1336.0 * (16 * 4 + 2 * 8);
  EXPECT_NEAR((pass(learning) - pass(with)) / (4 * 32 * block), 1, 0.1);
  learning.recompute.granularity = "full";
  EXPECT_LT(pass(learning), 0.5 * (pass(with) + 4 * 32 * block));
}

TEST(VisionPlan, AdaptersThatAreOfferedStayOutOfTheTower) {
  Request request = guide_request(/*is_2_5=*/true);
  request.freeze.clear();
  Fit least;
  EXPECT_FALSE(nearest_fit(request, 1, /*may_adapt=*/false, &least));
  const std::optional<Fit> fit = nearest_fit(request, least.bytes - 1);
  ASSERT_TRUE(fit);
  ASSERT_TRUE(fit->request.adapters);
  for (const std::string& module : weights::chosen_modules(*fit->request.adapters, request.model))
    EXPECT_FALSE(module.starts_with("visual.")) << module;
}

}  // namespace vision_plan_test
}  // namespace danlu::plan
