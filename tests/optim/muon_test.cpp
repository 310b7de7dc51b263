// Muon against torch (muon_goldens.json, written by make_muon_goldens.py).
#include "optim/muon.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "optim/adamw.h"
#include "parallel/comm/local.h"

namespace danlu::optim {
namespace muon_test {

struct Shape {
  std::string name;
  std::vector<int64_t> sizes;
  arch::Role role;
};
const std::vector<Shape> kShapes = {{"a.weight", {5, 7}, arch::Role::kQ},
                                    {"b.weight", {9, 4}, arch::Role::kDown},
                                    {"norm.weight", {7}, arch::Role::kAttentionNorm},
                                    {"embed_tokens.weight", {6, 4}, arch::Role::kEmbedding}};

at::Tensor formula(int64_t k, const std::vector<int64_t>& shape, int64_t step, double scale) {
  at::Tensor tensor = at::empty(shape);
  float* values = tensor.data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    values[i] = static_cast<float>(scale * std::sin(0.37 * static_cast<double>(i * i) +
                                                    1.1 * static_cast<double>(k) +
                                                    0.53 * static_cast<double>(step)));
  }
  return tensor;
}

const Json& goldens() {
  static const Json all =
      read_json_file(std::string(DANLU_SOURCE_DIR) + "/tests/optim/muon_goldens.json");
  return all;
}

void expect_near(const at::Tensor& got, const Json& want, double tolerance,
                 const std::string& what) {
  const auto values = want.get<std::vector<double>>();
  const at::Tensor flat = got.detach().to(at::kFloat).contiguous();
  ASSERT_EQ(static_cast<size_t>(flat.numel()), values.size()) << what;
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(flat.data_ptr<float>()[i], values[i], tolerance) << what << "[" << i << "]";
}

/// The parameters of all kinds in one unit, as a rank keeps it, and their optimizer.
struct Unit {
  Unit(const MuonConfig& muon, DecayRule rule, at::ScalarType dtype = at::kFloat,
       const parallel::Mesh& mesh = parallel::Mesh::single(),
       parallel::Sharding sharding = parallel::Sharding::kNone)
      : store(mesh, {.sharding = sharding}, {{{0, 1}}, 1}) {
    std::vector<Parameter*> places;
    for (size_t k = 0; k < kShapes.size(); ++k) {
      Parameter& parameter = parameters.emplace_back(parallel::whole_parameter(
          kShapes[k].name, formula(static_cast<int64_t>(k), kShapes[k].sizes, 0, 1.0).to(dtype)));
      parameter.spec.role = kShapes[k].role;
    }
    for (Parameter& parameter : parameters) places.push_back(&parameter);
    store.lay_out(places, /*keeps_values=*/true);
    gradients = std::make_unique<GradBuffer>(store);
    AdamWConfig config{0.9, 0.95, 1e-8, {0.1, rule, {}}};
    config.muon = muon;
    optimizer = std::make_unique<AdamW>(store, config);
  }
  void step(int64_t number, double lr = 1e-2) {
    const parallel::Unit& unit = store.units().front();
    for (size_t i = 0; i < unit.parameters.size(); ++i) {
      const Range at = unit.place_in_share(i), held = unit.held(i);
      size_t k = 0;
      while (kShapes[k].name != unit.parameters[i]->name()) ++k;
      at::Tensor(gradients->share(0))
          .narrow(0, at.begin, at.size())
          .copy_(formula(static_cast<int64_t>(k), kShapes[k].sizes, number, 6.0)
                     .flatten()
                     .narrow(0, held.begin, held.size()));
    }
    optimizer->step(*gradients, lr, 0.5);
    store.settle();
  }
  std::map<std::string, at::Tensor> state() const {
    std::map<std::string, at::Tensor> parts;
    for (const StatePart& part : optimizer->state(true))
      parts[part.name] = part.values.f32().clone();
    return parts;
  }
  std::vector<Parameter> parameters;
  parallel::ParameterStore store;
  std::unique_ptr<GradBuffer> gradients;
  std::unique_ptr<AdamW> optimizer;
};

MuonConfig megatrons(const char* coefficients, int64_t steps, const char* mode, double scale,
                     bool nesterov) {
  return {.momentum = 0.9,
          .nesterov = nesterov,
          .coefficients = coefficients,
          .num_steps = steps,
          .scale_mode = mode,
          .extra_scale = scale};
}

TEST(Muon, IterationsEqualTorchs) {
  for (const Json& golden : goldens().at("iterations")) {
    const MuonConfig config{.coefficients = golden.at("set"), .num_steps = golden.at("steps")};
    config.validate();
    const at::Tensor matrix = formula(3, golden.at("shape").get<std::vector<int64_t>>(), 2, 40.0);
    expect_near(orthogonalised(matrix, settings::newton_schulz_steps(config)), golden.at("result"),
                2e-5, golden.at("set").get<std::string>());
  }
  const at::Tensor nothing = at::zeros({3, 4});
  EXPECT_TRUE(at::equal(orthogonalised(nothing, settings::newton_schulz_steps({})), nothing));
}

TEST(Muon, SixStepsEqualTorchsOfMoonlightAndOfMegatron) {
  const auto expect = [](const char* name, const MuonConfig& muon, DecayRule rule) {
    Unit unit(muon, rule);
    for (int64_t step = 1; step <= 6; ++step) unit.step(step);
    for (const Parameter& parameter : unit.parameters)
      expect_near(parameter.tensor, goldens().at(name).at(parameter.name()), 5e-6,
                  name + (" " + parameter.name()));
  };
  expect("moonlight", {}, DecayRule::kAll);
  expect("megatron", megatrons("quintic", 5, "unit_rms_norm", 1.5, false), DecayRule::kMatrices);
  expect("megatron_nesterov", megatrons("aol", 8, "shape_scaling", 1.0, true),
         DecayRule::kMatrices);
}

TEST(Muon, NarrowWeightsFollowTheirMastersToTheBit) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    Unit narrow({}, DecayRule::kAll, dtype), wide({}, DecayRule::kAll);
    {
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < wide.parameters.size(); ++i)
        at::Tensor(wide.parameters[i].tensor).copy_(narrow.parameters[i].tensor);
    }
    for (int64_t step = 1; step <= 5; ++step) {
      narrow.step(step, 1e-5);
      wide.step(step, 1e-5);
    }
    const auto masters = narrow.state(), expected = wide.state();
    for (const auto& [name, values] : expected)
      EXPECT_TRUE(at::equal(masters.at(name), values)) << name;
    for (size_t i = 0; i < wide.parameters.size(); ++i) {
      EXPECT_TRUE(at::equal(narrow.parameters[i].tensor.detach(),
                            wide.parameters[i].tensor.detach().to(dtype)))
          << wide.parameters[i].name();
    }
  }
}

