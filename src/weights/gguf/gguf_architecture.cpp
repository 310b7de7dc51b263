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

/// llama.cpp gives DeepSeek's attention one temperature, on scores, and none on rotations.
void check_latent_yarn(const ModelConfig& c) {
  if (!c.rope.mscale || c.rope.mscale != c.rope.mscale_all_dim)
    refuse(c, "yarn whose mscale and mscale_all_dim are not the same number");
}

void check_rope(const ModelConfig& c, const std::string& name) {
  const arch::RopeConfig& rope = c.rope;
  if (rope.scaling == RopeScaling::kLongRope && name != "phi3" && name != "phimoe" &&
      name != "minicpm")
    refuse(c,
           tr("longrope is known to llama.cpp's phi3, phimoe and minicpm only, not to {}", name));
  if (rope.short_mscale != rope.long_mscale)
    refuse(c, "longrope with factors of its own for short and long texts");
  if (rope.scaling == RopeScaling::kLlama3 && name != "llama" && name != "llama4")
    refuse(c, tr("llama3 rope scaling is known to llama.cpp's llama only, not to {}", name));
  if (rope.scaling != RopeScaling::kYarn) return;
  if (c.latent) return check_latent_yarn(c);
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

void check_gpt2(const ModelConfig& c) {
  if (c.attention_scale > 0) refuse(c, "scale_attn_weights is false");
  if (c.activation != arch::Activation::kGeluTanh)
    refuse(c, "llama.cpp's gpt2 has the approximation of GELU by tanh (gelu_new)");
}

/// What llama.cpp takes for granted of every Gemma 2 and 3.
void check_later_gemma(const ModelConfig& c, const std::string& name) {
  // The last one of so many layers sees everything.
  const int64_t period = name == "gemma2" ? 2 : kGemma3Period;
  const auto scalar = static_cast<double>(gemma_query_scalar(c, name));
  if (std::abs(c.attention_scale * std::sqrt(scalar) - 1) > 1e-6)
    refuse(c, tr("query_pre_attn_scalar; llama.cpp always takes it as {} here", scalar));
  const int64_t window = *std::max_element(c.sliding_window.begin(), c.sliding_window.end());
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    const bool sees_all = layer % period == period - 1;
    if (window == 0 || c.sliding_window[static_cast<size_t>(layer)] != (sees_all ? 0 : window))
      refuse(c, tr("llama.cpp gives all layers but one of {} a sliding window", period));
  }
  const bool is_capped = c.attention_softcap > 0 && c.logit_softcap > 0;
  const bool is_free = c.attention_softcap == 0 && c.logit_softcap == 0;
  if (name == "gemma2" ? !is_capped : !is_free)
    refuse(c,
           tr("caps on scores and logits, which llama.cpp's gemma2 always has, and gemma3 never"));
  constexpr double kWindowBase = 10000;
  if (!c.window_rope) return;
  if (c.window_rope->theta != kWindowBase || c.window_rope->scaling != RopeScaling::kNone)
    refuse(c, tr("rope_local_base_freq; llama.cpp always takes it as {}", kWindowBase));
}

void check_gemma(const ModelConfig& c, const std::string& name) {
  if (c.activation != arch::Activation::kGeluTanh)
    refuse(c, "llama.cpp's Gemma has the approximation of GELU by tanh (gelu_pytorch_tanh)");
  if (!c.tie_embeddings && name != "gemma3")
    refuse(c, tr("tie_word_embeddings is false; llama.cpp's {} takes the embedding as the head",
                 name));
  const RopeScaling scaling = c.rope.scaling;
  if (scaling != RopeScaling::kNone && (name != "gemma3" || scaling != RopeScaling::kLinear))
    refuse(c, name == "gemma3" ? tr("rope_scaling; llama.cpp's gemma3 has linear scaling or none")
                               : tr("rope_scaling; llama.cpp's {} has none", name));
  if (name != "gemma") check_later_gemma(c, name);
}

/// Every how many layers one has experts, and the others none; 0: they do not stand so.
int64_t step_of_experts(const ModelConfig& c) {
  const auto& sparse = c.experts.sparse_layer;
  const int64_t step = std::find(sparse.begin(), sparse.end(), true) - sparse.begin() + 1;
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    if (c.is_sparse(layer) != ((layer + 1) % step == 0)) return 0;
  }
  return step;
}

