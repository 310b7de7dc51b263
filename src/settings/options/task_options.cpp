#include "settings/options/task_options.h"

#include "base/error.h"

namespace danlu::settings {

Task task_from(const std::string& verb, const Options& options) {
  if (verb == "rlhf") return Task::kSft;
  const std::string stage = options.get_string_or("stage", verb == "pretrain" ? "pretrain" : "sft");
  // Their rows are conversations too, with second answers or labels.
  for (const char* of_answers : {"sft", "dpo", "simpo", "cpo", "orpo", "kto", "prm"}) {
    if (stage == of_answers) return Task::kSft;
  }
  if (stage == "pretrain" || stage == "pt") return Task::kPretrain;
  throw UsageError(
      tr("[train] {} {}: this version trains pretrain, sft, dpo, simpo, cpo, orpo, kto and prm",
         options.given_as("stage"), stage),
      tr("reward models and reinforcement learning are not built in"));
}

Tuner tuner_from(const std::string& verb, Task task, const Options& options) {
  // MindSpeed-LLM's posttrain has no word for LoRA: targets ask for it there, and a rank does here.
  const bool lora = verb == "sft" || verb == "rlhf" || options.is_given("lora_rank") ||
                    options.is_given("lora_target");
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
