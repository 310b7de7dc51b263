#include "settings/options/described_by_flags.h"

#include <string>
#include <string_view>

#include "base/error.h"
#include "text/tokenizer.h"
#include "weights/megatron/described_model.h"

namespace danlu::settings {
namespace {

using weights::torch_file::PyValue;

[[noreturn]] void refuse(const std::string& why) {
  throw UsageError(
      tr("[train] no model is named, and the flags describe none"),
      tr("{}; or name a directory with its config.json: --model DIR --from_scratch", why));
}

/// As Megatron settles it: the older flag counts, whatever the kind is.
std::string positions(const Options& options) {
  const bool is_rotary = options.get_bool_or("use_rotary_position_embeddings", false);
  return is_rotary ? "rope" : options.get_string_or("position_embedding_type", "learned_absolute");
}

/// What no family has, and what would be left out silently.
void refuse_parts_of_none(const Options& options, bool has_biases) {
  if (options.is_given("no_position_embedding") && positions(options) == "learned_absolute") {
    refuse(tr("{} leaves no positions: give --position-embedding-type rope",
              options.given_as("no_position_embedding")));
  }
  if (options.get_string_or("normalization", "LayerNorm") != "RMSNorm") return;
  const auto is_on = [&](const char* flag) { return options.get_bool_or(flag, false); };
  const char* const kind = is_on("qk_layernorm")   ? "qk_layernorm"
                           : is_on("add_qkv_bias") ? "add_qkv_bias"
                                                   : nullptr;
  if (!kind) return;
  if (has_biases) {
    refuse(
        tr("{} describes a model whose linear layers have no other biases: give "
           "--disable-bias-linear",
           options.given_as(kind)));
  }
  for (const char* bias : {"add_qkv_bias", "add_dense_bias"}) {
    if (std::string_view(bias) != kind && is_on(bias))
      refuse(tr("{} and {} are of no model that flags can describe: leave one out",
                options.given_as(kind), options.given_as(bias)));
  }
}

/// Megatron's args as its parser would leave them.
class Arguments {
 public:
  explicit Arguments(const Options& options) : options_(options) {}

  PyValue of_model(int64_t vocabulary) {
    sizes(vocabulary);
    parts();
    if (options_.has_value("noop_layers")) {
      PyValue::Items slots;
      for (const int64_t slot : options_.get_int_list("noop_layers"))
        slots.push_back(PyValue::integer(slot));
      args_.put("noop_layers", PyValue::list(std::move(slots)));
    }
    return std::move(args_);
  }

 private:
  void size(const char* name, int64_t value) { args_.put(name, PyValue::integer(value)); }
  void flag(const char* name) {
    args_.put(name, PyValue::boolean(options_.get_bool_or(name, false)));
  }
  void text(const char* name, const char* fallback) {
    args_.put(name, PyValue::string(options_.get_string_or(name, fallback)));
  }
  void number(const char* name, double fallback) {
    args_.put(name, PyValue::real(options_.get_float_or(name, fallback)));
  }

  void sizes(int64_t vocabulary) {
    const int64_t hidden = options_.get_int("hidden_size");
    // A gated MLP has a third matrix.
    const int64_t usual =
        options_.get_bool_or("swiglu", false) ? hidden * 8 / 3 / 64 * 64 : 4 * hidden;
    for (const char* name : {"num_layers", "hidden_size", "num_attention_heads"})
      size(name, options_.get_int(name));
    size("ffn_hidden_size", options_.get_int_or("ffn_hidden_size", usual));
    size("num_query_groups", options_.get_int_or("num_query_groups", 1));
    for (const char* name : {"kv_channels", "max_position_embeddings"}) {
      if (options_.has_value(name)) size(name, options_.get_int(name));
    }
    size("vocab_size", vocabulary);
  }

  void parts() {
    text("normalization", "LayerNorm");
    args_.put("position_embedding_type", PyValue::string(positions(options_)));
    number("norm_epsilon", 1e-5);
    size("rotary_base", options_.get_int_or("rotary_base", 10000));
    number("rotary_percent", 1.0);
    for (const char* name :
         {"group_query_attention", "swiglu", "geglu", "untie_embeddings_and_output_weights",
          "add_qkv_bias", "add_dense_bias", "qk_layernorm", "multi_head_latent_attention",
          "post_norm", "add_rmsnorm_offset", "embed_layernorm", "input_embeds_norm",
          "use_glm_rope"})
      flag(name);
    const bool has_biases = !options_.get_bool_or("disable_bias_linear", false);
    args_.put("add_bias_linear", PyValue::boolean(has_biases));
    for (const char* name : {"scale_emb", "scale_depth", "dim_model_base", "query_pre_attn_scalar",
                             "attn_logit_softcapping", "output_logit_softcapping"}) {
      if (options_.has_value(name)) args_.put(name, PyValue::real(options_.get_float(name)));
    }
    if (options_.has_value("rope_scaling_type")) text("rope_scaling_type", "");
  }

  const Options& options_;
  PyValue args_ = PyValue::name_space();
};

}  // namespace

bool describe_a_model(const Options& options) {
  return options.has_value("num_layers") && options.has_value("hidden_size") &&
         options.has_value("num_attention_heads");
}

Json described_by_flags(const Options& options, const std::filesystem::path& tokenizer) {
  if (options.is_given("num_experts")) {
    refuse(tr("flags alone describe dense models: leave {} out", options.given_as("num_experts")));
  }
  int64_t vocabulary = options.get_int_or("vocab_size", 0);
  if (vocabulary == 0) {
    if (tokenizer.empty()) refuse(tr("name a tokenizer, too: --vocab-file or --tokenizer"));
    vocabulary = static_cast<int64_t>(text::Tokenizer::load(tokenizer)->size());
  }
  refuse_parts_of_none(options, !options.get_bool_or("disable_bias_linear", false));
  // An MLP has biases or not; attention's go with them in Megatron, and have flags besides.
  PyValue args = Arguments(options).of_model(vocabulary);
  if (args.get("add_bias_linear") == PyValue::boolean(true) &&
      args.get("normalization") == PyValue::string("RMSNorm"))
    args.put("add_dense_bias", PyValue::boolean(true));
  Json config;
  try {
    config = weights::megatron::described_model(args, vocabulary, tr("the flags"));
  } catch (const ModelError& error) {
    refuse(error.what());
  }
  constexpr double kMegatronsStd = 0.02;
  config["initializer_range"] = options.get_float_or("init_method_std", kMegatronsStd);
  return config;
}

}  // namespace danlu::settings
