// Layers that take turns (LISA, BAdam): the updates against AdamW written out, which layers have
// gradients, and states that go on.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "base/error.h"
#include "optim/adamw.h"
#include "parallel/comm/local.h"

namespace danlu::optim {
namespace layer_turns_test {

using settings::LayerTurns;
using testing::ElementsAre;
using testing::SizeIs;

constexpr int64_t kLayers = 4, kSize = 6;

std::string name_of_place(int64_t place) {
  return place == 0 ? "embed_tokens.weight" : "layers." + std::to_string(place - 1) + ".up.weight";
}

at::Tensor formula(int64_t place, int64_t step) {
  at::Tensor tensor = at::empty({2, kSize / 2});
  for (int64_t i = 0; i < kSize; ++i)
    tensor.data_ptr<float>()[i] = static_cast<float>(
        std::sin(0.7 * static_cast<double>(i + 3 * place) + 0.9 * static_cast<double>(step)));
  return tensor;
}

LayerTurns turns(bool is_badam, LayerTurns::Order order) {
  LayerTurns all;
  all.order = order;
  all.layers = is_badam ? 1 : 2;
  all.interval = 3;
  all.is_badam = is_badam;
  return all;
}

AdamWConfig adamw(const LayerTurns& turns) {
  AdamWConfig config{0.9, 0.95, 1e-8, {0.1, DecayRule::kAll, {}}};
  config.turns = turns;
  return config;
}

/// An embedding, unless BAdam has frozen it, and layers.
struct Model {
  explicit Model(const LayerTurns& turns, const parallel::Mesh& mesh = parallel::Mesh::single(),
                 parallel::Sharding sharding = parallel::Sharding::kNone)
      : store(mesh, {.sharding = sharding}, {{{0, kLayers}}, kLayers}) {
    parameters.reserve(kLayers + 1);
    for (int64_t place = 0; place <= kLayers; ++place) {
      Parameter& parameter = parameters.emplace_back(
          parallel::whole_parameter(name_of_place(place), formula(place, 0)));
      parameter.spec.layer = place - 1;
      parameter.place = place;
      parameter.trainable = place > 0 || !turns.is_badam;
    }
    std::vector<Parameter*> places;
    for (Parameter& parameter : parameters) places.push_back(&parameter);
    store.lay_out(places, /*keeps_values=*/true);
    gradients = std::make_unique<GradBuffer>(store);
    optimizer = std::make_unique<AdamW>(store, adamw(turns), kLayers);
  }
  /// Places of this step that have a gradient.
  std::vector<int64_t> step(int64_t number) {
    optimizer->take_turns(*gradients);
    gradients->zero();
    std::vector<int64_t> there;
    for (size_t u = 0; u < store.units().size(); ++u) {
      const parallel::Unit& unit = store.units()[u];
      const at::Tensor share = unit.trainable ? gradients->share(u) : at::Tensor();
      if (!share.defined()) continue;
      const Range held = unit.held(0), at = unit.place_in_share(0);
      share.narrow(0, at.begin, at.size())
          .copy_(formula(unit.place, number).flatten().narrow(0, held.begin, held.size()));
      there.push_back(unit.place);
    }
    norm = gradients->norm(1);
    optimizer->step(*gradients, 1e-2, 1);
    store.settle();
    return there;
  }
  std::vector<Parameter> parameters;
  parallel::ParameterStore store;
  std::unique_ptr<GradBuffer> gradients;
  std::unique_ptr<AdamW> optimizer;
  double norm = 0;
};

/// AdamW of one tensor, in double, as its paper has it.
struct Plain {
  at::Tensor weight, m, v;
  int64_t t = 0;
  explicit Plain(const at::Tensor& start) : weight(start.to(at::kDouble)) { begin(); }
  void begin() {
    m = at::zeros_like(weight);
    v = at::zeros_like(weight);
    t = 0;
  }
  void step(const at::Tensor& given) {
    const at::Tensor gradient = given.to(at::kDouble);
    ++t;
    m = m * 0.9 + gradient * 0.1;
    v = v * 0.95 + gradient * gradient * 0.05;
    const auto updates = static_cast<double>(t);
    weight = weight * (1 - 1e-2 * 0.1) - (m / (1 - std::pow(0.9, updates))) /
                                             ((v / (1 - std::pow(0.95, updates))).sqrt() + 1e-8) *
                                             1e-2;
  }
};

TEST(LayerTurns, OrdersAreWhatTheyAreCalled) {
  using Order = LayerTurns::Order;
  const auto first_turns = [](LayerTurns all) {
    std::vector<int64_t> layers;
    for (int64_t turn = 0; turn < 5; ++turn)
      layers.push_back(settings::layers_in_turn(all, turn, kLayers).front());
    return layers;
  };
  LayerTurns told = turns(true, Order::kAscending);
  EXPECT_THAT(first_turns(told), ElementsAre(0, 1, 2, 3, 0));
  told.start = 2;
  EXPECT_THAT(first_turns(told), ElementsAre(2, 3, 0, 1, 2));
  EXPECT_THAT(first_turns(turns(true, Order::kDescending)), ElementsAre(3, 2, 1, 0, 3));
  told.order = Order::kFixed;
  EXPECT_THAT(first_turns(told), ElementsAre(2, 2, 2, 2, 2));
  // Each once, then each again.
  std::vector<int64_t> drawn = first_turns(turns(true, Order::kRandom));
  drawn.pop_back();
  EXPECT_THAT(drawn, testing::UnorderedElementsAre(0, 1, 2, 3));
  std::map<std::vector<int64_t>, int64_t> sets;
  for (int64_t turn = 0; turn < 60; ++turn) {
    const auto layers = settings::layers_in_turn(turns(false, Order::kRandom), turn, kLayers);
    EXPECT_THAT(layers, SizeIs(2));
    EXPECT_LT(layers[0], layers[1]);
    ++sets[layers];
  }
  EXPECT_THAT(sets, SizeIs(6));
  EXPECT_THAT(settings::layers_in_turn(turns(false, Order::kRandom), 0, 1), ElementsAre(0));
}

TEST(LayerTurns, UpdatesAreAdamWsOfTheLayersInTurn) {
  for (const bool is_badam : {false, true}) {
    const LayerTurns told = turns(is_badam, LayerTurns::Order::kRandom);
    Model model(told);
    std::vector<Plain> plain;
    for (int64_t place = 0; place <= kLayers; ++place) plain.emplace_back(formula(place, 0));
    for (int64_t step = 0; step < 14; ++step) {
      const auto layers = settings::layers_in_turn(told, step / 3, kLayers);
      std::vector<int64_t> trained;
      if (!is_badam) trained.push_back(0);
      for (const int64_t layer : layers) trained.push_back(layer + 1);
      EXPECT_EQ(model.step(step + 1), trained) << step;
      double squares = 0;
      for (const int64_t place : trained) {
        Plain& one = plain[static_cast<size_t>(place)];
        if (is_badam && step % 3 == 0) one.begin();
        one.step(formula(place, step + 1));
        squares += formula(place, step + 1).square().sum().item<double>();
      }
      EXPECT_NEAR(model.norm, std::sqrt(squares), 1e-5);
    }
    for (int64_t place = 0; place <= kLayers; ++place) {
      const at::Tensor weight = model.parameters[static_cast<size_t>(place)].tensor.detach();
      const at::Tensor far = (weight - plain[static_cast<size_t>(place)].weight).abs().max();
      EXPECT_LT(far.item<double>(), 1e-5) << is_badam << " " << place;
    }
  }
}

TEST(LayerTurns, BAdamHasMomentsOfOneLayer) {
  Model lisa(turns(false, LayerTurns::Order::kRandom)),
      badam(turns(true, LayerTurns::Order::kAscending));
  badam.step(1);
  lisa.step(1);
  EXPECT_EQ(lisa.optimizer->state_bytes(), (kLayers + 1) * badam.optimizer->state_bytes());
  EXPECT_GE(badam.optimizer->state_bytes(), 8 * kSize);
}

TEST(LayerTurns, SavedStateContinuesBitForBit) {
  for (const bool is_badam : {false, true}) {
    // In the midst of a turn, and between two.
    for (const int64_t saved_at : {4, 6}) {
      const LayerTurns told = turns(is_badam, LayerTurns::Order::kRandom);
      Model model(told), resumed(told);
      for (int64_t step = 1; step <= saved_at; ++step) model.step(step);
      std::map<std::string, at::Tensor> saved;
      for (const StatePart& part : model.optimizer->state(true))
        saved[part.name] = part.values.f32().clone();
      resumed.optimizer->load_state(
          [&](const std::string& part, const auto&, const arch::Rect& rect, const at::Tensor& to) {
            if (!saved.count(part)) return false;
            at::Tensor(to).copy_(saved.at(part).view({rect.rows, rect.cols}));
            return true;
          },
          saved_at);
      for (int64_t step = saved_at + 1; step <= 13; ++step) {
        model.step(step);
        resumed.step(step);
      }
      for (size_t i = 0; i < model.parameters.size(); ++i) {
        EXPECT_TRUE(at::equal(model.parameters[i].tensor, resumed.parameters[i].tensor))
            << is_badam << saved_at << model.parameters[i].name();
      }
    }
  }
}

TEST(LayerTurns, SharesHaveTheBitsOfOneRank) {
  for (const bool is_badam : {false, true}) {
    const LayerTurns told = turns(is_badam, LayerTurns::Order::kRandom);
    Model alone(told);
    for (int64_t step = 1; step <= 7; ++step) alone.step(step);
    for (const auto sharding : {parallel::Sharding::kState, parallel::Sharding::kGradients,
                                parallel::Sharding::kParameters}) {
      parallel::run_local_ranks(2, [&](parallel::World& world) {
        const parallel::Mesh mesh(world, {.data = 2});
        Model shared(told, mesh, sharding);
        for (int64_t step = 1; step <= 7; ++step) shared.step(step);
        for (size_t u = 0; u < shared.store.units().size(); ++u) {
          const parallel::Unit& unit = shared.store.units()[u];
          if (!unit.trainable) continue;
          const parallel::Unit& whole = alone.store.units()[*alone.store.unit_of(unit.name())];
          const Range at = unit.place_in_share(0), held = unit.held(0);
          EXPECT_TRUE(at::equal(unit.shard.narrow(0, at.begin, at.size()),
                                whole.shard.narrow(0, held.begin, held.size())))
              << unit.name();
        }
      });
    }
  }
}

}  // namespace layer_turns_test
}  // namespace danlu::optim