/// What llama.cpp takes for granted of every Llama-4, which is so in the published ones.
void check_llama4(const ModelConfig& c) {
  constexpr int64_t kChunk = 8192, kRotated = 4, kUnnormedExperts = 128;
  constexpr double kGrowth = 0.1;
  if (!c.has_experts()) refuse(c, "llama.cpp's llama4 has experts");
  if (step_of_experts(c) == 0)
    refuse(c, "the layers with experts are not every second, third, … one (moe_layers)");
  if (c.attention_chunk != kChunk)
    refuse(c, tr("attention_chunk_size {}; llama.cpp always takes it as {}", c.attention_chunk,
                 kChunk));
  if (std::abs(c.query_growth - kGrowth) > 1e-9 || c.query_growth_from != kChunk)
    refuse(c, tr("attn_scale {} and floor_scale {}; llama.cpp always takes them as {} and {}",
                 c.query_growth, c.query_growth_from, kGrowth, kChunk));
  std::vector<int64_t> every_fourth;
  for (int64_t layer = kRotated - 1; layer < c.num_layers; layer += kRotated)
    every_fourth.push_back(layer);
  if (c.unrotated_layers != every_fourth)
    refuse(c, tr("no_rope_layers; llama.cpp always takes one layer of {} for such", kRotated));
  if (c.norms_rotated != (c.experts.count != kUnnormedExperts))
    refuse(c, tr("use_qk_norm {}; llama.cpp norms queries and keys unless there are {} experts",
                 c.norms_rotated, kUnnormedExperts));
}

/// The number of dense layers before the first sparse one: all, if none has experts.
int64_t leading_dense(const ModelConfig& c) {
  const auto& sparse = c.experts.sparse_layer;
  if (!c.has_experts()) return c.num_layers;
  return std::find(sparse.begin(), sparse.end(), true) - sparse.begin();
}

/// Architectures with DeepSeek's keys.
bool may_begin_dense(const std::string& name) { return name == "glm4moe" || name == "deepseek2"; }

void check_experts(const ModelConfig& c, const std::string& name) {
  const arch::ExpertConfig& experts = c.experts;
  if (name == "llama4") return;
  if (may_begin_dense(name)) {
    const auto& sparse = experts.sparse_layer;
    if (std::find(sparse.begin() + leading_dense(c), sparse.end(), false) != sparse.end())
      refuse(c, "dense layers stand among those with experts; llama.cpp knows only leading ones");
    return;
  }
  if (std::count(experts.sparse_layer.begin(), experts.sparse_layer.end(), false) > 0)
    refuse(c,
           "some layers are dense (decoder_sparse_step, mlp_only_layers); llama.cpp wants "
           "experts in every layer");
  if (experts.score == arch::RouterScore::kSparseMixer) return;
  const bool normalises = c.family != "qwen2_moe";
  if (experts.norm_topk != normalises)
    refuse(c,
           tr("norm_topk_prob {}; llama.cpp always takes it as {}", experts.norm_topk, normalises));
}

/// Architectures of llama.cpp that know biases only where their published models have them.
void check_biases(const ModelConfig& c, const std::string& name) {
  if (name == "llama" || name == "bloom" || name == "gpt2") return;
  if (name == "phimoe") {
    if (!c.qkv_bias || !c.o_bias || !c.head_bias)
      refuse(c, "llama.cpp's phimoe has biases in attention and head");
    return;
  }
  const bool may_have_qkv = name == "qwen" || name == "qwen2" || name == "qwen2moe" ||
                            name == "chatglm" || name == "glm4" || name == "glm4moe";
  if (c.o_bias || c.mlp_bias || (c.qkv_bias && !may_have_qkv))
    refuse(c, tr("llama.cpp's {} has no such biases", name));
}

void check_latent(const ModelConfig& c) {
  if (!c.rope.is_pairwise) refuse(c, "rope_interleave is false");
  if (c.latent->norm_eps != c.norm_eps) {
    refuse(c, tr("the norms within attention have an epsilon of {}, not rms_norm_eps = {}",
                 c.latent->norm_eps, c.norm_eps));
  }
}

