#include "models/merge.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/engine/engine.h"
#include "cli/engine/new_directory.h"
#include "weights/peft.h"

namespace danlu::cli {
namespace merge_detail {

fs::path base_of(const Options& options, const fs::path& adapters) {
  if (options.has_value("model")) return options.get_string("model");
  const std::string named = weights::load_peft_config(adapters).base_model;
  for (const fs::path& candidate : {fs::path(named), adapters / named}) {
    if (!named.empty() && fs::is_directory(candidate)) return candidate;
  }
  throw UsageError(
      fmt::format(
          "[--model] adapter_config.json names the base model '{}', which is no directory here",
          named),
      {"give --model DIR", "请用 --model 指定基座模型目录"});
}

DType stored_dtype(const Options& options, const fs::path& base) {
  if (options.has_value("dtype")) return dtype_from_name(options.get_string("dtype"));
  for (const weights::TensorInfo& info : weights::open_weights(base)->tensors()) {
    if (is_floating(info.dtype)) return info.dtype;
  }
  return DType::kF32;
}

}  // namespace merge_detail

int run_merge(const Options& options) {
  const fs::path adapters = options.get_string("adapters");
  const fs::path base = merge_detail::base_of(options, adapters);
  fs::path output = options.get_string_or("output", "");
  if (output.empty()) output = fs::absolute(adapters / "").parent_path().string() + "-merged";
  require_new_directory(output, options.get_bool("overwrite"));
  const DType dtype = merge_detail::stored_dtype(options, base);
  const auto model = models::load_model(base, at::kFloat, at::Device(at::kCPU), adapters);
  const models::MergeReport report = models::merge_checked(*model, options.get_float("tolerance"));
  log::info("merged logits equal the adapted model's within {:.3g} (largest logit {:.3g})",
            report.max_abs, report.largest_logit);
  if (dtype != DType::kF32) {
    const models::RoundingReport rounding = models::round_parameters(*model, dtype);
    log::info("stored in {}: logits move by up to {:.3g}; {:.1f} % of likeliest tokens unchanged",
              dtype_name(dtype), rounding.max_abs, 100 * rounding.same_argmax);
  }
  write_directory_atomic(output,
                         [&](const fs::path& directory) { model->save(directory, dtype, base); });
  log::info("wrote {}", output.string());
  return 0;
}

}  // namespace danlu::cli
