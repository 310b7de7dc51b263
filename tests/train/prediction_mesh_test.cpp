// Layers that predict further ahead on meshes; the oracle is one rank, and there plain arithmetic.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "train/batch_input.h"
#include "train/mesh.h"
#include "train/mesh_cases.h"

namespace danlu::train {
namespace mesh_test {
namespace {

using parallel::Sharding;

Case prediction_case(const char* family, const MeshShape& shape,
                     Sharding sharding = Sharding::kNone, int64_t depth = 1) {
  Case c{family, family, {{"num_nextn_predict_layers", depth}}};
  if (std::string_view(family) == "deepseek_v3") {
    c.changes.update({{"n_routed_experts", 8},
                      {"num_experts_per_tok", 3},
                      {"n_shared_experts", 1},
                      {"moe_intermediate_size", 24},
                      {"n_group", 4},
                      {"topk_group", 2},
                      {"first_k_dense_replace", 1}});
  }
  c.shape = shape;
  c.sharding = sharding;
  c.prediction = {.layers = depth, .loss_factor = 0.3};
  c.routers = {settings::BalanceLoss::kSequence, 0.05, 0.01};
  return c;
}

std::vector<Case> prediction_cases() {
  const MeshShape dp2{.data = 2}, tp2{.tensor = 2}, pp2{.pipeline = 2};
  const MeshShape tp2sp{.tensor = 2, .sequence_parallel = true};
  const MeshShape ep4{.data = 4, .expert = 4};
  const MeshShape ep2tp2sp{.tensor = 2, .data = 2, .sequence_parallel = true, .expert = 2};
  const MeshShape ep2pp2{.data = 2, .pipeline = 2, .expert = 2};
  const MeshShape dealt{.tensor = 2, .data = 2, .expert = 2, .expert_dealers = 2};
  std::vector<Case> cases;
  for (const MeshShape& shape : {tp2, tp2sp, pp2, ep4, dealt})
    cases.push_back(prediction_case("deepseek_v3", shape));
  for (const Sharding sharding : {Sharding::kState, Sharding::kGradients, Sharding::kParameters}) {
    cases.push_back(prediction_case("deepseek_v3", dp2, sharding));
    cases.push_back(prediction_case("glm4_moe", ep2tp2sp, sharding));
  }
  cases.push_back(prediction_case("glm4_moe", ep2pp2, Sharding::kNone, 2));
  cases.push_back(prediction_case("glm4_moe", ep2pp2, Sharding::kParameters, 2));
  Case tied = prediction_case("glm4_moe", pp2);
  tied.name = "glm4_moe_tied";
  tied.changes["tie_word_embeddings"] = true;
  cases.push_back(tied);
  tied.shape = {.data = 2};
  tied.sharding = Sharding::kParameters;
  cases.push_back(tied);
  const MeshShape ring{.context = {1, 2, 2}}, heads{.context = {2, 1, 1}},
      rings{.context = {1, 4, 2}};
  const MeshShape beside{.tensor = 2, .context = {1, 2, 2}, .sequence_parallel = true};
  for (const MeshShape& shape : {ring, heads, rings, beside})
    cases.push_back(prediction_case("glm4_moe", shape, Sharding::kNone, 2));
  cases.push_back(
      prediction_case("deepseek_v3", {.pipeline = 2, .context = {1, 2, 2}}, Sharding::kParameters));
  cases.push_back(prediction_case("deepseek_v3", {.data = 2, .context = {2, 1, 1}, .expert = 2}));
  Case before = prediction_case("deepseek_v3", pp2, Sharding::kNone, 2);
  before.name = "before_norm";
  before.prediction.normed = false;
  cases.push_back(before);
  Case again = prediction_case("deepseek_v3", ep2pp2, Sharding::kParameters);
  again.recompute = models::Recompute::kFull;
  cases.push_back(again);
  Case chunks = prediction_case("glm4_moe", ep2pp2);
  chunks.chunks = 2;
  chunks.layers = 4;
  cases.push_back(chunks);
  Case zero_bubble = prediction_case("glm4_moe", ep2pp2);
  zero_bubble.zero_bubble = true;
  cases.push_back(zero_bubble);
  return cases;
}

std::string prediction_name(const testing::TestParamInfo<Case>& info) {
  return name_of(info) + "_ep" + std::to_string(info.param.shape.expert) + "_deep" +
         std::to_string(info.param.prediction.layers);
}

class PredictionMesh : public testing::TestWithParam<Case> {};

TEST_P(PredictionMesh, GivesTheNumbersOfOneRank) {
  const Case& c = GetParam();
  static std::map<std::string, Outcome> known;
  Case plain = without_schemes(c);
  const auto [found, is_new] =
      known.try_emplace(prediction_name({plain, 0}) + std::to_string(c.prediction.normed));
  if (is_new) found->second = train(plain, {}, few_steps());
  const Outcome& one = found->second;
  const Outcome got = train(c, c.shape, few_steps());
  expect_numbers_of(one, got);
  EXPECT_TRUE(one.gradients.count("model.layers.2.eh_proj.weight") ||
              one.gradients.count("model.layers.4.eh_proj.weight"));
  EXPECT_FALSE(one.gradients.count("model.layers.2.embed_tokens.weight"));
  for (size_t step = 0; step < one.metrics.size(); ++step) {
    for (const auto& [name, value] : one.metrics[step])
      EXPECT_NEAR(got.metrics[step].at(name), value, 1e-5 * value) << name << " of step " << step;
    EXPECT_EQ(got.metrics[step].count("mtp_1_loss"), 1u);
    EXPECT_EQ(got.metrics[step].count("mtp_2_loss"), c.prediction.layers - 1u);
  }
}

INSTANTIATE_TEST_SUITE_P(Predictions, PredictionMesh, testing::ValuesIn(prediction_cases()),
                         prediction_name);

// Beside a balance loss all else that training asks of routers is of every layer, whichever layers
// that loss is over.
TEST(PredictionMeshes, RoutersOfLayersAheadHaveTheirNoiseRoomAndZLossOverWholeModelsToo) {
  const auto trained = [](settings::BalanceLoss loss) {
    Case c = prediction_case("glm4_moe", {});
    c.routers = {.loss = loss, .z_loss_coef = 0.01, .capacity_factor = 0.75, .input_jitter = 0.05};
    return train(c, {}, 3);
  };
  const Outcome model = trained(settings::BalanceLoss::kModel),
                batch = trained(settings::BalanceLoss::kBatch);
  EXPECT_EQ(model.losses, batch.losses);
  ASSERT_FALSE(model.weights.empty());
  for (const auto& [name, weight] : model.weights)
    EXPECT_TRUE(weight.equal(batch.weights.at(name))) << name;
}

/// The loss of a step by ATen: targets moved on sample by sample, every sample in a pass by itself.
struct PlainLoss {
  data::StepBatches batches;  ///< whose memory the backward reads
  at::Tensor main, ahead;     ///< sums
  double targets = 0, ahead_targets = 0;
};
PlainLoss plain_loss(const TrainState& state, const Case& c) {
  PlainLoss loss;
  loss.batches = batches_of(Mesh::single(), 0, Cut{1, 0});
  for (const data::Batch& batch : loss.batches.micro_batches) {
    const models::ForwardInput input = evaluation_input(*state.model, batch);
    const at::Tensor targets_N = targets_of(batch);
    const int64_t n = targets_N.size(0);
    const auto sum = [](const at::Tensor& logits, const at::Tensor& targets) {
      return at::cross_entropy_loss(logits.to(at::kDouble), targets, {}, at::Reduction::Sum, -100);
    };
    const auto add = [](at::Tensor& to, const at::Tensor& more) {
      to = to.defined() ? to + more : more;
    };
    add(loss.main, sum(state.model->logits(state.model->forward(input)), targets_N));
    loss.targets += (targets_N != -100).sum().item<double>();
    const std::vector<at::Tensor> logits =
        state.model->predicted_logits(input, c.prediction.normed);
    for (int64_t depth = 1; depth <= c.prediction.layers; ++depth) {
      at::Tensor moved_N = at::full({n}, -100, at::kLong);
      if (n > depth) moved_N.narrow(0, 0, n - depth).copy_(targets_N.narrow(0, depth, n - depth));
      if ((moved_N != -100).sum().item<int64_t>() == 0) continue;
      add(loss.ahead, sum(logits[static_cast<size_t>(depth - 1)], moved_N));
      loss.ahead_targets += (moved_N != -100).sum().item<double>();
    }
  }
  return loss;
}

class PredictionStep : public testing::TestWithParam<bool> {};

TEST_P(PredictionStep, LossAndGradientsAreThoseOfPlainArithmetic) {
  Case c = prediction_case("glm4_moe", {}, Sharding::kNone, 2);
  c.prediction.normed = GetParam();
  c.routers = {};
  const Outcome got = train(c, {}, 1);
  Json json = danlu::test::tiny_config(c.family);
  json.update(c.changes);
  arch::ModelConfig config = arch::family_of(json).parse(json);
  config.predicts_ahead = true;
  TrainState state;
  state.model =
      std::make_unique<models::CausalLM>(config, Mesh::single(), at::kFloat, at::Device(at::kCPU));
  models::initialize(*state.model, 3);
  randomise(*state.model, at::kFloat);
  const PlainLoss plain = plain_loss(state, c);
  EXPECT_NEAR(got.losses[0], plain.main.item<double>() / plain.targets, 1e-5);
  double both = 0;
  for (const char* name : {"mtp_1_loss", "mtp_2_loss"}) both += got.metrics[0].at(name);
  EXPECT_NEAR(both / 2, plain.ahead.item<double>() / plain.ahead_targets, 0.05);
  torch::autograd::backward({(plain.main + 0.3 / 2 * plain.ahead) / plain.targets}, {});
  size_t compared = 0;
  for (const parallel::Parameter& parameter : state.model->parameters()) {
    const auto found = got.gradients.find(parameter.name());
    if (found == got.gradients.end()) continue;
    const at::Tensor expected = parameter.tensor.grad();
    ASSERT_TRUE(expected.defined()) << parameter.name();
    const double largest = expected.abs().max().item<double>();
    const double far = (found->second - expected).abs().max().item<double>();
    EXPECT_LE(far, 1e-4 * largest + 1e-9) << parameter.name();
    ++compared;
  }
  EXPECT_EQ(compared, got.gradients.size());
}

INSTANTIATE_TEST_SUITE_P(Both, PredictionStep, testing::Bool());

}  // namespace
}  // namespace mesh_test
}  // namespace danlu::train
