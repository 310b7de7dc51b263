// A teacher's distributions on meshes: the numbers of one process, of teachers of other sizes too.
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

#include <cmath>

#include "train/batch_input.h"
#include "train/mesh.h"
#include "train/objectives/distillation.h"

namespace danlu::train {
namespace mesh_test {
namespace {

constexpr int64_t kTaughtSteps = 6;

struct TaughtMode {
  const char* name;
  settings::DistillationConfig config = {};
  Tuning tuning = Tuning::kFull;
  Json teacher = Json::object();  ///< what its config.json has otherwise
};

void PrintTo(const TaughtMode& mode, std::ostream* out) { *out << mode.name; }

const std::vector<TaughtMode>& taught_modes() {
  static const std::vector<TaughtMode> list = {
      {"forward", {.beta = 0, .temperature = 1}},
      {"jsd_with_rows", {.beta = 0.3, .temperature = 0.7, .sft_alpha = 0.4}},
      {"reverse_lora", {.beta = 1, .temperature = 0.9}, Tuning::kLora},
      {"topk", {.beta = 0.5, .temperature = 0.9, .topk = 5}},
      {"of_a_larger_one",
       {.beta = 0.5, .temperature = 0.9},
       Tuning::kFull,
       {{"hidden_size", 48}, {"num_attention_heads", 6}, {"vocab_size", 101}}},
      {"of_a_smaller_one",
       {.beta = 0.5, .temperature = 0.9, .topk = 7},
       Tuning::kFull,
       {{"hidden_size", 16}, {"vocab_size", 93}}},
      {"of_a_deeper_tied_one",
       {.beta = 0.5, .temperature = 0.9},
       Tuning::kFull,
       {{"num_hidden_layers", 4}, {"tie_word_embeddings", true}}}};
  return list;
}

Case taught_case(const TaughtMode& mode) {
  Case c{mode.name, "qwen2", {{"vocab_size", 96}}, mode.tuning};
  c.objective_beside = [mode](const std::shared_ptr<const FrozenModel>& twin) {
    if (mode.teacher.empty()) return distillation_objective(mode.config, twin);
    Case other{mode.name, "qwen2", mode.teacher};
    other.sharding = twin->stage().memory().store()->sharding();
    return distillation_objective(mode.config, frozen_beside(other, twin->stage().mesh()));
  };
  return c;
}

struct TaughtPlace {
  const char* name;
  MeshShape shape;
  parallel::Sharding sharding = parallel::Sharding::kNone;
};

const std::vector<TaughtPlace>& taught_places() {
  static const std::vector<TaughtPlace> list = {
      {"dp2", {.data = 2}},
      {"zero1", {.data = 2}, parallel::Sharding::kState},
      {"zero2", {.data = 2}, parallel::Sharding::kGradients},
      {"zero3", {.data = 2}, parallel::Sharding::kParameters},
      {"tp2", {.tensor = 2}},
      {"tp2sp", {.tensor = 2, .sequence_parallel = true}},
      {"pp2", {.pipeline = 2}},
      {"cp2", {.context = {.ring = 2, .window = 2}}},
      {"cp2_by_heads", {.context = {.ulysses = 2}}},
      {"tp2pp2", {.tensor = 2, .pipeline = 2}},
      {"tp2zero3", {.tensor = 2, .data = 2}, parallel::Sharding::kParameters}};
  return list;
}

class DistillationMesh : public testing::TestWithParam<TaughtMode> {};

TEST_P(DistillationMesh, GivesTheNumbersOfOneProcess) {
  const Case alone = taught_case(GetParam());
  const Outcome one = train(alone, {}, kTaughtSteps);
  for (const TaughtPlace& place : taught_places()) {
    SCOPED_TRACE(place.name);
    Case c = alone;
    c.sharding = place.sharding;
    const Outcome got = train(c, place.shape, kTaughtSteps);
    expect_numbers_of(one, got);
    for (size_t step = 0; step < one.metrics.size(); ++step) {
      ASSERT_EQ(got.metrics[step].size(), one.metrics[step].size());
      for (const auto& [name, value] : one.metrics[step])
        EXPECT_NEAR(got.metrics[step].at(name), value, 2e-5 * std::max(1.0, std::fabs(value)))
            << name << " of step " << step;
    }
  }
}

TEST_P(DistillationMesh, TheCutOfAStepMakesNoDifference) {
  const Case c = taught_case(GetParam());
  const Outcome one = train(c, {}, 2, {.samples = 8, .max_tokens = 0});
  for (const Cut& cut : {Cut{1, 0}, Cut{2, 0}, Cut{2, 40}, Cut{4, 120}})
    expect_numbers_of(one, train(c, {}, 2, cut));
}

INSTANTIATE_TEST_SUITE_P(Modes, DistillationMesh, testing::ValuesIn(taught_modes()),
                         [](const auto& info) { return std::string(info.param.name); });

/// The divergence of two models over a step's targets, and −log p of these, through all logits.
struct Plainly {
  double divergence = 0, likelihood = 0;
};

Plainly plainly_of(const models::CausalLM& student, const models::CausalLM& teacher,
                   const data::StepBatches& step, const settings::DistillationConfig& config) {
  const at::NoGradGuard no_grad;
  Plainly sums;
  double targets = 0;
  for (const data::Batch& batch : step.micro_batches) {
    const models::ForwardInput input = evaluation_input(student, batch);
    const auto logprobs = [&](const models::CausalLM& model, double temperature) {
      const at::Tensor logits = model.logits(model.forward_hidden(input)).to(at::kDouble);
      return at::log_softmax(logits / temperature, 1);
    };
    const at::Tensor own = logprobs(student, config.temperature),
                     other = logprobs(teacher, config.temperature), plain = logprobs(student, 1);
    const double b = config.beta;
    const at::Tensor mixed =
        at::logsumexp(at::stack({own + std::log1p(-b), other + std::log(b)}), {0});
    const auto kl = [](const at::Tensor& of, const at::Tensor& from) {
      return (of.exp() * (of - from)).sum(1);
    };
    const at::Tensor all = b * kl(other, mixed) + (1 - b) * kl(own, mixed);
    for (size_t i = 0; i < batch.targets.size(); ++i) {
      if (batch.targets[i] < 0) continue;
      const auto row = static_cast<int64_t>(i);
      sums.divergence += all[row].item<double>();
      sums.likelihood -= plain[row][batch.targets[i]].item<double>();
      ++targets;
    }
  }
  return {sums.divergence / targets, sums.likelihood / targets};
}

TEST(Distillation, IsWhatAllLogitsSay) {
  TaughtMode mode = taught_modes()[1];
  const Case c = taught_case(mode);
  TrainState state = state_of(c, Mesh::single());
  // The same weights where no training holds them.
  const auto student = stage_of(c, Mesh::single()), teacher = stage_of(c, Mesh::single());
  for (models::CausalLM* model : {student.get(), teacher.get()}) randomise(*model, c.first_values);
  {
    const at::NoGradGuard no_grad;
    for (const parallel::Parameter& p : teacher->parameters()) at::Tensor(p.tensor).mul_(0.75);
  }
  const data::StepBatches step = batches_of(Mesh::single(), 0);
  const Plainly wanted = plainly_of(*student, *teacher, step, mode.config);
  const TrainConfig config = config_of(c);
  const StepResult got = run_step(state, step, config, config.schedule.shape);
  EXPECT_NEAR(got.metrics.at("divergence"), wanted.divergence, 1e-4 * wanted.divergence);
  EXPECT_NEAR(got.metrics.at("sft_loss"), wanted.likelihood, 1e-5 * wanted.likelihood);
  EXPECT_NEAR(got.loss, wanted.divergence + 0.4 * wanted.likelihood, 1e-5 * got.loss);
}

// Answers of the model's own are no answers to be likely.
TEST(Distillation, DrawnAnswersHaveNoCrossEntropy) {
  const Case c = taught_case(taught_modes()[1]);
  data::StepBatches step = batches_of(Mesh::single(), 0);
  for (data::Batch& batch : step.micro_batches)
    batch.token_columns[kDrawnColumn].assign(batch.ids.size(), 1);
  TrainState state = state_of(c, Mesh::single());
  const TrainConfig config = config_of(c);
  const StepResult got = run_step(state, step, config, config.schedule.shape);
  EXPECT_NEAR(got.loss, got.metrics.at("divergence"), 1e-9);
  EXPECT_EQ(got.metrics.count("sft_loss"), 0u);
}

// What a model that is already the teacher learns is nothing.
TEST(Distillation, OfTheModelItselfIsZero) {
  const Case c = taught_case(taught_modes()[3]);
  TrainState state = state_of(c, Mesh::single());
  auto twin = stage_of(c, Mesh::single());
  randomise(*twin, c.first_values);
  twin->freeze({"."});
  models::keep(*twin, config_of(c).keeping);
  state.objective = distillation_objective({.beta = 0.5, .temperature = 1},
                                           std::make_shared<FrozenModel>(std::move(twin)));
  const TrainConfig config = config_of(c);
  const StepResult got =
      run_step(state, batches_of(Mesh::single(), 0), config, config.schedule.shape);
  EXPECT_NEAR(got.loss, 0, 1e-9);
  EXPECT_NEAR(got.grad_norm, 0, 1e-5);
}

}  // namespace
}  // namespace mesh_test
}  // namespace danlu::train
