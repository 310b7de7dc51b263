// Training and answers on the simulated NPU: the CPU's numbers.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "device/memory.h"
#include "device/npu.h"
#include "infer/generate.h"
#include "models/adapters.h"
#include "models/nf4_weights.h"
#include "models/training_memory.h"
#include "models/weight_files.h"
#include "npu/support.h"
#include "ops/rms_norm.h"
#include "support/tiny_model.h"
#include "train/support.h"

namespace danlu::npu::test {
namespace {

namespace training = danlu::train::test;
using train::StepResult;
using train::TrainConfig;
using train::TrainState;

struct Numbers {
  std::vector<double> losses, norms;
};

TrainConfig quick() {
  TrainConfig config;
  config.schedule.shape.kind = settings::ScheduleKind::kConstant;
  config.schedule.shape.lr = 1e-2;
  config.adamw.groups.weight_decay = 0.1;
  config.adamw.eps = 1e-5;  // else the sign of what is nearly no gradient decides
  return config;
}

Numbers run_steps(TrainState& state, const TrainConfig& config, int64_t from, int64_t to) {
  const auto source = std::make_shared<data::VectorSource>(training::toy_samples(64));
  Numbers numbers;
  for (int64_t step = from; step < to; ++step) {
    const auto batches = training::step_of(source, 4, 2, 0, step * 8);
    const StepResult result = train::run_step(state, batches, config, config.schedule.shape);
    numbers.losses.push_back(result.loss);
    numbers.norms.push_back(result.grad_norm);
  }
  return numbers;
}

TrainState state_on(const at::Device& device, const std::string& family, bool lora,
                    models::Recompute recompute, at::ScalarType type) {
  const Json json = danlu::test::tiny_config(family);
  auto model = std::make_unique<models::CausalLM>(arch::family_of(json).parse(json),
                                                  parallel::Mesh::single(), type, device);
  models::initialize(*model, 7);
  model->memory().set_recompute(recompute);
  if (lora) {
    weights::PeftConfig adapters = settings::new_adapters();
    adapters.dropout = 0.1;
    models::add_lora(*model, adapters, 5);
  }
  return training::make_state(std::move(model), quick());
}

Numbers train_on(const at::Device& device, const std::string& family, bool lora,
                 models::Recompute recompute, at::ScalarType type, int64_t steps) {
  TrainState state = state_on(device, family, lora, recompute, type);
  return run_steps(state, quick(), 0, steps);
}

TEST(NpuModel, TrainsToTheNumbersOfTheCpu) {
  for (const char* family : {"llama", "qwen2", "qwen3", "internlm2", "baichuan", "mixtral",
                             "qwen2_moe", "deepseek_v3", "phi3", "minicpm3", "chatglm", "gemma",
                             "gemma2", "gemma3_text", "bloom", "gpt2", "phimoe", "llama4_text"}) {
    for (const bool lora : {false, true}) {
      SCOPED_TRACE(std::string(family) + (lora ? ", LoRA" : ", full"));
      const auto recompute = models::Recompute::kNone;
      const Numbers cpu = train_on(at::kCPU, family, lora, recompute, at::kFloat, 2);
      const Numbers own = train_on(npu(), family, lora, recompute, at::kFloat, 2);
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_NEAR(own.losses.at(i), cpu.losses.at(i), 1e-5 * cpu.losses[i]);
        EXPECT_NEAR(own.norms.at(i), cpu.norms.at(i), 3e-5 * cpu.norms[i]);
      }
    }
  }
}

/// A base in NF4 whose adapters change the length of columns.
TEST(NpuModel, TrainsDoraOnABaseInNf4AsTheCpu) {
  for (const bool in_nf4 : {false, true}) {
    const auto train = [&](const at::Device& device) {
      const Json json = danlu::test::tiny_config("qwen2");
      auto model = std::make_unique<models::CausalLM>(arch::family_of(json).parse(json),
                                                      parallel::Mesh::single(), at::kFloat, device);
      if (in_nf4) {
        model->freeze({"."});
        models::Quantisation quantisation;
        quantisation.make_nf4 = models::Quantisation::Nf4{.doubly = true};
        models::hold_in_nf4(*model, quantisation);
      }
      models::initialize(*model, 7);
      weights::PeftConfig adapters = settings::new_adapters();
      adapters.dora = true;
      models::add_lora(*model, adapters, 5);
      TrainState state = training::make_state(std::move(model), quick());
      return run_steps(state, quick(), 0, 2);
    };
    const Numbers cpu = train(at::kCPU), own = train(npu());
    EXPECT_THAT(own.losses, testing::Pointwise(testing::DoubleNear(1e-5), cpu.losses)) << in_nf4;
    EXPECT_THAT(own.norms, testing::Pointwise(testing::DoubleNear(1e-4), cpu.norms)) << in_nf4;
  }
}

TEST(NpuModel, TrainsTwentyStepsAsTheCpu) {
  for (const bool lora : {false, true}) {
    const auto recompute = models::Recompute::kFull;
    const Numbers cpu = train_on(at::kCPU, "qwen2", lora, recompute, at::kFloat, 20);
    const Numbers own = train_on(npu(), "qwen2", lora, recompute, at::kFloat, 20);
    for (size_t i = 0; i < 20; ++i)
      EXPECT_NEAR(own.losses.at(i), cpu.losses.at(i), 1e-5) << lora << i;
    EXPECT_LT(own.losses.back(), own.losses.front());
  }
}

TEST(NpuModel, TrainsTwentyStepsInBf16AsTheCpu) {
  for (const bool lora : {false, true}) {
    const auto recompute = models::Recompute::kSelective;
    const Numbers cpu = train_on(at::kCPU, "qwen2", lora, recompute, at::kBFloat16, 20);
    const Numbers own = train_on(npu(), "qwen2", lora, recompute, at::kBFloat16, 20);
    EXPECT_THAT(own.losses, testing::Pointwise(testing::DoubleNear(2e-2), cpu.losses));
  }
}

TEST(NpuModel, TakesNoMemoryAndWaitsAsOftenFromTheThirdStepOn) {
  if (is_on_card()) GTEST_SKIP() << "asks the simulator";
  TrainState state = state_on(npu(), "qwen2", false, models::Recompute::kNone, at::kBFloat16);
  run_steps(state, quick(), 0, 3);
  const int64_t taken = counter("allocations"), waits = device::npu_waits();
  run_steps(state, quick(), 0, 1);
  const int64_t of_a_step = device::npu_waits() - waits;
  run_steps(state, quick(), 0, 1);
  EXPECT_EQ(counter("allocations"), taken);
  EXPECT_EQ(device::npu_waits() - waits, 2 * of_a_step);
  // What is planned once for a shape is planned no more.
  const auto launches_of_kept = [] {
    int64_t sum = 0;
    for (const char* op : {"Matmul", "Mul", "Div", "Maximum", "Exp", "Log", "Sqrt", "Sin", "Cos",
                           "Neg", "Sigmoid", "Gather", "IndexSelect", "RmsNorm", "RmsNormGrad",
                           "SwiGlu", "SwiGluGrad", "RotaryPositionEmbedding"})
      sum += counter(std::string("launches.aclnn") + op);
    return sum;
  };
  const int64_t planned = counter("phase1"), launched = counter("launches"),
                kept = launches_of_kept();
  run_steps(state, quick(), 0, 1);
  EXPECT_GT(launches_of_kept() - kept, 100);
  EXPECT_EQ(counter("launches") - launched - (counter("phase1") - planned),
            launches_of_kept() - kept);
  EXPECT_EQ(of_a_step, 6)
      << "losses and counts of both micro-batches, and a norm of each of four units";
}

std::vector<text::TokenId> prompt_of(int64_t length, int64_t seed) {
  std::vector<text::TokenId> ids;
  for (int64_t i = 0; i < length; ++i)
    ids.push_back(static_cast<text::TokenId>(3 + (seed * 17 + i * i * 5) % 58));
  return ids;
}

std::vector<std::vector<text::TokenId>> answers_of(const models::CausalLM& model) {
  std::vector<infer::Request> requests;
  for (const auto& [length, more] : {std::pair(5, 20), std::pair(1, 9), std::pair(30, 12)}) {
    requests.emplace_back();
    requests.back().prompt = prompt_of(length, length);
    requests.back().max_new_tokens = more;
  }
  std::vector<std::vector<text::TokenId>> all;
  for (const infer::Answer& answer : infer::generate(model, requests, 2)) all.push_back(answer.ids);
  return all;
}

TEST(NpuModel, AnswersAsTheCpu) {
  for (const char* family : {"llama", "qwen2", "qwen3", "baichuan", "mixtral", "deepseek_v3",
                             "gemma2", "bloom", "gpt2", "llama4_text"}) {
    const auto model_on = [&](const at::Device& device) {
      Json json = danlu::test::tiny_config(family);
      json["initializer_range"] = 0.5;
      auto model = std::make_unique<models::CausalLM>(arch::family_of(json).parse(json),
                                                      parallel::Mesh::single(), at::kFloat, device);
      models::initialize(*model, 7);
      return model;
    };
    EXPECT_EQ(answers_of(*model_on(npu())), answers_of(*model_on(at::kCPU))) << family;
  }
}

}  // namespace
}  // namespace danlu::npu::test
