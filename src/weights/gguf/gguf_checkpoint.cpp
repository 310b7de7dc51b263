#include "weights/gguf/gguf_checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "weights/gguf/block_layout.h"
#include "weights/gguf/gguf_architecture.h"
#include "weights/gguf/gguf_model.h"
#include "weights/gguf/gguf_reader.h"
#include "weights/gguf/offset_norms.h"
#include "weights/layout_source.h"
#include "weights/megatron/model_layout.h"

namespace danlu::weights::gguf {
namespace {

/// The base of the rotary embedding in a file that names none.
constexpr double kUsualRopeBase = 10000;

/// Writes config.json as the families read it, from what the file says.
class ConfigWriter {
 public:
  ConfigWriter(const Header& header, const TensorSource& tensors, std::string origin)
      : header_(header), tensors_(tensors), origin_(std::move(origin)) {
    architecture_ = text("general.architecture");
  }

  /// Layers, with those that predict further ahead.
  int64_t blocks() const { return static_cast<int64_t>(required("block_count")); }

  /// Layers that predict further ahead are there, and not only counted.
  bool has_predictions() const {
    return tensors_.find(fmt::format("blk.{}.nextn.eh_proj.weight", blocks() - 1)) != nullptr;
  }

  Json config() {
    config_["model_type"] = model_type();
    sizes();
    if (number(key("expert_count")).value_or(0) > 0) experts();
    rope();
    if (architecture_ == "deepseek2") latent();
    biases();
    quirks();
    config_["torch_dtype"] = dtype();
    stops();
    return config_;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw ModelError(tr("{}: {}", origin_, why),
                     tr("take the Hugging Face directory that the file was made from"));
  }

  std::string key(const char* name) const { return architecture_ + "." + name; }

  std::string text(const std::string& name) const {
    const Value* value = find(header_.metadata, name);
    const auto* held = value ? std::get_if<std::string>(value) : nullptr;
    if (!held) refuse(tr("the key {} is missing, or is no text", name));
    return *held;
  }

  std::optional<double> number(const std::string& name) const {
    const Value* value = find(header_.metadata, name);
    if (!value) return std::nullopt;
    return std::visit(
        [&](const auto& held) -> std::optional<double> {
          using T = std::decay_t<decltype(held)>;
          if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, Array>) {
            refuse(tr("the key {} is no number", name));
          } else if constexpr (std::is_same_v<T, float>) {
            return shortest_double(held);
          } else {
            return static_cast<double>(held);
          }
        },
        *value);
  }

  double required(const char* name) const {
    const auto value = number(key(name));
    if (!value) refuse(tr("the key {} is missing", key(name)));
    return *value;
  }

  /// Counts come as whole numbers; anything else is for the family's parser to refuse.
  static Json whole(double value) {
    return value == std::floor(value) && std::abs(value) < 1e15 ? Json(static_cast<int64_t>(value))
                                                                : Json(value);
  }

  void put(const char* ours, const char* theirs) { config_[ours] = whole(required(theirs)); }
  bool put_if_there(const char* ours, const char* theirs) {
    const auto value = number(key(theirs));
    if (value) config_[ours] = whole(*value);
    return value.has_value();
  }

  /// Refuses a file that has the key with another number.
  void expect(const char* name, double only) const {
    const auto value = number(key(name));
    if (value && *value != only)
      refuse(tr("the key {} is {}; this version reads {} alone", key(name), *value, only));
  }

  std::string model_type() const {
    const bool is_sparse = number(key("expert_count")).value_or(0) > 0;
    if (architecture_ == "llama") return is_sparse ? "mixtral" : "llama";
    if (architecture_ == "llama4") return "llama4_text";
    if (architecture_ == "qwen2moe") return "qwen2_moe";
    if (architecture_ == "qwen3moe") return "qwen3_moe";
    // llama.cpp has one architecture for both.
    if (architecture_ == "chatglm") return tensors_.find("blk.0.attn_q.weight") ? "glm" : "chatglm";
    if (architecture_ == "glm4moe") return "glm4_moe";
    if (architecture_ == "gemma3") return "gemma3_text";
    if (architecture_ == "deepseek2") {
      // Files from before there was a V3 do not say it.
      const bool is_v3 = number(key("expert_gating_func")).value_or(1) == 2;
      return is_v3 ? "deepseek_v3" : "deepseek_v2";
    }
    for (const char* same : {"qwen2", "qwen3", "baichuan", "internlm2", "phi3", "phimoe", "glm4",
                             "minicpm", "bloom", "gpt2", "gemma", "gemma2", "qwen"}) {
      if (architecture_ == same) return same;
    }
    refuse(tr("the architecture {} is not read by this version", architecture_));
  }