TEST(Muon, HasOneNumberForAnElementOfAMatrixAndTwoForOthers) {
  Unit unit({}, DecayRule::kAll);
  std::string names;
  int64_t numbers = 0;
  for (const StatePart& part : unit.optimizer->state(false)) {
    names += part.name + " ";
    numbers += part.values.size();
  }
  EXPECT_EQ(names,
            "momentum.a.weight momentum.b.weight exp_avg.norm.weight exp_avg_sq.norm.weight "
            "exp_avg.embed_tokens.weight exp_avg_sq.embed_tokens.weight ");
  EXPECT_EQ(numbers, 35 + 36 + 2 * (7 + 24));
  EXPECT_EQ(unit.optimizer->state_bytes(), 4 * numbers);
}

TEST(Muon, SavedStateContinuesBitForBit) {
  Unit unit({}, DecayRule::kAll, at::kBFloat16);
  for (int64_t step = 1; step <= 3; ++step) unit.step(step);
  const auto saved = unit.state();
  for (int64_t step = 4; step <= 6; ++step) unit.step(step);
  Unit resumed({}, DecayRule::kAll, at::kBFloat16);
  resumed.optimizer->load_state(
      [&](const std::string& name, const auto&, const arch::Rect& rect, const at::Tensor& to) {
        at::Tensor(to).copy_(saved.at(name).view({rect.rows, rect.cols}));
        return true;
      },
      3);
  for (int64_t step = 4; step <= 6; ++step) resumed.step(step);
  const auto then = unit.state(), now = resumed.state();
  for (const auto& [name, values] : then) EXPECT_TRUE(at::equal(now.at(name), values)) << name;
  EXPECT_THROW(resumed.optimizer->load_state(
                   [](const std::string& name, const auto&...) { return name[0] != 'm'; }, 1),
               ModelError);
}

TEST(Muon, SharesHaveTheBitsOfOneRank) {
  Unit alone({}, DecayRule::kAll, at::kBFloat16);
  for (int64_t step = 1; step <= 3; ++step) alone.step(step);
  const at::Tensor whole = alone.store.units().front().shard;
  for (const auto sharding : {parallel::Sharding::kState, parallel::Sharding::kGradients,
                              parallel::Sharding::kParameters}) {
    parallel::run_local_ranks(3, [&](parallel::World& world) {
      const parallel::Mesh mesh(world, {.data = 3});
      Unit shared({}, DecayRule::kAll, at::kBFloat16, mesh, sharding);
      for (int64_t step = 1; step <= 3; ++step) shared.step(step);
      const parallel::Unit& unit = shared.store.units().front();
      for (size_t i = 0; i < unit.parameters.size(); ++i) {
        const Range at = unit.place_in_share(i), held = unit.held(i);
        const int64_t begin = alone.store.units().front().layout.range(i).begin;
        EXPECT_TRUE(at::equal(unit.shard.narrow(0, at.begin, at.size()),
                              whole.narrow(0, begin + held.begin, held.size())))
            << unit.parameters[i]->name();
      }
    });
  }
}

TEST(Muon, RefusesStepsThatASetDoesNotHave) {
  const auto refused = [](const MuonConfig& config) {
    try {
      config.validate();
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused({.coefficients = "quintic", .num_steps = 6}),
            "[muon] muon_num_ns_steps must be a multiple of 5 with quintic, got 6");
  EXPECT_EQ(refused({.coefficients = "polar_express", .num_steps = 5}),
            "[muon] muon_num_ns_steps must be at least 8 with polar_express, got 5");
  EXPECT_EQ(refused({.num_steps = 7}), "");
}

}  // namespace muon_test
}  // namespace danlu::optim
