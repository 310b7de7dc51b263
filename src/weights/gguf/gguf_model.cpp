#include "weights/gguf/gguf_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "weights/gguf/gguf_architecture.h"

namespace danlu::weights::gguf {

namespace {

using arch::ModelConfig;
using arch::ParamSpec;
using arch::Role;

/// llama.cpp's rotary embedding of these architectures turns neighbours (2j, 2j + 1); Hugging
/// Face's turns (j, j + d/2): the rows of q and k are put in that order.
bool turns_neighbours(const std::string& architecture) {
  return architecture == "llama" || architecture == "baichuan" || architecture == "internlm2" ||
         architecture == "minicpm";
}
/// q, k and v stay one matrix.
bool keeps_joined(const std::string& architecture) {
  return architecture == "phi3" || architecture == "chatglm" || architecture == "gpt2" ||
         architecture == "qwen";
}
/// They are one matrix in the file too, of all queries, all keys, all values.
bool joins_by_kind(const std::string& architecture) { return architecture == "bloom"; }
/// Loaders that do without output.weight take the embedding for it.
bool needs_output(const std::string& architecture) {
  return architecture == "qwen2moe" || architecture == "baichuan" || architecture == "internlm2" ||
         architecture == "bloom" || architecture == "qwen";
}

/// Name within "blk.<layer>."; "" for what GGUF has no name for, or a family has elsewhere.
std::string_view short_name(Role role) {
  static const std::map<Role, std::string_view> kNames = {
      {Role::kEmbedding, "token_embd"},
      {Role::kPositions, "position_embd"},
      {Role::kEmbeddingNorm, "token_embd_norm"},
      {Role::kFinalNorm, "output_norm"},
      {Role::kHead, "output"},
      {Role::kAttentionNorm, "attn_norm"},
      {Role::kQ, "attn_q"},
      {Role::kK, "attn_k"},
      {Role::kV, "attn_v"},
      {Role::kO, "attn_output"},
      {Role::kQNorm, "attn_q_norm"},
      {Role::kKNorm, "attn_k_norm"},
      {Role::kMlpNorm, "ffn_norm"},
      {Role::kGate, "ffn_gate"},
      {Role::kUp, "ffn_up"},
      {Role::kGateUp, "ffn_up"},
      {Role::kPostAttentionNorm, "post_attention_norm"},
      {Role::kPostMlpNorm, "post_ffw_norm"},
      {Role::kDown, "ffn_down"},
      {Role::kRouter, "ffn_gate_inp"},
      {Role::kExpertGate, "ffn_gate_exps"},
      {Role::kExpertUp, "ffn_up_exps"},
      {Role::kExpertDown, "ffn_down_exps"},
      {Role::kSharedGateProj, "ffn_gate_shexp"},
      {Role::kSharedUp, "ffn_up_shexp"},
      {Role::kSharedDown, "ffn_down_shexp"},
      {Role::kSharedExpertGate, "ffn_gate_inp_shexp"},
      {Role::kQkv, "attn_qkv"},
      {Role::kQDown, "attn_q_a"},
      {Role::kQDownNorm, "attn_q_a_norm"},
      {Role::kKvDown, "attn_kv_a_mqa"},
      {Role::kKvDownNorm, "attn_kv_a_norm"},
      {Role::kKvUp, "attn_kv_b"},
      {Role::kRouterBias, "exp_probs_b"},
      {Role::kPredictionTokenNorm, "nextn.enorm"},
      {Role::kPredictionHiddenNorm, "nextn.hnorm"},
      {Role::kPredictionJoin, "nextn.eh_proj"},
      {Role::kPredictionNorm, "nextn.shared_head_norm"}};
  const auto name = kNames.find(role);
  return name == kNames.end() ? std::string_view() : name->second;
}

/// Which heads of the fused or separate q, k, v matrices a tensor is made of.
enum class Part { kQ, kK, kV };

class Planner {
 public:
  Planner(const ModelConfig& config, const std::vector<TensorInfo>& globals,
          const ModelOptions& options)
      : config_(config), options_(options), architecture_(architecture_of(config)) {
    for (const TensorInfo& info : globals) by_name_[info.name] = &info;
    plan_.layout.files = {options.file_name};
  }

