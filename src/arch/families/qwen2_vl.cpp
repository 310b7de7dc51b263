// Qwen2-VL and Qwen2.5-VL: Qwen2 with rotary positions in time, height and width, after a vision
// tower.
#include "arch/chain.h"
#include "arch/decoder.h"
#include "arch/families/families.h"
#include "arch/parameter_list.h"
#include "base/error.h"

namespace danlu::arch {
namespace {

/// The decoder's keys: transformers >= 4.52 has them in text_config, which wins over repetitions at
/// the top.
Json decoder_keys(const Json& config_json) {
  Json keys = config_json;
  const auto nested = config_json.find("text_config");
  if (nested == config_json.end() || !nested->is_object()) return keys;
  for (const auto& [key, value] : nested->items()) keys[key] = value;
  keys["model_type"] = config_json.at("model_type");
  // The nested one of the two spellings of rotary scaling counts.
  if (nested->contains("rope_scaling") && !nested->contains("rope_parameters"))
    keys.erase("rope_parameters");
  return keys;
}

/// A token that stands for pictures. Errors: ModelError if it is missing or beyond the vocabulary.
int64_t special_token(const ConfigReader& config, const char* key, int64_t vocab_size) {
  const auto id = config.integer(key);
  if (!id) throw ModelError(tr("[config.json] required key {} is missing", key));
  if (*id < 0 || *id >= vocab_size) {
    throw ModelError(
        tr("[config.json] {}={} is no token of a vocabulary of {}", key, *id, vocab_size));
  }
  return *id;
}

void require_activation(const ConfigReader& vision, const std::string& wanted) {
  const std::string found = vision.text("hidden_act").value_or(wanted);
  if (found == wanted) return;
  throw ModelError(
      tr("[config.json] vision_config.hidden_act must be {}, got \"{}\"", wanted, found));
}

VisionConfig parse_tower(const ConfigReader& reader) {
  VisionConfig vision;
  vision.depth = reader.size_or("depth", 32, kMaxLayers);
  vision.num_heads = reader.size_or("num_heads", 16, kMaxHeads);
  vision.patch_size = reader.size_or("patch_size", 14, 1024);
  vision.temporal_patch_size = reader.size_or("temporal_patch_size", 2, 64);
  vision.merge_size = reader.size_or("spatial_merge_size", 2, 64);
  vision.channels = reader.size_or(reader.has("in_channels") ? "in_channels" : "in_chans", 3, 64);
  return vision;
}

/// Errors: ModelError if the tower does not fit together, or not to the decoder.
void check_tower(const VisionConfig& vision, int64_t given_width, const ModelConfig& model) {
  if (vision.width % vision.num_heads != 0 || vision.width / vision.num_heads % 4 != 0) {
    throw ModelError(
        tr("[config.json] the vision tower has {} heads of {} columns: each needs a "
           "multiple of 4",
           vision.num_heads, vision.width));
  }
  if (given_width != model.hidden_size) {
    throw ModelError(
        tr("[config.json] the vision tower gives {} columns, the decoder's "
           "hidden_size is {}",
           given_width, model.hidden_size));
  }
  if (model.rope.mrope_section.empty()) {
    throw ModelError(tr("[config.json] rope_scaling has no mrope_section"));
  }
}

ModelConfig parse_decoder_of(const Json& config_json, const std::string& family) {
  const Json keys = decoder_keys(config_json);
  ModelConfig model = parse_decoder(
      keys, family,
      {.norm_eps = 1e-6, .rope_theta = 1e6, .max_positions = 32768, .has_three_axes = true});
  model.raw = config_json;
  model.qkv_bias = true;
  model.sliding_window = qwen_windows(ConfigReader(keys), model.num_layers);
  model.default_template = "qwen";
  return model;
}

const Json& tower_keys(const ConfigReader& config) {
  const Json* const found = config.value("vision_config");
  if (!found) throw ModelError(tr("[config.json] required key {} is missing", "vision_config"));
  return *found;
}

void read_tokens(const ConfigReader& config, ModelConfig& model) {
  VisionConfig& vision = *model.vision;
  vision.image_token = special_token(config, "image_token_id", model.vocab_size);
  vision.video_token = special_token(config, "video_token_id", model.vocab_size);
  vision.start_token = special_token(config, "vision_start_token_id", model.vocab_size);
  vision.end_token = special_token(config, "vision_end_token_id", model.vocab_size);
}

ModelConfig parse_qwen2_vl(const Json& config_json) {
  ModelConfig model = parse_decoder_of(config_json, "qwen2_vl");
  const ConfigReader config(config_json);
  const ConfigReader reader(tower_keys(config), "vision_config.");
  require_activation(reader, "quick_gelu");
  VisionConfig vision = parse_tower(reader);
  vision.width = reader.size_or("embed_dim", 1280, kMaxWidth);
  const double ffn = static_cast<double>(vision.width) * reader.number_or("mlp_ratio", 4.0);
  if (!(ffn >= 1) || ffn > static_cast<double>(kMaxFfn)) {
    throw ModelError(tr("[config.json] vision_config.mlp_ratio gives a width of {}", ffn));
  }
  vision.ffn_size = static_cast<int64_t>(ffn);
  check_tower(vision, reader.size_or("hidden_size", 3584, kMaxWidth), model);
  model.vision = vision;
  read_tokens(config, model);
  return model;
}

ModelConfig parse_qwen2_5_vl(const Json& config_json) {
  ModelConfig model = parse_decoder_of(config_json, "qwen2_5_vl");
  const ConfigReader config(config_json);
  const ConfigReader reader(tower_keys(config), "vision_config.");
  require_activation(reader, "silu");
  VisionConfig vision = parse_tower(reader);
  vision.is_gated = true;
  vision.width = reader.required_size("hidden_size", kMaxWidth);
  vision.ffn_size = reader.size_or("intermediate_size", 3420, kMaxFfn);
  vision.window_size = reader.size_or("window_size", 112, kMaxWidth);
  vision.tokens_per_second = reader.number_or("tokens_per_second", 4.0);
  vision.full_blocks = reader.mentions("fullatt_block_indexes")
                           ? reader.integers("fullatt_block_indexes")
                           : std::vector<int64_t>{7, 15, 23, 31};
  const int64_t cell = vision.patch_size * vision.merge_size;
  if (vision.window_size < cell) {
    throw ModelError(
        tr("[config.json] vision_config.window_size={} is below the {} pixels of a "
           "visual token",
           vision.window_size, cell));
  }
  check_tower(vision, reader.size_or("out_hidden_size", 3584, kMaxWidth), model);
  model.vision = vision;
  read_tokens(config, model);
  return model;
}

/// A LayerNorm has a bias, an RMSNorm has none.
void add_norm(const VisionConfig& vision, const std::string& name, ParameterList& list) {
  list.weight(Role::kOwn, name, {vision.width}, Cut::kCopiedBetween);
  if (!vision.is_gated) list.bias(Role::kOwn, name, vision.width, Cut::kCopiedBetween);
}

void add_tower(const VisionConfig& vision, int64_t hidden, std::vector<ParamSpec>& all) {
  const Role own = Role::kOwn;
  const Chain chain{.blocks = vision.depth};
  ParameterList patches = ParameterList::of_tower("visual.patch_embed.", chain.patches(), all);
  patches.weight(own, "proj",
                 {vision.width, vision.channels, vision.temporal_patch_size, vision.patch_size,
                  vision.patch_size},
                 Cut::kCopiedBetween);
  for (int64_t number = 0; number < vision.depth; ++number) {
    ParameterList block = ParameterList::of_tower("visual.blocks." + std::to_string(number) + ".",
                                                  chain.block(number), all);
    const int64_t width = vision.width, wide = vision.ffn_size;
    add_norm(vision, "norm1", block);
    add_norm(vision, "norm2", block);
    block.linear(own, "attn.qkv", 3 * width, width, Cut::kThirds, true);
    block.linear(own, "attn.proj", width, width, Cut::kColumns, true);
    if (vision.is_gated) {
      block.linear(own, "mlp.gate_proj", wide, width, Cut::kRows, true);
      block.linear(own, "mlp.up_proj", wide, width, Cut::kRows, true);
      block.linear(own, "mlp.down_proj", width, wide, Cut::kColumns, true);
    } else {
      block.linear(own, "mlp.fc1", wide, width, Cut::kRows, true);
      block.linear(own, "mlp.fc2", width, wide, Cut::kColumns, true);
    }
  }
  ParameterList merger = ParameterList::of_tower("visual.merger.", chain.merger(), all);
  const int64_t merged = vision.merged_width();
  add_norm(vision, "ln_q", merger);
  merger.linear(own, "mlp.0", merged, merged, Cut::kRows, true);
  merger.linear(own, "mlp.2", hidden, merged, Cut::kColumns, true);
}

std::vector<ParamSpec> vl_parameters(const ModelConfig& config) {
  std::vector<ParamSpec> all;
  add_tower(*config.vision, config.hidden_size, all);
  const std::vector<ParamSpec> decoder = decoder_parameters(config, {});
  all.insert(all.end(), decoder.begin(), decoder.end());
  return all;
}

std::vector<std::string> buffers_nobody_needs() {
  std::vector<std::string> names = rotary_buffer_names();
  names.emplace_back(R"(visual\.rotary_pos_emb\.inv_freq)");
  return names;
}

}  // namespace

Family qwen2_vl_family() {
  return {"qwen2_vl",     {"qwen2_vl"},  {"Qwen2VLForConditionalGeneration"},
          parse_qwen2_vl, vl_parameters, buffers_nobody_needs()};
}

Family qwen2_5_vl_family() {
  return {"qwen2_5_vl",     {"qwen2_5_vl"}, {"Qwen2_5_VLForConditionalGeneration"},
          parse_qwen2_5_vl, vl_parameters,  buffers_nobody_needs()};
}

}  // namespace danlu::arch
