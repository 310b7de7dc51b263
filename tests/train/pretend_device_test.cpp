// Training on a device whose memory the host cannot reach: the CPU's numbers, and the textbook's
// bytes, counted where they are taken.
#include "support/pretend_device.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/saver.h"
#include "models/adapters.h"
#include "models/tensor_io.h"
#include "models/training_memory.h"
#include "models/weight_files.h"
#include "parallel/comm/local.h"
#include "support/aten_table.h"
#include "support/cpu_table.h"
#include "support/pretend_kernels.h"
#include "support/slow.h"
#include "support/tiny_model.h"
#include "train/metrics.h"
#include "train/report/planned_memory.h"
#include "train/support.h"

namespace danlu::train {
namespace pretend_device_test {

using danlu::test::pretend_bytes;
using danlu::test::pretend_device;
using danlu::test::pretend_peak;
using parallel::Sharding;

TEST(PretendDevice, CountsWhatItHoldsAndKeepsTheHostOut) {
  const int64_t before = pretend_bytes(1);
  danlu::test::reset_pretend_peak(1);
  {
    const at::Tensor numbers = at::arange(6, at::kFloat).to(pretend_device(1));
    EXPECT_EQ(pretend_bytes(1) - before, 24);
    const at::Tensor second_row = numbers.view({2, 3})[1];
    EXPECT_EQ(second_row.data_ptr(), static_cast<char*>(numbers.data_ptr()) + 12);
    at::Tensor(second_row).add_(10);
    EXPECT_EQ(numbers[4].item<float>(), 14) << "a view, not a copy";
    EXPECT_EQ(pretend_bytes(0), 0) << "on the tensor's device, whatever the current one";
    const at::Tensor grown = numbers.clone().resize_({8});
    EXPECT_EQ(grown[4].item<float>(), 14);
    EXPECT_TRUE(at::full({2}, 1, numbers.options().dtype(at::kBFloat16)).eq(1).all().item<bool>());
  }
  EXPECT_EQ(pretend_bytes(1), before);
  EXPECT_GT(pretend_peak(1) - before, 24);
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(*at::zeros({1}, at::device(pretend_device())).data_ptr<float>() = 1, "");
}

struct Numbers {
  std::vector<double> losses, norms;
  std::vector<at::Tensor> weights;  ///< on the host
};

TrainConfig quick(const parallel::Keeping& keeping = {}) {
  TrainConfig config;
  config.schedule.shape.kind = settings::ScheduleKind::kConstant;
  config.schedule.shape.lr = 1e-2;
  config.adamw.groups.weight_decay = 0.1;
  config.keeping = keeping;
  return config;
}

/// Steps `from` to `to` over toy samples.
Numbers run_steps(TrainState& state, const TrainConfig& config, int64_t from, int64_t to) {
  const auto source = std::make_shared<data::VectorSource>(test::toy_samples(64));
  Numbers numbers;
  for (int64_t step = from; step < to; ++step) {
    const auto batches = test::step_of(source, 4, 2, 0, step * 8);
    const StepResult result = run_step(state, batches, config, config.schedule.shape);
    numbers.losses.push_back(result.loss);
    numbers.norms.push_back(result.grad_norm);
  }
  return numbers;
}

/// Four steps of a tiny model; `lora` with dropout and values in B.
Numbers train_on(const at::Device& device, bool lora, models::Recompute recompute,
                 const parallel::Keeping& keeping = {}, at::ScalarType type = at::kFloat) {
  auto model = std::make_unique<models::CausalLM>(test::tiny_config(), parallel::Mesh::single(),
                                                  type, device);
  models::initialize(*model, 7);
  model->memory().set_recompute(recompute);
  if (lora) {
    weights::PeftConfig adapters = settings::new_adapters();
    adapters.dropout = 0.1;
    models::add_lora(*model, adapters, 5);
    const at::NoGradGuard no_grad;
    for (const parallel::Parameter& p : model->adapter_parameters())
      at::Tensor(p.tensor).copy_(models::normal_values(p.tensor.sizes().vec(), 0.1, 3));
  }
  const TrainConfig config = quick(keeping);
  TrainState state = test::make_state(std::move(model), config);
  Numbers numbers = run_steps(state, config, 0, 4);
  for (const parallel::Parameter& p : state.model->trainable_parameters())
    numbers.weights.push_back(p.tensor.detach().cpu().clone());
  return numbers;
}

TEST(PretendDevice, TrainsToTheNumbersOfTheCpu) {
  for (const bool lora : {false, true}) {
    for (const auto recompute : {models::Recompute::kNone, models::Recompute::kFull}) {
      const std::string what = std::string(lora ? "LoRA" : "full") +
                               (recompute == models::Recompute::kFull ? ", recomputed" : "");
      const Numbers cpu = train_on(at::kCPU, lora, recompute);
      const Numbers device = train_on(pretend_device(), lora, recompute);
      EXPECT_THAT(device.losses, testing::Pointwise(testing::DoubleNear(1e-5), cpu.losses)) << what;
      EXPECT_THAT(device.norms, testing::Pointwise(testing::DoubleNear(1e-5), cpu.norms)) << what;
      EXPECT_EQ(pretend_bytes(), 0) << what << ": the state is gone, and its memory is not";
    }
  }
}

TEST(PretendDevice, TrainsWithTheTableOfAtenToTheNumbersOfTheCpu) {
  for (const bool lora : {false, true}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(std::string(lora ? "LoRA, " : "full, ") + c10::toString(type));
      const Numbers cpu = train_on(at::kCPU, lora, models::Recompute::kNone, {}, type);
      const danlu::test::AtenTable table;
      const Numbers device = train_on(pretend_device(), lora, models::Recompute::kFull, {}, type);
      // ATen of a CPU sums products of bf16 in bf16, which no GPU does.
      const bool is_exact = type == at::kFloat;
      const double limit = is_exact ? 1e-5 : 2e-2, norm_limit = is_exact ? 1e-5 : 0.2;
      EXPECT_THAT(device.losses, testing::Pointwise(testing::DoubleNear(limit), cpu.losses));
      EXPECT_THAT(device.norms, testing::Pointwise(testing::DoubleNear(norm_limit), cpu.norms));
      EXPECT_EQ(pretend_bytes(), 0);
    }
  }
}

TEST(PretendDevice, NamesTheOperatorOfAtenThatItDoesNotHave) {
  const danlu::test::PretendKernels kernels;
  const at::Tensor x = at::zeros({3}, at::device(pretend_device()));
  try {
    at::add(x, x);
    FAIL() << "aten computed";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("asked for aten::add"));
  }
}

