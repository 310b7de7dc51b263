// GaLore, APOLLO and Adam-mini against torch (low_rank_goldens.json, written by
// make_low_rank_goldens.py).
#include "optim/low_rank.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "optim/adamw.h"
#include "parallel/comm/local.h"

namespace danlu::optim {
namespace low_rank_test {

using Method = LowRankConfig::Method;

struct Shape {
  std::string name;
  std::vector<int64_t> sizes;
  arch::Role role;
};
const std::vector<Shape> kShapes = {{"a.weight", {5, 7}, arch::Role::kGate},
                                    {"b.weight", {9, 4}, arch::Role::kDown},
                                    {"q.weight", {6, 5}, arch::Role::kQ},
                                    {"norm.weight", {7}, arch::Role::kAttentionNorm},
                                    {"embed_tokens.weight", {6, 4}, arch::Role::kEmbedding}};

size_t number_of(const std::string& name) {
  size_t k = 0;
  while (kShapes[k].name != name) ++k;
  return k;
}

at::Tensor formula(size_t k, int64_t step, double scale) {
  at::Tensor tensor = at::empty(kShapes[k].sizes);
  float* values = tensor.data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    values[i] = static_cast<float>(scale * std::sin(0.37 * static_cast<double>(i * i) +
                                                    1.1 * static_cast<double>(k) +
                                                    0.53 * static_cast<double>(step)));
  }
  return tensor;
}

AdamWConfig adamw(const std::optional<LowRankConfig>& low_rank) {
  AdamWConfig config{0.9, 0.95, 1e-8, {0.1, DecayRule::kAll, {}}};
  config.low_rank = low_rank;
  if (!low_rank) config.mini = AdamMiniConfig{.head_size = 2};
  return config;
}

/// The parameters of all kinds in one unit, as a rank keeps it, and their optimizer.
struct Unit {
  explicit Unit(const AdamWConfig& config, at::ScalarType dtype = at::kFloat,
                const parallel::Mesh& mesh = parallel::Mesh::single(),
                parallel::Sharding sharding = parallel::Sharding::kNone)
      : store(mesh, {.sharding = sharding}, {{{0, 1}}, 1}) {
    std::vector<Parameter*> places;
    for (size_t k = 0; k < kShapes.size(); ++k) {
      Parameter& parameter = parameters.emplace_back(
          parallel::whole_parameter(kShapes[k].name, formula(k, 0, 1.0).to(dtype)));
      parameter.spec.role = kShapes[k].role;
      cut(parameter, mesh);
    }
    for (Parameter& parameter : parameters) places.push_back(&parameter);
    store.lay_out(places, /*keeps_values=*/true);
    gradients = std::make_unique<GradBuffer>(store);
    optimizer = std::make_unique<AdamW>(store, config);
  }
  /// On two ranks of the tensor axis q by rows, b by columns, the vector in halves.
  static void cut(Parameter& parameter, const parallel::Mesh& mesh) {
    if (mesh.shape().tensor == 1) return;
    const arch::Rect all = arch::matrix_of(parameter.spec.shape);
    const int64_t rank = mesh.tensor().rank();
    if (parameter.name() == "q.weight") {
      parameter.rects = {{{rank * 3, 3, 0, all.cols}, 1}};
    } else if (parameter.name() == "b.weight") {
      parameter.rects = {{{0, all.rows, rank * 2, 2}, 1}};
    } else if (parameter.name() == "norm.weight") {
      parameter.rects = {{{rank * 4, rank == 0 ? 4 : 3, 0, 1}, 1}};
    } else {
      parameter.rects = {{all, 2}};
    }
    parameter.tensor = parallel::cut_out(parameter.tensor, parameter.rects);
  }
  void step(int64_t number, double lr = 1e-2) {
    const parallel::Unit& unit = store.units().front();
    for (size_t i = 0; i < unit.parameters.size(); ++i) {
      const Range at = unit.place_in_share(i), held = unit.held(i);
      const at::Tensor whole = formula(number_of(unit.parameters[i]->name()), number, 6.0);
      at::Tensor(gradients->share(0))
          .narrow(0, at.begin, at.size())
          .copy_(parallel::cut_out(whole, unit.parameters[i]->rects)
                     .flatten()
                     .narrow(0, held.begin, held.size()));
    }
    optimizer->step(*gradients, lr, 0.5);
    store.settle();
  }
  std::map<std::string, at::Tensor> state(bool saved_only = false) const {
    std::map<std::string, at::Tensor> parts;
    for (const StatePart& part : optimizer->state(true))
      if (part.is_saved || !saved_only) parts[part.name] = part.values.f32().clone();
    return parts;
  }
  std::vector<Parameter> parameters;
  parallel::ParameterStore store;
  std::unique_ptr<GradBuffer> gradients;
  std::unique_ptr<AdamW> optimizer;
};

LowRankConfig galore(const std::string& side) {
  return {.method = Method::kGalore, .rank = 2, .interval = 3, .scale = 0.25, .side = side};
}
LowRankConfig apollo(bool draws = false) {
  return {.method = Method::kApollo, .rank = 2, .interval = 3, .scale = 4, .draws = draws};
}
std::map<std::string, AdamWConfig> all_rules() {
  return {{"galore", adamw(galore("std"))},
          {"galore full", adamw(galore("full"))},
          {"apollo", adamw(apollo())},
          {"apollo drawn", adamw(apollo(true))},
          {"mini", adamw({})}};
}

TEST(LowRank, SevenStepsEqualTorchs) {
  const Json goldens =
      read_json_file(std::string(DANLU_SOURCE_DIR) + "/tests/optim/low_rank_goldens.json");
  std::map<std::string, AdamWConfig> cases = {{"adam_mini", adamw({})},
                                              {"apollo_channel", adamw(apollo())}};
  for (const std::string side : {"std", "reverse_std", "right", "left", "full"})
    cases["galore_" + side] = adamw(galore(side));
  // Noise of rounding beside the diagonal is not to become as large as the rest.
  cases["galore_full"].eps = 1e-2;
  // More dimensions than there are: all of them.
  LowRankConfig whole = galore("std"), tensor = apollo();
  whole.rank = 50;
  whole.interval = 100;
  whole.scale = 1;
  cases["galore_whole"] = adamw(whole);
  tensor.rank = 1;
  tensor.scale = 9;
  tensor.side = "left";
  tensor.has_one_factor = tensor.scales_first = true;
  cases["apollo_tensor"] = adamw(tensor);
  ASSERT_EQ(cases.size(), goldens.size());
  for (const auto& [name, config] : cases) {
    Unit unit(config);
    for (int64_t step = 1; step <= 7; ++step) unit.step(step);
    for (const Parameter& parameter : unit.parameters) {
      const auto want = goldens.at(name).at(parameter.name()).get<std::vector<double>>();
      const at::Tensor flat = parameter.tensor.detach().flatten();
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(flat[static_cast<int64_t>(i)].item<double>(), want[i], 2e-5)
            << name << " " << parameter.name() << "[" << i << "]";
      }
    }
  }
}

