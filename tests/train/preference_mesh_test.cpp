// Preference training on meshes gives the numbers of one process, with pairs of unequal lengths.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "support/slow.h"
#include "train/mesh.h"
#include "train/objectives/preference.h"
#include "train/objectives/process_reward.h"
#include "train/objectives/reward.h"
#include "train/objectives/unpaired.h"

namespace danlu::train {
namespace mesh_test {
namespace {

constexpr int64_t kPreferenceSteps = 10;

/// Two answers each: `values` of their segments, if any.
std::shared_ptr<const data::SampleSource> two_answers(bool has_values) {
  const std::vector<data::Sample> toys = test::toy_samples(128);
  std::vector<data::Sample> samples;
  for (size_t i = 0; i < 64; ++i) {
    data::Sample pair = toys[i];
    const data::Sample& second = toys[127 - i];
    pair.segments = {0, static_cast<int32_t>(pair.ids.size())};
    pair.ids.insert(pair.ids.end(), second.ids.begin(), second.ids.end());
    pair.labels.insert(pair.labels.end(), second.labels.begin(), second.labels.end());
    if (has_values) pair.segment_values = {i % 3 == 0 ? 0.0F : 1.0F, 0.0F};
    samples.push_back(pair);
  }
  return std::make_shared<data::VectorSource>(samples);
}

struct Mode {
  const char* name;
  Tuning tuning = Tuning::kFull;
  bool is_unpaired = false;
  settings::PreferenceConfig config = {};
  std::optional<arch::ScoreForm> score = {};  ///< of a reward model
};

void PrintTo(const Mode& mode, std::ostream* out) { *out << mode.name; }

const std::vector<Mode>& modes() {
  static const std::vector<Mode> list = {
      {"dpo", Tuning::kFull, false, {.beta = 0.3}},
      {"dpo_lora", Tuning::kLora, false, {.beta = 0.3}},
      {"rpo",
       Tuning::kFull,
       false,
       {.beta = 0.3,
        .likelihood = settings::LikelihoodTerm::kAnswerTokens,
        .likelihood_weight = 0.5}},
      {"simpo",
       Tuning::kFull,
       false,
       {.has_reference = false, .averages = true, .beta = 2, .gamma = 1}},
      {"orpo",
       Tuning::kFull,
       false,
       {.loss = settings::PairLoss::kOdds,
        .has_reference = false,
        .averages = true,
        .beta = 0.2,
        .likelihood = settings::LikelihoodTerm::kAllTokens,
        .likelihood_weight = 1}},
      {"kto", Tuning::kFull, true},
      {"kto_lora", Tuning::kLora, true},
      {"rm", Tuning::kFull, false, {}, arch::ScoreForm::kSequence},
      {"rm_beside", Tuning::kFull, false, {}, arch::ScoreForm::kBeside},
      {"rm_lora", Tuning::kLora, false, {}, arch::ScoreForm::kSequence}};
  return list;
}

Case case_of(const Mode& mode) {
  static const auto pairs = two_answers(false), answers = two_answers(true);
  Case c{mode.name, "qwen2", Json::object(), mode.tuning};
  c.samples = mode.is_unpaired || mode.score ? answers : pairs;  // values are margins, too
  if (mode.score) {
    c.score = arch::ScoreHead{.form = *mode.score};
    c.objective = reward_objective({.centring = 0.05});
    if (mode.tuning == Tuning::kLora) c.modules_to_save = {c.score->module()};
    return c;
  }
  const auto objective = [mode](std::shared_ptr<const FrozenModel> reference) {
    return mode.is_unpaired ? unpaired_objective({.beta = 0.3, .disliked_weight = 1.3}, reference)
                            : preference_objective(mode.config, reference);
  };
  if (mode.tuning == Tuning::kFull) {
    c.objective_beside = objective;
  } else {
    c.objective = objective(nullptr);
  }
  return c;
}

struct Place {
  const char* name;
  MeshShape shape;
  parallel::Sharding sharding = parallel::Sharding::kNone;
};

const std::vector<Place>& places() {
  static const std::vector<Place> list = {{"dp2", {.data = 2}},
                                          {"zero2", {.data = 2}, parallel::Sharding::kGradients},
                                          {"zero3", {.data = 2}, parallel::Sharding::kParameters},
                                          {"tp2", {.tensor = 2}},
                                          {"tp2sp", {.tensor = 2, .sequence_parallel = true}},
                                          {"pp2", {.pipeline = 2}},
                                          {"cp2", {.context = {.ring = 2, .window = 2}}},
                                          {"tp2pp2", {.tensor = 2, .pipeline = 2}},
                                          {"dp2tp2", {.tensor = 2, .data = 2}}};
  return list;
}

class PreferenceMesh : public testing::TestWithParam<Mode> {};

TEST_P(PreferenceMesh, GivesTheNumbersOfOneProcess) {
  const Case alone = case_of(GetParam());
  const Outcome one = train(alone, {}, kPreferenceSteps);
  // In `make test` at every third place, at another one than the mode before.
  size_t turn = 0;
  while (std::string(modes()[turn].name) != GetParam().name) ++turn;
  for (const Place& place : places()) {
    if (!danlu::test::is_slow() && turn++ % 3 != 0) continue;
    SCOPED_TRACE(place.name);
    Case c = alone;
    c.sharding = place.sharding;
    const Outcome got = train(c, place.shape, kPreferenceSteps);
    expect_numbers_of(one, got);
    for (size_t step = 0; step < one.metrics.size(); ++step) {
      ASSERT_EQ(got.metrics[step].size(), one.metrics[step].size());
      for (const auto& [name, value] : one.metrics[step]) {
        EXPECT_NEAR(got.metrics[step].at(name), value, 2e-5 * std::max(1.0, std::fabs(value)))
            << name << " of step " << step;
      }
    }
  }
}

// A mean of each micro-batch's mean is another number as soon as micro-batches differ.
TEST_P(PreferenceMesh, TheCutOfAStepMakesNoDifference) {
  const Case c = case_of(GetParam());
  const Outcome one = train(c, {}, 2, {.samples = 8, .max_tokens = 0});
  for (const Cut& cut : {Cut{1, 0}, Cut{2, 0}, Cut{2, 40}, Cut{4, 120}})
    expect_numbers_of(one, train(c, {}, 2, cut));
}

/// What programs do that take means and KTO's drift over each micro-batch.
class ForEachMicroBatch : public Objective {
 public:
  explicit ForEachMicroBatch(std::shared_ptr<const Objective> objective)
      : objective_(std::move(objective)) {}
  std::vector<std::string> metrics() const override { return objective_->metrics(); }
  double weight(const data::Batch& batch) const override { return objective_->weight(batch); }
  std::vector<Columns> prepare(const ForwardPasses& passes,
                               const std::vector<const data::Batch*>& batches) const override {
    std::vector<Columns> all;
    for (const data::Batch* batch : batches) all.push_back(objective_->prepare(passes, {batch})[0]);
    return all;
  }
  std::optional<data::Batch> trained_part(const data::Batch& batch) const override {
    return objective_->trained_part(batch);
  }
  Loss evaluate(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                const models::ForwardInput& input, const data::Batch& batch, const Columns& columns,
                double scale) const override {
    return objective_->evaluate(policy, hidden_nH, input, batch, columns, scale);
  }

