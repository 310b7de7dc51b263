#include "weights/gguf/gguf_architecture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace danlu::weights::gguf {
namespace {

using arch::ModelConfig;
using arch::RopeScaling;

[[noreturn]] void refuse(const ModelConfig& config, const std::string& why) {
  throw ModelError(tr("[gguf] {}: {}", config.family, why),
                   tr("llama.cpp would compute something else: serve this model from its Hugging "
                      "Face directory"));
}

void check_rope(const ModelConfig& c, const std::string& name) {
  const arch::RopeConfig& rope = c.rope;
  if (rope.scaling == RopeScaling::kDynamic)
    refuse(c, "dynamic rope scaling has no counterpart in llama.cpp");
  if (rope.scaling == RopeScaling::kLongRope && name != "phi3" && name != "minicpm")
    refuse(c, tr("longrope is known to llama.cpp's phi3 and minicpm only, not to {}", name));
  if (rope.short_mscale || rope.long_mscale)
    refuse(c, "longrope with factors of its own for short and long texts");
  if (rope.scaling == RopeScaling::kLlama3 && name != "llama")
    refuse(c, tr("llama3 rope scaling is known to llama.cpp's llama only, not to {}", name));
  if (rope.scaling != RopeScaling::kYarn) return;
  const double usual = 0.1 * std::log(rope.factor) + 1;
  if (rope.mscale || rope.mscale_all_dim ||
      std::abs(rope.attention_factor.value_or(usual) - usual) > 1e-6)
    refuse(c, tr("yarn with an attention factor other than 0.1 ln(factor) + 1 = {:.6g}", usual));
  if (rope.beta_fast != 32 || rope.beta_slow != 1)
    refuse(c, tr("yarn with beta_fast {} and beta_slow {} (32 and 1 are)", rope.beta_fast,
                 rope.beta_slow));
}

void check_baichuan(const ModelConfig& c) {
  if (c.norm_head)
    refuse(c, "the head's rows are normalised in every forward, which llama.cpp does not do");
  // llama.cpp tells the two kinds apart by their depth.
  if (c.alibi ? c.num_layers != 40 : c.num_layers != 32)
    refuse(c, tr("llama.cpp takes a Baichuan of 32 layers as rotary and one of 40 as "
                 "ALiBi; this one has {} and {}",
                 c.num_layers, c.alibi ? "ALiBi" : "rotary embedding"));
}

void check_experts(const ModelConfig& c) {
  const arch::ExpertConfig& experts = c.experts;
  if (std::count(experts.sparse_layer.begin(), experts.sparse_layer.end(), false) > 0)
    refuse(c,
           "some layers are dense (decoder_sparse_step, mlp_only_layers); llama.cpp wants "
           "experts in every layer");
  const bool normalises = c.family != "qwen2_moe";
  if (experts.norm_topk != normalises)
    refuse(c,
           tr("norm_topk_prob {}; llama.cpp always takes it as {}", experts.norm_topk, normalises));
}

/// Architectures of llama.cpp that know biases only where their published models have them.
void check_biases(const ModelConfig& c, const std::string& name) {
  if (name == "llama") return;
  const bool may_have_qkv =
      name == "qwen2" || name == "qwen2moe" || name == "chatglm" || name == "glm4";
  if (c.o_bias || c.mlp_bias || (c.qkv_bias && !may_have_qkv))
    refuse(c, tr("llama.cpp's {} has no such biases", name));
}

void check_windows(const ModelConfig& c, std::vector<std::string>& notes) {
  const auto sliding = std::count_if(c.sliding_window.begin(), c.sliding_window.end(),
                                     [](int64_t window) { return window > 0; });
  if (sliding == 0) return;
  notes.push_back(
      tr("llama.cpp knows no sliding window for this architecture: beyond {} tokens it attends to "
         "all, and answers differ",
         *std::max_element(c.sliding_window.begin(), c.sliding_window.end())));
}

/// Values of general.file_type.
uint32_t file_type(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return 0;
    case TensorType::kF16:
      return 1;
    case TensorType::kQ4_0:
      return 2;
    case TensorType::kQ8_0:
      return 7;
    case TensorType::kBF16:
      return 32;
  }
  return 0;
}

class Keys {
 public:
  Keys(Metadata& metadata, std::string architecture)
      : metadata_(metadata), prefix_(std::move(architecture) + ".") {}
  void size(const std::string& key, int64_t value) {
    if (value > INT64_C(0xFFFFFFFF))
      throw ModelError(tr("[gguf] {}{} = {} does not fit 32 bits", prefix_, key, value));
    metadata_.emplace_back(prefix_ + key, static_cast<uint32_t>(value));
  }
  void real(const std::string& key, double value) {
    metadata_.emplace_back(prefix_ + key, static_cast<float>(value));
  }
  void text(const std::string& key, std::string value) {
    metadata_.emplace_back(prefix_ + key, std::move(value));
  }

 private:
  Metadata& metadata_;
  std::string prefix_;
};

void add_rope(const ModelConfig& c, Keys& keys) {
  if (!c.rope.enabled) return;
  keys.size("rope.dimension_count", c.rope.rotated_dims > 0 ? c.rope.rotated_dims : c.head_dim);
  keys.real("rope.freq_base", c.rope.theta);
  if (c.rope.scaling == RopeScaling::kLongRope) {
    // The divisors are tensors of their own.
    keys.text("rope.scaling.type", "longrope");
    keys.size("rope.scaling.original_context_length", c.rope.original_max_positions);
    keys.real("rope.scaling.attn_factor", longrope_attention_factor(c));
  }
  // llama3 scaling is a tensor of its own.
  if (c.rope.scaling != RopeScaling::kLinear && c.rope.scaling != RopeScaling::kYarn) return;
  const bool is_yarn = c.rope.scaling == RopeScaling::kYarn;
  keys.text("rope.scaling.type", is_yarn ? "yarn" : "linear");
  keys.real("rope.scaling.factor", c.rope.factor);
  if (is_yarn) keys.size("rope.scaling.original_context_length", c.rope.original_max_positions);
}