  ModelPlan plan() {
    for (const ParamSpec& spec : arch::parameters_of(config_)) add(spec);
    if (config_.rope.scaling == arch::RopeScaling::kLlama3)
      add_constant(kRopeFactors, llama3_frequency_factors(config_));
    if (config_.rope.scaling == arch::RopeScaling::kLongRope) {
      const auto narrow = [](const std::vector<double>& wide) {
        return std::vector<float>(wide.begin(), wide.end());
      };
      add_constant(kLongFactors, narrow(config_.rope.long_factors));
      add_constant(kShortFactors, narrow(config_.rope.short_factors));
    }
    const bool in_blocks = !type_traits(options_.type).plain;
    plan_.type = in_blocks && !quantised_ ? TensorType::kF16 : options_.type;
    if (!narrow_.empty()) note_narrow_rows();
    for (std::string& line : departures_of_llama_cpp(config_))
      plan_.warnings.push_back(std::move(line));
    plan_.metadata = model_metadata(config_, plan_.type, options_.model_name, plan_.notes);
    return std::move(plan_);
  }

 private:
  void note_narrow_rows() {
    const TypeTraits& traits = type_traits(options_.type);
    if (!quantised_) {
      plan_.warnings.push_back(
          tr("nothing is quantised, since the rows of no matrix are a multiple of {} long: the "
             "file is F16, not {}",
             traits.block, traits.name));
      return;
    }
    constexpr size_t kShown = 5;
    const std::vector<std::string> shown(
        narrow_.begin(), narrow_.begin() + static_cast<int64_t>(std::min(kShown, narrow_.size())));
    plan_.notes.push_back(
        tr("{} tensors have rows that are no multiple of {}: stored as F16 instead of {}: {}{}",
           narrow_.size(), traits.block, traits.name, fmt::join(shown, ", "),
           narrow_.size() > kShown ? ", …" : ""));
  }

  size_t global(const std::string& name) {
    const auto it = by_name_.find(name);
    if (it == by_name_.end()) throw ModelError(tr("[gguf] no tensor {}", name));
    const auto [known, is_new] = indices_.try_emplace(name, plan_.layout.globals.size());
    if (is_new) plan_.layout.globals.push_back(*it->second);
    return known->second;
  }

  void add(const ParamSpec& spec) {
    if (!spec.tied_to.empty()) {
      if (!needs_output(architecture_)) return;
      StoredTensor& tensor = stored(name_of(spec), spec.shape, spec.role);
      whole(tensor, global(spec.tied_to), /*replica=*/true);
      return;
    }
    const size_t index = global(spec.name);
    if (spec.role == Role::kQkv && joins_by_kind(architecture_)) {
      add_parts_below_each_other(spec, index);
    } else if (spec.role == Role::kQkv && !keeps_joined(architecture_)) {
      add_part(spec, index, Part::kQ);
      add_part(spec, index, Part::kK);
      add_part(spec, index, Part::kV);
    } else if ((spec.role == Role::kQ || spec.role == Role::kK) &&
               turns_neighbours(architecture_)) {
      add_part(spec, index, spec.role == Role::kQ ? Part::kQ : Part::kK);
    } else if (spec.expert >= 0) {
      add_expert(spec, index);
    } else if (spec.role == Role::kKvUp && !options_.joins_kv_up) {
      add_parts_of_heads(spec, index);
    } else {
      std::vector<int64_t> shape = spec.shape;
      if (spec.role == Role::kSharedExpertGate) shape = {shape[1]};
      whole(stored(name_of(spec), shape, spec.role), index, false);
    }
  }

