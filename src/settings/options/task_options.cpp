#include "settings/options/task_options.h"

#include "base/error.h"

namespace danlu::settings {

Task task_from(const std::string& verb, const Options& options) {
  const std::string stage = options.get_string_or("stage", verb == "pretrain" ? "pretrain" : "sft");
  if (stage == "sft") return Task::kSft;
  if (stage == "pretrain" || stage == "pt") return Task::kPretrain;
  throw UsageError(
      tr("[train] {} {}: this version trains pretrain and sft", options.given_as("stage"), stage),
      tr("dpo, simpo, orm, prm and the others are not built in"));
}

Tuner tuner_from(const std::string& verb, Task task, const Options& options) {
  // MindSpeed-LLM's posttrain has no word for LoRA: targets ask for it there, and a rank does here.
  const bool lora =
      verb == "sft" || options.is_given("lora_rank") || options.is_given("lora_target");
  const std::string fallback = task == Task::kSft && lora ? "lora" : "full";
  const std::string name = options.get_string_or("tuner", fallback);
  if (name == "qlora" || options.get_int("quantization_bit") != 0) {
    const char* flag = name == "qlora" ? "tuner" : "quantization_bit";
    throw UsageError(
        tr("[train] {} {}: quantised base weights are not in this version", options.given_as(flag),
           name == "qlora" ? name : std::to_string(options.get_int(flag))),
        tr("use --tuner lora"));
  }
  return name == "full" ? Tuner::kFull : name == "lora" ? Tuner::kLora : Tuner::kFreeze;
}

}  // namespace danlu::settings
