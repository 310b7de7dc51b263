#include "weights/megatron/described_model.h"

#include <fmt/format.h>

#include "base/error.h"
#include "weights/megatron/arguments.h"

namespace danlu::weights::megatron {
namespace {

using torch_file::PyKind;

/// One setting after the other, with the error that each may need.
class Description {
 public:
  Description(const PyValue& args, std::string where) : args_(args), where_(std::move(where)) {}

  Json config(int64_t padded_rows) {
    if (is_gpt()) return gpt_config(padded_rows);
    refuse_other_arithmetic();
    config_["model_type"] = family();
    const auto noops = static_cast<int64_t>(split_of_arguments(args_, where_).noop_layers.size());
    config_["num_hidden_layers"] = size("num_layers") - noops;
    config_["hidden_size"] = size("hidden_size");
    config_["intermediate_size"] = size("ffn_hidden_size");
    config_["num_attention_heads"] = size("num_attention_heads");
    config_["num_key_value_heads"] =
        size(is_on("group_query_attention") ? "num_query_groups" : "num_attention_heads");
    if (value("kv_channels")) config_["head_dim"] = size("kv_channels");
    config_["vocab_size"] = vocabulary(padded_rows);
    config_["tie_word_embeddings"] = !is_on("untie_embeddings_and_output_weights");
    if (value("max_position_embeddings"))
      config_["max_position_embeddings"] = size("max_position_embeddings");
    config_["rms_norm_eps"] =
        number(value("norm_epsilon") ? "norm_epsilon" : "layernorm_epsilon", 1e-5);
    config_["rope_theta"] = number("rotary_base", 10000);
    if (config_["model_type"] == "llama") {
      config_["attention_bias"] = is_on("add_dense_bias");
      config_["mlp_bias"] = is_on("add_bias_linear");
    }
    if (has_experts()) experts();
    add_dtype();
    return config_;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw ModelError(
        tr("{}: {}", where_, why),
        tr("name the Hugging Face directory of the model it was made from: --hf-config DIR"));
  }

  const PyValue* value(const char* key) const {
    const PyValue* found = args_.find(key);
    return found && !found->is_none() ? found : nullptr;
  }
  bool is_on(const char* key) const {
    const PyValue* found = value(key);
    return found && found->as_bool(fmt::format("{}: args.{}", where_, key));
  }
  int64_t size(const char* key) const {
    const PyValue* found = value(key);
    if (!found) refuse(tr("args hold no {}, so the architecture is not known", key));
    return whole_number(*found, fmt::format("{}: args.{}", where_, key));
  }
  double number(const char* key, double fallback) const {
    const PyValue* found = value(key);
    return found ? found->as_float(fmt::format("{}: args.{}", where_, key)) : fallback;
  }
  std::string text(const char* key) const {
    const PyValue* found = value(key);
    return found && found->is(PyKind::kString) ? found->text() : "";
  }

  int64_t vocabulary(int64_t padded_rows) const {
    return !value("vocab_size") && padded_rows > 0 ? padded_rows : size("vocab_size");
  }
  void add_dtype() {
    if (const PyValue* dtype = value("params_dtype"); dtype && dtype->is(PyKind::kDType))
      config_["torch_dtype"] = dtype_name(dtype->as_dtype("params_dtype"));
  }

  /// Megatron's own defaults: what GPT-2 and GPT-3 are.
  bool is_gpt() const {
    return text("position_embedding_type") == "learned_absolute" &&
           text("normalization") == "LayerNorm" && value("swiglu") && !is_on("swiglu");
  }
  Json gpt_config(int64_t padded_rows) {
    for (const char* other :
         {"group_query_attention", "qk_layernorm", "multi_head_latent_attention", "post_norm",
          "apply_layernorm_1p", "embed_layernorm", "squared_relu", "geglu"}) {
      if (is_on(other)) refuse(fmt::format("args.{} is True", other));
    }
    if (has_experts()) refuse(tr("args.{} is {}", "num_experts", value("num_experts")->repr()));
    // Megatron's add_qkv_bias says nothing where all linear layers have biases.
    if (value("add_bias_linear") && !is_on("add_bias_linear"))
      refuse(fmt::format("args.{} is False", "add_bias_linear"));
    const int64_t heads = size("num_attention_heads"), hidden = size("hidden_size");
    if (value("kv_channels") && size("kv_channels") * heads != hidden)
      refuse(tr("args.{} is {}", "kv_channels", size("kv_channels")));
    const auto noops = static_cast<int64_t>(split_of_arguments(args_, where_).noop_layers.size());
    config_ = {{"model_type", "gpt2"},
               {"n_embd", hidden},
               {"n_layer", size("num_layers") - noops},
               {"n_head", heads},
               {"n_inner", size("ffn_hidden_size")},
               {"n_positions", size("max_position_embeddings")},
               {"vocab_size", vocabulary(padded_rows)},
               {"tie_word_embeddings", !is_on("untie_embeddings_and_output_weights")},
               {"layer_norm_epsilon",
                number(value("norm_epsilon") ? "norm_epsilon" : "layernorm_epsilon", 1e-5)}};
    add_dtype();
    return config_;
  }