TEST(PretendDevice, ComputesThroughItsTableAloneAndToTheBitsOfTheCpu) {
  for (const bool lora : {false, true}) {
    for (const auto recompute :
         {models::Recompute::kNone, models::Recompute::kSelective, models::Recompute::kFull}) {
      for (const auto type : {at::kFloat, at::kBFloat16}) {
        SCOPED_TRACE(std::string(lora ? "LoRA, " : "full, ") + settings::recompute_name(recompute) +
                     ", " + c10::toString(type));
        const Numbers plain = train_on(at::kCPU, lora, recompute, {}, type);
        const danlu::test::CpuTable adds(danlu::test::cpu_as_a_device());
        const Numbers cpu = train_on(at::kCPU, lora, recompute, {}, type);
        const danlu::test::PretendKernels kernels;
        const Numbers device = train_on(pretend_device(), lora, recompute, {}, type);
        EXPECT_EQ(device.losses, cpu.losses);
        EXPECT_EQ(device.norms, cpu.norms);
        if (!lora) {
          EXPECT_EQ(device.norms, plain.norms);
        }
        const double limit = type == at::kFloat ? 1e-5 : 2e-2;
        EXPECT_THAT(device.losses, testing::Pointwise(testing::DoubleNear(limit), plain.losses));
        ASSERT_EQ(device.weights.size(), cpu.weights.size());
        for (size_t i = 0; i < cpu.weights.size(); ++i)
          EXPECT_TRUE(at::equal(device.weights[i], cpu.weights[i])) << i;
        EXPECT_EQ(pretend_bytes(), 0);
      }
    }
  }
}

