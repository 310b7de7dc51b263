#include "train/report/picture_labels.h"

#include <utility>

namespace danlu::train {
namespace {

constexpr std::pair<std::string_view, MetricLook> kLooks[] = {
    {"loss", {{"training loss"}, "", 1, true}},
    {"token_acc", {{"training token accuracy"}, "", 1, true}},
    {"grad_norm", {{"gradient norm"}, "", 1, true}},
    {"learning_rate", {{"learning rate"}}},
    {"memory(GiB)", {{"peak memory"}, "GiB"}},
    {"train_speed(s/it)", {{"time per step"}, "s"}},
    {"train_speed(iter/s)", {{"steps per second"}}},
    {"tokens_per_second", {{"tokens per second"}}},
    {"visual_tokens_per_second", {{"visual tokens per second"}}},
    {"text_tokens_per_second", {{"text tokens per second"}}},
    {"samples_per_second", {{"samples per second"}}},
    {"mfu", {{"model FLOPs utilisation"}, "%", 100}},
    {"data_wait", {{"time waiting for data"}, "%", 100}},
    {"loss_scale", {{"loss scale"}}},
    {"skipped_steps", {{"skipped steps"}}},
    {"eval_loss", {{"evaluation loss"}}},
    {"eval_token_acc", {{"evaluation token accuracy"}}},
    {"eval_runtime", {{"time per evaluation"}, "s"}},
    {"eval_samples_per_second", {{"evaluation samples per second"}}},
    {"eval_steps_per_second", {{"evaluation steps per second"}}},
};

}  // namespace

MetricLook metric_look(std::string_view key) {
  for (const auto& [known, look] : kLooks) {
    if (known == key) return look;
  }
  return {.name = {key}};
}

std::string chinese_labels() {
  std::string all;
  for (const PictureLabel& label :
       {kStepLabel, kEachRecordLabel, kMeanLabel, kEvaluationLabel, kNothingLabel})
    all += label.in(/*use_chinese=*/true);
  for (const auto& [key, look] : kLooks) all += look.name.in(/*use_chinese=*/true);
  return all;
}

}  // namespace danlu::train
