#include "models/merge.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <optional>

#include "arch/score_head.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/new_output.h"
#include "base/shell_quote.h"
#include "cli/engine/adapter_head.h"
#include "cli/engine/engine.h"
#include "cli/engine/load_for_inference.h"
#include "cli/engine/model_record.h"
#include "models/adapters.h"
#include "models/weight_files.h"
#include "text/gguf_tokenizer.h"
#include "text/template_choice.h"
#include "weights/convert/replaceable.h"
#include "weights/hf/new_head.h"
#include "weights/hf/nf4_tensors.h"
#include "weights/hf/save_model.h"
#include "weights/hf/shard_plan.h"
#include "weights/hf/value_head.h"
#include "weights/lora/lora_source.h"
#include "weights/megatron/model_layout.h"

namespace danlu::cli {
namespace {

fs::path merged_directory(const Options& options, const fs::path& adapters) {
  const std::string named = options.get_string_or("output", "");
  if (!named.empty()) return named;
  return fs::absolute(adapters / "").parent_path().string() + "-merged";
}

DType stored_dtype(const Options& options, const weights::TensorSource& base) {
  if (options.has_value("dtype")) return dtype_from_name(options.get_string("dtype"));
  for (const weights::TensorInfo& info : base.tensors()) {
    if (is_floating(info.dtype)) return info.dtype;
  }
  return DType::kF32;
}

uint64_t bytes_to_write(const arch::ModelConfig& config, DType dtype) {
  uint64_t bytes = 0;
  for (const weights::TensorInfo& info : weights::megatron::global_tensors(config, dtype))
    bytes += info.size_bytes();
  return bytes;
}

/// The base that `head` is to stand on, in place of the vocabulary's.
weights::CheckpointSource open_base(const Options& options, const fs::path& base,
                                    const std::optional<arch::ScoreHead>& head) {
  weights::CheckpointSource opened = open_model(options, base, head.has_value());
  if (!head) return opened;
  if (!opened.config.score) opened.config = arch::with_score(opened.config, *head);
  if (head->problem) opened.config.score->problem = head->problem;
  if (opened.model) opened.model = weights::with_empty_head(opened.model, opened.config);
  return opened;
}

/// A base model, an adapter of it, and both as one.
struct Merge {
  weights::CheckpointSource base;
  weights::AdapterSource adapters;
  std::string where;  ///< the adapters, for messages

