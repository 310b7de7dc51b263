// Ten steps of models that see pictures against Hugging Face and torch.optim.AdamW
// (shared/golden/vl): all parameters, with the tower frozen, LoRA on the decoder, and steps of
// which some have no picture.
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "models/tensor_io.h"
#include "models/weight_files.h"
#include "support/temporary_directory.h"
#include "train/support.h"

namespace danlu::train {
namespace vision_golden {

namespace fs = std::filesystem;

/// The file's own pixels, whatever the picture's file.
class RecordedPixels : public data::PendingPixels {
 public:
  explicit RecordedPixels(std::vector<at::Tensor> pictures) : pictures_(std::move(pictures)) {}
  data::MediaPixels take(double* wait_s = nullptr, bool = false) override {
    if (wait_s) *wait_s = 0;
    data::MediaPixels made;
    made.patch_values = pictures_.front().size(1);
    for (const at::Tensor& picture : pictures_) made.patches += picture.size(0);
    made.values = std::make_unique<float[]>(static_cast<size_t>(made.patches * made.patch_values));
    float* next = made.values.get();
    for (const at::Tensor& picture : pictures_) {
      std::memcpy(next, picture.data_ptr<float>(), picture.nbytes());
      next += picture.numel();
    }
    return made;
  }

 private:
  std::vector<at::Tensor> pictures_;
};

class Golden {
 public:
  explicit Golden(const std::string& name)
      : directory_(danlu::test::shared_dir() / "golden/vl" / name),
        source_(weights::open_safetensors(directory_ / "golden.safetensors")),
        config_(arch::load_model_config(directory_)) {}

  const fs::path& directory() const { return directory_; }
  at::Tensor tensor(const std::string& name) const {
    return models::read_tensor(*source_, name).contiguous();
  }
  std::vector<int64_t> numbers(const std::string& name) const {
    const at::Tensor flat = tensor(name).to(at::kLong).reshape({-1}).contiguous();
    return {flat.data_ptr<int64_t>(), flat.data_ptr<int64_t>() + flat.numel()};
  }

  /// One batch of these rows, as a step.
  data::StepBatches step_of(const std::vector<int64_t>& rows) const {
    const at::Tensor ids = tensor("input_ids"), mask = tensor("attention_mask"),
                     labels = tensor("labels");
    std::vector<data::Sample> samples;
    std::vector<at::Tensor> pixels;
    for (const int64_t row : rows) {
      data::Sample sample;
      for (int64_t t = 0; t < ids.size(1); ++t) {
        if (mask[row][t].item<int64_t>() == 0) continue;
        sample.ids.push_back(static_cast<int32_t>(ids[row][t].item<int64_t>()));
        sample.labels.push_back(static_cast<int32_t>(labels[row][t].item<int64_t>()));
      }
      add_media(row, sample, pixels);
      samples.push_back(std::move(sample));
    }
    data::StepBatches step;
    step.micro_batches.push_back(data::make_batch(samples));
    data::Batch& batch = step.micro_batches.back();
    if (!pixels.empty()) batch.pixels = std::make_shared<RecordedPixels>(pixels);
    step.num_tokens = static_cast<int64_t>(batch.ids.size());
    step.num_targets = batch.num_targets;
    step.end = step.next = static_cast<int64_t>(rows.size());
    return step;
  }

 private:
  /// The files of a row's pictures, in order.
  std::vector<std::string> files_of(int64_t row, bool is_video) const {
    std::vector<std::string> names;
    const std::vector<int64_t> rows = numbers(is_video ? "video_row" : "image_row");
    for (size_t k = 0; k < rows.size(); ++k) {
      if (rows[k] != row) continue;
      names.push_back(is_video ? "video" + std::to_string(k)
                               : "image" + std::to_string(numbers("image_file")[k]));
    }
    return names;
  }

  void add_media(int64_t row, data::Sample& sample, std::vector<at::Tensor>& pixels) const {
    const std::vector<std::string> pictures = files_of(row, false), videos = files_of(row, true);
    size_t picture = 0, video = 0;
    for (size_t i = 0; i < sample.ids.size();) {
      const bool is_video = sample.ids[i] == config_.vision->video_token;
      if (!is_video && sample.ids[i] != config_.vision->image_token) {
        ++i;
        continue;
      }
      const std::string name = is_video ? videos.at(video++) : pictures.at(picture++);
      const std::vector<int64_t> thw = numbers(name + ".grid_thw");
      data::MediaSpan span;
      span.kind = is_video ? text::MediaKind::kVideo : text::MediaKind::kImage;
      span.grid = {thw[0], thw[1], thw[2]};
      span.begin = static_cast<int64_t>(i);
      span.count = span.grid.visual_tokens(2);
      if (is_video) span.second_per_grid = tensor("second_per_grid_ts")[0].item<double>();
      span.row = name;
      i += static_cast<size_t>(span.count);
      sample.media.push_back(std::move(span));
      pixels.push_back(tensor(name + ".pixel_values"));
    }
  }