  void stops() {
    const auto id = [&](const char* name) -> std::optional<double> {
      const auto found = number(fmt::format("tokenizer.ggml.{}_token_id", name));
      // How old converters write that there is none.
      return found == -1.0 || found == 4294967295.0 ? std::nullopt : found;
    };
    if (const auto bos = id("bos")) config_["bos_token_id"] = whole(*bos);
    Json ends = Json::array();
    for (const char* name : {"eos", "eot", "eom"}) {
      const auto end = id(name);
      if (end && std::find(ends.begin(), ends.end(), whole(*end)) == ends.end())
        ends.push_back(whole(*end));
    }
    if (!ends.empty()) config_["eos_token_id"] = ends.size() == 1 ? ends[0] : ends;
  }

  void sizes() {
    const TensorInfo* embedding = tensors_.find("token_embd.weight");
    if (!embedding || embedding->shape.size() != 2) refuse("there is no token_embd.weight");
    config_["vocab_size"] = embedding->shape[0];
    put("hidden_size", "embedding_length");
    // Layers that predict further ahead are counted too.
    const double ahead = number(key("nextn_predict_layers")).value_or(0);
    config_["num_hidden_layers"] = whole(required("block_count") - ahead);
    if (has_predictions()) config_["num_nextn_predict_layers"] = whole(ahead);
    put("intermediate_size", "feed_forward_length");
    put("num_attention_heads", "attention.head_count");
    if (architecture_ != "deepseek2") {
      put_if_there("num_key_value_heads", "attention.head_count_kv");
      put_if_there("head_dim", "attention.key_length");
    }
    const bool is_bloom = architecture_ == "bloom", has_means = is_bloom || architecture_ == "gpt2";
    config_[has_means ? "layer_norm_epsilon" : "rms_norm_eps"] =
        required(has_means ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon");
    // Baichuan's kinds are told apart as llama.cpp does: by their depth.
    const bool is_alibi = architecture_ == "baichuan" && config_["num_hidden_layers"] == 40;
    put(is_alibi   ? "model_max_length"
        : is_bloom ? "seq_length"
                   : "max_position_embeddings",
        "context_length");
    config_["tie_word_embeddings"] = tensors_.find("output.weight") == nullptr;
  }

  void rope() {
    if (architecture_ == "bloom" || architecture_ == "gpt2") return;
    if (const auto base = number(key("rope.freq_base"))) {
      config_["rope_theta"] = *base;
    } else if (!(architecture_ == "baichuan" && config_["num_hidden_layers"] == 40)) {
      config_["rope_theta"] = kUsualRopeBase;
      // A command may open its model more than once.
      static std::once_flag said;
      std::call_once(said, [&] {
        log::notice("{}: no {} in it: {} is taken, as llama.cpp does", origin_,
                    key("rope.freq_base"), kUsualRopeBase);
      });
    }
    const auto width = number(key("rope.dimension_count"));
    const double heads = config_["num_attention_heads"].get<double>();
    const double head_dim = config_.contains("head_dim")
                                ? config_["head_dim"].get<double>()
                                : config_["hidden_size"].get<double>() / heads;
    const std::string family = config_["model_type"].get<std::string>();
    if (family.starts_with("glm")) config_["head_dim"] = whole(head_dim);
    const bool is_half = family == "chatglm", is_partial = is_half || is_partly_rotated(family);
    if (is_partial && !is_half)
      config_["partial_rotary_factor"] = width.value_or(head_dim) / head_dim;
    const bool is_latent = architecture_ == "deepseek2";
    if (!is_latent && width &&
        (is_half ? *width * 2 != head_dim : !is_partial && *width != head_dim))
      refuse(tr("rotary embedding of {} of {} dimensions of a head", *width, head_dim));
    if (tensors_.find(kRopeFactors)) return llama3_rope();
    if (tensors_.find(kLongFactors)) return longrope();
    const std::string name = scaling_type();
    if (name == "none") return;
    if (name != "linear" && name != "yarn") refuse(tr("rope scaling {}", name));
    const double factor = name == "linear" ? linear_factor() : required("rope.scaling.factor");
    Json scaling = {{"type", name}, {"rope_type", name}, {"factor", factor}};
    if (name == "yarn") {
      scaling["original_max_position_embeddings"] =
          whole(required("rope.scaling.original_context_length"));
    }
    if (is_latent) add_temperature(scaling);
    config_["rope_scaling"] = scaling;
  }

  /// llama.cpp's reading: files of 2023 have a factor under another name, or no type beside it.
  double linear_factor() const {
    const double factor =
        number(key("rope.scaling.factor")).value_or(number(key("rope.scale_linear")).value_or(1));
    return factor == 0 ? 1 : factor;
  }
  std::string scaling_type() const {
    if (find(header_.metadata, key("rope.scaling.type"))) return text(key("rope.scaling.type"));
    return linear_factor() == 1 ? "none" : "linear";
  }

  /// DeepSeek's yarn.
  void add_temperature(Json& scaling) const {
    const double all = rounded(10 * number(key("rope.scaling.yarn_log_multiplier")).value_or(0));
    scaling["mscale"] = scaling["mscale_all_dim"] = whole(all);
    scaling["beta_fast"] = whole(number(key("rope.scaling.yarn_beta_fast")).value_or(32));
    scaling["beta_slow"] = whole(number(key("rope.scaling.yarn_beta_slow")).value_or(1));
  }

  static bool is_partly_rotated(const std::string& family) {
    return family == "phi3" || family == "glm" || family == "glm4" || family == "glm4_moe";
  }

  std::vector<float> floats(const char* name) {
    const TensorInfo* info = tensors_.find(name);
    if (!info || info->dtype != DType::kF32 || info->num_elements() == 0)
      refuse(tr("{} is no list of F32", name));
    std::vector<float> values(static_cast<size_t>(info->num_elements()));
    tensors_.read(name, std::as_writable_bytes(std::span(values)));
    return values;
  }

  void longrope() {
    const auto list = [&](const char* name) {
      Json values = Json::array();
      for (const float value : floats(name)) values.push_back(shortest_double(value));
      return values;
    };
    Json scaling = {{"type", "longrope"},
                    {"rope_type", "longrope"},
                    {"short_factor", list(kShortFactors)},
                    {"long_factor", list(kLongFactors)}};
    const Json original = whole(required("rope.scaling.original_context_length"));
    if (architecture_ == "phi3") {
      config_["original_max_position_embeddings"] = original;
    } else {
      scaling["original_max_position_embeddings"] = original;
    }
    config_["rope_scaling"] = scaling;
    const auto factor = number(key("rope.scaling.attn_factor"));
    const double usual = longrope_attention_factor(arch::parse_model_config(config_, origin_));
    if (factor && std::abs(*factor - usual) > 1e-6 * usual)
      config_["rope_scaling"]["attention_factor"] = *factor;
  }

  /// The file has the factors that llama3's rule gives, not the rule: the published models' numbers
  /// are tried, and taken if they give these factors.
  void llama3_rope() {
    const std::vector<float> factors = floats(kRopeFactors);
    const auto equal = [](float a, float b) { return std::abs(a - b) <= 1e-4f * std::abs(b); };
    // Llama 3's, and Llama 4's.
    for (const double high : {4.0, 1.0}) {
      config_["rope_scaling"] = {{"rope_type", "llama3"},
                                 {"factor", *std::max_element(factors.begin(), factors.end())},
                                 {"low_freq_factor", 1.0},
                                 {"high_freq_factor", high},
                                 {"original_max_position_embeddings", 8192}};
      const std::vector<float> known =
          llama3_frequency_factors(arch::parse_model_config(config_, origin_));
      if (std::equal(known.begin(), known.end(), factors.begin(), factors.end(), equal)) return;
    }
    refuse(tr("{} are not those of a published Llama 3", kRopeFactors));
  }

  /// Heads in full, and the short vectors that they come from.
  void latent() {
    put_if_there("q_lora_rank", "attention.q_lora_rank");
    put("kv_lora_rank", "attention.kv_lora_rank");
    put("qk_rope_head_dim", "rope.dimension_count");
    const bool is_short = number(key("attention.key_length_mla")).has_value();
    const double head = required(is_short ? "attention.key_length_mla" : "attention.key_length");
    config_["qk_nope_head_dim"] = whole(head - required("rope.dimension_count"));
    put("v_head_dim", is_short ? "attention.value_length_mla" : "attention.value_length");
  }

  void deepseek_experts() {
    put("n_routed_experts", "expert_count");
    put("num_experts_per_tok", "expert_used_count");
    put("moe_intermediate_size", "expert_feed_forward_length");
    put_if_there("n_shared_experts", "expert_shared_count");
    config_["first_k_dense_replace"] = whole(number(key("leading_dense_block_count")).value_or(0));
    config_["norm_topk_prob"] = number(key("expert_weights_norm")).value_or(0) != 0;
    config_["routed_scaling_factor"] = whole(number(key("expert_weights_scale")).value_or(1));
    const double groups = number(key("expert_group_count")).value_or(1);
    config_["n_group"] = whole(groups);
    config_["topk_group"] = whole(number(key("expert_group_used_count")).value_or(1));
    if (config_["model_type"] == "deepseek_v2")
      config_["topk_method"] = groups > 1 ? "group_limited_greedy" : "greedy";
  }

  void experts() {
    if (architecture_ == "glm4moe" || architecture_ == "deepseek2") return deepseek_experts();
    const std::string family = config_["model_type"];
    const bool is_plain = family == "mixtral" || family == "phimoe" || family == "llama4_text";
    put(is_plain ? "num_local_experts" : "num_experts", "expert_count");
    put("num_experts_per_tok", "expert_used_count");
    if (family == "llama4_text") return llama4_experts();
    if (is_plain) return;
    put("moe_intermediate_size", "expert_feed_forward_length");
    put_if_there("shared_expert_intermediate_size", "expert_shared_feed_forward_length");
    config_["norm_topk_prob"] = architecture_ == "qwen3moe";
  }

  /// Experts have another width than the dense layers; what no key says, llama.cpp takes for
  /// granted (gguf_architecture.cpp), as the defaults of config.json have it.
  void llama4_experts() {
    config_["intermediate_size_mlp"] = config_["intermediate_size"];
    put("intermediate_size", "expert_feed_forward_length");
    put("interleave_moe_layer_step", "interleave_moe_layer_step");
    config_["use_qk_norm"] = config_["num_local_experts"] != 128;
  }

  void biases() {
    const auto has = [&](const char* tensor) { return tensors_.find(tensor) != nullptr; };
    if (architecture_ == "llama") {
      config_["attention_bias"] = has("blk.0.attn_q.bias");
      config_["mlp_bias"] = has("blk.0.ffn_gate.bias");
    } else if (architecture_ == "internlm2") {
      config_["bias"] = has("blk.0.attn_q.bias");
    } else if (architecture_ == "qwen3" || architecture_ == "qwen3moe" || architecture_ == "glm4" ||
               architecture_ == "glm4moe" || architecture_ == "phimoe" ||
               config_["model_type"] == "glm") {
      config_["attention_bias"] = has("blk.0.attn_q.bias");
    }
    if (architecture_ == "phimoe") config_["lm_head_bias"] = has("output.bias");
    if (architecture_ == "glm4moe") config_["use_qk_norm"] = has("blk.0.attn_q_norm.weight");
  }

  /// A number that was f32 when it was written, as the one it was made from.
  static double rounded(double value) {
    return std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr);
  }

