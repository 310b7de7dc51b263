// AdamW against torch.optim.AdamW (goldens.json, written by make_goldens.py).
#include "optim/adamw.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "parallel/comm/local.h"
#include "support/stored_parameters.h"
#include "support/temporary_directory.h"

namespace danlu::optim {
namespace adamw_test {

using Stored = danlu::test::StoredParameters;

const std::vector<std::pair<std::string, std::vector<int64_t>>> kShapes = {
    {"layer.weight", {5, 7}}, {"layer.bias", {5}}, {"norm.weight", {7}}};

at::Tensor formula(int64_t k, const std::vector<int64_t>& shape, int64_t step, double scale) {
  at::Tensor tensor = at::empty(shape);
  float* values = tensor.data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    values[i] = static_cast<float>(scale * std::sin(0.37 * i + 1.1 * k + 0.53 * step));
  }
  return tensor;
}

std::vector<Parameter> make_parameters(at::ScalarType dtype = at::kFloat) {
  std::vector<Parameter> parameters;
  for (size_t k = 0; k < kShapes.size(); ++k) {
    parameters.push_back(parallel::whole_parameter(
        kShapes[k].first, formula(k, kShapes[k].second, 0, 1.0).to(dtype)));
  }
  return parameters;
}

void fill_gradients(const GradBuffer& gradients, int64_t step) {
  for (size_t k = 0; k < kShapes.size(); ++k) {
    gradients.grad(0, k).copy_(formula(static_cast<int64_t>(k), kShapes[k].second, step, 3.0));
  }
}

Json goldens() {
  return read_json_file(std::string(DANLU_SOURCE_DIR) + "/tests/optim/goldens.json");
}

AdamWConfig config_with(DecayRule rule) { return {0.9, 0.95, 1e-8, {0.1, rule, {}}}; }

void expect_equals_golden(const std::vector<Parameter>& parameters, const Json& golden,
                          double tolerance) {
  for (const Parameter& parameter : parameters) {
    const auto want = golden.at("params").at(parameter.name()).get<std::vector<double>>();
    const at::Tensor got = parameter.tensor.detach().to(at::kFloat).contiguous();
    ASSERT_EQ(static_cast<size_t>(got.numel()), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(got.data_ptr<float>()[i], want[i], tolerance)
          << parameter.name() << "[" << i << "]";
    }
  }
}

TEST(AdamW, TheKernelEqualsItsCompositeInAten) {
  // Lengths around the vector widths, and values of many sizes: 1e-4 … 1e4, zeros among them.
  for (const int64_t count : {1, 7, 16, 33, 1000}) {
    const auto values = [&](int64_t k) {
      at::Tensor out = formula(k, {count}, 0, 1.0);
      for (int64_t i = 0; i < count; ++i)
        out.data_ptr<float>()[i] *= static_cast<float>(std::pow(10.0, i % 9 - 4.0)) * (i % 5 != 0);
      return out;
    };
    // Signs under which no sum cancels, so that a relative limit holds for every element; the
    // goldens below mix them.
    const at::Tensor master = -values(1).abs(), exp_avg = values(2).abs(),
                     exp_avg_sq = values(3).abs();
    const at::Tensor grad = values(4).abs();
    // Two parameters, of which the second has a gap before it and steps twice as far.
    const AdamWScalars slow{0.9f, 0.95f, 0.1f, 0.05f, 1e-8f, 1e-2f, 1.7f, 0.999f, 0.5f};
    AdamWScalars fast = slow;
    fast.step_size *= 2;
    const int64_t half = count / 2, after_gap = std::min(count, half + 3);
    const std::vector<Chunk> chunks = chunks_of({{0, half}, {after_gap, count}});
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      const at::Tensor got[] = {master.clone(), exp_avg.clone(), exp_avg_sq.clone(),
                                at::zeros({count}, type)};
      const at::Tensor want[] = {master.clone(), exp_avg.clone(), exp_avg_sq.clone(),
                                 at::zeros({count}, type)};
      ops::adamw_update({got[0], got[1], got[2], grad, got[3]}, chunks, std::vector{slow, fast});
      ops::oracle::adamw_update({want[0], want[1], want[2], grad, want[3]}, chunks,
                                std::vector{slow, fast});
      for (size_t i = 0; i < 3; ++i)
        EXPECT_TRUE(at::allclose(got[i], want[i], 1e-6, 0)) << count << ", " << i;
      for (const Range& at : {Range{0, half}, Range{after_gap, count}}) {
        const auto part = [&](const at::Tensor& x) { return x.narrow(0, at.begin, at.size()); };
        EXPECT_TRUE(at::equal(part(got[3]), part(got[0]).to(type))) << count;
      }
    }
  }
}

