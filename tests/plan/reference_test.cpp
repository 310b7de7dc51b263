// A reference beside the policy costs its weights, and nothing else.
#include <gtest/gtest.h>

#include "arch/model_config.h"
#include "plan/memory.h"

namespace danlu::plan {
namespace {

arch::ModelConfig of_layers(int64_t layers) {
  Json json = Json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "vocab_size": 320, "hidden_size": 64, "num_attention_heads": 8, "intermediate_size": 96,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
    "hidden_act": "silu"})");
  json["num_hidden_layers"] = layers;
  return arch::parse_model_config(json, "test");
}

Request training(settings::Sharding sharding, int64_t stages) {
  Request request;
  request.model = of_layers(4);
  request.mesh.data = 2;
  request.mesh.pipeline = stages;
  request.pipeline.stages = stages;
  request.sharding = sharding;
  request.tokens = 64;
  request.num_micro_batches = 4;
  return request;
}

TEST(ReferenceMemory, IsThatOfTheWeightsOfItsStages) {
  for (const auto sharding : {settings::Sharding::kNone, settings::Sharding::kParameters}) {
    for (const int64_t stages : {1, 2}) {
      Request request = training(sharding, stages);
      const auto alone = memory_by_stage(request);
      request.frozen = {{of_layers(8)}};
      const auto beside = memory_by_stage(request);
      int64_t more = 0;
      for (size_t stage = 0; stage < alone.size(); ++stage) {
        const Memory &a = alone[stage].memory, &b = beside[stage].memory;
        more += b.weights - a.weights;
        EXPECT_EQ(b.gradients, a.gradients);
        EXPECT_EQ(b.masters + b.moments, a.masters + a.moments);
        EXPECT_EQ(b.activations, a.activations);
      }
      const int64_t shared = sharding == settings::Sharding::kParameters ? 2 : 1;
      EXPECT_EQ(more, 2 * arch::parameter_count(of_layers(8)) / shared);
    }
  }
}

// The last stage keeps what a teacher's head reads, for all passes of a step, and compares two
// distributions at a time.
TEST(TeacherMemory, IsOfTheWeightsTheHiddenStatesAndTheComparison) {
  arch::ModelConfig teacher = of_layers(8);
  teacher.hidden_size = 128;
  for (const int64_t tensor : {1, 2}) {
    for (const auto sharding : {settings::Sharding::kNone, settings::Sharding::kParameters}) {
      Request request = training(sharding, 2);
      request.mesh.tensor = tensor;
      request.frozen = {{.model = teacher}};
      const auto frozen = memory_by_stage(request);
      request.teacher = teacher;
      const auto taught = memory_by_stage(request);
      EXPECT_EQ(taught[0].memory.total(), frozen[0].memory.total()) << "without a head";
      const int64_t hidden = 4 * request.pass_tokens() * 128 * 2,
                    head = sharding == settings::Sharding::kParameters ? 320 / tensor * 128 * 2 : 0;
      EXPECT_EQ(taught[1].memory.weights - frozen[1].memory.weights, hidden + head);
      const int64_t logits = request.pass_tokens() * 320 / tensor;
      EXPECT_GE(taught[1].memory.pass() - frozen[1].memory.pass(), 8 * 4 * logits)
          << "probabilities, ratios and gradients beside the two logits";
    }
  }
}

TEST(FrozenMemory, OfAnotherDepthIsCutByItself) {
  Request request = training(settings::Sharding::kNone, 2);
  request.pipeline.layer_list = {1, 3};
  request.frozen = {{.model = of_layers(5)}};
  const auto beside = memory_by_stage(request);
  request.frozen.clear();
  const auto alone = memory_by_stage(request);
  int64_t more = 0;
  for (size_t stage = 0; stage < alone.size(); ++stage)
    more += beside[stage].memory.weights - alone[stage].memory.weights;
  EXPECT_EQ(more, 2 * arch::parameter_count(of_layers(5)));
}

TEST(CriticMemory, IsThatOfASecondTraining) {
  for (const auto sharding : {settings::Sharding::kNone, settings::Sharding::kParameters}) {
    Request request = training(sharding, 1);
    const Memory alone = memory_by_stage(request).front().memory;
    request.critic = of_layers(2);
    const Memory beside = memory_by_stage(request).front().memory;
    const int64_t count = arch::parameter_count(of_layers(2)),
                  shared = sharding == settings::Sharding::kParameters ? 2 : 1;
    EXPECT_EQ(beside.weights - alone.weights, 2 * count / shared);
    EXPECT_EQ(beside.gradients - alone.gradients, 4 * count / shared);
    EXPECT_EQ(beside.masters + beside.moments - alone.masters - alone.moments, 10 * count / shared);
  }
}

TEST(CriticMemory, ALargerOnesStepIsWhatARunNeeds) {
  Request request = training(settings::Sharding::kNone, 1);
  request.critic = of_layers(24);
  const Memory beside = memory_by_stage(request).front().memory;
  Request alone = request;
  alone.model = *alone.critic;
  alone.critic.reset();
  EXPECT_EQ(beside.rollout, memory_by_stage(alone).front().memory.pass());
  EXPECT_GT(beside.rollout, beside.pass());
  EXPECT_EQ(beside.total(), beside.kept() + beside.rollout);
  EXPECT_EQ(beside.in_parts().total(), beside.total());
}

}  // namespace
}  // namespace danlu::plan
