// Training of models that rank documents: losses, metrics and gradients by a slow loop that agrees
// with torch, and the same numbers on every mesh and in every cut.
#include "train/objectives/ranking.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "data/groups.h"
#include "support/throws.h"
#include "train/golden_step.h"
#include "train/mesh.h"

namespace danlu::train {
namespace mesh_test {
namespace ranking_test {

using data::GroupRole;
using settings::RankingConfig;
using settings::RankingLoss;

const std::vector<int64_t> kTokens = {7, 40};

/// The scores of a row's documents: those that go with its query, and others.
struct Scores {
  std::vector<double> rights, others;
};

struct Slow {
  double sum = 0, weight = 0;
  double mean() const { return weight > 0 ? sum / weight : 0; }
};

Slow slow_loss(const RankingConfig& config, const std::vector<Scores>& rows) {
  Slow loss;
  for (const Scores& row : rows) {
    for (const double right : row.rights) {
      if (config.loss == RankingLoss::kPointwise) {
        loss.sum += std::log1p(std::exp(-right));
        for (const double other : row.others) loss.sum += std::log1p(std::exp(other));
        loss.weight += 1 + static_cast<double>(row.others.size());
      } else if (1 + std::ssize(row.others) >= config.least_texts) {
        double all = std::exp(right / config.temperature);
        for (const double other : row.others) all += std::exp(other / config.temperature);
        loss.sum += std::log(all) - right / config.temperature;
        loss.weight += 1;
      }
    }
  }
  return loss;
}

std::map<std::string, double> slow_metrics(const RankingConfig& config,
                                           const std::vector<Scores>& rows) {
  Slow accuracy, mrr, ndcg;
  for (const Scores& row : rows) {
    for (const double right : row.rights) {
      const auto before = static_cast<double>(std::count_if(
          row.others.begin(), row.others.end(), [&](double other) { return other >= right; }));
      if (!row.others.empty()) {
        mrr = {mrr.sum + 1 / (1 + before), mrr.weight + 1};
        ndcg = {ndcg.sum + 1 / std::log2(2 + before), ndcg.weight + 1};
      }
      if (config.loss == RankingLoss::kPointwise) {
        accuracy = {accuracy.sum + (right > 0 ? 1 : 0), accuracy.weight + 1};
        for (const double other : row.others)
          accuracy = {accuracy.sum + (other > 0 ? 0 : 1), accuracy.weight + 1};
      } else if (1 + std::ssize(row.others) >= config.least_texts) {
        accuracy = {accuracy.sum + (before == 0 ? 1 : 0), accuracy.weight + 1};
      }
    }
  }
  return {{"accuracy", accuracy.mean()}, {"mrr", mrr.mean()}, {"ndcg", ndcg.mean()}};
}

/// Rows of toy texts: now two documents that go with a query, now none that does not.
std::vector<data::Sample> toy_rows(int64_t count) {
  const std::vector<data::Sample> texts = test::toy_samples(count * 6);
  std::vector<data::Sample> rows;
  size_t next = 0;
  for (int64_t i = 0; i < count; ++i) {
    data::Sample row;
    row.segments.clear();
    row.labels_are_targets = true;
    const auto add = [&](GroupRole role) {
      const data::Sample& text = texts[next++];
      const bool is_first = row.segments.empty();
      row.segments.push_back(static_cast<int32_t>(row.ids.size()));
      row.ids.insert(row.ids.end(), text.ids.begin(), text.ids.end());
      row.labels.resize(row.ids.size(), -100);
      row.labels.back() = row.ids.back();
      for (const float number : data::numbers_of_member({role, 1, is_first}))
        row.segment_labels.push_back(number);
    };
    for (int64_t k = 0; k < (i % 5 == 2 ? 2 : 1); ++k) add(GroupRole::kPositive);
    for (int64_t k = 0; k < i % 4; ++k) add(GroupRole::kNegative);
    rows.push_back(std::move(row));
  }
  return rows;
}

RankingConfig config_with(RankingLoss loss, bool by_tokens, double temperature = 1,
                          int64_t least_texts = 2) {
  RankingConfig config;
  config.loss = loss;
  config.by_tokens = by_tokens;
  config.temperature = temperature;
  config.least_texts = least_texts;
  return config;
}

std::vector<RankingConfig> configs() {
  return {config_with(RankingLoss::kPointwise, true), config_with(RankingLoss::kPointwise, false),
          config_with(RankingLoss::kListwise, true, 0.5, 3),
          config_with(RankingLoss::kListwise, false)};
}

Case ranker(const RankingConfig& config, Tuning tuning = Tuning::kFull,
            const char* family = "qwen2", Json changes = Json::object()) {
  Case c{config.by_tokens ? "tokens" : "head", family, std::move(changes), tuning};
  c.samples = std::make_shared<data::VectorSource>(toy_rows(64));
  if (!config.by_tokens) {
    c.score = arch::ScoreHead{};
    if (tuning == Tuning::kLora) c.modules_to_save = {"score"};
  }
  c.objective = ranking_objective(config, config.by_tokens ? kTokens : std::vector<int64_t>());
  return c;
}

/// A text's score where it is alone in its pass.
double slow_score(const models::CausalLM& model, std::vector<int32_t> ids, bool by_tokens) {
  const at::NoGradGuard no_grad;
  data::Sample sample{.ids = std::move(ids)};
  sample.labels.assign(sample.ids.size(), -100);
  const data::Batch batch = data::make_batch({sample});
  const at::Tensor hidden_NH = model.forward(evaluation_input(model, batch));
  const at::Tensor last_1H = hidden_NH.narrow(0, hidden_NH.size(0) - 1, 1);
  if (by_tokens) {
    const at::Tensor logits_V = model.logits(last_1H)[0];
    return (logits_V[kTokens[0]] - logits_V[kTokens[1]]).item<double>();
  }
  for (const parallel::Parameter& p : model.parameters())
    if (p.name() == "score.weight")
      return (p.tensor[0].to(at::kDouble) * last_1H[0].to(at::kDouble)).sum().item<double>();
  throw std::logic_error("no head");
}

std::vector<Scores> slow_scores(const models::CausalLM& model,
                                const std::vector<data::Sample>& rows, bool by_tokens) {
  std::vector<Scores> all;
  for (const data::Sample& row : rows) {
    Scores& scores = all.emplace_back();
    for (size_t s = 0; s < row.segments.size(); ++s) {
      const auto end =
          s + 1 < row.segments.size() ? static_cast<size_t>(row.segments[s + 1]) : row.ids.size();
      const double score = slow_score(
          model, {row.ids.begin() + row.segments[s], row.ids.begin() + static_cast<int64_t>(end)},
          by_tokens);
      const bool is_right = row.segment_labels[s * data::kGroupNumbers + 1] ==
                            static_cast<float>(GroupRole::kPositive);
      (is_right ? scores.rights : scores.others).push_back(score);
    }
  }
  return all;
}

TEST(Ranking, TheSlowLoopAgreesWithTorch) {
  // torch.nn.BCEWithLogitsLoss, torch.nn.CrossEntropyLoss and ms-swift's metrics in numpy.
  const std::vector<Scores> rows = {
      {{1.5}, {-0.5, 0.25}}, {{-1.0}, {2.0}}, {{0.3}, {0.1, -2.0, 1.1, 0.0}}, {{2.5}, {}}};
  const auto loss = [&](const RankingConfig& config) { return slow_loss(config, rows).mean(); };
  EXPECT_NEAR(loss(config_with(RankingLoss::kPointwise, true)), 0.7751519578323541, 1e-12);
  EXPECT_NEAR(loss(config_with(RankingLoss::kListwise, true)), 1.6622599631718267, 1e-12);
  EXPECT_NEAR(loss(config_with(RankingLoss::kListwise, true, 0.5, 3)), 1.0336411459580017, 1e-12);
  const auto metrics = slow_metrics(config_with(RankingLoss::kListwise, true), rows);
  EXPECT_NEAR(metrics.at("mrr"), 2.0 / 3, 1e-12);
  EXPECT_NEAR(metrics.at("ndcg"), 0.7539531690476383, 1e-12);
}

TEST(Ranking, LossesMetricsAndGradientsAreThoseOfASlowLoop) {
  const std::vector<data::Sample> rows = toy_rows(7);
  std::vector<Case> cases;
  std::vector<RankingConfig> of_cases;
  const auto add = [&](const RankingConfig& config, const char* family, Json changes) {
    cases.push_back(ranker(config, Tuning::kFull, family, std::move(changes)));
    of_cases.push_back(config);
  };
  for (const RankingConfig& config : configs()) add(config, "qwen2", Json::object());
  // A head that is the embedding's table, and one whose logits have a cap.
  add(configs()[0], "qwen2", {{"tie_word_embeddings", true}});
  add(configs()[2], "gemma2", {{"final_logit_softcapping", 0.5}});
  for (size_t k = 0; k < cases.size(); ++k) {
    Case& c = cases[k];
    SCOPED_TRACE(c.name + (" " + std::to_string(k)));
    const RankingConfig& config = of_cases[k];
    c.dtype = at::kDouble;
    c.first_values = at::kDouble;
    const auto model = stage_of(c, Mesh::single());
    randomise(*model, at::kDouble);
    const auto slow = [&] {
      return slow_loss(config, slow_scores(*model, rows, config.by_tokens)).mean();
    };
    const preference_test::Found found =
        preference_test::step_of(*model, *c.objective, preference_test::in_batches(rows, {3, 4}));
    EXPECT_NEAR(found.loss, slow(), 1e-9);
    for (const auto& [name, value] :
         slow_metrics(config, slow_scores(*model, rows, config.by_tokens)))
      EXPECT_NEAR(found.metrics.at(name), value, 1e-9) << name;
    const std::string head = config.by_tokens ? "lm_head.weight" : "score.weight";
    for (const parallel::Parameter& p : model->parameters()) {
      const bool is_head =
          p.name() == head || (p.name() == "model.embed_tokens.weight" && k + 2 >= cases.size());
      if (!is_head && p.name() != "model.layers.0.mlp.down_proj.weight") continue;
      const at::NoGradGuard no_grad;
      const int64_t width = p.tensor.size(1);
      std::vector<int64_t> places = {0, 5, width - 1};
      if (is_head && config.by_tokens) places = {kTokens[0] * width + 3, kTokens[1] * width, 5};
      for (const int64_t i : places) {
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
      if (p.name() != "lm_head.weight") continue;
      // An optimizer that looks at signs would move rows that have any gradient.
      at::Tensor other = p.tensor.grad().clone();
      for (const int64_t id : kTokens) other[id].zero_();
      EXPECT_EQ(other.abs().max().item<double>(), 0);
    }
  }
}

TEST(Ranking, AModelWhoseScoresAreNoNumbersHasNothingInItsPlace) {
  const std::vector<data::Sample> rows = toy_rows(4);
  for (const RankingConfig& config : configs()) {
    Case c = ranker(config, Tuning::kFull);
    const auto model = stage_of(c, Mesh::single());
    {
      const at::NoGradGuard no_grad;
      for (const parallel::Parameter& p : model->parameters()) p.tensor.fill_(std::nan(""));
    }
    const auto found =
        preference_test::step_of(*model, *c.objective, preference_test::in_batches(rows, {4}));
    // Behind 1 other, behind 2 twice, behind 3.
    EXPECT_NEAR(found.metrics.at("mrr"), (1.0 / 2 + 2.0 / 3 + 1.0 / 4) / 4, 1e-9);
    EXPECT_EQ(found.metrics.at("accuracy"), 0);
  }
}

TEST(Ranking, EveryMeshAndCutGivesTheNumbersOfOneProcess) {
  struct Place {
    const char* name;
    MeshShape shape;
    parallel::Sharding sharding = parallel::Sharding::kNone;
  };
  const std::vector<Place> places = {{"zero3", {.data = 2}, parallel::Sharding::kParameters},
                                     {"tp2", {.tensor = 2}},
                                     {"tp2sp", {.tensor = 2, .sequence_parallel = true}},
                                     {"pp2", {.pipeline = 2}},
                                     {"cp2", {.context = {.ring = 2, .window = 2}}},
                                     {"dp2tp2pp2", {.tensor = 2, .data = 2, .pipeline = 2}}};
  std::vector<Case> cases;
  for (const RankingConfig& config : configs())
    cases.push_back(ranker(config, cases.size() % 2 ? Tuning::kLora : Tuning::kFull));
  cases.push_back(ranker(configs()[0], Tuning::kFull, "qwen2", {{"tie_word_embeddings", true}}));
  for (const Case& alone : cases) {
    SCOPED_TRACE(alone.name);
    const Outcome one = train(alone, {}, 3);
    for (const Place& place : places) {
      SCOPED_TRACE(place.name);
      Case c = alone;
      c.sharding = place.sharding;
      const Outcome got = train(c, place.shape, 3);
      expect_numbers_of(one, got);
      for (size_t step = 0; step < one.metrics.size(); ++step) {
        for (const auto& [name, value] : one.metrics[step])
          EXPECT_NEAR(got.metrics[step].at(name), value, 2e-5) << name;
      }
    }
    for (const Cut& cut : {Cut{1, 0}, Cut{8, 0}, Cut{4, 240}})
      expect_numbers_of(one, train(alone, {}, 3, cut));
  }
}

TEST(Ranking, SamplesOfOtherKindsAreRefused) {
  const Case c = ranker(configs()[0]);
  const auto model = stage_of(c, Mesh::single());
  const auto said = [&](std::vector<data::Sample> samples) {
    return danlu::test::error_of([&] {
      preference_test::step_of(*model, *c.objective, preference_test::in_batches(samples, {2}));
    });
  };
  EXPECT_THAT(said(test::toy_samples(2)), testing::HasSubstr("no groups"));
  std::vector<data::Sample> apart = toy_rows(2);
  apart[0].segment_labels[1] = static_cast<float>(GroupRole::kAnchor);
  EXPECT_THAT(said(apart), testing::HasSubstr("texts of their own"));
}

}  // namespace ranking_test
}  // namespace mesh_test
}  // namespace danlu::train