TEST(AdamW, SixStepsWithClippingAndDecayOnAllEqualTorch) {
  const Json golden = goldens().at("adamw_decay_all_clip_1");
  Stored stored(make_parameters());
  GradBuffer gradients(stored.store);
  AdamW optimizer(stored.store, config_with(DecayRule::kAll));
  for (int64_t step = 1; step <= 6; ++step) {
    fill_gradients(gradients, step);
    const double norm = gradients.norm(1.0);
    EXPECT_NEAR(norm, golden.at("norms")[step - 1].get<double>(), 1e-5);
    optimizer.step(gradients, 1e-2, std::min(1.0, 1.0 / (norm + 1e-6)));
  }
  expect_equals_golden(stored.parameters, golden, 2e-7);
}

TEST(AdamW, DecayOnMatricesLeavesBiasesAndNormsAlone) {
  Stored stored(make_parameters());
  GradBuffer gradients(stored.store);
  AdamW optimizer(stored.store, config_with(DecayRule::kMatrices));
  for (int64_t step = 1; step <= 6; ++step) {
    fill_gradients(gradients, step);
    optimizer.step(gradients, 1e-2, 1.0);
  }
  expect_equals_golden(stored.parameters, goldens().at("adamw_decay_matrices_no_clip"), 2e-7);
}

TEST(AdamW, NarrowParametersFollowTheirF32MastersAndRoundOnce) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    Stored stored_narrow(make_parameters(dtype));
    const auto& narrow = stored_narrow.parameters;
    // The same start, in f32: bf16 rounding of the start is part of both.
    std::vector<Parameter> copies;
    for (const auto& p : narrow)
      copies.push_back(parallel::whole_parameter(p.name(), p.tensor.detach().to(at::kFloat)));
    Stored stored_wide(std::move(copies));
    const auto& wide = stored_wide.parameters;
    GradBuffer narrow_gradients(stored_narrow.store), wide_gradients(stored_wide.store);
    AdamW narrow_optimizer(stored_narrow.store, config_with(DecayRule::kAll)),
        wide_optimizer(stored_wide.store, config_with(DecayRule::kAll));
    for (int64_t step = 1; step <= 20; ++step) {
      fill_gradients(narrow_gradients, step);
      fill_gradients(wide_gradients, step);
      // 1e-5 is far below a bf16 ulp of 1: without a master the weights would never move.
      narrow_optimizer.step(narrow_gradients, 1e-5, 1.0);
      wide_optimizer.step(wide_gradients, 1e-5, 1.0);
    }
    const auto state = narrow_optimizer.state(false);
    for (size_t i = 0; i < wide.size(); ++i) {
      EXPECT_EQ(state[3 * i + 2].name, "master." + wide[i].name());
      EXPECT_TRUE(at::equal(state[3 * i + 2].values.f32(), wide[i].tensor.detach().flatten()));
      EXPECT_TRUE(at::equal(narrow[i].tensor.detach(), wide[i].tensor.detach().to(dtype)));
    }
  }
}

