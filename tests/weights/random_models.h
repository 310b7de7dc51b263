// tests/weights/random_models.h: random models, splits and weights for properties that must hold of
// all of them.
#pragma once
#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "support/tiny_model.h"
#include "weights/convert/optimizer_state.h"
#include "weights/megatron/model_layout.h"
#include "weights/source_base.h"

namespace danlu::test {

/// Tensors held in memory.
class MemorySource final : public weights::SourceBase<std::vector<std::byte>> {
 public:
  explicit MemorySource(
      std::vector<std::pair<weights::TensorInfo, std::vector<std::byte>>> tensors) {
    set_tensors(std::move(tensors));
  }
  void read(const std::string& name, std::span<std::byte> out) const override {
    read_range(name, 0, find(name)->num_elements(), out);
  }
  void read_range(const std::string& name, int64_t begin, int64_t end,
                  std::span<std::byte> out) const override {
    const size_t index = index_of(name, "memory");
    weights::check_range(infos_[index], begin, end, out.size());
    const size_t item = dtype_size_bytes(infos_[index].dtype);
    if (!out.empty())
      std::memcpy(out.data(), locations_[index].data() + static_cast<size_t>(begin) * item,
                  out.size());
  }
  std::span<const std::byte> mapped(const std::string& name) const override {
    return locations_[index_of(name, "memory")];
  }
  std::filesystem::path file_of(const std::string&) const override { return "memory"; }
};

class RandomModels {
 public:
  explicit RandomModels(uint64_t seed) : random_(seed) {}

