// Promise 4: the numbers do not depend on the mesh. Ranks are threads; the oracle is one rank.
#include "train/mesh.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

#include "checkpoint/saver.h"
#include "models/training_memory.h"
#include "models/weight_files.h"
#include "parallel/agree.h"
#include "support/comes_true.h"
#include "support/slow.h"
#include "train/evaluate.h"
#include "train/mesh_cases.h"
#include "train/visual_input.h"

namespace danlu::train {
namespace mesh_test {

/// What one rank does without any scheme.
const Outcome& alone(const Case& c, int64_t steps) {
  static std::map<std::string, Outcome> known;
  const Case plain = without_schemes(c);
  const auto [found, is_new] = known.try_emplace(name_of({plain, 0}));
  if (is_new) found->second = train(plain, {}, steps);
  return found->second;
}

class MeshOf : public testing::TestWithParam<Case> {};

/// What a step does wrong is in the next one's loss; what rounding does grows over many.
int64_t steps_of_a_case() { return danlu::test::is_slow() ? 20 : 5; }

TEST_P(MeshOf, GivesTheNumbersOfOneRank) {
  constexpr double kTolerance = 1e-5;
  const int64_t num_steps = steps_of_a_case();
  const Table table(name_of({GetParam(), 0}));
  if (table.has_row()) return;
  Deviation deviation;
  const Outcome& expected = alone(GetParam(), num_steps);
  const Outcome got = train(GetParam(), GetParam().shape, num_steps);
  ASSERT_EQ(got.gradients.size(), expected.gradients.size());
  for (const auto& [name, gradient] : expected.gradients) {
    const double largest = gradient.abs().max().item<double>();
    EXPECT_GT(largest, 0) << name << ": a gradient of zero proves nothing";
    const double far = (got.gradients.at(name) - gradient).abs().max().item<double>() / largest;
    EXPECT_LE(far, kTolerance) << name;
    deviation.gradient = std::max(deviation.gradient, far);
  }
  for (size_t step = 0; step < static_cast<size_t>(num_steps); ++step) {
    const auto far = [&](double is, double should) { return std::fabs(is - should) / should; };
    const double loss = far(got.losses[step], expected.losses[step]);
    const double norm = far(got.norms[step], expected.norms[step]);
    EXPECT_LE(loss, kTolerance) << step;
    EXPECT_LE(norm, kTolerance) << step;
    deviation.loss = std::max(deviation.loss, loss);
    deviation.norm = std::max(deviation.norm, norm);
  }
  if (!HasFailure()) table.add({deviation.loss, deviation.norm, deviation.gradient});
}

TEST(Mesh, RanksOfTheContextAxisMayHaveNoTokenOfAPass) {
  constexpr int64_t kSteps = 3;
  const Cut one_sample{1, 0};
  Case c{"qwen2", "qwen2", Json::object()};
  size_t shortest = 100;
  for (int64_t step = 0; step < kSteps; ++step) {
    for (const data::Batch& batch : batches_of(Mesh::single(), step, one_sample).micro_batches)
      shortest = std::min(shortest, batch.ids.size());
  }
  EXPECT_LT(shortest, 8u);
  const Outcome expected = train(c, {}, kSteps, one_sample);
  for (const settings::ContextShape& context :
       std::vector<settings::ContextShape>{{1, 8, 8}, {2, 4, 4}, {4, 2, 2}, {1, 8, 2}}) {
    c.shape = {.context = context};
    SCOPED_TRACE(name_of({c, 0}));
    const Outcome got = train(c, c.shape, kSteps, one_sample);
    for (size_t step = 0; step < kSteps; ++step) {
      EXPECT_NEAR(got.losses[step], expected.losses[step], 1e-5 * expected.losses[step]);
      EXPECT_NEAR(got.norms[step], expected.norms[step], 1e-5 * expected.norms[step]);
    }
  }
}

TEST(Mesh, TwoRunsGiveTheSameBits) {
  const MeshShape shape{.tensor = 2, .data = 2, .sequence_parallel = true};
  const Json none = Json::object();
  for (const auto sharding : {parallel::Sharding::kNone, parallel::Sharding::kParameters}) {
    const Case c{"qwen2", "qwen2", none, Tuning::kFull, shape, sharding};
    const Outcome first = train(c, shape, 5), second = train(c, shape, 5);
    EXPECT_EQ(first.losses, second.losses);
    EXPECT_EQ(first.norms, second.norms);
    for (const auto& [name, weight] : first.weights)
      EXPECT_TRUE(at::equal(weight, second.weights.at(name))) << name;
  }
}

/// Payload of the groups that passes and their background use.
std::vector<int64_t> sent_by_passes(const Mesh& mesh) {
  std::vector<int64_t> bytes;
  for (const parallel::Group* group :
       {&mesh.tensor(), &mesh.batch_ranks(), &mesh.all(), &mesh.background().tensor(),
        &mesh.background().batch_ranks(), &mesh.sharers(), &mesh.background().sharers()})
    bytes.push_back(group->traffic().bytes);
  return bytes;
}

// docs/zero.md's table, of parameters and gradients in f32 as they are laid out.
TEST(Mesh, AnEvaluationOfSomeBatchesIsThatOfOneRank) {
  Case c{"qwen2_4layers", "qwen2", {}};
  c.layers = 4;
  const auto samples = std::make_shared<data::VectorSource>(test::toy_samples(20));
  const auto evaluated = [&](const Case& how, const Mesh& mesh, int64_t max_batches) {
    return evaluate(*state_of(how, mesh).model, *language_modelling(), samples,
                    {.batch_size = 2, .max_batches = max_batches});
  };
  Case interleaved = c;
  interleaved.chunks = 2;
  for (const auto& [how, shape] : {std::pair<Case, MeshShape>{c, {.data = 4}},
                                   {c, {.data = 2, .pipeline = 2}},
                                   {interleaved, {.data = 2, .pipeline = 2, .ring = true}}}) {
    for (const int64_t max_batches : {0, 1, 2, 3, 5, 99}) {
      const Evaluation one = evaluated(c, Mesh::single(), max_batches);
      parallel::run_local_ranks(shape.size(), [&](parallel::World& world) {
        const Evaluation some = evaluated(how, Mesh(world, shape), max_batches);
        EXPECT_EQ(some.num_samples, one.num_samples) << max_batches;
        EXPECT_NEAR(some.loss, one.loss, 1e-5 * one.loss) << max_batches;
      });
    }
  }
}

TEST(Mesh, AStepSendsTheTextbooksBytes) {
  using parallel::Sharding;
  for (const int64_t ranks : {2, 4}) {
    const MeshShape shape{.data = ranks};
    for (const Sharding sharding :
         {Sharding::kNone, Sharding::kState, Sharding::kGradients, Sharding::kParameters}) {
      const Case c{"qwen2", "qwen2", Json::object(), Tuning::kFull, shape, sharding};
      parallel::run_local_ranks(ranks, [&](parallel::World& world) {
        const Mesh mesh(world, shape);
        TrainState state = state_of(c, mesh);
        const TrainConfig config = config_of(c);
        const data::StepBatches batches = batches_of(mesh, 0);
        const auto sent = [&] {
          return mesh.batch_ranks().traffic().bytes +
                 mesh.background().batch_ranks().traffic().bytes;
        };
        const auto own = static_cast<int64_t>(batches.micro_batches.size());
        const auto passes = static_cast<double>(parallel::largest_of(mesh.batch_ranks(), own));
        const int64_t before = sent();
        run_step(state, batches, config, config.schedule.shape);
        state.gradients->finish();
        state.model->memory().settle();
        double elements = 0;
        for (const parallel::Unit& unit : state.gradients->store().units())
          elements += static_cast<double>(unit.layout.total());
        const double exchanges = sharding == Sharding::kGradients    ? passes + 1
                                 : sharding == Sharding::kParameters ? 3 * passes
                                                                     : 2;
        const auto n = static_cast<double>(ranks);
        const double textbook = exchanges * 4 * elements * (n - 1) / n;
        const auto measured = static_cast<double>(sent() - before);
        EXPECT_LE(measured, 1.02 * textbook) << ranks << " " << static_cast<int>(sharding);
        EXPECT_GE(measured, 0.7 * textbook) << ranks << " " << static_cast<int>(sharding);
      });
    }
  }
}

TEST(Mesh, StagesSendTheirHiddenStatesAndGradientsOnce) {
  const MeshShape shape{.tensor = 2, .pipeline = 2, .sequence_parallel = true};
  const Case c{"qwen2", "qwen2", Json::object(), Tuning::kFull, shape};
  parallel::run_local_ranks(shape.size(), [&](parallel::World& world) {
    const Mesh mesh(world, shape);
    TrainState state = state_of(c, mesh);
    const TrainConfig config = config_of(c);
    const data::StepBatches batches = batches_of(mesh, 0);
    run_step(state, batches, config, config.schedule.shape);
    int64_t bytes = 0;
    for (const data::Batch& batch : batches.micro_batches) {
      const arch::Chain& chain = state.model->stage().chain;
      const auto shape = state.model->shape_before(chain.layer(1), size_of(batch));
      if (batch.num_targets > 0) bytes += 4 * shape[0] * shape[1];
    }
    const bool first = mesh.stage() == 0;
    using Way = Mesh::Way;
    const parallel::Group& gives =
        first ? mesh.with_next(Way::kHidden) : mesh.with_previous(Way::kGrad);
    EXPECT_EQ(gives.traffic().bytes, bytes);
    EXPECT_GT(bytes, 0);
  });
}

TEST(Mesh, ModelFilesHoldTheirStepAlthoughTrainingGoesOn) {
  using parallel::Sharding;
  struct Way {
    MeshShape shape;
    Sharding sharding;
  };
  for (const Way& way :
       std::vector<Way>{{{.data = 2}, Sharding::kNone},
                        {{.data = 2}, Sharding::kState},
                        {{.data = 2}, Sharding::kParameters},
                        {{.data = 4, .sharers = 2}, Sharding::kParameters},
                        {{.tensor = 2}, Sharding::kNone},
                        {{.tensor = 2, .data = 2}, Sharding::kGradients},
                        {{.tensor = 2, .data = 2}, Sharding::kParameters},
                        {{.pipeline = 2}, Sharding::kNone},
                        {{.tensor = 2, .data = 2, .pipeline = 2}, Sharding::kParameters}}) {
    const Case c{"qwen2", "qwen2", Json::object(), Tuning::kFull, way.shape, way.sharding};
    const danlu::test::TemporaryDirectory directory;
    std::map<std::string, at::Tensor> then;
    std::mutex mutex;
    parallel::run_local_ranks(way.shape.size(), [&](parallel::World& world) {
      const Mesh mesh(world, way.shape);
      TrainState state = state_of(c, mesh);
      const TrainConfig config = config_of(c);
      run_step(state, batches_of(mesh, 0), config, config.schedule.shape);
      const parallel::ParameterStore& store = state.gradients->store();
      {
        const std::lock_guard lock(mutex);
        const at::NoGradGuard no_grad;
        assemble_units(store, [&](size_t u) { return store.units()[u].shard; }, then);
      }
      state.model->memory().settle();
      checkpoint::SaveRequest request;
      request.run_dir = directory.path();
      request.step = 1;
      request.write_model = [&](const std::filesystem::path& to) {
        // Longer than the next step, whose update has to wait.
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        models::save(*state.model, to, DType::kF32, {});
      };
      {  // over groups that no pass uses
        const std::vector<int64_t> before = sent_by_passes(mesh);
        const danlu::test::TemporaryDirectory elsewhere;
        models::save(*state.model, elsewhere.path(), DType::kF32, {});
        EXPECT_EQ(sent_by_passes(mesh), before) << name_of({c, 0});
      }
      checkpoint::Saver saver(mesh, *state.optimizer);
      saver.begin(std::move(request));
      run_step(state, batches_of(mesh, 1), config, config.schedule.shape);
      EXPECT_TRUE(saver.finish());
    });
    const auto written = weights::open_weights(directory / "checkpoint-1");
    EXPECT_EQ(written->tensors().size(), then.size());
    for (const auto& [name, weight] : then)
      EXPECT_TRUE(at::equal(models::read_tensor(*written, name), weight)) << name;
  }
}

// The other rank lives on: its end would let go of what waits for it.
TEST(Mesh, WhoFailsDoesNotWaitForTheGatheringOfItsFiles) {
  const Case c{"qwen2", "qwen2", Json::object(), Tuning::kFull, {.tensor = 2}};
  const danlu::test::TemporaryDirectory directory;
  std::atomic<bool> has_left = false;
  const auto save = [&](const Mesh& mesh, optim::AdamW& optimizer) {
    checkpoint::SaveRequest request;
    request.run_dir = directory.path();
    request.step = 1;
    const parallel::Group* waits = mesh.rank() == 0 ? &mesh.saving().tensor() : nullptr;
    request.write_model = [waits](const std::filesystem::path&) {
      if (waits) waits->barrier();
    };
    checkpoint::Saver saver(mesh, optimizer);
    saver.begin(std::move(request));
    if (waits) throw MemoryError("out of memory");
    if (!danlu::test::comes_true([&] { return has_left.load(); }))
      throw std::runtime_error("rank 0 waits for rank 1");
  };
  parallel::run_local_ranks(2, [&](parallel::World& world) {
    const Mesh mesh(world, c.shape);
    TrainState state = state_of(c, mesh);
    if (mesh.rank() > 0) return save(mesh, *state.optimizer);
    EXPECT_THROW(save(mesh, *state.optimizer), MemoryError);
    has_left = true;
  });
}

TEST(Mesh, ARankThatFailsAmidTheGatheringOfFilesIsNotWaitedFor) {
  const Case c{"qwen2", "qwen2", Json::object(), Tuning::kFull, {.tensor = 2}};
  const danlu::test::TemporaryDirectory directory;
  const auto train_and_save = [&](parallel::World& world) {
    const Mesh mesh(world, c.shape);
    TrainState state = state_of(c, mesh);
    const TrainConfig config = config_of(c);
    checkpoint::SaveRequest request;
    request.run_dir = directory.path();
    request.step = 1;
    request.write_model = [&](const std::filesystem::path&) {
      if (mesh.rank() > 0) return mesh.saving().tensor().barrier();
      throw parallel::BrokenExchange(MemoryError("out of memory"));
    };
    checkpoint::Saver saver(mesh, *state.optimizer);
    saver.begin(std::move(request));
    run_step(state, batches_of(mesh, 0), config, config.schedule.shape);
  };
  try {
    parallel::run_local_ranks(2, train_and_save);
    FAIL() << "nobody failed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kMemory) << error.what();
  }
}

TEST(Mesh, SharesOfBf16AreTheBitsOfWholes) {
  const MeshShape shape{.data = 2};
  const auto weights_of = [&](parallel::Sharding sharding) {
    Case c{"qwen2", "qwen2", Json::object(), Tuning::kFull, shape, sharding};
    c.dtype = at::kBFloat16;
    return train(c, shape, 6);
  };
  const auto expect_same = [](const Outcome& a, const Outcome& b) {
    EXPECT_EQ(a.losses, b.losses);
    // Squares are added share by share.
    for (size_t i = 0; i < a.norms.size(); ++i)
      EXPECT_NEAR(a.norms[i], b.norms[i], 1e-12 * a.norms[i]);
    for (const auto& [name, weight] : a.weights)
      EXPECT_TRUE(at::equal(weight, b.weights.at(name))) << name;
  };
  using parallel::Sharding;
  // Sums over ranks come before or after those over micro-batches.
  const Outcome once = weights_of(Sharding::kNone), each = weights_of(Sharding::kGradients);
  expect_same(once, weights_of(Sharding::kState));
  expect_same(each, weights_of(Sharding::kParameters));
  for (size_t i = 0; i < once.losses.size(); ++i)
    EXPECT_NEAR(once.losses[i], each.losses[i], 1e-3 * once.losses[i]);
}

INSTANTIATE_TEST_SUITE_P(All, MeshOf,
                         testing::ValuesIn(danlu::test::is_slow() ? slow_cases() : quick_cases()),
                         name_of);

}  // namespace mesh_test
}  // namespace danlu::train