 private:
  std::shared_ptr<const Objective> objective_;
};

// So TheCutOfAStepMakesNoDifference would see it.
TEST(Unpaired, CountsTheTokensThatItTrainsOn) {
  Case c{"llama", "llama", Json::object()};
  c.samples = two_answers(true);
  c.objective_beside = [](std::shared_ptr<const FrozenModel> reference) {
    return unpaired_objective({}, std::move(reference));
  };
  TrainState state = state_of(c, Mesh::single());
  const data::StepBatches batches = batches_of(Mesh::single(), 0, {}, c.samples);
  int64_t own = 0, all = 0;
  for (const data::Batch& batch : batches.micro_batches) {
    for (size_t s = 0; s + 1 < batch.segment_starts.size(); ++s) {
      const int64_t tokens = batch.segment_starts[s + 1] - batch.segment_starts[s];
      all += tokens;
      if (s % 2 == 0) own += tokens;
    }
  }
  ASSERT_LT(own, all);
  const TrainConfig config = config_of(c);
  const StepResult result = run_step(state, batches, config, config.schedule.shape);
  EXPECT_EQ(result.num_tokens, own) << "not those that they are compared with";
  EXPECT_EQ(state.tokens_seen, own);
  EXPECT_LT(result.num_targets, batches.num_targets);
}

TEST(MeanOfMicroBatches, IsAnotherNumber) {
  for (const Mode& mode : modes()) {
    if (std::string(mode.name) != "rpo" && std::string(mode.name) != "kto") continue;
    SCOPED_TRACE(mode.name);
    const Case c = case_of(mode);
    Case faulty = c;
    faulty.objective_beside = [&](std::shared_ptr<const FrozenModel> reference) {
      return std::make_shared<const ForEachMicroBatch>(c.objective_beside(std::move(reference)));
    };
    const Cut whole{.samples = 8, .max_tokens = 0}, cut{.samples = 1, .max_tokens = 0};
    const Outcome one = train(c, {}, 2, whole);
    expect_numbers_of(one, train(faulty, {}, 2, whole));
    const Outcome got = train(faulty, {}, 2, cut);
    EXPECT_GT(std::fabs(got.losses[1] - one.losses[1]) / one.losses[1], 1e-4);
  }
}

/// Every third token ends a step, which is right (5) or wrong (6).
std::shared_ptr<const data::SampleSource> judged_steps() {
  std::vector<data::Sample> samples = test::toy_samples(64);
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i].labels_are_targets = true;
    for (size_t t = 0; t < samples[i].labels.size(); ++t)
      samples[i].labels[t] = t % 3 != 2 ? -100 : (i + t) % 2 == 0 ? 5 : 6;
  }
  return std::make_shared<data::VectorSource>(samples);
}

TEST(StepClassesMesh, GivesTheNumbersOfOneProcess) {
  for (const Tuning tuning : {Tuning::kFull, Tuning::kLora}) {
    Case alone{"steps", "qwen2", Json::object(), tuning};
    alone.samples = judged_steps();
    alone.score = arch::ScoreHead{.form = arch::ScoreForm::kTokens, .labels = 2};
    alone.objective = step_class_objective(5, 6);
    if (tuning == Tuning::kLora) alone.modules_to_save = {alone.score->module()};
    const Outcome one = train(alone, {}, 4);
    for (const Place& place : places()) {
      SCOPED_TRACE(place.name);
      Case c = alone;
      c.sharding = place.sharding;
      const Outcome got = train(c, place.shape, 4);
      expect_numbers_of(one, got);
      for (size_t step = 0; step < one.metrics.size(); ++step)
        EXPECT_NEAR(got.metrics[step].at("acc"), one.metrics[step].at("acc"), 1e-6);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, PreferenceMesh, testing::ValuesIn(modes()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace mesh_test
}  // namespace danlu::train
