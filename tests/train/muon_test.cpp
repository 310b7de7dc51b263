// Muon in training: twenty steps against torch (goldens/muon_losses.json), and on meshes the
// numbers of one rank.
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "plan/memory.h"
#include "train/golden_rows.h"
#include "train/mesh.h"
#include "train/mesh_cases.h"

namespace danlu::train {
namespace mesh_test {
namespace {

using parallel::Sharding;

TEST(MuonTraining, TwentyStepsEqualTorch) {
  DANLU_REQUIRES_SHARED();
  const auto folder = danlu::test::shared_dir() / "golden";
  const auto rows = weights::open_safetensors(folder / "train_llama/golden.safetensors");
  const Json golden =
      read_json_file(std::string(DANLU_SOURCE_DIR) + "/tests/train/goldens/muon_losses.json");
  TrainConfig config = test::golden_recipe(1e-3);
  config.adamw.muon.emplace();
  TrainState state = test::make_state(models::load_model(folder / "llama", parallel::Mesh::single(),
                                                         at::kFloat, at::Device(at::kCPU)),
                                      config);
  const auto losses = golden.at("losses").get<std::vector<double>>(),
             norms = golden.at("grad_norms").get<std::vector<double>>();
  ASSERT_EQ(losses.size(), 20u);
  for (size_t step = 0; step < losses.size(); ++step) {
    const StepResult result = run_step(
        state, test::step_of(test::golden_rows(*rows, static_cast<int64_t>(step)), 3, 1, 0), config,
        config.schedule.shape);
    EXPECT_NEAR(result.loss, losses[step], 1e-4) << step;
    EXPECT_NEAR(result.grad_norm, norms[step], 1e-3) << step;
  }
  for (const auto& parameter : state.model->parameters()) {
    const auto first = golden.at("first_weights").at(parameter.name()).get<std::vector<float>>();
    const at::Tensor flat = parameter.tensor.detach().flatten();
    for (size_t i = 0; i < first.size(); ++i)
      EXPECT_NEAR(flat[static_cast<int64_t>(i)].item<float>(), first[i], 1e-3) << parameter.name();
  }
}

Case muon_case(const char* family, Tuning tuning, const MeshShape& shape,
               Sharding sharding = Sharding::kNone) {
  Case c{family, family, Json::object()};
  c.tuning = tuning;
  c.shape = shape;
  c.sharding = sharding;
  c.muon.emplace();
  return c;
}

/// Matrices by rows, columns, halves and KV groups that several ranks hold; shares that begin in
/// the midst of a matrix; stages; experts divided and dealt; adapters.
std::vector<Case> muon_cases() {
  const MeshShape tp2{.tensor = 2}, tp4{.tensor = 4}, dp2{.data = 2}, dp3{.data = 3};
  const MeshShape tp2dp2{.tensor = 2, .data = 2}, pp2dp2{.data = 2, .pipeline = 2};
  const MeshShape ep2dp2{.data = 4, .expert = 2};
  const MeshShape ep2dealt{.tensor = 2, .data = 2, .expert = 2, .expert_dealers = 2};
  std::vector<Case> cases = {muon_case("qwen2", Tuning::kFull, dp2),
                             muon_case("qwen2", Tuning::kFull, tp4),
                             muon_case("qwen2", Tuning::kFull, tp2dp2, Sharding::kState),
                             muon_case("phi3", Tuning::kFull, tp2, Sharding::kNone),
                             muon_case("qwen2_moe", Tuning::kFull, ep2dealt, Sharding::kParameters),
                             muon_case("qwen2", Tuning::kLora, tp2dp2, Sharding::kGradients)};
  if (!danlu::test::is_slow()) return cases;
  for (const Sharding sharding : {Sharding::kState, Sharding::kGradients, Sharding::kParameters}) {
    cases.push_back(muon_case("qwen3", Tuning::kFull, dp3, sharding));
    cases.push_back(muon_case("qwen3", Tuning::kDora, tp2dp2, sharding));
    cases.push_back(muon_case("qwen2_moe", Tuning::kLora, ep2dp2, sharding));
    cases.push_back(muon_case("baichuan2", Tuning::kFull, pp2dp2, sharding));
  }
  for (const char* family : {"gpt2", "glm4", "internlm2", "deepseek_v3"})
    cases.push_back(muon_case(family, Tuning::kFull, tp2));
  return cases;
}

class MuonMesh : public testing::TestWithParam<Case> {};

TEST_P(MuonMesh, GivesTheNumbersOfOneRank) {
  const Case& c = GetParam();
  const int64_t steps = few_steps();
  const Outcome one = train(without_schemes(c), {}, steps), got = train(c, c.shape, steps);
  expect_numbers_of(one, got);
  for (const auto& [name, weight] : one.weights) {
    const double far = (got.weights.at(name) - weight).abs().max().item<double>();
    EXPECT_LE(far, 1e-5) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, MuonMesh, testing::ValuesIn(muon_cases()),
                         [](const auto& info) { return name_of(info); });

/// ZeRO-2 and 3 sum gradients after each micro-batch, so in another order.
TEST(MuonTraining, SharesAreTheBitsOfWholesWhereGradientsAreSummedAlike) {
  const auto weights_of = [](Sharding sharding) {
    return train(muon_case("qwen2", Tuning::kFull, {.data = 2}, sharding), {.data = 2}, 3).weights;
  };
  const auto whole = weights_of(Sharding::kNone);
  for (const Sharding sharding : {Sharding::kState, Sharding::kGradients, Sharding::kParameters}) {
    for (const auto& [name, weight] : weights_of(sharding)) {
      const double distance = (weight - whole.at(name)).abs().max().item<double>();
      EXPECT_LE(distance, sharding == Sharding::kState ? 0 : 2e-5)
          << name << static_cast<int>(sharding);
    }
  }
}

/// Muon, GaLore and Adam-mini beside AdamW.
TEST(MuonTraining, APlanKnowsWhatItsStateTakes) {
  settings::AdamWConfig muon, galore, mini;
  muon.muon.emplace();
  galore.low_rank = settings::LowRankConfig{.rank = 4};
  mini.mini.emplace();
  for (const auto precision : {settings::Precision::kF32, settings::Precision::kBF16}) {
    for (const settings::AdamWConfig& adamw : {muon, galore, mini}) {
      plan::Request request;
      request.model = test::tiny_config();
      request.precision = precision;
      request.tokens = 16;
      request.adamw = adamw;
      TrainConfig config;
      config.adamw = adamw;
      const TrainState state = test::tiny_state(
          config, precision == settings::Precision::kF32 ? at::kFloat : at::kBFloat16);
      const plan::Memory memory = plan::memory_by_stage(request)[0].memory;
      const auto planned = static_cast<double>(memory.moments + memory.masters);
      // What lies between tensors comes on top.
      EXPECT_NEAR(static_cast<double>(state.optimizer->state_bytes()) / planned, 1.0, 0.05)
          << settings::optimizer_words(adamw);
      request.adamw = {};
      const plan::Memory plain = plan::memory_by_stage(request)[0].memory;
      EXPECT_LT(planned, 0.8 * static_cast<double>(plain.moments + plain.masters));
    }
  }
}

}  // namespace
}  // namespace mesh_test
}  // namespace danlu::train
