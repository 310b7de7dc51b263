#include "models/merge.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <optional>

#include "arch/score_head.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/lower_case.h"
#include "base/new_output.h"
#include "base/shell_quote.h"
#include "cli/engine/adapter_head.h"
#include "cli/engine/engine.h"
#include "cli/engine/load_for_inference.h"
#include "cli/engine/model_record.h"
#include "models/adapters.h"
#include "models/weight_files.h"
#include "settings/embedding_files.h"
#include "settings/model_changes.h"
#include "text/gguf_tokenizer.h"
#include "text/template_choice.h"
#include "text/template_record.h"
#include "weights/convert/replaceable.h"
#include "weights/hf/new_head.h"
#include "weights/hf/nf4_tensors.h"
#include "weights/hf/save_model.h"
#include "weights/hf/shard_plan.h"
#include "weights/hf/value_head.h"
#include "weights/lora/lora_source.h"
#include "weights/lora/trained_base.h"
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

uint64_t bytes_to_write(const weights::MergedModel& merged, DType dtype) {
  uint64_t bytes = 0;
  for (const weights::TensorInfo& info :
       weights::saved_tensors(*merged.source, merged.config, dtype))
    bytes += info.size_bytes();
  return bytes;
}

/// The base that `head` is to stand on, in place of the vocabulary's.
weights::CheckpointSource open_base(const Options& options, const fs::path& base,
                                    const fs::path& adapters,
                                    const std::optional<arch::ScoreHead>& head) {
  weights::CheckpointSource opened = open_model(options, base, adapters, head.has_value());
  if (!head) return opened;
  if (!opened.config.score) opened.config = arch::with_score(opened.config, *head);
  if (head->problem) opened.config.score->problem = head->problem;
  if (opened.model) opened.model = weights::with_empty_head(opened.model, opened.config);
  return opened;
}

/// A base model, an adapter of it, and both as one.
struct Merge {
  weights::CheckpointSource base;
  /// The base in NF4, or as its files have it, whichever `base` is not: of adapters that were
  /// trained on one of both.
  std::optional<weights::CheckpointSource> other;
  weights::AdapterSource adapters;
  std::string where;  ///< the adapters, for messages

  /// Weights that the adapter changes come in `changed`, rounded once.
  weights::MergedModel as(DType changed) const {
    return weights::merge_adapters(base.model, adapters.tensors, adapters.peft, base.config,
                                   changed);
  }
};

/// Probes of a model without and with its adapters.
struct Probed {
  at::Tensor base, adapted;
};

Probed probed(const weights::CheckpointSource& base, const Merge& merge) {
  const auto model =
      models::load_model(base, parallel::Mesh::single(), at::kFloat, at::Device(at::kCPU));
  Probed logits{models::probe_logits(*model), {}};
  models::load_adapter(*model, merge.adapters.peft, *merge.adapters.tensors, merge.where);
  logits.adapted = models::probe_logits(*model);
  return logits;
}

/// Tells what the same adapters say on the base with the numbers that the merge does not take.
void say_other_base(const Merge& merge, const at::Tensor& adapted) {
  const models::LogitsReport report =
      models::compare_logits(probed(*merge.other, merge).adapted, adapted);
  if (weights::count_nf4(*merge.base.model) > 0) {
    log::info(
        "on the base as its files have it these adapters give other logits, by up to {:.3g} "
        "({:.1f} % of likeliest tokens are the same)",
        report.max_abs, 100 * report.same_argmax);
  } else {
    log::info(
        "on the base in NF4, where they were trained, these adapters give other logits, by up to "
        "{:.3g} ({:.1f} % of likeliest tokens are the same)",
        report.max_abs, 100 * report.same_argmax);
  }
}

/// Proves that the merged model says what the adapted one does, and tells what rounding to `dtype`
/// costs. One of them is in memory at a time. Errors: ModelError where it does not.
void prove(const Merge& merge, DType dtype, double tolerance) {
  const at::Device cpu(at::kCPU);
  const auto [base, adapted] = probed(merge.base, merge);
  if (merge.other) say_other_base(merge, adapted);
  const auto model =
      models::load_merged(merge.as(DType::kF32), parallel::Mesh::single(), at::kFloat, cpu);
  const models::MergeReport report = models::check_merged(*model, adapted, base, tolerance);
  log::info(
      "merged logits equal the adapted model's within {:.3g} (largest logit {:.3g}; the adapter "
      "moves them by up to {:.3g})",
      report.max_abs, report.largest_logit, report.effect);
  if (dtype == DType::kF32) return;
  const models::LogitsReport rounding = models::round_parameters(*model, dtype);
  log::info("stored in {}: logits move by up to {:.3g}; {:.1f} % of likeliest tokens unchanged",
            dtype_name(dtype), rounding.max_abs, 100 * rounding.same_argmax);
}