TEST(LowRank, ADrawnProjectionIsTheSameAgainAndAnotherInTheNextInterval) {
  const auto drawn = [](int64_t update, uint64_t seed, const std::string& name) {
    LowRankConfig config = apollo(true);
    config.seed = seed;
    config.rank = 40;
    StateByKind state;
    for (const settings::WholeState& whole : settings::low_rank_state(config, 60, 50))
      state[whole.kind] = at::empty(whole.shape).zero_();
    const at::Tensor gradient = at::eye(60, 50);
    low_rank_change(config, adamw(config), {name, gradient, update}, state);
    return state.at("low_projection.").clone();
  };
  const at::Tensor first = drawn(1, 42, "a");
  EXPECT_TRUE(at::equal(first, drawn(1, 42, "a")));
  EXPECT_FALSE(at::equal(first, drawn(4, 42, "a")));
  EXPECT_FALSE(at::equal(first, drawn(1, 43, "a")));
  EXPECT_FALSE(at::equal(first, drawn(1, 42, "b")));
  // Lengths stay as they are on average: rank numbers of variance 1 / rank.
  EXPECT_NEAR((first * first).sum().item<double>() / 50, 1.0, 0.15);
  EXPECT_NEAR(first.mean().item<double>(), 0.0, 0.02);
}