void expect_no_wait() {
  for (const bool lora : {false, true}) {
    models::CausalLM model(test::tiny_config(), parallel::Mesh::single(), at::kBFloat16,
                           pretend_device());
    models::initialize(model, 7);
    if (lora) {
      weights::PeftConfig adapters = settings::new_adapters();
      adapters.dropout = 0.1;
      models::add_lora(model, adapters, 5);
    }
    optim::GradBuffer gradients(models::keep(model, {}));
    models::ForwardInput input;
    input.ids_N = input.positions_N = input.dropout_keys_N = at::arange(20, at::kLong);
    input.segments = {{0, 12, 20}, {0, 12, 20}};
    const at::Tensor targets = at::arange(20, at::kLong) + 1;
    targets.narrow(0, 0, 5).fill_(kIgnoreLabel);
    gradients.zero();
    const int64_t before = danlu::test::pretend_waits();
    for (const bool last : {false, true}) {
      gradients.begin_pass(last);
      const models::LossSum loss = model.loss(input, targets, 0.125);
      loss.sum.backward(loss.factor);
      gradients.end_pass();
    }
    gradients.finish();
    EXPECT_EQ(danlu::test::pretend_waits(), before) << (lora ? "LoRA" : "full");
  }
}

TEST(PretendDevice, IsWaitedForByNoPass) {
  const danlu::test::PretendKernels kernels;
  expect_no_wait();
}

TEST(PretendDevice, WithTheTableOfAtenIsWaitedForByNoPass) {
  const danlu::test::AtenTable table;
  expect_no_wait();
}

/// Waits of the host in a step of so many micro-batches, from the second step on.
int64_t waits_of_step(int64_t micro_batches) {
  auto model = std::make_unique<models::CausalLM>(test::tiny_config(), parallel::Mesh::single(),
                                                  at::kBFloat16, pretend_device());
  models::initialize(*model, 7);
  const TrainConfig config = quick();
  TrainState state = test::make_state(std::move(model), config);
  const auto source = std::make_shared<data::VectorSource>(test::toy_samples(64));
  int64_t before = 0;
  for (int64_t step = 0; step < 2; ++step) {
    before = danlu::test::pretend_waits();
    run_step(state, test::step_of(source, 2, micro_batches, 0), config, config.schedule.shape);
  }
  return danlu::test::pretend_waits() - before;
}

/// The loss, its other figures, and the norm of each of four units: numbers that a step itself
/// needs.
TEST(PretendDevice, IsWaitedForInAStepAsOftenHoweverManyPassesItHas) {
  for (const bool by_aten : {false, true}) {
    std::optional<danlu::test::AtenTable> aten;
    std::optional<danlu::test::PretendKernels> kernels;
    if (by_aten) {
      aten.emplace();
    } else {
      kernels.emplace();
    }
    const int64_t of_one = waits_of_step(1);
    EXPECT_LE(of_one, 2 + 4) << by_aten;
    EXPECT_EQ(waits_of_step(6), of_one) << by_aten;
  }
}

TEST(PretendDevice, GivesTheNumbersOfManyScalarsAtOneWaitForEachType) {
  const auto on_device = [](double value, at::ScalarType type) {
    return at::full({}, value, at::device(pretend_device()).dtype(type));
  };
  const std::vector<at::Tensor> scalars = {
      on_device(1.5, at::kFloat), on_device(3, at::kLong), at::full({}, 0.1, at::kDouble),
      on_device(-2, at::kFloat).view({1}), on_device(1, at::kBool)};
  const int64_t before = danlu::test::pretend_waits();
  EXPECT_EQ(read_scalars(scalars), (std::vector<double>{1.5, 3, 0.1, -2, 1}));
  EXPECT_EQ(danlu::test::pretend_waits() - before, 3);
  EXPECT_TRUE(read_scalars({}).empty());
}