/// Adapters that were trained on a base in NF4 belong to its numbers, not to those from which they
/// were made; says so, and what is written instead. recorded: as weights::recorded_nf4.
void prepare_nf4(const Options& options, const std::optional<weights::MadeNf4>& recorded,
                 Merge& merge) {
  const int64_t bits = options.get_int("quantization_bit");
  if (bits != 0 && bits != 4)
    throw UsageError(
        tr("[--quantization_bit] base weights are trained in 4 bits (NF4), got {}", bits));
  const bool was_other = weights::is_other_base(recorded, *merge.base.model),
             is_told = options.is_given("quantization_bit");
  if (bits == 4 || (was_other && !is_told)) {
    weights::MadeNf4 made = recorded.value_or(weights::MadeNf4());
    if (!recorded || options.is_given("double_quantization"))
      made.doubly = options.get_bool("double_quantization");
    if (was_other) merge.other = merge.base;
    merge.base.model = weights::through_nf4(merge.base.model, merge.base.config, made);
  } else if (was_other) {
    merge.other = merge.base;
    merge.other->model = weights::through_nf4(merge.base.model, merge.base.config, *recorded);
    log::info(
        "notice: {}",
        tr("{}: these adapters were trained on their base in NF4, and are added to what its files "
           "have; without --quantization_bit 0 they are added to the numbers of NF4",
           merge.where));
  }
  if (was_other && !is_told) {
    log::info(
        "notice: {}",
        tr("{}: these adapters were trained on their base in NF4, to whose numbers they are added; "
           "--quantization_bit 0 adds them to what its files have",
           merge.where));
  }
  const int64_t count = weights::count_nf4(*merge.base.model);
  if (count == 0) return;
  log::info(
      "the base holds {} matrices in NF4: they are dequantised, and what the adapters change is "
      "added to that; quantised again, the result would be another model",
      count);
}

/// The one that was named, else the adapter's where it brings tokens, else the base's, else a GGUF
/// file's own, else the adapter's.
void carry_tokenizer(const Options& options, const weights::CheckpointSource& base,
                     const fs::path& adapters, const fs::path& directory) {
  // Files that are there already are kept.
  const fs::path named = options.get_string_or("tokenizer", "");
  if (text::is_gguf(named)) {
    text::write_gguf_tokenizer(named, directory);
  } else if (!named.empty()) {
    weights::carry_over_files(text::directory_of_model(named), directory);
  }
  if (base.companions.empty()) {
    if (text::is_gguf(base.path) && text::write_gguf_tokenizer(base.path, directory)) return;
    return weights::carry_over_files(adapters, directory);
  }
  if (settings::tokenizer_beside(base.companions, adapters) == adapters)
    weights::carry_over_files(adapters, directory);
  weights::carry_over_files(base.companions, directory);
  if (!settings::has_tokenizer_files(directory)) weights::carry_over_files(adapters, directory);
}

/// A head that lies beside adapters stays in a file of its own.
void carry_value_head(const fs::path& adapters, const fs::path& directory) {
  const fs::path file = weights::value_head_file(adapters);
  if (file.empty()) return;
  const bool is_safe = file.extension() == ".safetensors";
  write_file_atomic(directory / (is_safe ? "value_head.safetensors" : "value_head.bin"),
                    read_file(file));
}

bool gives_vectors(const fs::path& adapters) {
  return settings::is_embedding_record(text::read_record(adapters));
}

bool ranks_documents(const fs::path& adapters) {
  return lower_case(text::recorded_text(text::read_record(adapters), "task_type"))
      .ends_with("reranker");
}

/// What sentence-transformers opens a model by that embeds texts as they stand.
void write_files_of_vectors(const fs::path& adapters, const Merge& merge,
                            const fs::path& directory) {
  if (gives_vectors(adapters) && !settings::embedded_by_template(adapters).value_or(true))
    settings::write_sentence_files(directory, merge.base.config, merge.base.companions);
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
  Merge merge{open_base(options, base, adapters, head), {}, {}, adapters.string()};
  if (!merge.base.model) throw ModelError(tr("{}: adapters alone, no model", base.string()));
  prepare_nf4(options, weights::recorded_nf4(adapters), merge);
  merge.adapters = weights::open_adapter_source(adapters, merge.base.config,
                                                {.lora_alpha = lora_alpha_from(options)});
  const DType dtype = stored_dtype(options, *merge.base.model);
  const uint64_t max_shard_bytes = weights::shard_bytes_of(options.get_string("max_shard_size"));
  const weights::MergedModel merged = merge.as(dtype);
  require_free_space(fs::absolute(output), bytes_to_write(merged, dtype), "the merged model");
  warn_if_merged_already(base, adapters);

  prove(merge, dtype, options.get_float("tolerance"));
  made.publish([&](const fs::path& directory) {
    // First: a template of its own is not to be replaced by the base's.
    write_merged_record(directory, base, adapters);
    weights::save_model(*merged.source, merged.config, dtype, directory, max_shard_bytes);
    carry_tokenizer(options, merge.base, adapters, directory);
    carry_value_head(adapters, directory);
    write_files_of_vectors(adapters, merge, directory);
  });
  log::info("wrote {}", output.string());
  if (ranks_documents(adapters)) {
    log::info("next: danlu serve --model {}", shell_quoted(output.string()));
  } else if ((head && head->problem) || gives_vectors(adapters)) {
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