  /// What sets a family apart from Llama.
  void quirks() {
    const std::string family = config_["model_type"].get<std::string>();
    if ((family == "phi3" || family == "phimoe") &&
        number(key("attention.sliding_window")).value_or(0) > 0)
      put("sliding_window", "attention.sliding_window");
    if (family == "minicpm") {
      const auto layers = config_["num_hidden_layers"].get<double>();
      config_["scale_emb"] = whole(rounded(required("embedding_scale")));
      config_["scale_depth"] = whole(rounded(required("residual_scale") * std::sqrt(layers)));
      config_["dim_model_base"] =
          whole(rounded(config_["hidden_size"].get<double>() / required("logit_scale")));
    }
    if (family == "chatglm") as_chatglm();
    if (family == "bloom") as_bloom();
    if (family == "gpt2") as_gpt2();
    if (family == "qwen") as_qwen();
    if (family.starts_with("gemma")) as_gemma();
  }

  void as_gemma() {
    config_["hidden_activation"] = "gelu_pytorch_tanh";
    config_["head_dim"] = whole(required("attention.key_length"));
    if (architecture_ == "gemma") return;
    if (architecture_ == "gemma2") {
      // Where older files say none, as llama.cpp has it.
      constexpr double kUsualWindow = 4096;
      config_["sliding_window"] =
          whole(number(key("attention.sliding_window")).value_or(kUsualWindow));
      config_["attn_logit_softcapping"] = number(key("attn_logit_softcapping")).value_or(50);
      config_["final_logit_softcapping"] = number(key("final_logit_softcapping")).value_or(30);
    } else {
      put("sliding_window", "attention.sliding_window");
      expect("attention.sliding_window_pattern", kGemma3Period);
      expect("final_logit_softcapping", 0);
      config_["sliding_window_pattern"] = kGemma3Period;
      config_["rope_local_base_freq"] = number(key("rope.freq_base_swa")).value_or(kUsualRopeBase);
    }
    config_["query_pre_attn_scalar"] =
        gemma_query_scalar(arch::parse_model_config(config_, origin_), architecture_);
  }

