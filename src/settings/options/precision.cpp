#include "settings/options/precision.h"

#include <string>

#include "base/error.h"

namespace danlu::settings {
namespace {

Precision precision_named(const std::string& name) {
  if (name == "fp32" || name == "float32" || name == "float") return Precision::kF32;
  if (name == "fp16" || name == "float16" || name == "half") return Precision::kF16;
  return Precision::kBF16;
}

}  // namespace

std::optional<Precision> precision_of(const Options& options) {
  const bool bf16 = options.get_bool_or("bf16", false), fp16 = options.get_bool_or("fp16", false);
  if (bf16 && fp16) throw UsageError(tr("[dtype] --bf16 and --fp16 are both on; choose one"));
  const std::string name = options.get_string_or("dtype", "auto");
  std::optional<Precision> named;
  if (name != "auto" && name != "AUTO") named = precision_named(name);
  if (!bf16 && !fp16) return named;
  const Precision flagged = bf16 ? Precision::kBF16 : Precision::kF16;
  if (named && options.is_given("dtype") && *named != flagged) {
    throw UsageError(tr("[dtype] {} {} disagrees with {} true", options.given_as("dtype"), name,
                        options.given_as(bf16 ? "bf16" : "fp16")));
  }
  return flagged;
}

Precision training_precision(const Options& options) {
  // Other systems' way to ask for no half precision.
  const bool refuses_bf16 = options.is_given("bf16") && !options.get_bool("bf16");
  if (refuses_bf16 && !options.is_given("dtype") && !options.get_bool_or("fp16", false))
    return Precision::kF32;
  return precision_of(options).value_or(Precision::kBF16);
}

}  // namespace danlu::settings
