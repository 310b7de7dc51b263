// Training of vectors of texts: losses and gradients beside torch's and a slow loop's, and the same
// numbers on every mesh.
#include "train/objectives/embedding.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "data/groups.h"
#include "support/slow.h"
#include "support/throws.h"
#include "train/correlation.h"
#include "train/evaluate.h"
#include "train/golden_step.h"
#include "train/mesh.h"
#include "train/objectives/contrast.h"

namespace danlu::train {
namespace mesh_test {
namespace {

using settings::EmbeddingConfig;
using Vectors = std::vector<std::vector<double>>;
using VectorLoss = EmbeddingConfig::Loss;

VectorLoss loss_named(const std::string& name) {
  for (const VectorLoss loss :
       {VectorLoss::kContrast, VectorLoss::kCosine, VectorLoss::kMargin, VectorLoss::kHardMargin})
    if (name == settings::embedding_loss_name(loss)) return loss;
  throw std::runtime_error("no loss " + name);
}

EmbeddingConfig of_loss(VectorLoss loss) {
  EmbeddingConfig config;
  config.loss = loss;
  return config;
}

EmbeddingConfig contrast_with(bool among_anchors) {
  EmbeddingConfig config;
  config.temperature = 0.3;
  config.among_anchors = among_anchors;
  return config;
}

EmbeddingConfig config_of_case(const Json& golden) {
  EmbeddingConfig config;
  config.loss = loss_named(golden.at("kind"));
  const Json told = golden.value("options", Json::object());
  config.temperature = told.value("temperature", 0.1);
  config.in_batch = told.value("use_batch", true);
  config.hard_negatives = told.value("hard", 0);
  config.masks_fakes = told.value("mask", false);
  config.fake_margin = told.value("margin", 0.1);
  config.among_anchors = told.value("qq", false);
  config.among_positives = told.value("dd", false);
  return config;
}

at::Tensor loss_of_case(const at::Tensor& vectors_NH, const Json& golden) {
  const EmbeddingConfig config = config_of_case(golden);
  const at::Tensor unit_NH = at_length_one(vectors_NH);
  if (config.loss == VectorLoss::kContrast) {
    std::vector<Contrasted> groups;
    int64_t begin = 0;
    for (const int64_t size : golden.at("sizes").get<std::vector<int64_t>>()) {
      Contrasted& group = groups.emplace_back();
      group.anchor = begin;
      for (int64_t i = 1; i < size; ++i) group.texts.push_back(begin + i);
      begin += size;
    }
    return contrast_losses(unit_NH, groups, config).losses_B.sum();
  }
  const auto labels = golden.at("labels").get<std::vector<double>>();
  const at::Tensor labels_P = at::tensor(labels, at::TensorOptions(at::kDouble));
  const at::Tensor pairs_P2H = unit_NH.view({-1, 2, unit_NH.size(1)});
  const at::Tensor cosines_P = (pairs_P2H.select(1, 0) * pairs_P2H.select(1, 1)).sum(1);
  return config.loss == VectorLoss::kHardMargin
             ? hard_margin_loss(cosines_P, labels_P)
             : pair_losses(cosines_P, labels_P, config.loss).sum();
}

TEST(VectorLosses, AreTorchsWithTheirGradients) {
  const Json goldens = read_json_file(fs::path(DANLU_SOURCE_DIR) / "tests" / "train" / "goldens" /
                                      "embedding_losses.json");
  ASSERT_EQ(goldens.size(), 33u);
  for (const Json& golden : goldens) {
    SCOPED_TRACE(golden.at("name").get<std::string>());
    const auto rows = golden.at("vectors").get<Vectors>();
    const auto grads = golden.at("grad").get<Vectors>();
    at::Tensor vectors = at::zeros({std::ssize(rows), std::ssize(rows[0])}, at::kDouble);
    at::Tensor expected = at::zeros_like(vectors);
    for (size_t i = 0; i < rows.size(); ++i) {
      vectors[static_cast<int64_t>(i)].copy_(at::tensor(rows[i], at::TensorOptions(at::kDouble)));
      expected[static_cast<int64_t>(i)].copy_(at::tensor(grads[i], at::TensorOptions(at::kDouble)));
    }
    vectors.requires_grad_(true);
    const at::Tensor loss = loss_of_case(vectors, golden);
    EXPECT_NEAR(loss.item<double>(), golden.at("loss").get<double>(), 1e-9);
    torch::autograd::backward({loss});
    EXPECT_LE((vectors.grad() - expected).abs().max().item<double>(), 1e-9);
  }
}

/// Rows of two to four texts: an anchor, its positive, and for `with_negatives` up to two others.
std::vector<data::Sample> grouped_texts(int64_t count, bool with_negatives,
                                        bool all_alike = false) {
  const std::vector<data::Sample> texts = test::toy_samples(4 * count);
  std::vector<data::Sample> samples;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t negatives = !with_negatives ? 0 : all_alike ? 1 : i % 3;
    data::Sample sample;
    sample.segments.clear();
    sample.labels_are_targets = true;
    for (int64_t n = 0; n < 2 + negatives; ++n) {
      const data::Sample& text = texts[static_cast<size_t>(4 * i + n)];
      sample.segments.push_back(static_cast<int32_t>(sample.ids.size()));
      sample.ids.insert(sample.ids.end(), text.ids.begin(), text.ids.end());
      sample.labels.resize(sample.ids.size(), -100);
      sample.labels.back() = sample.ids.back();
      const auto role = n == 0   ? data::GroupRole::kAnchor
                        : n == 1 ? data::GroupRole::kPositive
                                 : data::GroupRole::kNegative;
      const float label = n == 1 ? static_cast<float>(i % 2) : 0;
      for (const float number : data::numbers_of_member({role, label, n == 0}))
        sample.segment_labels.push_back(number);
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

Case embedder(const EmbeddingConfig& config, Tuning tuning = Tuning::kFull) {
  Case c{
      settings::embedding_loss_name(config.loss), "qwen2", {{"tie_word_embeddings", true}}, tuning};
  c.samples = std::make_shared<data::VectorSource>(grouped_texts(64, !config.has_pairs()));
  c.objective = embedding_objective(config);
  return c;
}

/// The hidden state behind the norm at the last token of a text that is alone in its pass, divided
/// by its length.
std::vector<double> slow_vector(const models::CausalLM& model, const data::Sample& sample,
                                size_t segment) {
  const at::NoGradGuard no_grad;
  const auto begin = static_cast<size_t>(sample.segments[segment]);
  const size_t end = segment + 1 < sample.segments.size()
                         ? static_cast<size_t>(sample.segments[segment + 1])
                         : sample.ids.size();
  data::Sample alone;
  alone.ids = {sample.ids.begin() + static_cast<int64_t>(begin),
               sample.ids.begin() + static_cast<int64_t>(end)};
  alone.labels.assign(alone.ids.size(), -100);
  const data::Batch batch = data::make_batch({alone});
  const at::Tensor last_H =
      model.forward(evaluation_input(model, batch))[static_cast<int64_t>(alone.ids.size() - 1)].to(
          at::kDouble);
  double length = 0;
  std::vector<double> vector;
  for (int64_t i = 0; i < last_H.size(0); ++i) {
    vector.push_back(last_H[i].item<double>());
    length += vector.back() * vector.back();
  }
  for (double& number : vector) number /= std::sqrt(length);
  return vector;
}

double product(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// InfoNCE of one batch: each anchor against the texts of all.
double slow_contrast(const models::CausalLM& model, const std::vector<data::Sample>& samples,
                     double temperature) {
  Vectors anchors, texts;
  std::vector<size_t> positives;
  for (const data::Sample& sample : samples) {
    anchors.push_back(slow_vector(model, sample, 0));
    positives.push_back(texts.size());
    for (size_t s = 1; s < sample.segments.size(); ++s)
      texts.push_back(slow_vector(model, sample, s));
  }
  double loss = 0;
  for (size_t i = 0; i < anchors.size(); ++i) {
    double sum = 0;
    for (const auto& text : texts) sum += std::exp(product(anchors[i], text) / temperature);
    loss += std::log(sum) - product(anchors[i], texts[positives[i]]) / temperature;
  }
  return loss;
}

TEST(Embedding, LossAndGradientsAreThoseOfASlowLoop) {
  EmbeddingConfig config;
  config.temperature = 0.2;
  Case c = embedder(config);
  c.dtype = at::kDouble;
  c.first_values = at::kDouble;
  const auto model = stage_of(c, Mesh::single());
  randomise(*model, at::kDouble);
  const std::vector<data::Sample> samples = grouped_texts(5, true);
  const auto slow = [&] {
    return (slow_contrast(*model, {samples.begin(), samples.begin() + 3}, 0.2) +
            slow_contrast(*model, {samples.begin() + 3, samples.end()}, 0.2)) /
           5;
  };
  const preference_test::Found found =
      preference_test::step_of(*model, *c.objective, preference_test::in_batches(samples, {3, 2}));
  EXPECT_NEAR(found.loss, slow(), 1e-9);
  for (const parallel::Parameter& p : model->parameters()) {
    if (p.name() != "model.norm.weight" && p.name() != "model.layers.0.mlp.down_proj.weight")
      continue;
    const at::NoGradGuard no_grad;
    for (const int64_t i : {0, 5, 37}) {
      at::Tensor element = p.tensor.view({-1})[i % p.tensor.numel()];
      constexpr double kStep = 1e-5;
      element.add_(kStep);
      const double above = slow();
      element.sub_(2 * kStep);
      const double slope = (above - slow()) / (2 * kStep);
      element.add_(kStep);
      EXPECT_NEAR(p.tensor.grad().view({-1})[i % p.tensor.numel()].item<double>(), slope, 1e-6)
          << p.name() << " " << i;
    }
  }
}

TEST(Embedding, PrefixesAreVectorsOfTheirOwn) {
  EmbeddingConfig config;
  config.loss = VectorLoss::kCosine;
  config.prefixes = {{4, 0.5}, {7, 2.0}};
  const Case c = embedder(config);
  const auto model = stage_of(c, Mesh::single());
  randomise(*model, at::kFloat);
  const std::vector<data::Sample> samples = grouped_texts(3, false);
  double expected = 0;
  for (const data::Sample& sample : samples) {
    for (const EmbeddingConfig::Prefix& prefix : config.prefixes) {
      std::vector<double> a = slow_vector(*model, sample, 0), b = slow_vector(*model, sample, 1);
      a.resize(static_cast<size_t>(prefix.size));
      b.resize(static_cast<size_t>(prefix.size));
      const double cosine = product(a, b) / std::sqrt(product(a, a) * product(b, b));
      const double label = sample.segment_labels[5];
      expected += prefix.weight * (cosine - label) * (cosine - label) / 3;
    }
  }
  EXPECT_NEAR(
      preference_test::step_of(*model, *c.objective, preference_test::in_batches(samples, {3}))
          .loss,
      expected, 1e-6);
}

struct EmbeddingPlace {
  const char* name;
  MeshShape shape;
  Cut cut;  ///< the micro-batches of all ranks together are those of one rank with four rows
  parallel::Sharding sharding = parallel::Sharding::kNone;
};

std::vector<EmbeddingPlace> embedding_places() {
  return {{"dp2", {.data = 2}, {2, 0}},
          {"dp4", {.data = 4}, {1, 0}},
          {"zero3", {.data = 2}, {2, 0}, parallel::Sharding::kParameters},
          {"tp2", {.tensor = 2}, {4, 0}},
          {"tp2sp", {.tensor = 2, .sequence_parallel = true}, {4, 0}},
          {"pp2", {.pipeline = 2}, {4, 0}},
          {"cp2", {.context = {.ring = 2, .window = 2}}, {4, 0}},
          {"cp2dp2", {.data = 2, .context = {.ring = 2, .window = 2}}, {2, 0}},
          {"dp2tp2pp2", {.tensor = 2, .data = 2, .pipeline = 2}, {2, 0}}};
}

void expect_same_on_every_mesh(const EmbeddingConfig& config, Tuning tuning) {
  SCOPED_TRACE(settings::embedding_loss_name(config.loss));
  const Case alone = embedder(config, tuning);
  const Outcome one = train(alone, {}, 3, {4, 0});
  for (EmbeddingPlace place : embedding_places()) {
    SCOPED_TRACE(place.name);
    Case c = alone;
    c.sharding = place.sharding;
    // Hard pairs are those of a rank's own micro-batch, whichever ranks have the others.
    const bool is_own = config.loss == VectorLoss::kHardMargin;
    if (is_own && place.shape.data == 4) continue;  // no rank has four rows
    if (is_own) place.cut = {4, 0};
    const Outcome got = train(c, place.shape, 3, place.cut);
    expect_numbers_of(one, got);
    for (size_t step = 0; step < one.metrics.size(); ++step) {
      for (const auto& [name, value] : one.metrics[step])
        EXPECT_NEAR(got.metrics[step].at(name), value, 2e-5) << name;
    }
  }
}

TEST(Embedding, EveryMeshGivesTheNumbersOfOneProcess) {
  expect_same_on_every_mesh(contrast_with(/*among_anchors=*/true), Tuning::kFull);
  expect_same_on_every_mesh(of_loss(VectorLoss::kHardMargin), Tuning::kLora);
}

TEST(Embedding, EveryMeshGivesTheNumbersOfOneProcessWithEveryLoss) {
  DANLU_SLOW_TEST();
  expect_same_on_every_mesh(contrast_with(/*among_anchors=*/false), Tuning::kLora);
  for (const Tuning tuning : {Tuning::kFull, Tuning::kLora})
    for (const VectorLoss loss : {VectorLoss::kCosine, VectorLoss::kMargin})
      expect_same_on_every_mesh(of_loss(loss), tuning);
  // Where rows are not compared, no cut changes anything.
  const Case alone = embedder(of_loss(VectorLoss::kCosine));
  const Outcome one = train(alone, {}, 3, {4, 0});
  for (const Cut& cut : {Cut{1, 0}, Cut{8, 0}, Cut{4, 120}})
    expect_numbers_of(one, train(alone, {}, 3, cut));
}

TEST(Embedding, ARankWithoutABatchTakesPartInTheOthersComparison) {
  const Case c = embedder(contrast_with(/*among_anchors=*/false));
  const auto samples = std::make_shared<data::VectorSource>(grouped_texts(5, true));
  const auto evaluated = [&](const MeshShape& shape, int64_t batch_size) {
    std::map<std::string, double> found;
    std::mutex mutex;
    on_ranks(shape, [&](const Mesh& mesh) {
      TrainState state = state_of(c, mesh);
      const Evaluation evaluation =
          evaluate(*state.model, *c.objective, samples, {.batch_size = batch_size});
      const std::lock_guard lock(mutex);
      found = evaluation.metrics;
      found["loss"] = evaluation.loss;
    });
    return found;
  };
  const auto one = evaluated({}, 4);
  for (const MeshShape& shape : {MeshShape{.data = 2}, MeshShape{.data = 2, .pipeline = 2}}) {
    const auto two = evaluated(shape, 2);
    ASSERT_EQ(two.size(), one.size());
    for (const auto& [name, value] : one) EXPECT_NEAR(two.at(name), value, 1e-5) << name;
  }
}

TEST(Embedding, CorrelationsAreOfAllPairsOfAnEvaluation) {
  // scipy's pearsonr and spearmanr of the same numbers.
  const std::vector<double> x = {0.1, 0.4, 0.4, -0.3, 0.9}, y = {0, 0.5, 1, 0.25, 0.75};
  EXPECT_NEAR(*pearson(x, y), 0.6445034, 1e-6);
  EXPECT_NEAR(*spearman(x, y), 0.7181848, 1e-6);
  EXPECT_FALSE(pearson(x, {1, 1, 1, 1, 1}));
  const Case c = embedder(of_loss(VectorLoss::kMargin));
  const auto samples = std::make_shared<data::VectorSource>(grouped_texts(5, false));
  std::map<std::string, double> one, two;
  const auto evaluated = [&](const MeshShape& shape, std::map<std::string, double>& found) {
    std::mutex mutex;
    on_ranks(shape, [&](const Mesh& mesh) {
      TrainState state = state_of(c, mesh);
      const Evaluation evaluation =
          evaluate(*state.model, *c.objective, samples, {.batch_size = 2});
      const std::lock_guard lock(mutex);
      found = evaluation.metrics;
    });
  };
  evaluated({}, one);
  evaluated({.data = 2, .pipeline = 2}, two);
  const auto model = stage_of(c, Mesh::single());
  randomise(*model, at::kFloat);
  std::vector<double> found, wanted;
  for (int64_t i = 0; i < 5; ++i) {
    const data::Sample sample = samples->get(i);
    found.push_back(product(slow_vector(*model, sample, 0), slow_vector(*model, sample, 1)));
    wanted.push_back(sample.segment_labels[5]);
  }
  EXPECT_NEAR(one.at("pearson_cosine"), *pearson(found, wanted), 1e-5);
  EXPECT_NEAR(one.at("spearman_cosine"), *spearman(found, wanted), 1e-9);
  for (const auto& [name, value] : one) EXPECT_NEAR(two.at(name), value, 1e-5) << name;
}

TEST(Embedding, SamplesOfAnotherFormAreRefused) {
  const Case c = embedder(of_loss(VectorLoss::kCosine));
  const auto model = stage_of(c, Mesh::single());
  const auto said_of = [&](const std::vector<data::Sample>& samples) {
    return danlu::test::error_of([&] {
      preference_test::step_of(*model, *c.objective, preference_test::in_batches(samples, {2}));
    });
  };
  EXPECT_THAT(said_of(test::toy_samples(2)), testing::HasSubstr("no groups of texts"));
  EXPECT_THAT(said_of(grouped_texts(2, true)), testing::HasSubstr("no text with one that fits it"));
}

}  // namespace
}  // namespace mesh_test
}  // namespace danlu::train