TEST(PretendDevice, ALineOfTheFirstStepHasTheFiguresOfItsAllocator) {
  const danlu::test::TemporaryDirectory directory;
  auto model = std::make_unique<models::CausalLM>(test::tiny_config(), parallel::Mesh::single(),
                                                  at::kFloat, pretend_device());
  models::initialize(*model, 7);
  const TrainConfig config = quick();
  TrainState state = test::make_state(std::move(model), config);
  CountedMemory counted(pretend_device());
  counted.begin_step(state);
  run_steps(state, config, 0, 1);
  plan::Request request;
  request.model = test::tiny_config();
  counted.end_step(1, request, state, Ranks({}, {}, 1, Json::object()), directory.path());
  const Json rank = read_json_file(directory / "memory.json")["ranks"][0];
  const auto peak = rank["counted"]["total"].get<int64_t>();
  EXPECT_GT(peak, 0);
  EXPECT_EQ(rank["allocator"]["held"].get<int64_t>(), (peak + 0xfffff) / 0x100000 * 0x100000);
  EXPECT_EQ(rank["allocator"]["retries"].get<int64_t>(), 2);
  EXPECT_EQ(allocator_words({3'000'000, 0}), "; its allocator held 3.0 MB");
  EXPECT_EQ(allocator_words({3'000'000, 2}),
            "; its allocator held 3.0 MB, and gave memory back 2 times to find room: it is in "
            "pieces, or nearly full");
}

/// A small model of every family that Danlu trains, and of the ways in which its parts differ:
/// fused projections, biases, norms of heads, ALiBi, a head of rows of length one, tied ends.
TEST(PretendDevice, TrainsEveryFamilyThroughItsTableAlone) {
  for (const char* family : {"llama", "qwen2", "qwen3", "baichuan", "internlm2"}) {
    for (const bool tied : {false, true}) {
      Json json = danlu::test::tiny_config(family);
      json["tie_word_embeddings"] = tied;
      for (const bool lora : {false, true}) {
        SCOPED_TRACE(std::string(family) + (tied ? ", tied" : "") + (lora ? ", LoRA" : ""));
        const auto train = [&](const at::Device& device) {
          auto model = std::make_unique<models::CausalLM>(
              arch::family_of(json).parse(json), parallel::Mesh::single(), at::kFloat, device);
          models::initialize(*model, 7);
          if (lora) models::add_lora(*model, settings::new_adapters(), 5);
          const TrainConfig config = quick();
          TrainState state = test::make_state(std::move(model), config);
          return run_steps(state, config, 0, 2);
        };
        const danlu::test::CpuTable adds(danlu::test::cpu_as_a_device());
        const Numbers cpu = train(at::kCPU);
        const danlu::test::PretendKernels kernels;
        const Numbers device = train(pretend_device());
        EXPECT_EQ(device.losses, cpu.losses);
        EXPECT_EQ(device.norms, cpu.norms);
      }
    }
  }
}

TEST(PretendDevice, RanksThatShareSamplesComputeThroughTheirTablesAlone) {
  constexpr int64_t kRanks = danlu::test::kPretendDevices;
  for (const auto sharding :
       {Sharding::kNone, Sharding::kState, Sharding::kGradients, Sharding::kParameters}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(fmt::format("stage {}, {}", static_cast<int>(sharding), c10::toString(type)));
      const auto train = [&](bool on_cards) {
        std::vector<Numbers> of_rank(kRanks);
        parallel::run_local_ranks(kRanks, [&](parallel::World& world) {
          const parallel::Mesh mesh(world, {.data = kRanks});
          const auto rank = static_cast<int>(mesh.rank());
          auto model = std::make_unique<models::CausalLM>(
              test::tiny_config(), mesh, type, on_cards ? pretend_device(rank) : at::kCPU);
          models::keep(*model, {sharding, {}, {}}, /*holds_values=*/false);
          models::initialize(*model, 7);
          const TrainConfig config = quick({sharding, {}, {}});
          TrainState state = test::make_state(std::move(model), config);
          of_rank[static_cast<size_t>(rank)] = run_steps(state, config, 0, 2);
        });
        return of_rank[0];
      };
      const danlu::test::CpuTable adds(danlu::test::cpu_as_a_device());
      const Numbers cpu = train(false);
      const danlu::test::PretendKernels kernels;
      const Numbers device = train(true);
      EXPECT_EQ(device.losses, cpu.losses);
      EXPECT_EQ(device.norms, cpu.norms);
    }
  }
}