  /// Under the keys of that family.
  void as_qwen() {
    rename({{"rms_norm_eps", "layer_norm_epsilon"},
            {"rope_theta", "rotary_emb_base"},
            {"head_dim", "kv_channels"},
            {"max_position_embeddings", "seq_length"}});
    config_["no_bias"] = true;
    config_.erase("num_key_value_heads");
  }

  /// Under the keys of that family, whose MLP is 4 times as wide as its hidden states.
  void as_bloom() {
    if (config_["intermediate_size"] != 4 * config_["hidden_size"].get<int64_t>())
      refuse(
          tr("the key {} is not 4 times {}", key("feed_forward_length"), key("embedding_length")));
    config_["n_layer"] = config_["num_hidden_layers"];
    config_["n_head"] = config_["num_attention_heads"];
    for (const char* gone : {"num_hidden_layers", "num_attention_heads", "intermediate_size",
                             "num_key_value_heads", "head_dim"})
      config_.erase(gone);
  }

  void rename(std::initializer_list<std::pair<const char*, const char*>> keys) {
    for (const auto& [key_here, theirs] : keys) {
      if (!config_.contains(key_here)) continue;
      config_[theirs] = config_[key_here];
      config_.erase(key_here);
    }
  }

  /// Under the keys of that family.
  void as_gpt2() {
    rename({{"num_hidden_layers", "n_layer"},
            {"num_attention_heads", "n_head"},
            {"hidden_size", "n_embd"},
            {"intermediate_size", "n_inner"},
            {"max_position_embeddings", "n_positions"}});
    for (const char* gone : {"num_key_value_heads", "head_dim"}) config_.erase(gone);
  }

