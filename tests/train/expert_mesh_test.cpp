// Experts on meshes: divided among ranks, cut, beside every other axis; the oracle is one rank.
#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <atomic>

#include "parallel/comm/local.h"
#include "support/shared_data.h"
#include "train/batch_input.h"
#include "train/evaluate.h"
#include "train/expert_load.h"
#include "train/mesh.h"
#include "train/mesh_cases.h"

namespace danlu::train {
namespace mesh_test {
namespace {

using parallel::Sharding;

Case expert_case(const char* family, Tuning tuning, const MeshShape& shape,
                 Sharding sharding = Sharding::kNone,
                 models::Recompute recompute = models::Recompute::kNone) {
  Case c{family, family, Json::object()};
  c.tuning = tuning;
  c.shape = shape;
  c.sharding = sharding;
  c.recompute = recompute;
  c.routers = {settings::BalanceLoss::kSequence, 0.05, 0.01};
  return c;
}

std::vector<Case> expert_cases() {
  const MeshShape ep2{.data = 2, .expert = 2}, ep4{.data = 4, .expert = 4};
  const MeshShape ep2dp2{.data = 4, .expert = 2};
  const MeshShape ep2tp2{.tensor = 2, .data = 2, .expert = 2};
  const MeshShape ep2tp2sp{.tensor = 2, .data = 2, .sequence_parallel = true, .expert = 2};
  const MeshShape ep2pp2{.data = 2, .pipeline = 2, .expert = 2};
  const MeshShape ep2ring{.data = 2, .context = {1, 2, 2}, .expert = 2};
  const MeshShape ep2ulysses{.data = 2, .context = {2, 1, 1}, .expert = 2};
  const MeshShape tp2dealt{.tensor = 2, .expert_dealers = 2};
  const MeshShape ep2tp2dealt{.tensor = 2, .data = 2, .expert = 2, .expert_dealers = 2};
  const MeshShape ep2tp2sp_dealt{
      .tensor = 2, .data = 2, .sequence_parallel = true, .expert = 2, .expert_dealers = 2};
  const MeshShape tp2dp2dealt{.tensor = 2, .data = 2, .expert_dealers = 2};
  const MeshShape tp2{.tensor = 2}, dp2{.data = 2}, pp2{.pipeline = 2};
  // Two ranks cut each expert, and two pairs of them have experts of their own.
  const MeshShape tp4pairs{.tensor = 4, .expert_dealers = 2};
  const MeshShape ep2tp4pairs{.tensor = 4, .data = 2, .expert = 2, .expert_dealers = 2};
  const MeshShape tp4dp2sp_pairs{
      .tensor = 4, .data = 2, .sequence_parallel = true, .expert_dealers = 2};
  std::vector<Case> cases;
  for (const Tuning tuning : {Tuning::kFull, Tuning::kLora}) {
    for (const MeshShape& shape :
         {ep2, ep4, ep2dp2, ep2tp2, ep2tp2sp, ep2pp2, ep2ring, ep2ulysses, tp2, dp2, pp2})
      cases.push_back(expert_case("qwen2_moe", tuning, shape));
    for (const Sharding sharding :
         {Sharding::kState, Sharding::kGradients, Sharding::kParameters}) {
      cases.push_back(expert_case("qwen3_moe", tuning, ep2dp2, sharding));
      cases.push_back(expert_case("mixtral", tuning, ep2tp2sp, sharding));
    }
    for (const MeshShape& shape : {tp2dealt, ep2tp2dealt, ep2tp2sp_dealt})
      cases.push_back(expert_case("qwen2_moe", tuning, shape));
    for (const MeshShape& shape : {tp4pairs, ep2tp4pairs, tp4dp2sp_pairs})
      cases.push_back(expert_case("qwen2_moe", tuning, shape));
    cases.push_back(expert_case("qwen3_moe", tuning, ep2tp4pairs, Sharding::kState));
    cases.push_back(expert_case("qwen3_moe", tuning, tp4dp2sp_pairs, Sharding::kParameters));
    cases.push_back(expert_case("mixtral", tuning, ep2tp2dealt, Sharding::kState));
    cases.push_back(expert_case("mixtral", tuning, tp2dp2dealt, Sharding::kParameters));
    for (const auto recompute : {models::Recompute::kSelective, models::Recompute::kFull})
      cases.push_back(expert_case("qwen2_moe", tuning, ep2pp2, Sharding::kParameters, recompute));
  }
  cases.push_back(expert_case("qwen2_moe", Tuning::kDora, ep2tp2));
  // Weights multiply what experts are given, and attention is within chunks.
  for (const MeshShape& shape : {ep2dp2, ep2tp2sp, ep2pp2, ep2ring})
    cases.push_back(expert_case("llama4_text", Tuning::kFull, shape));
  cases.push_back(expert_case("llama4_text", Tuning::kLora, ep2dp2, Sharding::kParameters));
  // Two experts by sparsemixer, layer norms, biases.
  for (const MeshShape& shape : {ep2dp2, ep2tp2sp, ep2pp2, ep2ring})
    cases.push_back(expert_case("phimoe", Tuning::kFull, shape));
  for (const char* family : {"phimoe", "glm4_moe"})
    cases.push_back(expert_case(family, Tuning::kLora, ep2tp2sp, Sharding::kState));
  for (const char* family : {"phimoe", "glm4_moe", "llama4_text", "mixtral", "qwen3_moe"})
    cases.push_back(expert_case(family, Tuning::kDora, ep2pp2));
  cases.push_back(expert_case("qwen2_moe", Tuning::kDora, ep2tp2dealt));
  cases.push_back(expert_case("qwen2_moe", Tuning::kDora, tp4pairs));
  Case chunks = expert_case("qwen3_moe", Tuning::kFull, ep2pp2);
  chunks.chunks = 2;
  chunks.layers = 4;
  cases.push_back(chunks);
  Case zero_bubble = expert_case("mixtral", Tuning::kFull, ep2pp2);
  zero_bubble.zero_bubble = true;
  cases.push_back(zero_bubble);
  // Room is counted by sequences, so it does not depend on ranks.
  for (const auto drop : {settings::DropPolicy::kWeights, settings::DropPolicy::kPosition}) {
    for (const Tuning tuning : {Tuning::kFull, Tuning::kLora}) {
      for (const MeshShape& shape : {ep2, ep4, ep2dp2, ep2tp2, ep2tp2sp, ep2pp2, ep2ring,
                                     ep2ulysses, ep2tp2sp_dealt, tp4pairs}) {
        Case room = expert_case("mixtral", tuning, shape);
        room.name = drop == settings::DropPolicy::kWeights ? "room_by_weight" : "room_by_position";
        room.routers.capacity_factor = 0.75;
        room.routers.drop = drop;
        cases.push_back(room);
      }
    }
  }
  for (const Sharding sharding : {Sharding::kState, Sharding::kGradients, Sharding::kParameters}) {
    for (const Tuning tuning : {Tuning::kFull, Tuning::kLora}) {
      Case room = expert_case("mixtral", tuning, ep2dp2, sharding);
      room.name = "room_by_weight";
      room.routers.capacity_factor = 0.75;
      cases.push_back(room);
    }
  }
  for (const MeshShape& shape : {ep2dp2, ep2tp2sp, ep2pp2, ep2ring, ep2ulysses}) {
    Case even = expert_case("mixtral", Tuning::kFull, shape);
    even.name = "sinkhorn";
    even.routers = {};
    even.routers.sinkhorn = true;
    even.routers.z_loss_coef = 0.01;
    cases.push_back(even);
    Case noisy =
        expert_case("qwen3_moe", Tuning::kFull, shape, Sharding::kNone,
                    shape.pipeline > 1 ? models::Recompute::kFull : models::Recompute::kNone);
    noisy.name = "input_noise";
    noisy.routers.input_jitter = 0.05;
    cases.push_back(noisy);
    Case drawn = expert_case("phimoe", Tuning::kFull, shape);
    drawn.name = "drawn_picks";
    drawn.routers.draws_picks = true;
    cases.push_back(drawn);
  }
  for (const MeshShape& shape : {ep2dp2, ep2tp2sp, ep2pp2, ep2ring}) {
    Case moving = expert_case("glm4_moe", Tuning::kFull, shape,
                              shape.pipeline > 1 ? Sharding::kNone : Sharding::kParameters);
    moving.name = "moving_bias";
    moving.routers.bias_update_rate = 0.02;
    cases.push_back(moving);
  }
  // DeepSeek-V2's groups of experts.
  for (const MeshShape& shape : {ep2dp2, ep2tp2sp, ep2pp2, ep2ring}) {
    Case groups = expert_case("deepseek_v2", Tuning::kFull, shape);
    groups.name = "groups";
    groups.changes = {{"n_routed_experts", 4},
                      {"num_experts_per_tok", 2},
                      {"n_shared_experts", 1},
                      {"moe_intermediate_size", 24},
                      {"first_k_dense_replace", 1},
                      {"topk_method", "group_limited_greedy"},
                      {"n_group", 2},
                      {"topk_group", 2}};
    groups.routers.group_loss_coef = 0.05;
    groups.routers.group_sent_loss_coef = 0.02;
    cases.push_back(groups);
    groups.tuning = Tuning::kLora;
    cases.push_back(groups);
    Case third = expert_case("deepseek_v3", Tuning::kDora, shape);
    third.changes = groups.changes;
    third.changes.erase("topk_method");
    cases.push_back(third);
  }
  return some_of_each_kind(cases);
}

std::string expert_name(const testing::TestParamInfo<Case>& info) {
  return name_of(info) + "_ep" + std::to_string(info.param.shape.expert) +
         (info.param.shape.expert_dealers > 1
              ? fmt::format("_etp{}", info.param.shape.expert_tensor())
              : "");
}

const Outcome& one_rank(const Case& c) {
  static std::map<std::string, Outcome> known;
  const Case plain = without_schemes(c);
  const auto [found, is_new] = known.try_emplace(name_of({plain, 0}));
  if (is_new) found->second = train(plain, {}, few_steps());
  return found->second;
}

class ExpertMesh : public testing::TestWithParam<Case> {};

TEST_P(ExpertMesh, GivesTheNumbersOfOneRank) {
  const Outcome& one = one_rank(GetParam());
  const Outcome got = train(GetParam(), GetParam().shape, few_steps());
  expect_numbers_of(one, got);
  for (size_t step = 0; step < one.metrics.size(); ++step) {
    for (const auto& [name, value] : one.metrics[step]) {
      EXPECT_NEAR(got.metrics[step].at(name), value, 1e-5 * value) << name << " of step " << step;
    }
    EXPECT_EQ(got.metrics[step].count("aux_loss"), GetParam().routers.balances() ? 1u : 0u);
    EXPECT_EQ(got.metrics[step].count("max_load"), 1u);
  }
}

INSTANTIATE_TEST_SUITE_P(Experts, ExpertMesh, testing::ValuesIn(expert_cases()), expert_name);

TEST(ExpertMeshes, ARankWithoutMicroBatchesTakesPartInPasses) {
  // One rank's samples fit into one pass, another's need several.
  Case c = expert_case("qwen3_moe", Tuning::kFull, {.data = 4, .expert = 4}, Sharding::kParameters);
  const Cut cut{2, 24};
  const Outcome one = train(without_schemes(c), {}, 5, cut);
  std::set<size_t> passes;
  for (int64_t rank = 0; rank < 4; ++rank) {
    data::BatchStreamOptions options;
    options.dp_size = 4;
    options.dp_rank = rank;
    options.micro_batch_size = cut.samples;
    options.max_tokens_per_micro_batch = cut.max_tokens;
    options.accumulation_steps = kGlobalBatch / cut.samples / 4;
    options.prefetch_steps = 0;
    const data::BatchStream stream(
        std::make_shared<data::VectorSource>(test::toy_samples(64)),
        [](int64_t i) { return i % 64; }, options, 0);
    passes.insert(stream.step_at(0).micro_batches.size());
  }
  EXPECT_GT(passes.size(), 1u) << "every rank has as many passes: nobody is without one";
  const Outcome got = train(c, c.shape, 5, cut);
  expect_numbers_of(one, got);
}

TEST(ExpertMeshes, ARuleMayNameAnExpertThatOneRankHas) {
  for (const MeshShape& shape :
       {MeshShape{.data = 2, .expert = 2}, MeshShape{.tensor = 2, .expert_dealers = 2},
        MeshShape{.data = 2, .pipeline = 2, .expert = 2}}) {
    on_ranks(shape, [](const Mesh& mesh) {
      const Case c = expert_case("qwen2_moe", Tuning::kFull, {});
      const TrainState state = state_of(c, mesh);
      parallel::ParameterStore& store = models::keep(*state.model, config_of(c).keeping);
      optim::AdamWConfig config;
      config.groups.rules = {{"layers\\.0\\..*experts\\.0\\.", 0.1}};
      EXPECT_NO_THROW(optim::AdamW(store, config));
      config.groups.rules = {{"experts\\.99\\.", 0.1}};
      EXPECT_THROW(optim::AdamW(store, config), UsageError);
    });
  }
}

TEST(ExpertMeshes, RoomForFewerTokensDropsSomeAndBiasesMove) {
  const auto metrics_of = [](Case c) { return train(c, {}, 3).metrics.back(); };
  Case c = expert_case("glm4_moe", Tuning::kFull, {});
  const auto plain = metrics_of(c);
  EXPECT_EQ(plain.count("dropped"), 0u);
  c.routers.capacity_factor = 0.5;
  const auto half = metrics_of(c);
  EXPECT_GT(half.at("dropped"), 0.3);
  EXPECT_LT(half.at("dropped"), 0.6);
  c.routers.capacity_factor = 0;
  const Outcome still = train(c, {}, 4);
  c.routers.bias_update_rate = 0.3;
  const Outcome moving = train(c, {}, 4);
  EXPECT_EQ(moving.losses[0], still.losses[0]);
  EXPECT_GT(std::abs(moving.losses[1] - still.losses[1]), 1e-4);
  EXPECT_GT(std::abs(moving.losses[3] - still.losses[3]), 1e-4);
}

TEST(ExpertMeshes, BiasesMoveAsMegatrons) {
  DANLU_REQUIRES_SHARED();
  const auto golden = weights::open_safetensors(
      danlu::test::shared_dir() / "golden/moe/moe_router_megatron/golden.safetensors");
  Case c{"glm4_moe", "glm4_moe", {{"n_routed_experts", 8}, {"num_hidden_layers", 1}}};
  const TrainState state = state_of(c, Mesh::single());
  at::Tensor bias_E;
  for (const parallel::Parameter& parameter : state.model->parameters()) {
    if (parameter.spec.role == arch::Role::kRouterBias) bias_E = parameter.tensor;
  }
  bias_E.copy_(test::read_tensor(*golden, "expert_bias"));
  const at::Tensor picks = test::read_tensor(*golden, "bias_update.tokens_per_expert");
  ExpertLoad load{1, 8, {}};
  for (int64_t e = 0; e < 8; ++e)
    load.picks.push_back(static_cast<double>(picks[e].item<int64_t>()));
  load.picks.push_back(0);
  update_router_biases(*state.model, state.gradients->store(), load, 1e-3);
  const at::Tensor expected_E = test::read_tensor(*golden, "bias_update.new_bias");
  EXPECT_LE((bias_E.cpu() - expected_E).abs().max().item<float>(), 1e-7f);
}

/// Seconds that a thread has spent: one for each of libtorch's operators that it has called.
thread_local double operators_called = 0;
double seconds_of_operators() { return operators_called; }

/// What exchanges of a step's passes cost a rank, on links that take a second for each.
parallel::ExchangeTimes exchange_times(const Case& c, bool overlaps) {
  MeshShape shape = c.shape;
  shape.overlaps_experts = overlaps;
  const parallel::VirtualTime time{.node = {.latency_s = 1},
                                   .processor_seconds = seconds_of_operators};
  parallel::ExchangeTimes times;
  parallel::run_local_ranks(
      shape.size(),
      [&](parallel::World& world) {
        const Mesh mesh(world, shape);
        TrainState state = state_of(c, mesh);
        const data::StepBatches batches = batches_of(mesh, 0);
        const parallel::ExchangeTimes before = parallel::VirtualClock::of_thread()->exchanges();
        const models::ForwardInput input =
            training_input(*state.model, batches.micro_batches.front(), {.seed = 1});
        const at::Tensor hidden_NH = state.model->forward(input);
        hidden_NH.sum().backward();
        const parallel::ExchangeTimes after = parallel::VirtualClock::of_thread()->exchanges();
        if (mesh.rank() == 0)
          times = {after.modelled - before.modelled, after.exposed - before.exposed, 0};
      },
      1, &time);
  return times;
}

std::unique_ptr<at::ObserverContext> count_operator(const at::RecordFunction&) {
  operators_called += 1;
  return nullptr;
}

// Links take a second for each exchange, which what is computed beside it hides.
TEST(ExpertMeshes, RowsTravelWhileTheSharedExpertComputes) {
  if (are_on_pretend_devices())
    GTEST_SKIP() << "a device's backward runs on a thread of autograd's, which has no clock";
  const at::CallbackHandle counting = at::addGlobalCallback(
      at::RecordFunctionCallback(count_operator).scopes({at::RecordScope::FUNCTION}));
  Case c = expert_case("qwen2_moe", Tuning::kFull, {.data = 2, .expert = 2});
  const parallel::ExchangeTimes apart = exchange_times(c, false), beside = exchange_times(c, true);
  // Rows of two layers go to experts and back, in the forward and in the backward; their numbers go
  // once a layer, and nothing hides those.
  constexpr double kLayers = 2, kRows = 4 * kLayers, kNumbers = kLayers;
  EXPECT_EQ(apart.modelled, kRows + kNumbers);
  EXPECT_EQ(beside.modelled, kRows + kNumbers);
  EXPECT_EQ(apart.exposed, kRows + kNumbers);
  EXPECT_EQ(beside.exposed, kNumbers);
  c = expert_case("mixtral", Tuning::kFull, {.data = 2, .expert = 2});
  const parallel::ExchangeTimes alone = exchange_times(c, true);
  EXPECT_EQ(alone.exposed, alone.modelled) << "without a shared expert nothing is beside";
  at::removeCallback(counting);
}

TEST(ExpertMeshes, OverlapChangesNoBit) {
  const MeshShape ep2tp2{.tensor = 2, .data = 2, .sequence_parallel = true, .expert = 2};
  for (const Tuning tuning : {Tuning::kFull, Tuning::kLora}) {
    for (const auto recompute :
         {models::Recompute::kNone, models::Recompute::kSelective, models::Recompute::kFull}) {
      const Case c = expert_case("qwen2_moe", tuning, ep2tp2, Sharding::kParameters, recompute);
      MeshShape apart = ep2tp2;
      apart.overlaps_experts = false;
      const Outcome with = train(c, ep2tp2, 3), without = train(c, apart, 3);
      EXPECT_EQ(with.losses, without.losses);
      EXPECT_EQ(with.norms, without.norms);
      ASSERT_EQ(with.weights.size(), without.weights.size());
      for (const auto& [name, weight] : with.weights)
        EXPECT_TRUE(weight.equal(without.weights.at(name))) << name;
    }
  }
}

/// Bytes that travel beside a step's shared experts.
int64_t bytes_beside(const Case& c) {
  std::atomic<int64_t> bytes = 0;
  parallel::run_local_ranks(c.shape.size(), [&](parallel::World& world) {
    const Mesh mesh(world, c.shape);
    TrainState state = state_of(c, mesh);
    const data::StepBatches batches = batches_of(mesh, 0);
    state.model->forward(training_input(*state.model, batches.micro_batches.front(), {.seed = 1}))
        .sum()
        .backward();
    bytes += static_cast<int64_t>(mesh.experts_beside()->traffic().bytes);
  });
  return bytes;
}

// Where neighbours wait for one another in the shared expert or its backward, rows would travel
// beside a second exchange, in an order that ranks do not share.
TEST(ExpertMeshes, NothingTravelsBesideWorkInWhichRanksWait) {
  const MeshShape ep2tp2{.tensor = 2, .data = 2, .expert = 2};
  MeshShape ep2tp2sp = ep2tp2;
  ep2tp2sp.sequence_parallel = true;
  Case dora = expert_case("qwen2_moe", Tuning::kDora, ep2tp2),
       norms = expert_case("qwen2_moe", Tuning::kFull, ep2tp2sp);
  norms.by_layer = {.norm = true};
  for (const Case* waits : {&dora, &norms}) {
    EXPECT_EQ(bytes_beside(*waits), 0);
    Case apart = *waits;
    apart.shape.overlaps_experts = false;
    const Outcome with = train(*waits, waits->shape, 3), without = train(apart, apart.shape, 3);
    EXPECT_EQ(with.losses, without.losses);
    for (const auto& [name, weight] : with.weights)
      EXPECT_TRUE(weight.equal(without.weights.at(name))) << name;
  }
  norms.shape = ep2tp2;
  EXPECT_GT(bytes_beside(norms), 0) << "without sequence parallelism nobody gathers";
  dora.shape = {.data = 2, .expert = 2};
  EXPECT_GT(bytes_beside(dora), 0) << "one rank has all columns";
}

// Sinkhorn's choice is more even than the router's own, and noise changes the choice of a step and
// not that of an evaluation.
TEST(ExpertMeshes, ChoicesOfTrainingAreOtherThanTheRoutersOwn) {
  const auto train_with = [](const char* family, const settings::RouterTraining& routers) {
    Case c = expert_case(family, Tuning::kFull, {});
    c.routers = routers;
    return train(c, {}, 3);
  };
  settings::RouterTraining sinkhorn, jitter, draws;
  sinkhorn.sinkhorn = true;
  jitter.input_jitter = 0.1;
  draws.draws_picks = true;
  const Outcome plain = train_with("mixtral", {}), even = train_with("mixtral", sinkhorn);
  EXPECT_LT(even.metrics[0].at("max_load"), plain.metrics[0].at("max_load"));
  EXPECT_NE(train_with("mixtral", jitter).losses, plain.losses);
  EXPECT_NE(train_with("phimoe", draws).losses, train_with("phimoe", {}).losses);
}

TEST(ExpertMeshes, AnEvaluationIsThatOfOneRank) {
  const Case c = expert_case("qwen2_moe", Tuning::kFull, {.data = 4, .expert = 2});
  const auto samples = std::make_shared<data::VectorSource>(test::toy_samples(11));
  const auto evaluated = [&](const Mesh& mesh) {
    return evaluate(*state_of(c, mesh).model, *language_modelling(), samples,
                    {.batch_size = 2, .max_batches = 0});
  };
  const Evaluation one = evaluated(Mesh::single());
  parallel::run_local_ranks(4, [&](parallel::World& world) {
    const Evaluation all = evaluated(Mesh(world, c.shape));
    EXPECT_EQ(all.num_samples, one.num_samples);
    EXPECT_NEAR(all.loss, one.loss, 1e-5 * one.loss);
  });
}

}  // namespace
}  // namespace mesh_test
}  // namespace danlu::train