  /// Weights that the adapter changes come in `changed`, rounded once.
  weights::MergedModel as(DType changed) const {
    return weights::merge_adapters(base.model, adapters.tensors, adapters.peft, base.config,
                                   changed);
  }
};

/// Proves that the merged model says what the adapted one does, and tells what rounding to `dtype`
/// costs. One of them is in memory at a time. Errors: ModelError where it does not.
void prove(const Merge& merge, DType dtype, double tolerance) {
  const at::Device cpu(at::kCPU);
  at::Tensor base, adapted;
  {
    const auto model = models::load_model(merge.base, parallel::Mesh::single(), at::kFloat, cpu);
    base = models::probe_logits(*model);
    models::load_adapter(*model, merge.adapters.peft, *merge.adapters.tensors, merge.where);
    adapted = models::probe_logits(*model);
  }
  const auto model =
      models::load_merged(merge.as(DType::kF32), parallel::Mesh::single(), at::kFloat, cpu);
  const models::MergeReport report = models::check_merged(*model, adapted, base, tolerance);
  log::info(
      "merged logits equal the adapted model's within {:.3g} (largest logit {:.3g}; the adapter "
      "moves them by up to {:.3g})",
      report.max_abs, report.largest_logit, report.effect);
  if (dtype == DType::kF32) return;
  const models::RoundingReport rounding = models::round_parameters(*model, dtype);
  log::info("stored in {}: logits move by up to {:.3g}; {:.1f} % of likeliest tokens unchanged",
            dtype_name(dtype), rounding.max_abs, 100 * rounding.same_argmax);
}

/// Adapters that were trained on a base in NF4 belong to its numbers, not to those from which they
/// were made; says so, and what is written instead.
void prepare_nf4(const Options& options, weights::CheckpointSource& base) {
  const int64_t bits = options.get_int("quantization_bit"),
                stored = weights::count_nf4(*base.model);
  if (bits != 0 && bits != 4)
    throw UsageError(
        tr("[--quantization_bit] base weights are trained in 4 bits (NF4), got {}", bits));
  const std::vector<std::string> names = weights::names_in_nf4(base.config);
  if (bits == 4 && stored == 0) {
    const DType dtype = base.model->find(names.front())->dtype;
    base.model = weights::with_nf4(weights::as_nf4(
        base.model, names, {kNf4Block, options.get_bool("double_quantization"), dtype}));
  }
  const int64_t count = weights::count_nf4(*base.model);
  if (count == 0) return;
  log::info(
      "the base holds {} matrices in NF4: they are dequantised, and what the adapters change is "
      "added to that; quantised again, the result would be another model",
      count);
}

/// Where the base has no tokenizer: the one that was named, else a GGUF file's own, else the
/// adapter's.
void carry_tokenizer(const Options& options, const weights::CheckpointSource& base,
                     const fs::path& adapters, const fs::path& directory) {
  if (!base.companions.empty()) return weights::carry_over_files(base.companions, directory);
  const fs::path named = options.get_string_or("tokenizer", "");
  const fs::path& file = named.empty() ? base.path : named;
  if (text::is_gguf(file) && text::write_gguf_tokenizer(file, directory)) return;
  weights::carry_over_files(named.empty() ? adapters : text::directory_of_model(named), directory);
}

/// LLaMA-Factory's head stays in the file that it is in.
void carry_value_head(const fs::path& adapters, const fs::path& directory) {
  for (const char* name : {"value_head.safetensors", "value_head.bin"}) {
    if (fs::exists(adapters / name))
      write_file_atomic(directory / name, read_file(adapters / name));
  }
}

}  // namespace

int run_merge(const Options& options) {
  const fs::path adapters = options.get_string("adapters");
  // The cheap questions first: loading takes minutes for a large model.
  const bool is_megatron = !fs::exists(adapters / "adapter_config.json") &&
                           weights::detect_format(adapters) == weights::Format::kMegatron;
  if (!is_megatron) weights::load_peft_config(adapters);
  if (is_megatron && !options.has_value("model")) {
    throw UsageError(tr("[--model] a MindSpeed LoRA does not name its base model"),
                     tr("give it with --model"));
  }
  const fs::path base = options.has_value("model")
                            ? model_path(options.get_string("model"), "--model")
                            : base_of_adapter(adapters);
  if (options.has_value("model")) weights::report_other_base(adapters, base);
  const fs::path output = merged_directory(options, adapters);
  const NewDirectory made(output, options.get_bool("overwrite"), {base, adapters},
                          [](const fs::path& old) {
                            weights::require_replaceable(old,
                                                         /*is_file=*/false);
                          });
  const auto head = is_megatron ? std::nullopt : head_in(adapters);
  Merge merge{open_base(options, base, head), {}, adapters.string()};
  if (!merge.base.model) throw ModelError(tr("{}: adapters alone, no model", base.string()));
  prepare_nf4(options, merge.base);
  merge.adapters = weights::open_adapter_source(adapters, merge.base.config,
                                                {.lora_alpha = lora_alpha_from(options)});
  const DType dtype = stored_dtype(options, *merge.base.model);
  const uint64_t max_shard_bytes = weights::shard_bytes_of(options.get_string("max_shard_size"));
  const weights::MergedModel merged = merge.as(dtype);
  require_free_space(fs::absolute(output), bytes_to_write(merged.config, dtype),
                     "the merged model");
  warn_if_merged_already(base, adapters);

  prove(merge, dtype, options.get_float("tolerance"));
  made.publish([&](const fs::path& directory) {
    // First: a template of its own is not to be replaced by the base's.
    write_merged_record(directory, base, adapters);
    weights::save_model(*merged.source, merged.config, dtype, directory, max_shard_bytes);
    carry_tokenizer(options, merge.base, adapters, directory);
    carry_value_head(adapters, directory);
  });
  log::info("wrote {}", output.string());
  if (head && head->problem) {
    log::info("next: danlu infer --model {} --dataset … --output …", shell_quoted(output.string()));
  } else if (head && head->form == arch::ScoreForm::kTokens) {
    log::info("next: danlu inspect {}", shell_quoted(output.string()));
  } else if (head || weights::has_value_head(adapters)) {
    log::info(
        "next: danlu rlhf --rlhf_type grpo --model … --dataset … "
        "--reward_model {}",
        shell_quoted(output.string()));
  } else {
    log::info("next: danlu chat --model {}", shell_quoted(output.string()));
  }
  return 0;
}

}  // namespace danlu::cli
