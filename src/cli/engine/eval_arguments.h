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
  /// What ends a model's thoughts, as text or as the id of a token: what stands before is no
  /// answer.
  std::string think_end = {};
  std::optional<int64_t> think_end_id = {};
};

/// The one number of --seed, or lm-eval's three or four, always four: of random, numpy, torch and
/// the examples. "None" is the default at its place. Errors: UsageError.
std::vector<int64_t> seeds_of(const Options& options);

/// `options` with what --model hf --model_args pretrained=DIR,… means by Danlu's own options.
/// Errors: UsageError for an unknown key (with the nearest one), for what is not in this version,
/// for two models.
Options with_model_args(const Options& options, ModelArguments* rest);

/// `options` with the template that --apply_chat_template names as --prompt_type.
/// Errors: UsageError for two templates, or a directory in its place.
Options with_named_template(const Options& options);

/// How --gen_kwargs, --max_new_tokens and ms-swift's flags of generation change a benchmark's own
/// rules.
class GenerationOverrides {
 public:
  /// Errors: UsageError as key_values, and for a key or value that is none.
  explicit GenerationOverrides(const Options& options);
  void apply(eval::GenerationRules& rules) const;
  bool empty() const { return values_.empty(); }

  /// "key=value,key=value", without --max_new_tokens.
  std::string text() const;

 private:
  struct Value {
    std::string flag, key, text;
  };
  void add(const std::string& flag, const std::vector<std::string>& elements);
  void add_flags_of_swift(const Options& options);
  std::vector<Value> values_;
};

}  // namespace danlu::cli
