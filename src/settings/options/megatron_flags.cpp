#include "settings/options/megatron_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "arch/learned_positions.h"
#include "base/error.h"
#include "base/log.h"
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
  /// One that is typed where a model has it, and says nothing elsewhere.
  void has(const char* flag, bool actual) {
    if (options_.get_bool_or(flag, false)) this->flag(flag, actual);
  }
  void numbers(const char* flag, const std::vector<double>& actual) {
    if (!options_.has_value(flag)) return;
    const std::vector<std::string> given = options_.get_list(flag);
    bool agrees = given.size() == actual.size();
    for (size_t i = 0; agrees && i < given.size(); ++i)
      agrees = std::abs(number_in(flag, given[i]) - actual[i]) <= 1e-6 * std::abs(actual[i]);
    if (!agrees)
      add(flag, fmt::format("{}", fmt::join(given, ",")),
          actual.empty() ? "none" : fmt::format("{}", fmt::join(actual, ",")));
  }
  void finish() const {
    if (found_.empty()) return;
    throw UsageError(tr("[train] flags disagree with the model's config.json: {}", found_),
                     tr("leave architecture flags out: config.json says it all"));
  }

 private:
  double number_in(const char* flag, const std::string& text) const {
    double value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || stop != text.data() + text.size())
      throw UsageError(
          tr("[{}] must be a list of numbers, got \"{}\"", options_.given_as(flag), text));
    return value;
  }
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

const char* scaling_name(arch::RopeScaling scaling) {
  switch (scaling) {
    case arch::RopeScaling::kNone:
      return "none";
    case arch::RopeScaling::kLinear:
      return "linear";
    case arch::RopeScaling::kDynamic:
      return "dynamic";
    case arch::RopeScaling::kLlama3:
      return "llama3";
    case arch::RopeScaling::kYarn:
      return "yarn";
    case arch::RopeScaling::kLongRope:
      return "longrope";
  }
  return "none";
}

const char* kind_of_positions(const arch::ModelConfig& model) {
  if (arch::learned_positions(model) > 0) return "learned_absolute";
  return model.alibi ? "alibi" : "rope";
}

void check_position_flags(const Options& options, const arch::ModelConfig& model,
                          FlagCheck& check) {
  check.text("position_embedding_type", kind_of_positions(model));
  check.has("use_rotary_position_embeddings", model.rope.enabled);
  const arch::RopeConfig& rope = model.rope;
  if (!rope.enabled) return;
  if (options.has_value("rotary_base"))
    check.integer("rotary_base", static_cast<int64_t>(std::llround(rope.theta)));
  if (!model.latent && options.has_value("rotary_percent")) {
    const int64_t rotated = rope.rotated_dims > 0 ? rope.rotated_dims : model.head_dim;
    const auto width = static_cast<double>(model.head_dim);
    // Pairs are rotated: scripts for ChatGLM give 0.51.
    const auto pairs = static_cast<int64_t>(options.get_float("rotary_percent") * width / 2);
    if (2 * pairs != rotated) check.number("rotary_percent", static_cast<double>(rotated) / width);
  }
  check.has("use_glm_rope", rope.is_pairwise);
  check.text("rope_scaling_type", scaling_name(rope.scaling));
  check.number("rope_scaling_factor", rope.factor);
  if (rope.scaling != arch::RopeScaling::kNone)
    check.integer("rope_scaling_original_max_position_embeddings", rope.original_max_positions);
  if (rope.scaling == arch::RopeScaling::kLlama3) {
    check.number("low_freq_factor", rope.low_freq_factor);
    check.number("high_freq_factor", rope.high_freq_factor);
  }
  if (rope.scaling == arch::RopeScaling::kYarn) {
    check.number("rope_scaling_beta_fast", rope.beta_fast);
    check.number("rope_scaling_beta_slow", rope.beta_slow);
    check.number("rope_scaling_mscale", rope.mscale.value_or(1.0));
    check.number("rope_scaling_mscale_all_dim", rope.mscale_all_dim.value_or(0.0));
  }
  check.numbers("long_factor", rope.long_factors);
  check.numbers("short_factor", rope.short_factors);
  if (rope.scaling == arch::RopeScaling::kLongRope) {
    if (rope.long_mscale) check.number("long_mscale", *rope.long_mscale);
    if (rope.short_mscale) check.number("short_mscale", *rope.short_mscale);
  }
}

