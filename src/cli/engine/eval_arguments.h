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

/// "a=1,b=x" or a JSON object as names and texts, in order. A comma inside brackets does not
/// separate. Errors: UsageError naming `flag` for a part without '='.
std::vector<std::pair<std::string, std::string>> key_values(const std::string& text,
                                                            const std::string& flag);

/// What --model_args says that no option does.
struct ModelArguments {
  std::optional<int64_t> max_length, prefix_token_id;
  std::optional<bool> add_bos_token;
};

/// `options` with what --model hf --model_args pretrained=DIR,… means by Danlu's own options.
/// Errors: UsageError for an unknown key (with the nearest one), for what is not in this version,
/// for two models.
Options with_model_args(const Options& options, ModelArguments* rest);

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