  std::string name_of(const ParamSpec& spec) const {
    std::string_view name = short_name(spec.role);
    if (spec.role == Role::kQ && config_.latent && config_.latent->q_rank > 0) name = "attn_q_b";
    // What Hugging Face calls it too; it stands before the MLP all the same.
    if (spec.role == Role::kMlpNorm && architecture_ == "glm4moe") name = "post_attention_norm";
    return name_of(spec, name);
  }
  static std::string name_of(const ParamSpec& spec, std::string_view name) {
    const char* kind = spec.is_bias || spec.role == Role::kRouterBias ? "bias" : "weight";
    return spec.layer < 0 ? fmt::format("{}.{}", name, kind)
                          : fmt::format("blk.{}.{}.{}", spec.layer, name, kind);
  }

  /// Vectors, positions and what decides the routing stay F32: they are small, and rounding them
  /// costs most.
  TensorType type_of(const std::string& name, const std::vector<int64_t>& shape, Role role) {
    if (shape.size() < 2 || role == Role::kRouter || role == Role::kPositions)
      return TensorType::kF32;
    const TypeTraits& traits = type_traits(options_.type);
    if (traits.plain) return options_.type;
    if (shape.back() % traits.block != 0) {
      narrow_.push_back(name);
      return TensorType::kF16;
    }
    quantised_ = true;
    // Errors of the embedding and of the head reach every logit undamped.
    const bool is_end = role == Role::kEmbedding || role == Role::kHead;
    return is_end ? TensorType::kQ8_0 : options_.type;
  }

  /// A new tensor at the end of the file, without sections.
  StoredTensor& stored(const std::string& name, const std::vector<int64_t>& shape, Role role) {
    const TensorType type = type_of(name, shape, role);
    plan_.tensors.push_back({name, shape, type});
    StoredTensor tensor;
    tensor.info = {name, type_traits(type).plain.value_or(DType::kF32), shape};
    tensor.blocks = block_type(static_cast<uint32_t>(type));
    return plan_.layout.tensors.emplace_back(std::move(tensor));
  }

  void whole(StoredTensor& tensor, size_t index, bool replica) {
    const Rect matrix = matrix_of(plan_.layout.globals[index].shape);
    Section section{.rows = matrix.rows, .cols = matrix.cols};
    section.pieces.push_back({.global = index, .of = matrix, .replica = replica});
    tensor.sections.push_back(std::move(section));
  }

  /// Experts of a layer stand one after another in one tensor [experts, rows, columns].
  void add_expert(const ParamSpec& spec, size_t index) {
    const int64_t rows = spec.shape[0], cols = spec.shape[1];
    const auto key = std::pair(spec.layer, spec.role);
    auto it = stacked_.find(key);
    if (it == stacked_.end()) {
      stored(name_of(spec), {config_.experts.count, rows, cols}, spec.role);
      it = stacked_.emplace(key, plan_.layout.tensors.size() - 1).first;
    }
    Section section{.first = spec.expert * rows * cols, .rows = rows, .cols = cols};
    section.pieces.push_back({.global = index, .of = {0, rows, 0, cols}});
    plan_.layout.tensors[it->second].sections.push_back(std::move(section));
  }

  /// Adds each head's key rows, turned over, as [heads, kv_rank, nope_dim], and its value rows as
  /// [heads, v_dim, kv_rank].
  void add_parts_of_heads(const ParamSpec& spec, size_t index) {
    const arch::LatentConfig& latent = *config_.latent;
    const int64_t heads = config_.num_heads, cols = latent.kv_rank, keys = latent.nope_dim;
    const int64_t values = latent.v_dim;
    const auto add = [&](const char* name, int64_t first_row, int64_t rows, bool turned) {
      const int64_t high = turned ? cols : rows, wide = turned ? rows : cols;
      StoredTensor& tensor = stored(name_of(spec, name), {heads, high, wide}, spec.role);
      for (int64_t head = 0; head < heads; ++head) {
        Section section{.first = head * high * wide, .rows = high, .cols = wide};
        section.pieces.push_back({.global = index,
                                  .of = {head * (keys + values) + first_row, rows, 0, cols},
                                  .transposed = turned});
        tensor.sections.push_back(std::move(section));
      }
    };
    add("attn_k_b", 0, keys, true);
    add("attn_v_b", keys, values, false);
  }