void check_window(const Options& options, const arch::ModelConfig& model, FlagCheck& check) {
  if (!options.has_value("sliding_window")) return;
  const auto& windows = model.sliding_window;
  const bool has_it =
      std::count(windows.begin(), windows.end(), options.get_int("sliding_window")) > 0;
  if (has_it) return;
  check.integer("sliding_window",
                windows.empty() ? 0 : *std::max_element(windows.begin(), windows.end()));
}

/// Factors that families have of their own.
void check_scale_flags(const arch::ModelConfig& model, FlagCheck& check) {
  const auto hidden = static_cast<double>(model.hidden_size);
  const double scale = model.attention_scale;
  check.number("query_pre_attn_scalar",
               scale > 0 ? 1 / (scale * scale) : static_cast<double>(model.head_dim));
  check.number("attn_logit_softcapping", model.attention_softcap);
  check.number("output_logit_softcapping", model.logit_softcap);
  check.number("scale_emb", model.embedding_scale);
  check.number("scale_depth",
               model.residual_scale * std::sqrt(static_cast<double>(model.num_layers)));
  check.number("dim_model_base", model.logit_scale * hidden);
  // A file of bf16 rounds the root.
  check.has("input_embeds_norm",
            std::abs(model.embedding_scale - std::sqrt(hidden)) < 0.01 * std::sqrt(hidden));
}

void check_part_flags(const Options& options, const arch::ModelConfig& model, FlagCheck& check) {
  check.text("normalization", model.norm == arch::NormKind::kLayer ? "LayerNorm" : "RMSNorm");
  check.number("norm_epsilon", model.norm_eps);
  check.has("add_rmsnorm_offset", model.norm == arch::NormKind::kRmsOffset);
  check.has("post_norm", model.has_post_norms);
  check.flag("embed_layernorm", model.norms_embedding);
  const bool is_gelu = model.activation != arch::Activation::kSilu;
  check.flag("swiglu", model.is_gated && !is_gelu);
  check.has("geglu", model.is_gated && is_gelu);
  check.has("gelu_tanh", model.activation == arch::Activation::kGeluTanh);
  check.has("untie_embeddings_and_output_weights", !model.tie_embeddings);
  const bool has_dense_bias = options.get_bool_or("add_dense_bias", false);
  check.has("disable_bias_linear", !model.mlp_bias && (has_dense_bias || !model.o_bias));
  check.has("add_qkv_bias", model.qkv_bias);
  check.has("add_dense_bias", model.o_bias);
  check.has("add_output_layer_bias", model.head_bias);
  check.has("qk_layernorm", model.qk_norm || model.latent);
}

/// Megatron has dropout of 0.1 inside its models unless the line says 0. Errors: UsageError.
void check_dropout(const Options& options) {
  constexpr const char* kFlags[] = {"attention_dropout", "hidden_dropout"};
  bool is_said = false;
  for (const char* flag : kFlags) {
    is_said = is_said || options.has_value(flag);
    if (options.get_float_or(flag, 0) == 0) continue;
    throw UsageError(tr("[train] {} {:g}: models are trained without dropout inside",
                        options.given_as(flag), options.get_float(flag)),
                     tr("give --attention-dropout 0 --hidden-dropout 0; adapters have "
                        "--lora_dropout"));
  }
  if (is_said || options.profile().name != "mindspeed") return;
  log::notice(
      "Megatron's default dropout of 0.1 is not here: --attention-dropout 0 --hidden-dropout 0 say "
      "so");
}

}  // namespace

void check_architecture_flags(const Options& options, const arch::ModelConfig& model) {
  FlagCheck check(options);
  // Megatron counts empty layers too.
  const size_t empty =
      options.has_value("noop_layers") ? options.get_int_list("noop_layers").size() : 0;
  if (options.get_int_or("num_layers", 0) != model.num_layers + static_cast<int64_t>(empty))
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
  check_position_flags(options, model, check);
  check_window(options, model, check);
  check_part_flags(options, model, check);
  check_scale_flags(model, check);
  check_latent_flags(options, model, check);
  check.finish();
  check_dropout(options);
}

}  // namespace danlu::settings