TEST(LowRank, StateIsAsSmallAsItIsSaidToBe) {
  Unit unit(adamw(galore("std")));
  std::string names;
  int64_t numbers = 0, said = 0;
  for (const StatePart& part : unit.optimizer->state(false)) {
    names += part.name + " ";
    numbers += part.values.size();
  }
  for (const Parameter* parameter : unit.optimizer->parameters())
    said += unit.optimizer->state_numel(*parameter);
  EXPECT_THAT(names, testing::HasSubstr("low_avg.q.weight low_avg_sq.q.weight "
                                        "low_projection.q.weight exp_avg.norm.weight"))
      << names;
  // A matrix [5, 7] has at rank 2 a projection of 5 x 2 and two moments of 2 x 7; [9, 4] and [6, 5]
  // have one of 2 x cols and two of rows x 2.
  EXPECT_EQ(numbers, (10 + 28) + (8 + 36) + (10 + 24) + 2 * (7 + 24));
  EXPECT_EQ(said, numbers);
  EXPECT_EQ(unit.optimizer->state_bytes(), 4 * numbers);

  Unit mini(adamw({}));
  numbers = 0;
  for (const StatePart& part : mini.optimizer->state(false)) numbers += part.values.size();
  EXPECT_EQ(numbers, (35 + 1) + (36 + 1) + (30 + 3) + (7 + 1) + 2 * 24);
}

TEST(LowRank, NarrowWeightsFollowTheirMastersToTheBit) {
  for (const auto& [name, config] : all_rules()) {
    Unit narrow(config, at::kBFloat16), wide(config);
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
    for (const auto& [part, values] : expected)
      EXPECT_TRUE(at::equal(masters.at(part), values)) << name << " " << part;
  }
}

TEST(LowRank, SavedStateContinuesBitForBit) {
  for (const auto& [name, config] : all_rules()) {
    Unit unit(config, at::kBFloat16);
    for (int64_t step = 1; step <= 2; ++step) unit.step(step);
    const auto saved = unit.state();
    for (int64_t step = 3; step <= 5; ++step) unit.step(step);
    Unit resumed(config, at::kBFloat16);
    resumed.optimizer->load_state(
        [&](const std::string& part, const auto&, const arch::Rect& rect, const at::Tensor& to) {
          at::Tensor(to).copy_(saved.at(part).view({rect.rows, rect.cols}));
          return true;
        },
        2);
    for (int64_t step = 3; step <= 5; ++step) resumed.step(step);
    const auto then = unit.state(), now = resumed.state();
    for (const auto& [part, values] : then)
      EXPECT_TRUE(at::equal(now.at(part), values)) << name << " " << part;
  }
  Unit unit(adamw(galore("std")));
  EXPECT_THROW(unit.optimizer->load_state(
                   [](const std::string& part, const auto&...) { return part[0] != 'l'; }, 1),
               ModelError);
}