TEST(AdamW, SavedStateContinuesBitForBit) {
  Stored stored(make_parameters(at::kBFloat16));
  GradBuffer gradients(stored.store);
  AdamW optimizer(stored.store, config_with(DecayRule::kAll));
  const auto run = [](AdamW& o, GradBuffer& g, int64_t from, int64_t to) {
    for (int64_t step = from; step <= to; ++step) {
      fill_gradients(g, step);
      o.step(g, 1e-2, 1.0);
    }
  };
  run(optimizer, gradients, 1, 3);
  std::map<std::string, at::Tensor> saved;
  for (const StatePart& part : optimizer.state(true)) saved[part.name] = part.values.f32().clone();
  run(optimizer, gradients, 4, 6);

  Stored fresh(make_parameters(at::kBFloat16));
  GradBuffer fresh_gradients(fresh.store);
  AdamW resumed(fresh.store, config_with(DecayRule::kAll));
  resumed.load_state(
      [&](const std::string& name, const auto&, const arch::Rect& rect, const at::Tensor& to) {
        at::Tensor(to).copy_(saved.at(name).view({rect.rows, rect.cols}));
        return true;
      },
      3);
  run(resumed, fresh_gradients, 4, 6);
  for (size_t i = 0; i < fresh.parameters.size(); ++i) {
    EXPECT_TRUE(
        at::equal(fresh.parameters[i].tensor.detach(), stored.parameters[i].tensor.detach()));
  }
}

/// A bf16 parameter "w" of more rows than a block takes, as ranks keep it, and its optimizer.
struct Wide {
  explicit Wide(const parallel::Mesh& mesh = parallel::Mesh::single(),
                const parallel::Keeping& keeping = {})
      : store(mesh, keeping, {{{0, 1}}, 1}) {
    parameter.spec.role = arch::Role::kEmbedding;
    store.lay_out({&parameter}, /*keeps_values=*/true);
    gradients = std::make_unique<GradBuffer>(store);
    optimizer = std::make_unique<AdamW>(store, config_with(DecayRule::kAll));
  }
  const parallel::Unit& unit() const { return store.units().front(); }
  Range held() const { return unit().held(0); }
  at::Tensor weights() const {
    const Range at = unit().place_in_share(0);
    return unit().shard.narrow(0, at.begin, at.size());
  }
  at::Tensor masters() const { return optimizer->state(false)[2].values.f32(); }
  void step(int64_t number) {
    const Range at = unit().place_in_share(0);
    at::Tensor(gradients->share(0))
        .narrow(0, at.begin, at.size())
        .copy_(formula(1, kShape, number, 3.0).flatten().narrow(0, held().begin, held().size()));
    optimizer->step(*gradients, 1e-3, 1.0);
    store.settle();
  }
  /// From a checkpoint whose masters are these.
  void load(const at::Tensor& masters) {
    optimizer->load_state(
        [&](const std::string& name, const auto&, const arch::Rect& rect, const at::Tensor& to) {
          if (name == "master.w") largest_read = std::max(largest_read, to.numel());
          const at::Tensor part =
              masters.narrow(0, rect.row, rect.rows).narrow(1, rect.col, rect.cols);
          at::Tensor(to).copy_(name == "master.w" ? part : at::zeros_like(part));
          return true;
        },
        0);
  }

  static inline const std::vector<int64_t> kShape = {1100, 1000};
  parallel::Parameter parameter =
      parallel::whole_parameter("w", formula(0, kShape, 0, 1.0).to(at::kBFloat16));
  parallel::ParameterStore store;
  std::unique_ptr<GradBuffer> gradients;
  std::unique_ptr<AdamW> optimizer;
  int64_t largest_read = 0;  ///< elements of masters
};

/// Masters, of which every tenth lies in the middle between two bf16 numbers.
at::Tensor masters_with_ties() {
  const at::Tensor masters = formula(0, Wide::kShape, 7, 1.0);
  auto* bits = static_cast<uint32_t*>(masters.data_ptr());
  for (int64_t i = 0; i < masters.numel(); i += 10) bits[i] = (bits[i] & 0xffff0000u) | 0x8000u;
  return masters;
}

