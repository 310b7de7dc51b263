#include "train/report/picture_labels.h"

#include <utility>

namespace danlu::train {
namespace picture_labels_detail {

constexpr std::pair<std::string_view, MetricLook> kLooks[] = {
    {"loss", {{"training loss", "训练损失"}, "", 1, true}},
    {"token_acc", {{"training token accuracy", "训练词元准确率"}, "", 1, true}},
    {"grad_norm", {{"gradient norm", "梯度范数"}, "", 1, true}},
    {"learning_rate", {{"learning rate", "学习率"}}},
    {"memory(GiB)", {{"peak memory", "峰值内存"}, "GiB"}},
    {"train_speed(s/it)", {{"time per step", "每步用时"}, "s"}},
    {"train_speed(iter/s)", {{"steps per second", "每秒步数"}}},
    {"tokens_per_second", {{"tokens per second", "每秒词元数"}}},
    {"samples_per_second", {{"samples per second", "每秒样本数"}}},
    {"mfu", {{"model FLOPs utilisation", "模型算力利用率"}, "%", 100}},
    {"data_wait", {{"time waiting for data", "等待数据的时间"}, "%", 100}},
    {"loss_scale", {{"loss scale", "损失缩放系数"}}},
    {"skipped_steps", {{"skipped steps", "跳过的步数"}}},
    {"eval_loss", {{"evaluation loss", "验证损失"}}},
    {"eval_token_acc", {{"evaluation token accuracy", "验证词元准确率"}}},
    {"eval_runtime", {{"time per evaluation", "每次验证用时"}, "s"}},
    {"eval_samples_per_second", {{"evaluation samples per second", "验证每秒样本数"}}},
    {"eval_steps_per_second", {{"evaluation steps per second", "验证每秒步数"}}},
};

}  // namespace picture_labels_detail

MetricLook metric_look(std::string_view key) {
  for (const auto& [known, look] : picture_labels_detail::kLooks) {
    if (known == key) return look;
  }
  return {.name = {key, key}};
}

std::string chinese_labels() {
  std::string all;
  for (const PictureLabel& label :
       {kStepLabel, kEachRecordLabel, kMeanLabel, kEvaluationLabel, kNothingLabel})
    all += label.chinese;
  for (const auto& [key, look] : picture_labels_detail::kLooks) all += look.name.chinese;
  return all;
}

}  // namespace danlu::train