void note_lengths(const ModelConfig& c, std::vector<std::string>& notes) {
  if (c.rope.scaling == RopeScaling::kDynamic) {
    notes.push_back(tr("llama.cpp knows no dynamic rope scaling: beyond {} tokens answers differ",
                       c.max_positions));
  }
  const auto sliding = std::count_if(c.sliding_window.begin(), c.sliding_window.end(),
                                     [](int64_t window) { return window > 0; });
  // Gemma's windows are keys of their own.
  if (sliding == 0 || c.family.starts_with("gemma")) return;
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
  void flag(const std::string& key, bool value) { metadata_.emplace_back(prefix_ + key, value); }

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
  if (!is_yarn || !c.latent) return;
  keys.real("rope.scaling.yarn_beta_fast", c.rope.beta_fast);
  keys.real("rope.scaling.yarn_beta_slow", c.rope.beta_slow);
  keys.real("rope.scaling.yarn_log_multiplier", 0.1 * *c.rope.mscale_all_dim);
}

/// llama.cpp computes in the short vectors: to its attention there is one key of all heads.
void add_latent(const ModelConfig& c, Keys& keys) {
  const arch::LatentConfig& latent = *c.latent;
  if (latent.q_rank > 0) keys.size("attention.q_lora_rank", latent.q_rank);
  keys.size("attention.kv_lora_rank", latent.kv_rank);
  keys.size("attention.key_length", latent.kv_rank + latent.rope_dim);
  keys.size("attention.value_length", latent.kv_rank);
  keys.size("attention.key_length_mla", c.head_dim);
  keys.size("attention.value_length_mla", latent.v_dim);
}

void add_gemma(const ModelConfig& c, Keys& keys) {
  const auto& windows = c.sliding_window;
  if (c.family == "gemma") return;
  keys.size("attention.sliding_window", *std::max_element(windows.begin(), windows.end()));
  if (c.attention_softcap > 0) keys.real("attn_logit_softcapping", c.attention_softcap);
  if (c.logit_softcap > 0) keys.real("final_logit_softcapping", c.logit_softcap);
}

/// Values of expert_gating_func.
constexpr int64_t kSoftmaxGate = 1, kSigmoidGate = 2;

void add_deepseek_experts(const ModelConfig& c, Keys& keys) {
  const arch::ExpertConfig& experts = c.experts;
  keys.size("leading_dense_block_count", leading_dense(c));
  const bool is_sigmoid = c.family != "deepseek_v2";
  keys.size("expert_gating_func", is_sigmoid ? kSigmoidGate : kSoftmaxGate);
  const int64_t width = c.has_experts() ? experts.ffn_size : c.ffn_size;
  keys.size("expert_feed_forward_length", width);
  keys.size("expert_shared_count", experts.shared_ffn_size / width);
  if (!c.has_experts()) return;
  keys.size("expert_count", experts.count);
  keys.size("expert_used_count", experts.per_token);
  keys.real("expert_weights_scale", experts.weight_scale);
  keys.flag("expert_weights_norm", experts.norm_topk);
  if (experts.groups == 1) return;
  keys.size("expert_group_count", experts.groups);
  keys.size("expert_group_used_count", experts.chosen_groups);
}

void add_experts(const ModelConfig& c, Keys& keys) {
  const arch::ExpertConfig& experts = c.experts;
  keys.size("expert_count", experts.count);
  keys.size("expert_used_count", experts.per_token);
  // Experts of these have feed_forward_length.
  if (c.family == "mixtral" || c.family == "phimoe") return;
  keys.size("expert_feed_forward_length", experts.ffn_size);
  // The shared expert is as wide as the others.
  if (c.family == "llama4_text") return keys.size("interleave_moe_layer_step", step_of_experts(c));
  if (experts.shared_ffn_size > 0)
    keys.size("expert_shared_feed_forward_length", experts.shared_ffn_size);
}

}  // namespace

int64_t gemma_query_scalar(const ModelConfig& c, const std::string& architecture) {
  const int64_t widest = architecture == "gemma2" ? 46 : 62;
  return c.num_layers == widest ? c.hidden_size / c.num_heads : c.head_dim;
}

double longrope_attention_factor(const ModelConfig& c) {
  const arch::RopeConfig& rope = c.rope;
  if (rope.short_mscale) return *rope.short_mscale;
  if (rope.attention_factor) return *rope.attention_factor;
  const auto original = static_cast<double>(rope.original_max_positions);
  return rope.factor <= 1 ? 1.0 : std::sqrt(1 + std::log(rope.factor) / std::log(original));
}

