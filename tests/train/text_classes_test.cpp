// Training of models that sort texts: losses and gradients by a slow loop, and the same numbers on
// every mesh and in every cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/throws.h"
#include "train/evaluate.h"
#include "train/golden_step.h"
#include "train/mesh.h"
#include "train/objectives/classes.h"
#include "train/objectives/text_labels.h"

namespace danlu::train {
namespace mesh_test {
namespace {

using arch::LabelProblem;
using settings::ClassesConfig;

constexpr int64_t kNumLabels = 3;

const std::vector<LabelProblem>& problems() {
  static const std::vector<LabelProblem> all = {LabelProblem::kOneClass, LabelProblem::kClasses,
                                                LabelProblem::kNumbers};
  return all;
}

/// What the i-th text is labelled with.
std::vector<float> label_of_text(LabelProblem problem, size_t i) {
  if (problem == LabelProblem::kOneClass) return {static_cast<float>(i % 3)};
  if (problem == LabelProblem::kClasses)
    return {static_cast<float>(i % 2), static_cast<float>(i % 3 == 0), 1.0F};
  return {0.25F * static_cast<float>(i % 5), -1.0F, 0.5F};
}

std::vector<data::Sample> labelled_texts(LabelProblem problem, size_t count) {
  std::vector<data::Sample> samples = test::toy_samples(static_cast<int64_t>(count));
  for (size_t i = 0; i < samples.size(); ++i) {
    data::Sample& sample = samples[i];
    sample.labels.assign(sample.ids.size(), -100);
    sample.labels.back() = sample.ids.back();
    sample.labels_are_targets = true;
    sample.segment_labels = label_of_text(problem, i);
  }
  return samples;
}

Case classifier(LabelProblem problem, Tuning tuning = Tuning::kFull) {
  Case c{arch::label_problem_name(problem), "qwen2", Json::object(), tuning};
  c.samples = std::make_shared<data::VectorSource>(labelled_texts(problem, 64));
  c.score = arch::ScoreHead{.labels = kNumLabels, .problem = problem};
  c.objective = classes_objective({problem, kNumLabels});
  if (tuning == Tuning::kLora) c.modules_to_save = {"score"};
  return c;
}

/// By the formulas of torch's CrossEntropyLoss, BCEWithLogitsLoss and MSELoss.
double slow_loss(LabelProblem problem, const std::vector<double>& x, const std::vector<float>& y) {
  double sum = 0;
  if (problem == LabelProblem::kOneClass) {
    for (const double number : x) sum += std::exp(number);
    return std::log(sum) - x[static_cast<size_t>(y[0])];
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const double sigma = 1 / (1 + std::exp(-x[i])), far = x[i] - static_cast<double>(y[i]);
    sum += problem == LabelProblem::kNumbers
               ? far * far
               : -(static_cast<double>(y[i]) * std::log(sigma) +
                   (1 - static_cast<double>(y[i])) * std::log(1 - sigma));
  }
  return sum / static_cast<double>(x.size());
}

/// The numbers of a text that is alone in its pass, from the logits of a head beside the
/// vocabulary.
std::vector<double> slow_numbers(const models::CausalLM& model, const data::Sample& sample) {
  const at::NoGradGuard no_grad;
  const data::Batch batch = data::make_batch({sample});
  const models::ForwardInput input = evaluation_input(model, batch);
  const at::Tensor last_H =
      model.forward(input)[static_cast<int64_t>(sample.ids.size()) - 1].to(at::kDouble);
  std::vector<double> numbers;
  for (const parallel::Parameter& p : model.parameters()) {
    if (p.name() != "score.weight") continue;
    for (int64_t label = 0; label < kNumLabels; ++label)
      numbers.push_back((p.tensor[label].to(at::kDouble) * last_H).sum().item<double>());
  }
  return numbers;
}

TEST(Classes, LossesMetricsAndGradientsAreThoseOfASlowLoop) {
  for (const LabelProblem problem : problems()) {
    SCOPED_TRACE(arch::label_problem_name(problem));
    Case c = classifier(problem);
    c.dtype = at::kDouble;
    c.first_values = at::kDouble;
    const auto model = stage_of(c, Mesh::single());
    randomise(*model, at::kDouble);
    const std::vector<data::Sample> samples = labelled_texts(problem, 7);
    const auto slow = [&] {
      double loss = 0;
      for (size_t i = 0; i < samples.size(); ++i)
        loss += slow_loss(problem, slow_numbers(*model, samples[i]), samples[i].segment_labels);
      return loss / static_cast<double>(samples.size());
    };
    const preference_test::Found found = preference_test::step_of(
        *model, *c.objective, preference_test::in_batches(samples, {3, 4}));
    EXPECT_NEAR(found.loss, slow(), 1e-9);
    double right = 0, whole = 0, far = 0;
    for (const data::Sample& sample : samples) {
      const std::vector<double> x = slow_numbers(*model, sample);
      const std::vector<float>& y = sample.segment_labels;
      bool all = true;
      for (size_t i = 0; i < x.size(); ++i) {
        if (problem == LabelProblem::kOneClass) continue;
        const bool is_right = (x[i] > 0) == (y[i] > 0.5);
        right += is_right / 3.0;
        all = all && is_right;
        far += std::fabs(x[i] - static_cast<double>(y[i])) / 3;
      }
      whole += all;
      if (problem == LabelProblem::kOneClass)
        right += std::max_element(x.begin(), x.end()) - x.begin() == static_cast<int64_t>(y[0]);
    }
    if (problem == LabelProblem::kNumbers) {
      EXPECT_NEAR(found.metrics.at("mae"), far / 7, 1e-6);
    } else {
      EXPECT_NEAR(found.metrics.at("accuracy"), right / 7, 1e-6);
    }
    if (problem == LabelProblem::kClasses) {
      EXPECT_NEAR(found.metrics.at("exact_match"), whole / 7, 1e-6);
    }
    // The head's slopes, and those of a weight far below it.
    for (const parallel::Parameter& p : model->parameters()) {
      if (p.name() != "score.weight" && p.name() != "model.layers.0.mlp.down_proj.weight") continue;
      const at::NoGradGuard no_grad;
      for (const int64_t i : {0, 5, 37}) {
        at::Tensor element = p.tensor.view({-1})[i];
        constexpr double kStep = 1e-5;
        element.add_(kStep);
        const double above = slow();
        element.sub_(2 * kStep);
        const double slope = (above - slow()) / (2 * kStep);
        element.add_(kStep);
        EXPECT_NEAR(p.tensor.grad().view({-1})[i].item<double>(), slope, 1e-6)
            << p.name() << " " << i;
      }
    }
  }
}

TEST(Classes, EveryMeshAndCutGivesTheNumbersOfOneProcess) {
  struct Place {
    const char* name;
    MeshShape shape;
    parallel::Sharding sharding = parallel::Sharding::kNone;
  };
  const std::vector<Place> places = {{"dp2", {.data = 2}},
                                     {"zero3", {.data = 2}, parallel::Sharding::kParameters},
                                     {"tp2", {.tensor = 2}},
                                     {"tp2sp", {.tensor = 2, .sequence_parallel = true}},
                                     {"pp2", {.pipeline = 2}},
                                     {"cp2", {.context = {.ring = 2, .window = 2}}},
                                     {"dp2tp2pp2", {.tensor = 2, .data = 2, .pipeline = 2}}};
  for (const LabelProblem problem : problems()) {
    for (const Tuning tuning : {Tuning::kFull, Tuning::kLora}) {
      SCOPED_TRACE(arch::label_problem_name(problem));
      const Case alone = classifier(problem, tuning);
      const Outcome one = train(alone, {}, 4);
      for (const Place& place : places) {
        SCOPED_TRACE(place.name);
        Case c = alone;
        c.sharding = place.sharding;
        const Outcome got = train(c, place.shape, 4);
        expect_numbers_of(one, got);
        for (size_t step = 0; step < one.metrics.size(); ++step) {
          for (const auto& [name, value] : one.metrics[step])
            EXPECT_NEAR(got.metrics[step].at(name), value, 2e-5) << name;
        }
      }
      for (const Cut& cut : {Cut{1, 0}, Cut{8, 0}, Cut{4, 120}})
        expect_numbers_of(one, train(alone, {}, 4, cut));
    }
  }
}

TEST(Classes, TextsWithoutLabelsAreRefused) {
  const Case c = classifier(LabelProblem::kOneClass);
  const auto model = stage_of(c, Mesh::single());
  std::vector<data::Sample> samples = labelled_texts(LabelProblem::kOneClass, 2);
  for (data::Sample& sample : samples) sample.segment_labels.clear();
  const std::string said = danlu::test::error_of([&] {
    preference_test::step_of(*model, *c.objective, preference_test::in_batches(samples, {2}));
  });
  EXPECT_THAT(said, testing::HasSubstr("without a label"));
}

}  // namespace
}  // namespace mesh_test
}  // namespace danlu::train
