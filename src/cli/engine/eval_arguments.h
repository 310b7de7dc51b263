// cli/engine/eval_arguments.h: what lm-eval's `key=value,key=value` flags say.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/options.h"
#include "eval/item.h"

namespace danlu::cli {

/// Elements "a=1" or JSON objects as names and texts, in order.
/// Errors: UsageError naming `flag` for an element without '=', or JSON that is not valid.
std::vector<std::pair<std::string, std::string>> key_values(
    const std::vector<std::string>& elements, const std::string& flag);

/// What --model_args says that no option does.
struct ModelArguments {
  std::optional<int64_t> max_length, prefix_token_id;
  std::optional<bool> add_bos_token;
};

/// `options` with what --model hf --model_args pretrained=DIR,… means by Danlu's own options.
/// Errors: UsageError for an unknown key (with the nearest one), for what is not in this version,
/// for two models.
Options with_model_args(const Options& options, ModelArguments* rest);

/// `options` with the template that --apply_chat_template names as --prompt_type.
/// Errors: UsageError for two templates, or a directory in its place.
Options with_named_template(const Options& options);

/// How --gen_kwargs and --max_new_tokens change a benchmark's own rules.
class GenerationOverrides {
 public:
  /// Errors: UsageError as key_values, and for a key or value that is none.
  explicit GenerationOverrides(const Options& options);
  void apply(eval::GenerationRules& rules) const;
  bool empty() const { return values_.empty(); }

 private:
  std::vector<std::pair<std::string, std::string>> values_;
};

}  // namespace danlu::cli