std::string architecture_of(const ModelConfig& c) {
  std::string name = c.family;
  std::erase(name, '_');  // qwen2moe
  if (name == "gemma3text") name = "gemma3";
  if (name == "mistral" || name == "mixtral" || name == "internlm" || name == "internlm3")
    name = "llama";
  if (name == "glm") name = "chatglm";
  if (name == "llama4text") name = "llama4";
  if (name.starts_with("deepseekv")) name = "deepseek2";
  const std::vector<std::string> known = {
      "llama", "qwen2",   "qwen3", "qwen2moe", "qwen3moe", "baichuan", "internlm2",
      "phi3",  "chatglm", "glm4",  "minicpm",  "glm4moe",  "phimoe",   "deepseek2",
      "bloom", "llama4",  "gpt2",  "gemma",    "gemma2",   "gemma3",   "qwen"};
  if (std::find(known.begin(), known.end(), name) == known.end())
    refuse(c, "this family is not written as GGUF by this version");
  check_rope(c, name);
  check_biases(c, name);
  if (name == "baichuan") check_baichuan(c);
  if (name == "gpt2") check_gpt2(c);
  if (name.starts_with("gemma")) check_gemma(c, name);
  if (name == "llama4") check_llama4(c);
  if (c.has_experts()) check_experts(c, name);
  if (c.latent) check_latent(c);
  // These architectures have no key for the width of a head.
  if ((name == "qwen" || name == "qwen2" || name == "qwen2moe" || name == "internlm2" ||
       name == "baichuan" || name == "phi3" || name == "phimoe") &&
      c.num_heads * c.head_dim != c.hidden_size)
    refuse(c, tr("{} heads of {} must be as wide as hidden_size {}", c.num_heads, c.head_dim,
                 c.hidden_size));
  return name;
}

bool keeps_predictions(const ModelConfig& c) { return architecture_of(c) == "glm4moe"; }

Metadata model_metadata(const ModelConfig& c, TensorType type, const std::string& name,
                        std::vector<std::string>& notes) {
  const std::string architecture = architecture_of(c);
  note_lengths(c, notes);
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
  keys.size("block_count", c.num_layers + c.num_predictions());
  if (c.num_predictions() > 0) keys.size("nextn_predict_layers", c.num_predictions());
  keys.size("context_length", c.max_positions);
  keys.size("embedding_length", c.hidden_size);
  // Qwen 1 counts both halves.
  keys.size("feed_forward_length", architecture == "qwen" ? 2 * c.ffn_size : c.ffn_size);
  keys.size("attention.head_count", c.num_heads);
  keys.size("attention.head_count_kv", c.latent ? 1 : c.num_kv_heads);
  if (c.latent) {
    add_latent(c, keys);
  } else if (c.num_heads * c.head_dim != c.hidden_size || c.raw.contains("head_dim") ||
             architecture.starts_with("gemma")) {
    keys.size("attention.key_length", c.head_dim);
    keys.size("attention.value_length", c.head_dim);
  }
  const bool has_means = architecture == "bloom" || architecture == "gpt2";
  keys.real(has_means ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
            c.norm_eps);
  add_rope(c, keys);
  if (architecture == "phi3" || architecture == "phimoe") {
    const auto& windows = c.sliding_window;
    keys.size("attention.sliding_window", *std::max_element(windows.begin(), windows.end()));
  }
  if (architecture.starts_with("gemma")) add_gemma(c, keys);
  if (architecture == "minicpm") {
    keys.real("embedding_scale", c.embedding_scale);
    keys.real("residual_scale", c.residual_scale);
    keys.real("logit_scale", 1.0 / c.logit_scale);
  }
  if (may_begin_dense(architecture)) {
    add_deepseek_experts(c, keys);
  } else if (c.has_experts()) {
    add_experts(c, keys);
  }
  return metadata;
}

std::vector<std::string> departures_of_llama_cpp(const ModelConfig& c) {
  std::vector<std::string> departures;
  if (c.family == "phimoe") {
    departures.push_back(
        tr("llama.cpp computes phimoe's norms without their means and its router as a softmax: its "
           "answers differ from the model's"));
  }
  if (c.has_experts() && c.experts.groups > 1 && !c.experts.sums_two_of_group) {
    departures.push_back(
        tr("llama.cpp takes a group of experts for as good as its two best ones, the model as its "
           "best one: their answers may differ"));
  }
  return departures;
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
    } else if (turns <= rope.high_freq_factor && rope.high_freq_factor > rope.low_freq_factor) {
      const double smooth =
          (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
      factor = 1.0 / ((1 - smooth) / rope.factor + smooth);
    }
    factors.push_back(static_cast<float>(factor));
  }
  return factors;
}

}  // namespace danlu::weights::gguf