  /// Under the keys of that family.
  void as_chatglm() {
    rename({{"num_hidden_layers", "num_layers"},
            {"intermediate_size", "ffn_hidden_size"},
            {"head_dim", "kv_channels"},
            {"rms_norm_eps", "layernorm_epsilon"},
            {"max_position_embeddings", "seq_length"},
            {"vocab_size", "padded_vocab_size"}});
    config_["multi_query_attention"] = config_.contains("num_key_value_heads");
    if (config_.contains("num_key_value_heads"))
      config_["multi_query_group_num"] = config_["num_key_value_heads"];
    config_["rope_ratio"] = whole(rounded(config_["rope_theta"].get<double>() / kUsualRopeBase));
    config_["add_qkv_bias"] = tensors_.find("blk.0.attn_qkv.bias") != nullptr;
    for (const char* gone : {"num_key_value_heads", "rope_theta"}) config_.erase(gone);
  }

  std::string dtype() const {
    const TensorInfo* matrix = tensors_.find("token_embd.weight");
    return matrix->dtype == DType::kBF16  ? "bfloat16"
           : matrix->dtype == DType::kF16 ? "float16"
                                          : "float32";
  }

  const Header& header_;
  const TensorSource& tensors_;
  std::string origin_, architecture_;
  Json config_ = Json::object();
};

/// How llama.cpp's converter would write the model, with the types that are in the file.
Layout layout_of(const arch::ModelConfig& config, const std::string& file_name,
                 const TensorSource& tensors) {
  ModelPlan plan = plan_model(config, megatron::global_tensors(config, DType::kF32),
                              {.type = TensorType::kF32,
                               .file_name = file_name,
                               .joins_kv_up = tensors.find("blk.0.attn_kv_b.weight") != nullptr});
  return std::move(plan.layout);
}

/// "blk.12.attn_q.weight" -> 12; -1: it is in no block.
int64_t block_of(const std::string& name) {
  constexpr std::string_view kBlocks = "blk.";
  int64_t block = -1;
  if (name.starts_with(kBlocks))
    std::from_chars(name.data() + kBlocks.size(), name.data() + name.size(), block);
  return block;
}

/// What the model has no use for would be lost silently; blocks after its last layer predict
/// further ahead.
void refuse_unknown(const Layout& layout, const TensorSource& tensors, const std::string& origin,
                    int64_t layers, int64_t blocks) {
  std::set<std::string> known = {kRopeFactors, kLongFactors, kShortFactors};
  for (const StoredTensor& stored : layout.tensors) known.insert(stored.info.name);
  std::vector<std::string> unknown;
  for (const TensorInfo& info : tensors.tensors()) {
    const int64_t block = block_of(info.name);
    const bool is_ahead = block >= layers && block < blocks;
    if (!is_ahead && !known.count(info.name)) unknown.push_back(info.name);
  }
  if (unknown.empty()) return;
  constexpr size_t kShown = 5;
  const size_t count = unknown.size();
  unknown.resize(std::min(count, kShown));
  throw ModelError(tr("{}: {} tensors are no part of the model its keys describe: {}{}", origin,
                      count, fmt::join(unknown, ", "), count > kShown ? ", …" : ""));
}

WidenedBlocks widened_in(const Header& header) {
  WidenedBlocks widened;
  std::set<std::string> types;
  for (const TensorEntry& entry : header.tensors) {
    const auto type = block_type(entry.type);
    if (!type || is_multiplied(*type)) continue;
    types.insert(std::string(block_traits(*type).name));
    ++widened.tensors;
    widened.elements += static_cast<int64_t>(entry.size_bytes / block_traits(*type).bytes *
                                             block_traits(*type).numbers);
  }
  widened.types.assign(types.begin(), types.end());
  return widened;
}

std::string types_in(const Header& header) {
  std::set<std::string> names;
  for (const TensorEntry& entry : header.tensors)
    names.insert(std::string(type_traits(entry.type)->name));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

bool is_gguf_file(const std::filesystem::path& path) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path, unknown)) return false;  // a pipe would wait
  std::ifstream in(path, std::ios::binary);
  char magic[4] = {};
  in.read(magic, sizeof magic);
  return in.gcount() == 4 && std::string_view(magic, 4) == "GGUF";
}