void add_experts(const ModelConfig& c, Keys& keys) {
  const arch::ExpertConfig& experts = c.experts;
  keys.size("expert_count", experts.count);
  keys.size("expert_used_count", experts.per_token);
  if (c.family == "mixtral") return;  // its experts have feed_forward_length
  keys.size("expert_feed_forward_length", experts.ffn_size);
  if (experts.shared_ffn_size > 0)
    keys.size("expert_shared_feed_forward_length", experts.shared_ffn_size);
}

}  // namespace

double longrope_attention_factor(const ModelConfig& c) {
  const arch::RopeConfig& rope = c.rope;
  if (rope.attention_factor) return *rope.attention_factor;
  const auto original = static_cast<double>(rope.original_max_positions);
  return rope.factor <= 1 ? 1.0 : std::sqrt(1 + std::log(rope.factor) / std::log(original));
}

std::string architecture_of(const ModelConfig& c) {
  std::string name = c.family;
  std::erase(name, '_');  // qwen2moe
  if (name.starts_with("gemma"))
    refuse(c, "GGUF has the weights of its norms with one added, which this version does not do");
  if (name == "mistral" || name == "mixtral" || name == "internlm3") name = "llama";
  if (name == "glm") name = "chatglm";
  const std::vector<std::string> known = {"llama",    "qwen2",    "qwen3",     "qwen2moe",
                                          "qwen3moe", "baichuan", "internlm2", "phi3",
                                          "chatglm",  "glm4",     "minicpm"};
  if (std::find(known.begin(), known.end(), name) == known.end())
    refuse(c, "this family is not written as GGUF by this version");
  check_rope(c, name);
  check_biases(c, name);
  if (name == "baichuan") check_baichuan(c);
  if (c.has_experts()) check_experts(c);
  // These architectures have no key for the width of a head.
  if ((name == "qwen2" || name == "qwen2moe" || name == "internlm2" || name == "baichuan" ||
       name == "phi3") &&
      c.num_heads * c.head_dim != c.hidden_size)
    refuse(c, tr("{} heads of {} must be as wide as hidden_size {}", c.num_heads, c.head_dim,
                 c.hidden_size));
  return name;
}

Metadata model_metadata(const ModelConfig& c, TensorType type, const std::string& name,
                        std::vector<std::string>& notes) {
  const std::string architecture = architecture_of(c);
  check_windows(c, notes);
  if (c.max_positions == 0)
    throw ModelError(
        tr("[gguf] max_position_embeddings is missing in config.json, and GGUF needs it"),
        tr("add it with the length the model was trained for"));
  Metadata metadata;
  metadata.emplace_back("general.architecture", architecture);
  metadata.emplace_back("general.type", std::string("model"));
  if (!name.empty()) metadata.emplace_back("general.name", name);
  metadata.emplace_back("general.file_type", file_type(type));
  metadata.emplace_back("general.quantization_version", uint32_t{2});
  Keys keys(metadata, architecture);
  keys.size("vocab_size", c.vocab_size);
  keys.size("block_count", c.num_layers);
  keys.size("context_length", c.max_positions);
  keys.size("embedding_length", c.hidden_size);
  keys.size("feed_forward_length", c.ffn_size);
  keys.size("attention.head_count", c.num_heads);
  keys.size("attention.head_count_kv", c.num_kv_heads);
  if (c.num_heads * c.head_dim != c.hidden_size || c.raw.contains("head_dim")) {
    keys.size("attention.key_length", c.head_dim);
    keys.size("attention.value_length", c.head_dim);
  }
  keys.real("attention.layer_norm_rms_epsilon", c.norm_eps);
  add_rope(c, keys);
  if (architecture == "phi3") {
    const auto& windows = c.sliding_window;
    keys.size("attention.sliding_window", *std::max_element(windows.begin(), windows.end()));
  }
  if (architecture == "minicpm") {
    keys.real("embedding_scale", c.embedding_scale);
    keys.real("residual_scale", c.residual_scale);
    keys.real("logit_scale", 1.0 / c.logit_scale);
  }
  if (c.has_experts()) add_experts(c, keys);
  return metadata;
}

std::vector<float> llama3_frequency_factors(const ModelConfig& c) {
  const arch::RopeConfig& rope = c.rope;
  const auto original = static_cast<double>(rope.original_max_positions);
  std::vector<float> factors;
  for (int64_t i = 0; i < c.head_dim / 2; ++i) {
    const double frequency =
        1.0 / std::pow(rope.theta, 2.0 * static_cast<double>(i) / static_cast<double>(c.head_dim));
    const double turns = original * frequency / (2 * std::numbers::pi);
    double factor = 1;
    if (turns < rope.low_freq_factor) {
      factor = rope.factor;
    } else if (turns <= rope.high_freq_factor) {
      const double smooth =
          (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
      factor = 1.0 / ((1 - smooth) / rope.factor + smooth);
    }
    factors.push_back(static_cast<float>(factor));
  }
  return factors;
}

}  // namespace danlu::weights::gguf
