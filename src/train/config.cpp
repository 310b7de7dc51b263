#include "train/config.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"

namespace danlu::train {
namespace config_detail {

[[noreturn]] void refuse(const std::string& flag, const std::string& got, const std::string& rule,
                         Hint hint = {}) {
  throw UsageError(fmt::format("[train] --{} {}: {}", flag, got, rule), std::move(hint));
}

void at_least(const char* flag, int64_t got, int64_t least) {
  if (got < least) refuse(flag, std::to_string(got), fmt::format("must be at least {}", least));
}

void check_batch(const BatchConfig& batch) {
  at_least("batch_size", batch.micro_batch_size, 1);
  if (batch.accumulation < 0)
    refuse("accum", std::to_string(batch.accumulation), "must be at least 1");
  if (batch.eval_batch_size < 0)
    refuse("eval_batch_size", std::to_string(batch.eval_batch_size), "must be at least 1");
  if (batch.global_batch_size > 0) {
    if (batch.global_batch_size % batch.micro_batch_size != 0) {
      refuse("global_batch_size", std::to_string(batch.global_batch_size),
             fmt::format("must be a multiple of --batch_size {}", batch.micro_batch_size));
    }
    const int64_t steps = batch.global_batch_size / batch.micro_batch_size;
    if (batch.accumulation > 0 && batch.accumulation != steps) {
      refuse("global_batch_size", std::to_string(batch.global_batch_size),
             fmt::format("differs from --batch_size {} × --accum {} = {}", batch.micro_batch_size,
                         batch.accumulation, batch.micro_batch_size * batch.accumulation));
    }
  }
  if (batch.max_steps <= 0 && batch.train_samples <= 0 &&
      !(batch.epochs > 0 && std::isfinite(batch.epochs))) {
    refuse("epochs", fmt::format("{}", batch.epochs), "must be positive (or give --max_steps)");
  }
}

void check_lora(const models::LoraConfig& lora) {
  at_least("lora_rank", lora.rank, 1);
  if (!(lora.alpha > 0)) refuse("lora_alpha", fmt::format("{}", lora.alpha), "must be positive");
  if (!(lora.dropout >= 0 && lora.dropout < 1))
    refuse("lora_dropout", fmt::format("{}", lora.dropout), "must be in [0, 1)");
  if (lora.targets.empty()) refuse("lora_target", "(empty)", "names no module");
}

}  // namespace config_detail

std::string stage_name(Stage stage) { return stage == Stage::kPretrain ? "pretrain" : "sft"; }

std::string tuner_name(Tuner tuner) {
  return tuner == Tuner::kFull ? "full" : tuner == Tuner::kLora ? "lora" : "freeze";
}

std::string precision_name(Precision precision) {
  return precision == Precision::kF32 ? "fp32" : precision == Precision::kBF16 ? "bf16" : "fp16";
}

void TrainConfig::validate() const {
  using namespace config_detail;
  if (data.train.empty()) {
    refuse("dataset", "(none)", "no training data was named",
           {"name files, directories or .bin/.idx prefixes: --dataset data.jsonl",
            "请用 --dataset 指定训练数据"});
  }
  at_least("max_length", data.max_length, 2);
  if (!(data.validation_ratio >= 0 && data.validation_ratio < 1)) {
    refuse("val_ratio", fmt::format("{}", data.validation_ratio), "must be in [0, 1)");
  }
  check_batch(batch);
  if (tuner == Tuner::kLora) check_lora(lora);
  if (tuner == Tuner::kFreeze && freeze.empty()) {
    refuse("tuner", "freeze", "needs --freeze PATTERN…: which parameters stay as they are");
  }
  if (tuner != Tuner::kLora && !model.adapter.empty()) {
    refuse("adapters", model.adapter.string(),
           fmt::format("--tuner {} trains the base weights; merge the adapter first",
                       tuner_name(tuner)),
           {"danlu merge --model BASE --adapters " + model.adapter.string() + " --output DIR", ""});
  }
  if (model.from_scratch && tuner == Tuner::kLora)
    refuse("from_scratch", "true", "random weights need --tuner full");
  if (!(schedule.warmup_ratio >= 0 && schedule.warmup_ratio <= 1)) {
    refuse("warmup_ratio", fmt::format("{}", schedule.warmup_ratio), "must be in [0, 1]");
  }
  if (!(max_grad_norm >= 0))
    refuse("max_grad_norm", fmt::format("{}", max_grad_norm), "must be 0 (off) or positive");
  at_least("max_bad_steps", max_bad_steps, 1);
  at_least("save_steps", output.save_steps, 1);
  at_least("logging_steps", output.logging_steps, 1);
  adamw.validate();
  loss_scale.validate();
}

Json TrainConfig::identity() const {
  Json lora_json = nullptr;
  if (tuner == Tuner::kLora) {
    lora_json = {{"rank", lora.rank},     {"alpha", lora.alpha}, {"dropout", lora.dropout},
                 {"rslora", lora.rslora}, {"dora", lora.dora},   {"targets", lora.targets}};
  }
  return {{"stage", stage_name(stage)},
          {"tuner", tuner_name(tuner)},
          {"precision", precision_name(precision)},
          {"seed", seed},
          {"lora", lora_json},
          {"freeze", freeze},
          {"max_length", data.max_length},
          {"packing", data.packing},
          {"pack_sequences", data.pack_sequences},
          {"shuffle", data.shuffle},
          {"data_seed", data.seed},
          {"batch_size", batch.micro_batch_size},
          {"lr", schedule.shape.lr},
          {"min_lr", schedule.shape.min_lr},
          {"lr_scheduler", optim::schedule_name(schedule.shape.kind)},
          {"adam_beta1", adamw.beta1},
          {"adam_beta2", adamw.beta2},
          {"adam_epsilon", adamw.eps},
          {"weight_decay", adamw.groups.weight_decay},
          {"max_grad_norm", max_grad_norm}};
}

}  // namespace danlu::train
