#include "models/merge.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/new_output.h"
#include "base/shell_quote.h"
#include "cli/engine/engine.h"
#include "cli/engine/load_for_inference.h"
#include "cli/engine/model_record.h"
#include "text/template_choice.h"
#include "weights/lora/peft.h"

namespace danlu::cli {
namespace merge_detail {

fs::path output_of(const Options& options, const fs::path& adapters) {
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

uint64_t bytes_to_write(const weights::TensorSource& base, DType dtype) {
  uint64_t bytes = 0;
  for (const weights::TensorInfo& info : base.tensors())
    bytes += static_cast<uint64_t>(info.num_elements()) * dtype_size_bytes(dtype);
  return bytes;
}

}  // namespace merge_detail

int run_merge(const Options& options) {
  using namespace merge_detail;
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
  const fs::path output = output_of(options, adapters);
  const NewDirectory made(output, options.get_bool("overwrite"), {base, adapters});
  const weights::CheckpointSource source = open_model(options, base);
  if (!source.model) throw ModelError(tr("{}: adapters alone, no model", base.string()));
  const DType dtype = stored_dtype(options, *source.model);
  require_free_space(fs::absolute(output), bytes_to_write(*source.model, dtype),
                     "the merged model");
  warn_if_merged_already(base, adapters);

  const auto model =
      models::load_model(source, parallel::Mesh::single(), at::kFloat, at::Device(at::kCPU));
  model->load_adapter(adapters, lora_alpha_from(options));
  const models::MergeReport report = models::merge_checked(*model, options.get_float("tolerance"));
  log::info("merged logits equal the adapted model's within {:.3g} (largest logit {:.3g})",
            report.max_abs, report.largest_logit);
  if (dtype != DType::kF32) {
    const models::RoundingReport rounding = models::round_parameters(*model, dtype);
    log::info("stored in {}: logits move by up to {:.3g}; {:.1f} % of likeliest tokens unchanged",
              dtype_name(dtype), rounding.max_abs, 100 * rounding.same_argmax);
  }
  made.publish([&](const fs::path& directory) {
    // First: a template of its own is not to be replaced by the base's.
    write_merged_record(directory, base, adapters);
    model->save(directory, dtype, source.companions);
    // Where the base has no tokenizer: the one that was named, else the adapter's.
    if (source.companions.empty()) {
      weights::carry_over_files(options.has_value("tokenizer")
                                    ? text::directory_of_model(options.get_string("tokenizer"))
                                    : adapters,
                                directory);
    }
  });
  log::info("wrote {}", output.string());
  log::info("next: danlu chat --model {}", shell_quoted(output.string()));
  return 0;
}

}  // namespace danlu::cli