/// Makes weights NaN until the device comes to what it was given last: who reads them has to wait.
void come_late(const models::CausalLM& model) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors;
  std::vector<std::pair<at::Tensor, at::Tensor>> late;
  for (const parallel::Parameter& p : model.trainable_parameters()) {
    const at::Tensor weight = p.tensor.detach(), values = weight.clone();
    at::Tensor(weight).fill_(std::numeric_limits<double>::quiet_NaN());
    tensors.insert(tensors.end(), {weight, values});
    late.emplace_back(danlu::test::pretend_memory(weight), danlu::test::pretend_memory(values));
  }
  danlu::test::wait_for_pretend_stream(pretend_device());
  danlu::test::give_pretend_device(pretend_device(), "late weights", tensors, [late] {
    for (const auto& [weight, values] : late) weight.copy_(values);
  });
}

/// Two steps, a checkpoint, and from it two more, against four in a row.
void expect_to_go_on() {
  const danlu::test::TemporaryDirectory directory;
  test::write_run_inputs(directory, DType::kF32, 1);
  const TrainConfig config = quick();
  const auto state_of = [&](const std::filesystem::path& model) {
    return test::make_state(
        models::load_model(model, parallel::Mesh::single(), at::kFloat, pretend_device()), config);
  };
  TrainState whole = state_of(directory / "model"), first = state_of(directory / "model");
  const Numbers expected = run_steps(whole, config, 0, 4);
  run_steps(first, config, 0, 2);
  checkpoint::SaveRequest request;
  request.run_dir = directory.path();
  request.step = 2;
  request.write_model = [&](const std::filesystem::path& to) {
    models::save(*first.model, to, DType::kF32, {});
  };
  request.trainer_state = {{"optimizer_updates", 2}};
  checkpoint::Saver saver(first.model->mesh(), *first.optimizer);
  come_late(*first.model);
  saver.begin(std::move(request));
  run_steps(first, config, 2, 3);  // beside which it is written
  const std::filesystem::path saved = saver.finish().value();
  TrainState second = state_of(saved);
  checkpoint::load_optimizer(checkpoint::open(saved), *second.optimizer);
  const Numbers numbers = run_steps(second, config, 2, 4);
  EXPECT_THAT(numbers.losses, testing::ElementsAre(expected.losses[2], expected.losses[3]));
  EXPECT_THAT(numbers.norms, testing::ElementsAre(expected.norms[2], expected.norms[3]));
}

TEST(PretendDevice, GoesOnFromItsCheckpoint) { expect_to_go_on(); }

TEST(PretendDevice, GoesOnFromItsCheckpointThroughItsTableAlone) {
  const danlu::test::PretendKernels kernels;
  expect_to_go_on();
}

constexpr int64_t kLayers = 12;

/// So many that one weighs little: of 213 thousand parameters each at a width of 128.
arch::ModelConfig many_layers(int64_t width = 128) {
  Json json = test::tiny_config_json();
  json.update({{"vocab_size", 512},
               {"hidden_size", width},
               {"intermediate_size", 3 * width},
               {"num_hidden_layers", kLayers},
               {"num_key_value_heads", 4}});
  return arch::family_of(json).parse(json);
}

/// On the fullest card, for each parameter of the model.
struct Bytes {
  double steady = 0, peak = 0;
};

