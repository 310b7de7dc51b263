#include "arch/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "arch/config_reader.h"
#include "base/error.h"
#include "base/file.h"
#include "base/lfs_pointer.h"
#include "base/nearest_name.h"

namespace danlu::arch {
namespace {

void require_positive(std::string_view name, int64_t size) {
  if (size > 0) return;
  throw ModelError(tr("[model config] {} must be at least 1, got {}", name, size));
}

/// `make()`, with `where` before what is wrong.
template <typename Make>
auto placed(const std::string& where, const Make& make) {
  try {
    return make();
  } catch (const ModelError& e) {
    // The parser names the file by its role; here its place is known.
    constexpr std::string_view kRole = "[config.json] ";
    std::string_view what = e.what();
    if (what.substr(0, kRole.size()) == kRole) what.remove_prefix(kRole.size());
    throw ModelError(tr("{}: {}", where, what), e.hint());
  }
}

Json read_file_of_model(const std::filesystem::path& file) {
  try {
    return read_json_file(file);
  } catch (const DataError& e) {
    throw ModelError(e.what(), tr("the file may be cut off: copy or download it again"));
  }
}

/// Experts times layers: far above any real model; the list of parameters grows with it.
constexpr int64_t kMaxExpertsInAll = int64_t{1} << 18;

void validate_experts(const ModelConfig& model) {
  const ExpertConfig& experts = model.experts;
  require_positive("the width of an expert", experts.ffn_size);
  if (experts.per_token < 1 || experts.per_token > experts.count) {
    throw ModelError(
        tr("[model config] num_experts_per_tok={} must be from 1 to the number of experts, {}",
           experts.per_token, experts.count));
  }
  if (experts.count * model.num_layers > kMaxExpertsInAll) {
    throw ModelError(tr("[model config] {} experts in each of {} layers are more than {} in all",
                        experts.count, model.num_layers, kMaxExpertsInAll));
  }
  if (static_cast<int64_t>(experts.sparse_layer.size()) != model.num_layers) {
    throw ModelError(tr("[model config] sparse_layer has {} entries for {} layers",
                        experts.sparse_layer.size(), model.num_layers));
  }
}

}  // namespace

void ModelConfig::validate() const {
  require_positive("vocab_size", vocab_size);
  require_positive("hidden_size", hidden_size);
  require_positive("num_hidden_layers", num_layers);
  require_positive("num_attention_heads", num_heads);
  require_positive("num_key_value_heads", num_kv_heads);
  require_positive("head_dim", head_dim);
  require_positive("intermediate_size", ffn_size);
  if (num_heads % num_kv_heads != 0) {
    throw ModelError(tr("[model config] num_key_value_heads={} must divide num_attention_heads={}",
                        num_kv_heads, num_heads));
  }
  if (num_heads * head_dim > (int64_t{1} << 24)) {
    throw ModelError(tr("[model config] num_attention_heads={} times head_dim={} is beyond {}",
                        num_heads, head_dim, int64_t{1} << 24));
  }
  if (rope.enabled && rope.rotated_dims == 0 && head_dim % 2 != 0) {
    throw ModelError(
        tr("[model config] rotary embedding needs an even head_dim, got {}", head_dim));
  }
  const int64_t pairs =
      std::accumulate(rope.mrope_section.begin(), rope.mrope_section.end(), int64_t{0});
  if (!rope.mrope_section.empty() && 2 * pairs != head_dim) {
    throw ModelError(tr("[model config] mrope_section divides {} pairs, head_dim={} has {}", pairs,
                        head_dim, head_dim / 2));
  }
  if (rope.enabled && alibi) {
    throw ModelError(tr("[model config] a model has rotary embedding or ALiBi, not both"));
  }
  if (qkv_layout == QkvLayout::kThirds && num_kv_heads != num_heads) {
    throw ModelError(
        tr("[model config] W_pack is three equal parts, so num_key_value_heads={} must "
           "equal num_attention_heads={}",
           num_kv_heads, num_heads));
  }
  if (!(norm_eps >= 0) || norm_eps >= 1) {
    throw ModelError(tr("[model config] rms_norm_eps must be in [0, 1), got {}", norm_eps));
  }
  if (!(initializer_range >= 0)) {
    throw ModelError(
        tr("[model config] initializer_range must not be negative, got {}", initializer_range));
  }
  if (static_cast<int64_t>(sliding_window.size()) != num_layers) {
    throw ModelError(tr("[model config] sliding_window has {} entries for {} layers",
                        sliding_window.size(), num_layers));
  }
  if (has_experts()) validate_experts(*this);
}

ModelConfig parse_model_config(const Json& config_json, const std::string& where, Heads heads) {
  return placed(where, [&] {
    const bool is_scored = heads == Heads::kAny && is_scorer(config_json);
    ModelConfig config =
        is_scored ? parse_scorer(config_json) : family_of(config_json).parse(config_json);
    config.validate();
    return config;
  });
}

namespace {

/// ChatGLM2-32K and ChatGLM3-32K have one rope_ratio and one model_type: the first divides
/// positions by it, the second multiplies the base. Only the code beside the files tells, which is
/// read here and never run. Errors: ModelError for the first.
void refuse_divided_positions(const ModelConfig& config, const std::filesystem::path& directory) {
  if (config.family != "chatglm" || config.raw.value("rope_ratio", 1.0) == 1.0) return;
  const std::filesystem::path code = directory / "modeling_chatglm.py";
  if (!std::filesystem::exists(code)) return;
  if (read_file(code).find("/ self.rope_ratio") == std::string::npos) return;
  throw ModelError(
      tr("{}: positions are divided by rope_ratio, as ChatGLM2-6B-32K has it, which is "
         "not supported",
         code.string()),
      tr("ChatGLM2-6B, ChatGLM3-6B-32K and GLM-4 are"));
}

}  // namespace

ModelConfig load_model_config(const std::filesystem::path& path, Heads heads) {
  const bool is_directory = std::filesystem::is_directory(path);
  const std::filesystem::path file = is_directory ? path / "config.json" : path;
  if (is_directory && !std::filesystem::exists(file)) {
    const std::string below =
        hint_of_models_below(path, [](const std::filesystem::path& directory) {
          std::error_code unknown;
          return std::filesystem::exists(directory / "config.json", unknown);
        });
    throw ModelError(tr("{}: no config.json in this directory", path.string()),
                     below.empty() ? tr("give the directory of a Hugging Face model") : below);
  }
  if (!std::filesystem::exists(file))
    throw ModelError(tr("{}: no such file or directory", file.string()),
                     tr("give a config.json, or a directory with one"));
  if (!std::filesystem::is_regular_file(file))
    throw ModelError(tr("{}: not a regular file", file.string()));
  refuse_lfs_pointer(file, "config.json");
  ModelConfig config = parse_model_config(read_file_of_model(file), file.string(), heads);
  refuse_divided_positions(config, file.parent_path());
  if (config.encoder) config.encoder->pooling = pooling_in(file.parent_path());
  const std::filesystem::path generation = file.parent_path() / "generation_config.json";
  if (std::filesystem::exists(generation)) {
    const Json generation_json = read_file_of_model(generation);
    const auto ids = placed(generation.string(),
                            [&] { return ConfigReader(generation_json).integers("eos_token_id"); });
    for (const int64_t id : ids) {
      const auto& known = config.eos_ids;
      if (id >= 0 && std::find(known.begin(), known.end(), id) == known.end())
        config.eos_ids.push_back(id);
    }
  }
  return config;
}

}  // namespace danlu::arch