  /// First row of a head in the matrix that holds it.
  int64_t first_row(Part part, int64_t head) const {
    const int64_t heads = config_.num_heads, groups = config_.num_kv_heads;
    switch (config_.qkv_layout) {
      case arch::QkvLayout::kSeparate:
        break;
      case arch::QkvLayout::kThirds:
      case arch::QkvLayout::kJoined: {
        const int64_t before = part == Part::kQ ? 0 : part == Part::kK ? heads : heads + groups;
        return (before + head) * config_.head_dim;
      }
      case arch::QkvLayout::kInterleaved: {
        const int64_t per_group = heads / groups;
        const int64_t group = part == Part::kQ ? head / per_group : head;
        const int64_t within = part == Part::kQ   ? head % per_group
                               : part == Part::kK ? per_group
                                                  : per_group + 1;
        return (group * (per_group + 2) + within) * config_.head_dim;
      }
    }
    return head * config_.head_dim;
  }

  void add_part(const ParamSpec& spec, size_t index, Part part) {
    constexpr std::string_view kNames[] = {"attn_q", "attn_k", "attn_v"};
    const int64_t heads = part == Part::kQ ? config_.num_heads : config_.num_kv_heads;
    const int64_t head_dim = config_.head_dim;
    std::vector<int64_t> shape = spec.shape;
    shape[0] = heads * head_dim;
    const int64_t cols = matrix_of(spec.shape).cols;
    const bool pairs = part != Part::kV && config_.rope.enabled && turns_neighbours(architecture_);
    // Two neighbouring rows seen as one: row j of a head's first half, then row j of its second.
    const int64_t halves = pairs ? 2 : 1;
    const int64_t rows = head_dim / halves;
    Section section{.rows = heads * rows, .cols = halves * cols};
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t half = 0; half < halves; ++half) {
        section.pieces.push_back({.global = index,
                                  .of = {first_row(part, head) + half * rows, rows, 0, cols},
                                  .row = head * rows,
                                  .col = half * cols});
      }
    }
    StoredTensor& tensor = stored(name_of(spec, kNames[static_cast<int>(part)]), shape, spec.role);
    tensor.sections.push_back(std::move(section));
  }

  void add_parts_below_each_other(const ParamSpec& spec, size_t index) {
    const Rect matrix = matrix_of(spec.shape);
    Section section{.rows = matrix.rows, .cols = matrix.cols};
    int64_t row = 0;
    for (const Part part : {Part::kQ, Part::kK, Part::kV}) {
      const int64_t heads = part == Part::kQ ? config_.num_heads : config_.num_kv_heads;
      for (int64_t head = 0; head < heads; ++head, row += config_.head_dim) {
        section.pieces.push_back({.global = index,
                                  .of = {first_row(part, head), config_.head_dim, 0, matrix.cols},
                                  .row = row});
      }
    }
    stored(name_of(spec), spec.shape, spec.role).sections.push_back(std::move(section));
  }

  void add_constant(const char* name, const std::vector<float>& values) {
    ConstantTensor constant;
    constant.tensor = {name, {static_cast<int64_t>(values.size())}, TensorType::kF32};
    constant.bytes.assign(reinterpret_cast<const char*>(values.data()),
                          values.size() * sizeof(float));
    plan_.constants.push_back(std::move(constant));
  }

  const ModelConfig& config_;
  const ModelOptions& options_;
  std::string architecture_;
  std::map<std::string, const TensorInfo*> by_name_;
  std::map<std::string, size_t> indices_;               ///< into layout.globals
  std::map<std::pair<int64_t, Role>, size_t> stacked_;  ///< into layout.tensors
  std::vector<std::string> narrow_;                     ///< matrices whose rows no block divides
  bool quantised_ = false;                              ///< some matrix is in blocks
  ModelPlan plan_;
};

}  // namespace

ModelPlan plan_model(const ModelConfig& config, const std::vector<TensorInfo>& globals,
                     const ModelOptions& options) {
  return Planner(config, globals, options).plan();
}

}  // namespace danlu::weights::gguf
