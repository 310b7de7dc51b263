// `danlu convert` of adapters: found in the checkpoint or named, checked against the flags, merged.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/commands/convert_plan.h"
#include "weights/hf/nf4_tensors.h"
#include "weights/lora/adapter_places.h"
#include "weights/lora/lora_source.h"
#include "weights/lora/trained_base.h"

namespace danlu::cli {
namespace {

/// --lora-r and --lora-alpha against adapter_config.json.
void check_peft_flags(const ConvertRequest& request, const weights::PeftConfig& peft) {
  const auto& given = request.source_options;
  if (given.lora_rank && *given.lora_rank != peft.rank) {
    throw UsageError(
        tr("[--lora-r] {} was given, adapter_config.json says {}", *given.lora_rank, peft.rank));
  }
  if (given.lora_alpha && *given.lora_alpha != peft.alpha) {
    throw UsageError(tr("[--lora-alpha] {:g} was given, adapter_config.json says {:g}",
                        *given.lora_alpha, peft.alpha));
  }
}

/// --lora-target-modules names Megatron's modules or Hugging Face's: each must carry adapters, and
/// no other may. Errors: UsageError with both lists.
void check_targets(const Options& options, const weights::PeftConfig& peft,
                   const arch::ModelConfig& config) {
  if (!options.is_set("lora_target_modules")) return;
  static const std::map<std::string, std::vector<std::string>> parts = {
      {"linear_qkv", {"q_proj", "k_proj", "v_proj", "W_pack", "wqkv"}},
      {"query_key_value", {"q_proj", "k_proj", "v_proj", "W_pack", "wqkv"}},
      {"linear_proj", {"o_proj", "wo"}},
      {"dense", {"o_proj", "wo"}},
      {"linear_fc1", {"gate_proj", "up_proj", "w1", "w3"}},
      {"dense_h_to_4h", {"gate_proj", "up_proj", "w1", "w3"}},
      {"linear_fc2", {"down_proj", "w2"}},
      {"dense_4h_to_h", {"down_proj", "w2"}}};
  std::set<std::string> found;
  for (const std::string& module : weights::chosen_modules(peft, config))
    found.insert(arch::last_name(module));
  std::set<std::string> left = found;
  bool complete = true;
  for (const std::string& name : options.get_list("lora_target_modules")) {
    const auto at = parts.find(name);
    const auto& ours = at == parts.end() ? std::vector<std::string>{name} : at->second;
    const bool any = std::any_of(ours.begin(), ours.end(),
                                 [&](const std::string& part) { return found.count(part); });
    complete &= any;
    for (const std::string& part : ours) left.erase(part);
  }
  if (complete && left.empty()) return;
  throw UsageError(
      tr("[--lora-target-modules] {} was given, the adapters sit on {}",
         fmt::join(options.get_list("lora_target_modules"), ", "), fmt::join(found, ", ")),
      tr("leave the flag out: the files say it"));
}

/// What is stored is rounded to once, so merging must not round to the base's type before. The
/// writer of GGUF files rounds itself.
std::optional<DType> dtype_of_changed(const ConvertRequest& request) {
  return request.to == ConvertTo::kGguf ? DType::kF32 : request.dtype;
}

/// What is written is no 4-bit model any more, and quantised again it is another one.
void say_what_is_dequantised(const weights::TensorSource& base) {
  const int64_t count = weights::count_nf4(base);
  if (count == 0) return;
  log::info(
      "the base holds {} matrices in NF4: they are dequantised, and what the adapters change is "
      "added to that; quantised again, the result would be another model",
      count);
}

void take_merged(weights::MergedModel merged, ConvertPlan& plan) {
  plan.config_changed |= merged.config.tie_embeddings != plan.config.tie_embeddings;
  plan.model = std::move(merged.source);
  plan.config = std::move(merged.config);
}

}  // namespace

void merge_named_adapters(const Options& options, const ConvertRequest& request,
                          ConvertPlan& plan) {
  say_what_is_dequantised(*plan.model);
  if (weights::is_other_base(weights::recorded_nf4(request.adapters), *plan.model)) {
    log::info(
        "notice: {}",
        tr("{}: these adapters were trained on their base in NF4, and are added to what its files "
           "have; danlu merge adds them to the numbers of NF4",
           request.adapters.string()));
  }
  const weights::AdapterSource opened =
      weights::open_adapter_source(request.adapters, plan.config, request.source_options);
  const weights::PeftConfig& peft = opened.peft;
  if (opened.format == weights::Format::kPeft) check_peft_flags(request, peft);
  check_targets(options, peft, plan.config);
  take_merged(weights::merge_adapters(plan.model, opened.tensors, peft, plan.config,
                                      dtype_of_changed(request)),
              plan);
  for (const fs::path& file : opened.tensors->files()) plan.source.files.push_back(file);
  if (fs::exists(request.adapters / "adapter_config.json"))
    plan.source.files.push_back(request.adapters / "adapter_config.json");
  log::info("merging the adapters of {}: rank {}, alpha {:g}", request.adapters.string(), peft.rank,
            peft.alpha);
}

void merge_own_adapters(const Options& options, const ConvertRequest& request, ConvertPlan& plan) {
  say_what_is_dequantised(*plan.model);
  const auto& peft = *plan.source.peft;
  check_targets(options, peft, plan.config);
  take_merged(weights::merge_adapters(plan.model, plan.source.adapters, peft, plan.config,
                                      dtype_of_changed(request)),
              plan);
  log::info("merging the checkpoint's own adapters: rank {}, alpha {:g}", peft.rank, peft.alpha);
}

}  // namespace danlu::cli