/// Two steps of bf16 in two passes each, on a card for each rank: what is held after the first, and
/// at most in the second.
Bytes bytes_of(const arch::ModelConfig& config, int64_t ranks, const parallel::Keeping& keeping) {
  std::vector<Bytes> cards(static_cast<size_t>(ranks));
  const auto parameters = static_cast<double>(arch::parameter_count(config));
  parallel::run_local_ranks(ranks, [&](parallel::World& world) {
    const parallel::Mesh mesh(world, {.data = ranks});
    const int card = static_cast<int>(mesh.rank());
    models::CausalLM model(config, mesh, at::kBFloat16, pretend_device(card));
    parallel::ParameterStore& store = models::keep(model, keeping, /*holds_values=*/false);
    models::initialize(model, 1);
    optim::GradBuffer gradients(store);
    optim::AdamW optimizer(store, {});
    models::ForwardInput input;
    input.ids_N = input.positions_N = at::arange(4, at::kLong);
    input.segments = {{0, 4}, {0, 4}};
    const auto step = [&] {
      gradients.zero();
      for (const bool last : {false, true}) {
        gradients.begin_pass(last);
        model.loss(input, input.ids_N + 1).sum.backward();
        gradients.end_pass();
      }
      gradients.finish();
      optimizer.step(gradients, 1e-4, 1.0);
      store.settle();
    };
    step();
    Bytes& bytes = cards[static_cast<size_t>(card)];
    bytes.steady = static_cast<double>(pretend_bytes(card)) / parameters;
    danlu::test::reset_pretend_peak(card);
    step();
    bytes.peak = static_cast<double>(pretend_peak(card)) / parameters;
  });
  Bytes most;
  for (const Bytes& bytes : cards)
    most = {std::max(most.steady, bytes.steady), std::max(most.peak, bytes.peak)};
  return most;
}

void expect_textbook(const arch::ModelConfig& config) {
  constexpr double kRanks = danlu::test::kPretendDevices;
  const std::map<Sharding, double> textbook = {{Sharding::kNone, 16},
                                               {Sharding::kState, 6 + 10 / kRanks},
                                               {Sharding::kGradients, 2 + 14 / kRanks},
                                               {Sharding::kParameters, 16 / kRanks}};
  double last_peak = std::numeric_limits<double>::infinity();
  for (const auto& [sharding, expected] : textbook) {
    const Bytes got = bytes_of(config, danlu::test::kPretendDevices, {sharding, {}, {}});
    const auto stage = static_cast<int>(sharding);
    EXPECT_NEAR(got.steady, expected, 0.1 * expected) << "stage " << stage;
    // Under way: three units gathered (2 bytes a parameter), two gradients (4), an exchange (8).
    EXPECT_LT(got.peak, 1.1 * expected + (3 * 2 + 2 * 4 + 8) / double{kLayers})
        << "stage " << stage;
    EXPECT_LT(got.peak, last_peak) << "stage " << stage;
    last_peak = got.peak;
    std::printf("| zero%d | %.1f | %.3f | %.3f | %.3f |\n", stage, expected, got.steady,
                got.steady / expected, got.peak);
  }
  for (int card = 0; card < danlu::test::kPretendDevices; ++card)
    EXPECT_EQ(pretend_bytes(card), 0) << "left on card " << card;
}

TEST(PretendDevice, ARankHoldsWhatTheTextbookSays) { expect_textbook(many_layers()); }

TEST(PretendDevice, ARankOfALargeModelHoldsWhatTheTextbookSays) {
  DANLU_SLOW_TEST();
  const arch::ModelConfig large = many_layers(640);
  ASSERT_GT(arch::parameter_count(large), 50'000'000);
  expect_textbook(large);
}

/// What a rank of a card for each keeps of a model, what its largest unit is whole, and the most
/// that constructing and loading it took: bytes.
struct Loading {
  int64_t kept = 0, largest_unit = 0, peak = 0;
};