TEST(AdamW, MastersOfACheckpointAreKeptToTheBitBesideTheirWeights) {
  Wide wide;
  const at::Tensor masters = masters_with_ties();
  wide.load(masters);
  EXPECT_TRUE(at::equal(wide.masters(), masters.flatten()));
  // ATen rounds ties to even, here they go away from zero.
  const at::Tensor differ = wide.weights() != masters.flatten().to(at::kBFloat16);
  EXPECT_TRUE((masters.flatten().view(at::kInt).bitwise_and(0xffff) == 0x8000)
                  .masked_select(differ)
                  .all()
                  .item<bool>());
  EXPECT_TRUE((wide.weights().to(at::kDouble).abs() > masters.flatten().to(at::kDouble).abs())
                  .masked_select(differ)
                  .all()
                  .item<bool>());
  // No more of them exist as f32 at once than a block.
  at::Tensor together = at::empty({0});
  wide.optimizer->state(false)[2].values.for_each_block([&](const at::Tensor& block) {
    EXPECT_LE(block.numel(), int64_t{1} << 20);
    together = at::cat({together, block});
  });
  EXPECT_TRUE(at::equal(together, masters.flatten()));
  EXPECT_LE(wide.largest_read, int64_t{1} << 20);
  // 2 of a half, 8 of moments.
  EXPECT_EQ(wide.optimizer->state_bytes(), 10 * wide.unit().share.size());
}

TEST(AdamW, StateInFilesAndSharesGiveTheBitsOfOneRankInMemory) {
  const at::Tensor masters = masters_with_ties();
  Wide alone;
  alone.load(masters);
  const at::Tensor start = alone.weights().clone();
  for (int64_t step = 1; step <= 3; ++step) alone.step(step);
  {
    const test::TemporaryDirectory directory;
    Wide in_files(parallel::Mesh::single(), {.state_in = directory.path()});
    in_files.load(masters);
    EXPECT_TRUE(at::equal(in_files.weights(), start));
    for (int64_t step = 1; step <= 3; ++step) in_files.step(step);
    EXPECT_TRUE(at::equal(in_files.masters(), alone.masters()));
    EXPECT_TRUE(at::equal(in_files.weights(), alone.weights()));
  }
  for (const auto sharding : {parallel::Sharding::kState, parallel::Sharding::kGradients,
                              parallel::Sharding::kParameters}) {
    parallel::run_local_ranks(3, [&](parallel::World& world) {
      const parallel::Mesh mesh(world, {.data = 3});
      Wide shared(mesh, {.sharding = sharding});
      shared.load(masters);
      for (int64_t step = 1; step <= 3; ++step) shared.step(step);
      const Range at = shared.held();
      EXPECT_TRUE(at::equal(shared.masters(), alone.masters().narrow(0, at.begin, at.size())));
      EXPECT_TRUE(at::equal(shared.weights(), alone.weights().narrow(0, at.begin, at.size())));
    });
  }
}

TEST(AdamW, NamesAMissingStateTensor) {
  Stored stored(make_parameters());
  AdamW optimizer(stored.store, config_with(DecayRule::kAll));
  try {
    optimizer.load_state([](const auto&...) { return false; }, 1);
    FAIL() << "must throw";
  } catch (const ModelError& error) {
    EXPECT_STREQ(error.what(), "[optimizer state] tensor 'exp_avg.layer.weight' is missing");
  }
}

TEST(AdamW, GroupRulesChangeRateAndDecayOfMatchingParameters) {
  const auto made = make_parameters();
  const std::vector<const Parameter*> parameters{&made[0], &made[1], &made[2]};
  GroupConfig config{0.1, DecayRule::kMatrices, {{"bias$", 2.0, 0.3}}};
  const auto settings = settings_of(parameters, config);
  EXPECT_EQ(settings[1].lr_scale, 2.0);
  EXPECT_EQ(settings[1].weight_decay, 0.3);
  EXPECT_EQ(settings[0].weight_decay, 0.1);
  config.rules = {{"lm_head", 1.0, 0.0}};
  EXPECT_THROW(settings_of(parameters, config), UsageError);
}

}  // namespace adamw_test
}  // namespace danlu::optim