TEST(LowRank, SharesHaveTheBitsOfOneRank) {
  for (const auto& [name, config] : all_rules()) {
    Unit alone(config, at::kBFloat16);
    for (int64_t step = 1; step <= 4; ++step) alone.step(step);
    const at::Tensor whole = alone.store.units().front().shard;
    const auto state = alone.state();
    for (const auto sharding : {parallel::Sharding::kState, parallel::Sharding::kParameters}) {
      std::map<std::string, int64_t> savers;
      std::mutex lock;
      parallel::run_local_ranks(3, [&](parallel::World& world) {
        const parallel::Mesh mesh(world, {.data = 3});
        Unit shared(config, at::kBFloat16, mesh, sharding);
        for (int64_t step = 1; step <= 4; ++step) shared.step(step);
        const parallel::Unit& unit = shared.store.units().front();
        for (size_t i = 0; i < unit.parameters.size(); ++i) {
          const Range at = unit.place_in_share(i), held = unit.held(i);
          const int64_t begin = alone.store.units().front().layout.range(i).begin;
          EXPECT_TRUE(at::equal(unit.shard.narrow(0, at.begin, at.size()),
                                whole.narrow(0, begin + held.begin, held.size())))
              << name << " " << unit.parameters[i]->name();
        }
        const std::lock_guard guard(lock);
        for (const auto& [part, values] : shared.state(/*saved_only=*/true)) {
          const bool is_of_whole = part.starts_with("low_") || part.starts_with("block_");
          if (!is_of_whole) continue;
          ++savers[part];
          EXPECT_TRUE(at::equal(values, state.at(part))) << name << " " << part;
        }
      });
      for (const auto& [part, values] : state) {
        if (part.starts_with("low_") || part.starts_with("block_"))
          EXPECT_EQ(savers[part], 1) << name << " " << part;
      }
    }
  }
}

TEST(LowRank, CutMatricesAreUpdatedAsWholeOnes) {
  for (const auto& [name, config] : all_rules()) {
    Unit alone(config);
    for (int64_t step = 1; step <= 4; ++step) alone.step(step);
    parallel::run_local_ranks(2, [&](parallel::World& world) {
      const parallel::Mesh mesh(world, {.tensor = 2});
      Unit cut(config, at::kFloat, mesh);
      for (int64_t step = 1; step <= 4; ++step) cut.step(step);
      for (size_t i = 0; i < cut.parameters.size(); ++i) {
        const at::Tensor want =
            parallel::cut_out(alone.parameters[i].tensor.detach(), cut.parameters[i].rects);
        EXPECT_TRUE(at::equal(cut.parameters[i].tensor.detach(), want))
            << name << " " << cut.parameters[i].name();
      }
    });
  }
}

TEST(LowRank, TakesTheMatricesThatAreNamed) {
  const auto takes = [](const LowRankConfig& config, const char* name, arch::Role role) {
    arch::ParamSpec spec{};
    spec.name = name;
    spec.shape = {4, 4};
    spec.role = role;
    return settings::takes_low_rank(config, spec);
  };
  const char* const q = "model.layers.0.self_attn.q_proj.weight";
  const char* const up = "model.layers.0.mlp.up_proj.weight";
  LowRankConfig config;
  EXPECT_TRUE(takes(config, q, arch::Role::kQ));
  EXPECT_FALSE(takes(config, "lm_head.weight", arch::Role::kHead));
  EXPECT_FALSE(takes(config, "model.embed_tokens.weight", arch::Role::kEmbedding));
  config.targets = {"mlp", "lm_head"};
  EXPECT_FALSE(takes(config, q, arch::Role::kQ));
  EXPECT_TRUE(takes(config, up, arch::Role::kUp));
  EXPECT_TRUE(takes(config, "lm_head.weight", arch::Role::kHead));
  config.with_embedding = true;
  EXPECT_TRUE(takes(config, "model.embed_tokens.weight", arch::Role::kEmbedding));
}

TEST(LowRank, RefusesWhatNoSubspaceHas) {
  const auto refused = [](const LowRankConfig& config) {
    try {
      config.validate();
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused({.rank = 0}), "[GaLore] rank must be at least 1, got 0");
  EXPECT_EQ(refused({.scale = -1}), "[GaLore] scale must be positive, got -1");
  EXPECT_EQ(refused({.method = Method::kApollo, .side = "full"}),
            "[APOLLO] proj_type must be std, right, left, got full");
  EXPECT_EQ(refused(galore("full")), "");
}

}  // namespace low_rank_test
}  // namespace danlu::optim