Loading bytes_of_loading(const std::filesystem::path& directory, Sharding sharding, bool frozen) {
  std::vector<Loading> cards(danlu::test::kPretendDevices);
  parallel::run_local_ranks(danlu::test::kPretendDevices, [&](parallel::World& world) {
    const parallel::Mesh mesh(world, {.data = world.size()});
    const int card = static_cast<int>(mesh.rank());
    Loading& loading = cards[static_cast<size_t>(card)];
    danlu::test::reset_pretend_peak(card);
    const auto model =
        models::load_model(weights::open_checkpoint_source(directory, {.all_tensors = true}), mesh,
                           at::kBFloat16, pretend_device(card), [&](models::CausalLM& described) {
                             if (frozen) described.freeze({"layers"});
                             models::keep(described, {sharding, {}, {}}, /*holds_values=*/false);
                           });
    loading.peak = pretend_peak(card);
    loading.kept = pretend_bytes(card);
    for (const parallel::Unit& unit : models::keep(*model, {}).units())
      loading.largest_unit = std::max<int64_t>(loading.largest_unit, unit.layout.total() * 2);
    double sum = 0;
    for (const parallel::Unit& unit : models::keep(*model, {}).units())
      sum += unit.shard.to(at::kFloat).sum().item<double>();
    EXPECT_TRUE(std::isfinite(sum)) << "what nobody has filled";
  });
  return *std::max_element(cards.begin(), cards.end(), [](const Loading& a, const Loading& b) {
    return a.peak - a.kept < b.peak - b.kept;
  });
}

TEST(PretendDevice, ConstructingAndLoadingTakesWhatARankKeepsAndTwoUnits) {
  const danlu::test::TemporaryDirectory directory;
  {
    models::CausalLM model(many_layers(), parallel::Mesh::single(), at::kFloat, at::kCPU);
    models::initialize(model, 1);
    models::save(model, directory.path(), DType::kBF16, {});
  }
  const int64_t whole = 2 * arch::parameter_count(many_layers());
  for (const bool frozen : {false, true}) {
    for (const auto sharding : {Sharding::kNone, Sharding::kState, Sharding::kGradients}) {
      const Loading got = bytes_of_loading(directory.path(), sharding, frozen);
      EXPECT_NEAR(got.kept, whole, 0.01 * whole) << static_cast<int>(sharding);
      EXPECT_EQ(got.peak, got.kept) << static_cast<int>(sharding) << ": not twice";
    }
    const Loading got = bytes_of_loading(directory.path(), Sharding::kParameters, frozen);
    EXPECT_NEAR(got.kept, whole / danlu::test::kPretendDevices, 0.03 * whole);
    EXPECT_LE(got.peak, got.kept + 2 * got.largest_unit);
    EXPECT_LT(got.peak, whole / 2) << "of which it is far";
  }
}

TEST(PretendDevice, AStateInFilesIsNotOnTheDevice) {
  const danlu::test::TemporaryDirectory directory;
  // Parameters and gradients, and of those a fourth.
  const Bytes alone = bytes_of(many_layers(), 1, {Sharding::kNone, {}, directory.path()});
  EXPECT_NEAR(alone.steady, 2 + 4, 0.6);
  EXPECT_LT(alone.peak, 6.6 + 8.0 / kLayers);
  const Bytes shared = bytes_of(many_layers(), 4, {Sharding::kGradients, {}, directory.path()});
  EXPECT_NEAR(shared.steady, 2 + 4 / 4.0, 0.3);
  for (const bool lora : {false, true}) {
    const parallel::Keeping keeping{Sharding::kNone, {}, directory.path()};
    const Numbers cpu = train_on(at::kCPU, lora, models::Recompute::kNone);
    const Numbers device = train_on(pretend_device(), lora, models::Recompute::kNone, keeping);
    EXPECT_THAT(device.losses, testing::Pointwise(testing::DoubleNear(1e-5), cpu.losses)) << lora;
    EXPECT_THAT(device.norms, testing::Pointwise(testing::DoubleNear(1e-5), cpu.norms)) << lora;
  }
}

}  // namespace pretend_device_test
}  // namespace danlu::train
