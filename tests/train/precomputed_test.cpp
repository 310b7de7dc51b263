// Log-probabilities of a reference that were computed before the training: the same losses as with
// the reference beside it, on every mesh.
#include "train/objectives/precomputed.h"

#include <gtest/gtest.h>

#include <mutex>

#include "train/mesh.h"
#include "train/objectives/preference.h"
#include "train/objectives/unpaired.h"

namespace danlu::train {
namespace mesh_test {
namespace {

/// 63 samples, so that ranks have unequal shares: two answers each, the second of another length.
std::shared_ptr<const data::SampleSource> unequal_pairs() {
  const std::vector<data::Sample> toys = test::toy_samples(128);
  std::vector<data::Sample> samples;
  for (size_t i = 0; i < 63; ++i) {
    data::Sample pair = toys[i];
    const data::Sample& second = toys[127 - i];
    pair.segments = {0, static_cast<int32_t>(pair.ids.size())};
    pair.ids.insert(pair.ids.end(), second.ids.begin(), second.ids.end());
    pair.labels.insert(pair.labels.end(), second.labels.begin(), second.labels.end());
    pair.segment_values = {i % 3 == 0 ? 0.0F : 1.0F, 0.0F};
    samples.push_back(pair);
  }
  return std::make_shared<data::VectorSource>(samples);
}

data::StepBatches step_of(const Mesh& mesh, int64_t step,
                          const std::shared_ptr<const data::SampleSource>& samples) {
  data::BatchStreamOptions options;
  options.dp_size = mesh.shape().data;
  options.dp_rank = mesh.shape().data_rank(mesh.rank());
  options.micro_batch_size = 2;
  options.accumulation_steps = 4 / options.dp_size;
  options.prefetch_steps = 0;
  return data::BatchStream(samples, [](int64_t i) { return i % 63; }, options).step_at(step * 8);
}

std::shared_ptr<const Objective> objective_of(bool is_unpaired,
                                              const std::shared_ptr<const FrozenModel>& reference) {
  return is_unpaired ? unpaired_objective({.beta = 0.3, .disliked_weight = 1.3}, reference)
                     : preference_objective({.beta = 0.3}, reference);
}

/// Losses of four steps; with `beforehand` the reference is gone before the first.
std::vector<double> losses_of(const Case& c, bool is_unpaired, bool beforehand) {
  std::vector<double> losses;
  std::mutex mutex;
  const auto rank = [&](const Mesh& mesh) {
    TrainState state = state_of(c, mesh);
    const TrainConfig config = config_of(c);
    std::shared_ptr<const data::SampleSource> samples = unequal_pairs();
    std::shared_ptr<const FrozenModel> reference =
        c.tuning == Tuning::kFull ? frozen_beside(c, mesh) : nullptr;
    state.objective = objective_of(is_unpaired, reference);
    if (beforehand) {
      SegmentLogprobs found = logprobs_of_samples(
          reference.get(), ForwardPasses(*state.model, *state.links), *samples, 3);
      samples = with_logprobs(samples, std::move(found));
      state.objective = objective_of(is_unpaired, nullptr);
      const std::weak_ptr<const FrozenModel> gone = reference;
      reference.reset();
      EXPECT_TRUE(gone.expired()) << "nobody holds it any more";
    }
    for (int64_t step = 0; step < 4; ++step) {
      const StepResult result =
          run_step(state, step_of(mesh, step, samples), config, config.schedule.shape);
      const std::lock_guard lock(mutex);
      if (mesh.rank() == 0) losses.push_back(result.loss);
    }
  };
  on_ranks(c.shape, rank);
  return losses;
}

TEST(Precomputed, GivesTheLossesOfAReferenceThatIsThere) {
  for (const bool is_unpaired : {false, true}) {
    for (const Tuning tuning : {Tuning::kFull, Tuning::kLora}) {
      SCOPED_TRACE(fmt::format("{} {}", is_unpaired ? "kto" : "dpo",
                               tuning == Tuning::kFull ? "full" : "lora"));
      Case c{"qwen2", "qwen2", Json::object(), tuning};
      const std::vector<double> live = losses_of(c, is_unpaired, false);
      ASSERT_EQ(live.size(), 4u);
      const std::pair<MeshShape, parallel::Sharding> places[] = {
          {{}, parallel::Sharding::kNone},
          {{.data = 2}, parallel::Sharding::kParameters},
          {{.tensor = 2}, parallel::Sharding::kNone},
          {{.pipeline = 2}, parallel::Sharding::kNone},
          {{.data = 2, .context = {.ring = 2, .window = 2}}, parallel::Sharding::kNone}};
      for (const auto& [shape, sharding] : places) {
        c.shape = shape;
        c.sharding = sharding;
        const std::vector<double> got = losses_of(c, is_unpaired, true);
        ASSERT_EQ(got.size(), live.size());
        for (size_t step = 0; step < got.size(); ++step)
          EXPECT_NEAR(got[step], live[step], 1e-5) << shape.size() << " ranks, step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace mesh_test
}  // namespace danlu::train