  int64_t between(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool coin() { return between(0, 1) == 1; }
  template <typename T>
  T one_of(const std::vector<T>& choices) {
    return choices[static_cast<size_t>(between(0, static_cast<int64_t>(choices.size()) - 1))];
  }

  /// config.json of a small model of text of a random family: grouped and plain heads, tied and
  /// untied, biased and not, vocabularies that nothing divides.
  Json config_json() {
    std::vector<std::string> families;
    for (const arch::Family& family : arch::families()) {
      // Other formats have no place for encoders.
      const bool is_encoder = family.name == "bert" || family.name.ends_with("roberta");
      // Formats other than Hugging Face's refuse linear attention.
      const bool is_linear =
          family.name.starts_with("qwen3_next") || family.name.starts_with("qwen3_5");
      if (!family.name.ends_with("_vl") && !is_encoder && !is_linear)
        families.push_back(family.name);
    }
    const std::string family = one_of(families);
    Json json = tiny_config(family);
    const int64_t groups = one_of<int64_t>({2, 4}), queries = one_of<int64_t>({1, 2, 3});
    const int64_t head_dim = 2 * between(1, 3);
    const bool fused_thirds =
        family == "baichuan" || family == "qwen" || family == "bloom" || family == "gpt2";
    json["num_attention_heads"] = fused_thirds ? groups : groups * queries;
    json["hidden_size"] = json["num_attention_heads"].get<int64_t>() * head_dim;
    if (!fused_thirds) json["num_key_value_heads"] = groups;
    if (json.contains("head_dim")) json["head_dim"] = 2 * between(1, 4);
    if (family == "glm" || family == "glm4" || family == "glm4_moe" || family == "chatglm") {
      // Half of a head is rotated.
      json[family == "chatglm" ? "kv_channels" : "head_dim"] = 4 * between(1, 3);
    }
    if (family == "chatglm") {
      json.erase("num_key_value_heads");
      json["multi_query_group_num"] = groups;
      json["add_bias_linear"] = coin();
    }
    if (family == "glm" || family == "glm4") json["attention_bias"] = coin();
    json["intermediate_size"] =
        family == "bloom" ? 4 * json["hidden_size"].get<int64_t>() : 4 * between(1, 6);
    json["num_hidden_layers"] = one_of<int64_t>({2, 4, 6, 8});
    json["vocab_size"] = between(5, 70);
    json["tie_word_embeddings"] = coin();
    json["torch_dtype"] = one_of<std::string>({"float32", "bfloat16", "float16"});
    if (family == "llama") {
      json["attention_bias"] = coin();
      json["mlp_bias"] = coin();
    }
    if (family == "internlm" || family == "internlm2") json["bias"] = coin();
    if (family == "qwen") json["no_bias"] = coin();
    if (family == "qwen2_moe") {
      json["decoder_sparse_step"] = between(1, 2);
      json["shared_expert_intermediate_size"] = 4 * between(1, 4);
    }
    if (family == "llama4_text") {
      json["interleave_moe_layer_step"] = between(1, 2);
      json["intermediate_size_mlp"] = 4 * between(1, 6);
    }
    if (json.contains("kv_lora_rank")) add_latent(json);
    if (json.contains("moe_intermediate_size")) json["moe_intermediate_size"] = 4 * between(1, 4);
    return json;
  }

  /// Latent attention of other sizes, with and without a short vector of queries; dense layers
  /// alone, or experts behind the first.
  void add_latent(Json& json) {
    json["q_lora_rank"] = coin() ? Json(between(3, 9)) : Json();
    json["kv_lora_rank"] = between(3, 9);
    json["qk_nope_head_dim"] = between(1, 5);
    json["qk_rope_head_dim"] = 2 * between(1, 3);
    json["v_head_dim"] = between(1, 6);
    // MindSpeed has no place for a bias of keys without one of queries.
    json["attention_bias"] = !json["q_lora_rank"].is_null() && coin();
    if (coin() || json["model_type"] == "minicpm3") return;
    json.update({{"n_routed_experts", 4},
                 {"num_experts_per_tok", 2},
                 {"moe_intermediate_size", 24},
                 {"n_shared_experts", between(1, 2)},
                 {"first_k_dense_replace", 1},
                 {"n_group", 2},
                 {"topk_group", 1}});
  }

  /// The same with a vision tower; vocabulary and widths that 2 divides.
  Json vision_config_json() {
    Json json = tiny_config(one_of<std::string>({"qwen2_vl", "qwen2_5_vl"}));
    const int64_t groups = one_of<int64_t>({2, 4}), queries = one_of<int64_t>({1, 2, 3});
    const std::vector<int64_t> section = {between(1, 2), between(1, 2), between(1, 2)};
    json["num_key_value_heads"] = groups;
    json["num_attention_heads"] = groups * queries;
    const int64_t hidden = groups * queries * 2 * (section[0] + section[1] + section[2]);
    json["hidden_size"] = hidden;
    json["rope_scaling"]["mrope_section"] = section;
    json["intermediate_size"] = 4 * between(1, 6);
    json["num_hidden_layers"] = between(2, 6);
    json["vocab_size"] = 2 * between(48, 60);
    json["tie_word_embeddings"] = coin();
    json["torch_dtype"] = one_of<std::string>({"float32", "bfloat16", "float16"});
    Json& vision = json["vision_config"];
    const bool is_gated = json["model_type"] == "qwen2_5_vl";
    vision["depth"] = between(2, 5);
    vision["num_heads"] = one_of<int64_t>({2, 4});
    vision[is_gated ? "hidden_size" : "embed_dim"] =
        vision["num_heads"].get<int64_t>() * 4 * between(1, 3);
    vision[is_gated ? "out_hidden_size" : "hidden_size"] = hidden;
    if (is_gated) vision["intermediate_size"] = 2 * between(1, 12);
    return json;
  }

  /// Lists of MindSpeed-MM that the model allows; several chunks where there are several stages.
  weights::megatron::Split vision_split(const arch::ModelConfig& config) {
    weights::megatron::Split split;
    split.tp = one_of<int64_t>({1, 2});
    split.pp = between(1, 4);
    const int64_t chunks = split.pp == 1 ? 1 : between(1, 3), cells = chunks * split.pp;
    const int64_t blocks = config.vision->depth, parts = blocks + config.num_layers;
    std::vector<bool> has_some;
    do {
      std::vector<int64_t> cuts = {0, parts};
      for (int64_t cell = 1; cell < cells; ++cell) cuts.push_back(between(0, parts));
      std::sort(cuts.begin(), cuts.end());
      split.chunk_list.assign(static_cast<size_t>(chunks), {});
      split.block_list.assign(static_cast<size_t>(chunks), {});
      has_some.assign(static_cast<size_t>(split.pp), false);
      for (size_t cell = 0; cell + 1 < cuts.size(); ++cell) {
        const int64_t begin = cuts[cell], end = cuts[cell + 1];
        const size_t chunk = cell / static_cast<size_t>(split.pp);
        split.block_list[chunk].push_back(std::min(end, blocks) - std::min(begin, blocks));
        split.chunk_list[chunk].push_back(std::max(end, blocks) - std::max(begin, blocks));
        if (end > begin) has_some[cell % static_cast<size_t>(split.pp)] = true;
      }
    } while (std::count(has_some.begin(), has_some.end(), false) > 0);
    return split;
  }

  arch::ModelConfig parse(const Json& json) {
    arch::ModelConfig config = arch::family_of(json).parse(json);
    config.validate();
    return config;
  }

  /// A split that the model allows.
  weights::megatron::Split split(const arch::ModelConfig& config) {
    weights::megatron::Split split;
    split.tp = one_of<int64_t>({1, 2});
    split.pp = one_of<int64_t>({1, 2, 3, 4});
    split.vocab_divisor = one_of<int64_t>({1, 3, 16});
    if (config.has_experts()) {
      split.ep = one_of<int64_t>({1, 2});
      split.tp_extends_ep = coin();
      split.counts_tensor_ranks = split.tp_extends_ep && split.tp > 1 && coin();
    }
    // No-op slots until the stages come out even, or stages of any sizes.
    int64_t slots = config.num_layers;
    if (coin() || slots % split.pp != 0) {
      if (coin()) {
        split.layer_list = sizes(slots, split.pp);
      } else {
        while (slots % split.pp != 0 || slots == config.num_layers) ++slots;
        std::vector<int64_t> all;
        for (int64_t slot = 0; slot < slots; ++slot) all.push_back(slot);
        std::shuffle(all.begin(), all.end(), random_);
        all.resize(static_cast<size_t>(slots - config.num_layers));
        std::sort(all.begin(), all.end());
        split.noop_layers = all;
      }
    }
    if (split.layer_list.empty() && split.pp > 1 && coin()) {
      const int64_t per_stage = slots / split.pp;
      do {
        split.layers_per_virtual_stage = between(1, per_stage);
      } while (per_stage % split.layers_per_virtual_stage != 0);
    }
    return split;
  }

  weights::megatron::Form form(const arch::ModelConfig& config) {
    using namespace weights::megatron;
    Form form;
    form.dialect = one_of<Dialect>({Dialect::kCore, Dialect::kTransformerEngine});
    if (!config.has_experts() && !config.latent && !config.has_post_norms && coin())
      form.dialect = Dialect::kLegacy;
    if (config.latent) {
      form.latent = one_of<LatentForm>(
          {LatentForm::kMindSpeed, LatentForm::kMindSpeedSplit, LatentForm::kMegatron});
      if (form.dialect == Dialect::kTransformerEngine) form.latent = LatentForm::kMegatron;
    }
    form.experts =
        one_of<ExpertForm>({ExpertForm::kSequential, ExpertForm::kGrouped, ExpertForm::kTeGrouped});
    if (!config.has_experts()) form.experts = ExpertForm::kSequential;
    return form;
  }

  /// Random bits, finite in every floating type.
  std::shared_ptr<const weights::TensorSource> source(
      const std::vector<weights::TensorInfo>& infos) {
    std::vector<std::pair<weights::TensorInfo, std::vector<std::byte>>> tensors;
    for (const weights::TensorInfo& info : infos) {
      std::vector<float> numbers(static_cast<size_t>(info.num_elements()));
      std::normal_distribution<float> normal;
      for (float& number : numbers) number = normal(random_);
      std::vector<std::byte> bytes(info.size_bytes());
      cast_elements(numbers.data(), DType::kF32, bytes.data(), info.dtype, numbers.size());
      tensors.emplace_back(info, std::move(bytes));
    }
    return std::make_shared<MemorySource>(std::move(tensors));
  }

  /// State of Adam for these parameters; settings as two groups with different decay.
  weights::OptimizerState optimizer(const std::vector<weights::TensorInfo>& parameters,
                                    bool has_master) {
    std::vector<weights::TensorInfo> infos;
    for (const char* prefix : weights::kStatePrefixes) {
      if (!has_master && std::string(prefix) == "master.") continue;
      for (const weights::TensorInfo& info : parameters) {
        // No gradient moves the bias that chooses among experts.
        if (info.name.ends_with("e_score_correction_bias")) continue;
        infos.push_back({prefix + info.name, DType::kF32, info.shape});
      }
    }
    weights::OptimizerState state;
    state.tensors = source(infos);
    state.has_master = has_master;
    for (const double decay : {1.0, 0.0}) {
      state.settings.groups.push_back({{"wd_mult", decay},
                                       {"lr_mult", 1.0},
                                       {"is_expert_parallel", false},
                                       {"is_decoupled_lr", false},
                                       {"lr", 1.25e-5},
                                       {"betas", {0.9, 0.95}},
                                       {"eps", 1e-8},
                                       {"weight_decay", 0.1 * decay},
                                       {"step", 42}});
    }
    state.settings.scheduler = {{"max_lr", 1.25e-5}, {"num_steps", 672}};
    state.settings.grad_scaler = Json::object();
    state.settings.iteration = 42;
    state.settings.consumed_train_samples = 672;
    return state;
  }

 private:
  /// `count` numbers ≥ 0 that sum to `total`.
  std::vector<int64_t> sizes(int64_t total, int64_t count) {
    std::vector<int64_t> parts(static_cast<size_t>(count));
    for (int64_t i = 0; i < total; ++i) ++parts[static_cast<size_t>(between(0, count - 1))];
    return parts;
  }

  std::mt19937_64 random_;
};

}  // namespace danlu::test
