// Llama-4's files, which hold a layer's experts in two tensors: each expert's matrices out of them,
// and back into files that are the same bit for bit.
#include "weights/hf/stacked_experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"
#include "support/throws.h"
#include "weights/bytes.h"
#include "weights/convert/checkpoint_source.h"
#include "weights/convert/layout_writer.h"
#include "weights/hf/fit.h"
#include "weights/hf/safetensors_target.h"
#include "weights/megatron/target.h"
#include "weights/random_models.h"

namespace danlu::weights {
namespace {

using testing::HasSubstr;

constexpr int64_t kHidden = 48, kWidth = 36, kExperts = 4;
const std::string kSecondLayer = "model.layers.1.feed_forward.experts.";

std::filesystem::path llama4() { return test::shared_dir() / "golden/moe/llama4_text"; }

std::vector<float> floats_of(const TensorSource& source, const std::string& name) {
  std::vector<float> numbers(static_cast<size_t>(source.find(name)->num_elements()));
  source.read(name, std::as_writable_bytes(std::span(numbers)));
  return numbers;
}

TEST(StackedExperts, EachExpertsMatricesAreThoseOfTheStackTurnedOver) {
  DANLU_REQUIRES_SHARED();
  const CheckpointSource model = open_checkpoint_source(llama4());
  const auto stored = open_weights(llama4());
  const auto gate_up = floats_of(*stored, kSecondLayer + "gate_up_proj");
  const auto down = floats_of(*stored, kSecondLayer + "down_proj");
  const auto in_stack = [&](const std::vector<float>& stack, int64_t expert, int64_t rows,
                            int64_t cols, int64_t row, int64_t col) {
    return stack[static_cast<size_t>((expert * rows + row) * cols + col)];
  };
  for (int64_t expert = 0; expert < kExperts; ++expert) {
    const std::string own = kSecondLayer + std::to_string(expert) + ".";
    const auto gate = floats_of(*model.model, own + "gate_proj.weight");
    const auto up = floats_of(*model.model, own + "up_proj.weight");
    const auto back = floats_of(*model.model, own + "down_proj.weight");
    for (int64_t f = 0; f < kWidth; ++f) {
      for (int64_t h = 0; h < kHidden; ++h) {
        const auto at = static_cast<size_t>(f * kHidden + h);
        ASSERT_EQ(gate[at], in_stack(gate_up, expert, kHidden, 2 * kWidth, h, f));
        ASSERT_EQ(up[at], in_stack(gate_up, expert, kHidden, 2 * kWidth, h, kWidth + f));
        ASSERT_EQ(back[static_cast<size_t>(h * kWidth + f)],
                  in_stack(down, expert, kWidth, kHidden, f, h));
      }
    }
  }
  // A part of one, as ranks of the tensor axis read it.
  std::vector<float> part(6);
  model.model->read_rect(kSecondLayer + "2.up_proj.weight", {5, 2, 7, 3},
                         reinterpret_cast<std::byte*>(part.data()), 3);
  EXPECT_EQ(part[4], in_stack(gate_up, 2, kHidden, 2 * kWidth, 8, kWidth + 6));
}

/// Writes `model` as Hugging Face has it, and compares each tensor's bytes with the golden's.
void expect_golden_files(const TensorSource& model, const arch::ModelConfig& config,
                         uint64_t max_shard_bytes) {
  const test::TemporaryDirectory directory;
  const Target target =
      plan_hf_model(config, megatron::global_tensors(config, DType::kF32), max_shard_bytes);
  check_layout(target.layout);
  write_layout(model, target.layout, target.plans, directory.path());
  for (const auto& [name, text] : target.texts) write_file_atomic(directory / name, text);
  const auto written = open_weights(directory.path()), golden = open_weights(llama4());
  ASSERT_EQ(written->tensors().size(), golden->tensors().size());
  for (const TensorInfo& info : golden->tensors()) {
    ASSERT_TRUE(written->find(info.name)) << info.name;
    EXPECT_EQ(written->find(info.name)->shape, info.shape) << info.name;
    EXPECT_EQ(test::read_tensor(*written, info.name), test::read_tensor(*golden, info.name))
        << info.name;
  }
  EXPECT_EQ(written->files().size() > 1, max_shard_bytes < 100000);
}

TEST(StackedExperts, FilesComeBackBitForBit) {
  DANLU_REQUIRES_SHARED();
  const CheckpointSource model = open_checkpoint_source(llama4());
  for (const uint64_t bytes : {uint64_t{1} << 40, uint64_t{60000}})
    expect_golden_files(*model.model, model.config, bytes);
}

TEST(StackedExperts, FilesComeBackBitForBitFromMegatronsAtEverySplit) {
  DANLU_REQUIRES_SHARED();
  using namespace megatron;
  const CheckpointSource model = open_checkpoint_source(llama4());
  for (const ExpertForm experts :
       {ExpertForm::kSequential, ExpertForm::kGrouped, ExpertForm::kTeGrouped}) {
    for (const Split& split : {Split{}, Split{.tp = 2, .pp = 2, .ep = 2}}) {
      const test::TemporaryDirectory directory;
      TargetOptions options;
      options.split = split;
      options.form.experts = experts;
      const Target target =
          plan_checkpoint(model.config, global_tensors(model.config, DType::kF32), options);
      write_layout(*model.model, target.layout, target.plans, directory.path());
      for (const auto& [path, text] : target.texts) write_file_atomic(directory / path, text);
      std::filesystem::copy_file(llama4() / "config.json", directory / "config.json");
      expect_golden_files(*open_checkpoint_source(directory.path()).model, model.config,
                          uint64_t{1} << 40);
    }
  }
}

/// A model of the golden's config whose file has these tensors in place of layer 1's experts.
std::shared_ptr<const TensorSource> with_other_experts(const std::vector<TensorInfo>& others) {
  std::vector<TensorInfo> infos = others;
  const auto golden = open_weights(llama4());
  for (const TensorInfo& info : golden->tensors()) {
    if (!info.name.starts_with(kSecondLayer)) infos.push_back(info);
  }
  return test::RandomModels(3).source(infos);
}

TEST(StackedExperts, WhatIsMissingAndWhatDoesNotFitIsNamed) {
  DANLU_REQUIRES_SHARED();
  const arch::ModelConfig config = arch::load_model_config(llama4());
  const TensorInfo gate_up{kSecondLayer + "gate_up_proj", DType::kF32, {4, kHidden, 2 * kWidth}};
  const auto source = with_single_experts(with_other_experts({gate_up}), config);
  const Misfit misfit = misfit_of(config, *source);
  ASSERT_EQ(misfit.missing.size(), 4u);
  EXPECT_EQ(misfit.missing[0].name, kSecondLayer + "0.down_proj.weight");
  EXPECT_TRUE(misfit.unknown.empty());
  const TensorInfo turned{gate_up.name, DType::kF32, {4, 2 * kWidth, kHidden}};
  EXPECT_THAT(
      test::error_of<ModelError>(
          [&] { with_single_experts(with_other_experts({turned}), config); }),
      testing::AllOf(HasSubstr(gate_up.name), HasSubstr("[4, 72, 48]"), HasSubstr("[4, 48, 72]")));
}

TEST(StackedExperts, ExpertsByThemselvesStayAsTheyAre) {
  DANLU_REQUIRES_SHARED();
  const arch::ModelConfig config = arch::load_model_config(llama4());
  const auto source = test::RandomModels(3).source(megatron::global_tensors(config, DType::kBF16));
  EXPECT_EQ(with_single_experts(source, config), source);
}

}  // namespace
}  // namespace danlu::weights
