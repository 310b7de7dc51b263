// Noise on embeddings: its formula in a slow loop, and the same noise on every mesh and in every
// cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/tensor_io.h"
#include "models/training_memory.h"
#include "models/weight_files.h"
#include "support/pretend_device.h"
#include "train/batch_input.h"
#include "train/mesh.h"

namespace danlu::train {
namespace mesh_test {
namespace {

constexpr double kAlpha = 5;
constexpr uint64_t kStepSeed = 77;

at::Tensor embeddings(const models::CausalLM& model, models::ForwardInput input) {
  at::Tensor seen;
  input.on_hidden = [&](int64_t index, const at::Tensor& hidden_NH) {
    if (index == 0) seen = hidden_NH.detach().clone();
  };
  (void)model.forward(input);
  return seen;
}

/// The noise of one number, by the formula of the paper and SplitMix64's bits.
double noise_of(uint64_t sample, uint64_t token, int64_t column, int64_t length, int64_t width) {
  const uint64_t key = mix64(kStepSeed, mix64(sample, token));
  const uint64_t bits = mix64(mix64(key, 0x6e6f697365), static_cast<uint64_t>(column / 2));
  const uint64_t half = column % 2 == 0 ? bits & 0xffffffff : bits >> 32;
  const double uniform = static_cast<double>(half >> 8) / (1 << 23) - 1;
  return uniform * kAlpha / std::sqrt(static_cast<double>(length * width));
}

TEST(Neftune, EachSampleHasNoiseByItsOwnLength) {
  const Case c{"qwen2", "qwen2", Json::object()};
  const TrainState state = state_of(c, Mesh::single());
  const int64_t width = state.model->config().hidden_size;
  std::vector<data::Sample> samples = test::toy_samples(4);
  // A sample that is itself packed: each of its parts is a sample to the formula.
  samples[1].segments = {0, 4};
  const data::Batch batch = data::make_batch(samples, {10, 11, 12, 13});
  const at::Tensor plain = embeddings(*state.model, evaluation_input(*state.model, batch)),
                   noisy = embeddings(*state.model,
                                      training_input(*state.model, batch, {kStepSeed, kAlpha}));
  ASSERT_EQ(plain.size(0), static_cast<int64_t>(batch.ids.size()));
  int64_t row = 0;
  double largest = 0;
  for (size_t s = 0; s < samples.size(); ++s) {
    const auto count = static_cast<int64_t>(samples[s].ids.size());
    for (int64_t token = 0; token < count; ++token, ++row) {
      const int64_t length = s != 1 ? count : token < 4 ? 4 : count - 4;
      for (int64_t column = 0; column < width; ++column) {
        const double added = noise_of(10 + s, static_cast<uint64_t>(token), column, length, width);
        EXPECT_NEAR(noisy[row][column].item<double>(), plain[row][column].item<double>() + added,
                    1e-6)
            << s << " " << token << " " << column;
        largest = std::max(largest, std::fabs(added));
      }
    }
  }
  EXPECT_GT(largest, 0.1) << "noise that nobody sees proves nothing";
}

TEST(Neftune, FactorsOfAFamilyComeWhereHuggingFaceHasThem) {
  // Gemma 3's embedding module has its factor inside, and a hook on it comes behind that.
  for (const char* family : {"gemma", "gemma2", "gemma3_text", "minicpm"}) {
    SCOPED_TRACE(family);
    const Case c{family, family, Json::object()};
    const TrainState state = state_of(c, Mesh::single());
    const int64_t width = state.model->config().hidden_size;
    const data::Batch batch = data::make_batch(test::toy_samples(1), {10});
    const at::Tensor plain = embeddings(*state.model, evaluation_input(*state.model, batch)),
                     noisy = embeddings(*state.model,
                                        training_input(*state.model, batch, {kStepSeed, kAlpha}));
    const double scale = state.model->config().embedding_scale;
    EXPECT_GT(scale, 2);
    const double factor = std::string(family) == "gemma3_text" ? 1 : scale;
    EXPECT_NEAR((noisy - plain)[2][3].item<double>(),
                factor * noise_of(10, 2, 3, plain.size(0), width), 1e-5);
  }
}

TEST(Neftune, EvaluationHasNone) {
  const Case c{"qwen2", "qwen2", Json::object()};
  const TrainState state = state_of(c, Mesh::single());
  const data::Batch batch = data::make_batch(test::toy_samples(2));
  EXPECT_FALSE(evaluation_input(*state.model, batch).noise.is_there());
  EXPECT_FALSE(training_input(*state.model, batch, {kStepSeed, 0}).noise.is_there());
}

/// Bytes of a pass at most.
int64_t peak_of(double alpha, const settings::RecomputeFlags& recompute) {
  Json json = danlu::test::tiny_config("llama");
  json.update({{"vocab_size", 96},
               {"hidden_size", 64},
               {"intermediate_size", 192},
               {"num_attention_heads", 4},
               {"num_hidden_layers", 2},
               {"max_position_embeddings", 256}});
  models::CausalLM model(arch::family_of(json).parse(json), Mesh::single(), at::kFloat,
                         danlu::test::pretend_device());
  models::initialize(model, 7);
  models::keep(model, {});
  model.memory().set_recompute(recompute);
  data::Sample sample;
  for (int32_t i = 0; i < 256; ++i) sample.ids.push_back(3 + i % 80);
  sample.labels = sample.ids;
  const data::Batch batch = data::make_batch({sample});
  const models::ForwardInput input = training_input(model, batch, {kStepSeed, alpha});
  const int64_t before = danlu::test::pretend_bytes();
  danlu::test::reset_pretend_peak();
  {
    const models::LossSum loss = model.loss(input, input.ids_N + 1);
    loss.sum.backward();
  }
  return danlu::test::pretend_peak() - before;
}

// It is gone before the first layer needs more, so plans do not count it.
TEST(Neftune, TakesNoMemoryThatAPassDoesNotNeedAnyway) {
  for (const char* recompute : {"none", "full"}) {
    const settings::RecomputeFlags flags{.granularity = recompute};
    EXPECT_EQ(peak_of(kAlpha, flags), peak_of(0, flags)) << recompute;
  }
}

TEST(Neftune, EveryMeshHasTheNoiseOfOneProcess) {
  struct Place {
    const char* name;
    MeshShape shape;
    parallel::Sharding sharding = parallel::Sharding::kNone;
    int64_t chunks = 1;
  };
  const std::vector<Place> places = {
      {"dp2", {.data = 2}},
      {"zero3", {.data = 2}, parallel::Sharding::kParameters},
      {"tp2", {.tensor = 2}},
      {"tp2sp", {.tensor = 2, .sequence_parallel = true}},
      {"pp2", {.pipeline = 2}},
      {"vpp2", {.pipeline = 2}, parallel::Sharding::kNone, 2},
      {"cp2", {.context = {.ring = 2, .window = 2}}},
      {"tp2sp cp2", {.tensor = 2, .context = {.ring = 2, .window = 2}, .sequence_parallel = true}},
      {"dp2tp2pp2", {.tensor = 2, .data = 2, .pipeline = 2}}};
  for (const Tuning tuning : {Tuning::kFull, Tuning::kLora}) {
    Case c{"qwen2", "qwen2", Json::object(), tuning};
    c.layers = 4;
    c.noise_alpha = kAlpha;
    const Outcome one = train(c, {}, 3);
    Case quiet = c;
    quiet.noise_alpha = 0;
    EXPECT_GT(std::fabs(train(quiet, {}, 1).losses[0] - one.losses[0]), 1e-4);
    for (const Place& place : places) {
      SCOPED_TRACE(place.name);
      Case at = c;
      at.shape = place.shape;
      at.sharding = place.sharding;
      at.chunks = place.chunks;
      at.recompute = models::Recompute::kFull;
      expect_numbers_of(one, train(at, place.shape, 3));
    }
    for (const Cut& cut : {Cut{1, 0}, Cut{2, 0}, Cut{8, 0}, Cut{4, 120}})
      expect_numbers_of(one, train(c, {}, 3, cut));
  }
}

}  // namespace
}  // namespace mesh_test
}  // namespace danlu::train
