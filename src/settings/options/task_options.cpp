#include "settings/options/task_options.h"

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"

namespace danlu::settings {

bool takes_texts_apart(const Options& options) {
  const std::string stage = options.get_string_or("stage", "");
  const bool packs = options.get_bool("packing") || options.get_bool_or("neat_packing", false);
  return (stage == "pt" || stage == "pretrain") && options.profile().name == "llamafactory" &&
         options.is_given("packing") && !packs;
}

Task task_from(const std::string& verb, const Options& options) {
  if (verb == "rlhf") return Task::kSft;
  const std::string stage = options.get_string_or("stage", verb == "pretrain" ? "pretrain" : "sft");
  // Their rows are conversations too, with second answers or labels.
  for (const char* of_answers :
       {"sft", "dpo", "simpo", "cpo", "orpo", "kto", "prm", "rm", "orm", "ppo", "trl_ppo"}) {
    if (stage == of_answers) return Task::kSft;
  }
  if (takes_texts_apart(options)) return Task::kSft;
  if (stage == "pretrain" || stage == "pt") return Task::kPretrain;
  throw UsageError(
      tr("[train] {} {}: this version trains pretrain, sft, dpo, simpo, cpo, orpo, kto, rm, orm, "
         "prm, ppo and trl_ppo",
         options.given_as("stage"), stage),
      tr("--rlhf_type grpo of danlu rlhf learns from rewards"));
}

Tuner tuner_from(const std::string& verb, Task task, const Options& options) {
  // MindSpeed-LLM has no word for LoRA: targets ask for it, and here a rank of posttrain, too.
  const bool by_targets = options.is_given("lora_target");
  const bool by_rank = task == Task::kSft && options.is_given("lora_rank");
  const bool by_verb = task == Task::kSft && (verb == "sft" || verb == "rlhf");
  const std::string name =
      options.get_string_or("tuner", by_targets || by_rank || by_verb ? "lora" : "full");
  if (by_rank && !by_targets && !options.has_value("tuner") &&
      options.profile().name == "mindspeed") {
    log::warning(
        "{} trains adapters here; MindSpeed-LLM trains all weights unless --lora-target-modules "
        "names modules: --tuner full does",
        options.given_as("lora_rank"));
  }
  if (name == "full") return Tuner::kFull;
  return name == "freeze" ? Tuner::kFreeze : Tuner::kLora;
}

namespace {

/// The flag that asks for weights in 4 bits; "": none does.
std::string asks_for_nf4(const Options& options) {
  const int64_t bits = options.get_int("quantization_bit");
  if (bits != 0 && bits != 4) {
    throw UsageError(tr("[train] {} {}: base weights are held in 4 bits (NF4) or as they are",
                        options.given_as("quantization_bit"), bits),
                     tr("--quantization_bit 4"));
  }
  if (bits == 4) return "quantization_bit";
  for (const char* flag : {"load_in_4bit", "qlora"})
    if (options.get_bool(flag)) return flag;
  return options.get_string_or("tuner", "") == "qlora" ? "tuner" : "";
}

bool is_stored_in_nf4(const arch::ModelConfig& model) {
  const auto quantisation = model.raw.find("quantization_config");
  return quantisation != model.raw.end() && quantisation->is_object() &&
         json_get<std::string>(*quantisation, "quant_method") == "bitsandbytes";
}

/// NF4 is made of what the files' own codes stand for: both roundings count.
void report_quantised_twice(const std::string& flag, const arch::ModelConfig& model) {
  const auto quantisation = model.raw.find("quantization_config");
  if (quantisation == model.raw.end() || !quantisation->is_object()) return;
  log::info("notice: {}",
            tr("{}: the model's files are quantised already ({}); their numbers are quantised "
               "again, into NF4",
               flag, json_get<std::string>(*quantisation, "quant_method").value_or("?")));
}

}  // namespace

std::optional<Nf4Base> nf4_from(const Options& options, Tuner tuner,
                                const arch::ModelConfig& model) {
  const std::string flag = asks_for_nf4(options);
  const bool is_stored = is_stored_in_nf4(model);
  if (flag.empty() && !is_stored) return std::nullopt;
  if (tuner != Tuner::kLora) {
    throw UsageError(
        tr("[train] {}: weights in 4 bits stay as they are, and --tuner {} trains them",
           flag.empty() ? tr("the model's files hold NF4") : options.given_as(flag),
           tuner_name(tuner)),
        flag.empty() ? tr("--tuner lora trains adapters on them; danlu convert MODEL DIR --to hf "
                          "--dtype bf16 dequantises them")
                     : tr("--tuner lora trains adapters on them"));
  }
  if (!is_stored) report_quantised_twice(options.given_as(flag), model);
  Nf4Base base{options.get_bool("double_quantization"), is_stored};
  if (is_stored)
    base.doubly = json_get<bool>(model.raw["quantization_config"], "bnb_4bit_use_double_quant")
                      .value_or(false);
  return base;
}

}  // namespace danlu::settings