  fs::path directory_;
  std::shared_ptr<const weights::TensorSource> source_;
  arch::ModelConfig config_;
};

struct Limits {
  double loss = 1e-4, norm = 1e-3;  ///< those of the goldens' README
};

/// `rows[step]`: of the file.
void expect_steps(const Golden& golden, TrainState& state, const TrainConfig& config,
                  const std::string& curve, const std::vector<std::vector<int64_t>>& rows,
                  const Limits& limits) {
  const at::Tensor losses = golden.tensor(curve + ".losses"),
                   norms = golden.tensor(curve + ".grad_norms");
  ASSERT_EQ(losses.numel(), 10);
  for (int64_t step = 0; step < losses.numel(); ++step) {
    const StepResult result = run_step(state, golden.step_of(rows[static_cast<size_t>(step)]),
                                       config, config.schedule.shape);
    EXPECT_NEAR(result.loss, losses[step].item<double>(), limits.loss) << curve << " " << step;
    EXPECT_NEAR(result.grad_norm, norms[step].item<double>(), limits.norm) << curve << " " << step;
  }
}

const std::vector<std::vector<int64_t>> kAllRows(10, {0, 1, 2, 3});

class VisionGoldenTraining : public testing::TestWithParam<const char*> {
 protected:
  TrainState state_of(const Golden& golden, const TrainConfig& config, bool frozen_tower) const {
    auto model = models::load_model(golden.directory(), parallel::Mesh::single(), at::kFloat,
                                    at::Device(at::kCPU));
    if (frozen_tower) model->freeze({R"(^visual\.)"});
    return test::make_state(std::move(model), config);
  }
};

TEST_P(VisionGoldenTraining, TenStepsOfAllParameters) {
  DANLU_REQUIRES_SHARED();
  const Golden golden(GetParam());
  const TrainConfig config = test::golden_recipe(3e-4);
  TrainState state = state_of(golden, config, false);
  expect_steps(golden, state, config, "train_full", kAllRows, {1e-4, 1e-2});
  const auto final_model = weights::open_safetensors(golden.directory() / "final_full.safetensors");
  for (const auto& parameter : state.model->parameters()) {
    const at::Tensor theirs = models::read_tensor(*final_model, parameter.name());
    EXPECT_LT((parameter.tensor.detach() - theirs).abs().max().item<double>(), 1e-3)
        << parameter.name();
  }
}

TEST_P(VisionGoldenTraining, TenStepsWithTheTowerFrozen) {
  DANLU_REQUIRES_SHARED();
  const Golden golden(GetParam());
  const TrainConfig config = test::golden_recipe(3e-4);
  TrainState state = state_of(golden, config, true);
  expect_steps(golden, state, config, "train_frozen", kAllRows, {});
  const auto first = weights::open_safetensors(golden.directory() / "model.safetensors");
  for (const auto& parameter : state.model->parameters()) {
    if (!parameter.name().starts_with("visual.")) continue;
    EXPECT_TRUE(parameter.tensor.detach().equal(models::read_tensor(*first, parameter.name())))
        << parameter.name();
  }
}

/// A step without a picture gives the tower the gradient zero: its moments decay, and it moves.
TEST_P(VisionGoldenTraining, TenStepsOfWhichSomeHaveNoPicture) {
  DANLU_REQUIRES_SHARED();
  const Golden golden(GetParam());
  const TrainConfig config = test::golden_recipe(3e-4);
  TrainState state = state_of(golden, config, false);
  const Json json = read_json_file(golden.directory() / "train.json");
  expect_steps(golden, state, config, "train_mixed",
               json.at("mixed_schedule").get<std::vector<std::vector<int64_t>>>(), {2e-4, 1e-3});
}

TEST_P(VisionGoldenTraining, TenStepsOfLora) {
  DANLU_REQUIRES_SHARED();
  const Golden golden(GetParam());
  const danlu::test::TemporaryDirectory start;
  fs::copy_file(golden.directory() / "lora/adapter_config.json", start / "adapter_config.json");
  fs::copy_file(golden.directory() / "lora/adapter_init.safetensors",
                start / "adapter_model.safetensors");
  const TrainConfig config = test::golden_recipe(2e-3);
  TrainState state =
      test::make_state(models::load_model(golden.directory(), parallel::Mesh::single(), at::kFloat,
                                          at::Device(at::kCPU), start),
                       config);
  expect_steps(golden, state, config, "train_lora", kAllRows, {});
  const auto last =
      weights::open_safetensors(golden.directory() / "lora/adapter_final.safetensors");
  EXPECT_EQ(state.model->adapter_parameters().size(), last->tensors().size());
  for (const auto& parameter : state.model->adapter_parameters()) {
    const at::Tensor theirs = models::read_tensor(*last, parameter.name());
    EXPECT_LT((parameter.tensor.detach() - theirs).abs().max().item<double>(), 1e-3)
        << parameter.name();
  }
}

INSTANTIATE_TEST_SUITE_P(Models, VisionGoldenTraining, testing::Values("qwen2_vl", "qwen2_5_vl"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace vision_golden
}  // namespace danlu::train