Checkpoint open_checkpoint(const std::filesystem::path& file) {
  const auto tensors = open(file);
  const MappedFile content(file);
  const Header header = parse_header(content.bytes(), file.string());
  Checkpoint checkpoint;
  ConfigWriter writer(header, *tensors, file.string());
  checkpoint.config = arch::parse_model_config(writer.config(), file.string());
  arch::ModelConfig all = checkpoint.config;
  all.predicts_ahead = writer.has_predictions() && all.experts.prediction_layers > 0;
  Layout layout = layout_of(all, file.filename().string(), *tensors);
  refuse_unknown(layout, *tensors, file.string(), checkpoint.config.num_layers, writer.blocks());
  BlockLayout blocks = layout_in_blocks(layout, header);
  if (!blocks.types.empty()) {
    checkpoint.blocks = std::make_shared<BlockTensors>(BlockTensors{
        std::move(blocks.types), open_layout(std::move(blocks.layout), {open_blocks(file)})});
  }
  checkpoint.model =
      with_one_taken(open_layout(std::move(layout), {tensors}), checkpoint.config, header.metadata);
  checkpoint.widened = widened_in(header);
  checkpoint.description = fmt::format("{}, {}", checkpoint.config.family, types_in(header));
  return checkpoint;
}

}  // namespace danlu::weights::gguf