  bool has_experts() const { return value("num_experts") && size("num_experts") > 0; }

  /// Without these every family's arithmetic would be another one.
  void refuse_other_arithmetic() const {
    const std::string norm = text("normalization"), positions = text("position_embedding_type");
    if (!norm.empty() && norm != "RMSNorm") refuse(tr("args.normalization is {}", norm));
    if (!positions.empty() && positions != "rope")
      refuse(tr("args.position_embedding_type is {}", positions));
    if (value("swiglu") && !is_on("swiglu")) refuse("args.swiglu is False");
    if (number("rotary_percent", 1.0) != 1.0) refuse("args.rotary_percent is not 1");
    for (const char* other :
         {"multi_head_latent_attention", "post_norm", "apply_layernorm_1p", "rotary_interleaved",
          "embed_layernorm", "use_glm_rope", "add_rmsnorm_offset", "input_embeds_norm"}) {
      if (is_on(other)) refuse(fmt::format("args.{} is True", other));
    }
    for (const char* other : {"scale_emb", "scale_depth", "dim_model_base", "query_pre_attn_scalar",
                              "attn_logit_softcapping", "output_logit_softcapping"}) {
      if (value(other)) refuse(fmt::format("args.{} is {}", other, value(other)->repr()));
    }
    for (const char* other :
         {"rope_scaling_type", "window_size", "moe_router_topk_scaling_factor"}) {
      if (value(other)) refuse(tr("args.{} is {}", other, value(other)->repr()));
    }
    if (is_on("use_rope_scaling")) refuse(fmt::format("args.{} is True", "use_rope_scaling"));
    if (number("rotary_seq_len_interpolation_factor", 1.0) != 1.0)
      refuse(tr("args.{} is {}", "rotary_seq_len_interpolation_factor",
                value("rotary_seq_len_interpolation_factor")->repr()));
    const std::string scores = text("moe_router_score_function");
    if (has_experts() && !scores.empty() && scores != "softmax")
      refuse(tr("args.{} is {}", "moe_router_score_function", scores));
  }

  /// Whether the weights of a token's experts have the sum 1. Where MindSpeed's argument is absent
  /// NVIDIA's Megatron wrote the file: it takes the softmax of the chosen alone, or chooses after
  /// it and leaves them as they are.
  bool normalises_picks() const {
    if (value("norm_topk_prob")) return is_on("norm_topk_prob");
    return !is_on("moe_router_pre_softmax");
  }

  std::string family() const {
    const bool is_sparse = has_experts();
    if (is_on("qk_layernorm")) return is_sparse ? "qwen3_moe" : "qwen3";
    if (is_on("add_qkv_bias")) {
      if (is_on("add_dense_bias")) refuse("args.add_qkv_bias and args.add_dense_bias are True");
      return is_sparse ? "qwen2_moe" : "qwen2";
    }
    return is_sparse ? "mixtral" : "llama";
  }

  void experts() {
    const bool is_mixtral = config_["model_type"] == "mixtral";
    config_[is_mixtral ? "num_local_experts" : "num_experts"] = size("num_experts");
    config_["num_experts_per_tok"] = size("moe_router_topk");
    if (is_mixtral) {
      if (!normalises_picks()) refuse(fmt::format("args.{} is True", "moe_router_pre_softmax"));
      return;
    }
    const bool has_width = value("moe_intermediate_size") != nullptr;
    const int64_t width = size(has_width ? "moe_intermediate_size" : "moe_ffn_hidden_size");
    config_["moe_intermediate_size"] = width;
    config_["norm_topk_prob"] = normalises_picks();
    if (config_["model_type"] != "qwen2_moe") return;
    config_["shared_expert_intermediate_size"] = value("moe_shared_expert_intermediate_size")
                                                     ? size("moe_shared_expert_intermediate_size")
                                                     : size("n_shared_experts") * width;
  }

  const PyValue& args_;
  std::string where_;
  Json config_ = Json::object();
};

}  // namespace

Json described_model(const PyValue& args, int64_t padded_rows, const std::string& where) {
  return Description(args, where).config(padded_rows);
}

}  // namespace danlu::weights::megatron
