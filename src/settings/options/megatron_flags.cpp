#include "settings/options/megatron_flags.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "base/error.h"
#include "base/option_text.h"

namespace danlu::settings {
namespace {

/// Collects flags whose value differs from the model's.
class FlagCheck {
 public:
  explicit FlagCheck(const Options& options) : options_(options) {}

  void integer(const char* flag, int64_t actual) {
    if (options_.has_value(flag) && options_.get_int(flag) != actual)
      add(flag, std::to_string(options_.get_int(flag)), std::to_string(actual));
  }
  void number(const char* flag, double actual) {
    if (!options_.has_value(flag)) return;
    const double given = options_.get_float(flag);
    if (std::abs(given - actual) > 1e-6 * std::max(std::abs(given), std::abs(actual)))
      add(flag, fmt::format("{}", given), fmt::format("{}", actual));
  }
  void flag(const char* flag, bool actual) {
    if (options_.has_value(flag) && options_.get_bool(flag) != actual) {
      say(option_text::given_switch(options_, flag), actual ? "true" : "false");
    }
  }
  void text(const char* flag, const std::string& actual) {
    if (options_.has_value(flag) && options_.get_string(flag) != actual)
      add(flag, options_.get_string(flag), actual);
  }
  void finish() const {
    if (found_.empty()) return;
    throw UsageError(tr("[train] flags disagree with the model's config.json: {}", found_),
                     tr("leave architecture flags out: config.json says it all"));
  }

 private:
  void add(const char* flag, const std::string& given, const std::string& actual) {
    say(fmt::format("{} {}", options_.given_as(flag), given), actual);
  }
  void say(const std::string& given, const std::string& actual) {
    found_ += fmt::format("{}{} (config.json: {})", found_.empty() ? "" : ", ", given, actual);
  }
  const Options& options_;
  std::string found_;
};

/// A model without latent attention disagrees with a flag that asks for it, and not with sizes:
/// scripts give those to models without it too.
void check_latent_flags(const Options& options, const arch::ModelConfig& model, FlagCheck& check) {
  if (options.get_bool_or("multi_head_latent_attention", false))
    check.flag("multi_head_latent_attention", model.latent.has_value());
  if (!model.latent) return;
  check.integer("q_lora_rank", model.latent->q_rank);
  check.integer("kv_lora_rank", model.latent->kv_rank);
  check.integer("qk_nope_head_dim", model.latent->nope_dim);
  check.integer("qk_rope_head_dim", model.latent->rope_dim);
  check.integer("v_head_dim", model.latent->v_dim);
}

}  // namespace

void check_architecture_flags(const Options& options, const arch::ModelConfig& model) {
  FlagCheck check(options);
  check.integer("num_layers", model.num_layers);
  check.integer("hidden_size", model.hidden_size);
  check.integer("ffn_hidden_size", model.ffn_size);
  check.integer("num_attention_heads", model.num_heads);
  if (options.get_bool_or("group_query_attention", false) ||
      options.has_value("num_query_groups")) {
    check.integer("num_query_groups", model.num_kv_heads);
  }
  if (!model.latent) check.integer("kv_channels", model.head_dim);
  check.integer("vocab_size", model.vocab_size);
  if (model.max_positions > 0 && options.has_value("max_position_embeddings") &&
      options.get_int("max_position_embeddings") > model.max_positions) {
    check.integer("max_position_embeddings", model.max_positions);
  }
  if (model.rope.enabled && options.has_value("rotary_base"))
    check.integer("rotary_base", static_cast<int64_t>(std::llround(model.rope.theta)));
  check.number("norm_epsilon", model.norm_eps);
  check.text("normalization", model.norm == arch::NormKind::kLayer ? "LayerNorm" : "RMSNorm");
  check.text("position_embedding_type", model.alibi ? "alibi" : "rope");
  check.flag("swiglu", model.is_gated);
  check.flag("embed_layernorm", model.norms_embedding);
  if (options.get_bool_or("untie_embeddings_and_output_weights", false))
    check.flag("untie_embeddings_and_output_weights", !model.tie_embeddings);
  if (options.get_bool_or("disable_bias_linear", false))
    check.flag("disable_bias_linear", !model.o_bias && !model.mlp_bias);
  if (options.get_bool_or("add_qkv_bias", false)) check.flag("add_qkv_bias", model.qkv_bias);
  if (options.get_bool_or("qk_layernorm", false))
    check.flag("qk_layernorm", model.qk_norm || model.latent);
  check_latent_flags(options, model, check);
  check.number("attention_dropout", 0.0);
  check.number("hidden_dropout", 0.0);
  check.finish();
}

}  // namespace danlu::settings
