// tests/cli/vision_model_dir.h: Hugging Face directories of Qwen2-VL and Qwen2.5-VL, narrow and
// with random bits.
#pragma once
#include <nlohmann/json.hpp>

#include "cli/random_model_dir.h"

namespace danlu::test {

struct VisionShape {
  bool is_2_5 = false;
  int64_t layers = 28, blocks = 32;
  bool tied = false;
  bool newer_names = false;  ///< "model.visual.…", "model.language_model.…"
  bool in_two_files = false;
};

/// Width 32 with 4 heads and 2 KV groups, vocabulary 96; a tower of width 16 with 2 heads.
inline nlohmann::ordered_json vision_config(const VisionShape& shape) {
  nlohmann::ordered_json vision = {{"depth", shape.blocks}, {"num_heads", 2}, {"patch_size", 4}};
  if (shape.is_2_5) {
    vision.update({{"hidden_size", 16},
                   {"intermediate_size", 12},
                   {"out_hidden_size", 32},
                   {"window_size", 16},
                   {"fullatt_block_indexes", {1}}});
  } else {
    vision.update({{"embed_dim", 16}, {"mlp_ratio", 2}, {"hidden_size", 32}});
  }
  const std::string name = shape.is_2_5 ? "Qwen2_5_VL" : "Qwen2VL";
  return {{"architectures", {name + "ForConditionalGeneration"}},
          {"model_type", shape.is_2_5 ? "qwen2_5_vl" : "qwen2_vl"},
          {"vision_config", vision},
          {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {2, 1, 1}}}},
          {"hidden_size", 32},
          {"intermediate_size", 24},
          {"num_hidden_layers", shape.layers},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"vocab_size", 96},
          {"tie_word_embeddings", shape.tied},
          {"torch_dtype", "bfloat16"},
          {"vision_start_token_id", 90},
          {"vision_end_token_id", 91},
          {"image_token_id", 92},
          {"video_token_id", 93}};
}

inline NamedShapes vision_tensors(const VisionShape& shape) {
  NamedShapes all;
  const auto linear = [&](const std::string& name, int64_t rows, int64_t cols, bool has_bias) {
    all.push_back({name + ".weight", {rows, cols}});
    if (has_bias) all.push_back({name + ".bias", {rows}});
  };
  const auto norm = [&](const std::string& name) {
    all.push_back({name + ".weight", {16}});
    if (!shape.is_2_5) all.push_back({name + ".bias", {16}});
  };
  const std::string tower = shape.newer_names ? "model.visual." : "visual.",
                    decoder = shape.newer_names ? "model.language_model." : "model.";
  all.push_back({tower + "patch_embed.proj.weight", {16, 3, 2, 4, 4}});
  for (int64_t block = 0; block < shape.blocks; ++block) {
    const std::string at = tower + "blocks." + std::to_string(block) + ".";
    norm(at + "norm1");
    norm(at + "norm2");
    linear(at + "attn.qkv", 48, 16, true);
    linear(at + "attn.proj", 16, 16, true);
    if (shape.is_2_5) {
      linear(at + "mlp.gate_proj", 12, 16, true);
      linear(at + "mlp.up_proj", 12, 16, true);
      linear(at + "mlp.down_proj", 16, 12, true);
    } else {
      linear(at + "mlp.fc1", 32, 16, true);
      linear(at + "mlp.fc2", 16, 32, true);
    }
  }
  norm(tower + "merger.ln_q");
  linear(tower + "merger.mlp.0", 64, 64, true);
  linear(tower + "merger.mlp.2", 32, 64, true);
  all.push_back({decoder + "embed_tokens.weight", {96, 32}});
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string at = decoder + "layers." + std::to_string(layer) + ".";
    for (const char* name : {"input_layernorm.weight", "post_attention_layernorm.weight"})
      all.push_back({at + name, {32}});
    linear(at + "self_attn.q_proj", 32, 32, true);
    linear(at + "self_attn.k_proj", 16, 32, true);
    linear(at + "self_attn.v_proj", 16, 32, true);
    linear(at + "self_attn.o_proj", 32, 32, false);
    linear(at + "mlp.gate_proj", 24, 32, false);
    linear(at + "mlp.up_proj", 24, 32, false);
    linear(at + "mlp.down_proj", 32, 24, false);
  }
  all.push_back({decoder + "norm.weight", {32}});
  if (!shape.tied) all.push_back({"lm_head.weight", {96, 32}});
  return all;
}

/// config.json, the processor's file and the weights, with their index where they are two files.
inline void write_vision_model(const std::filesystem::path& directory, const VisionShape& shape) {
  std::filesystem::create_directories(directory);
  write_content(directory / "config.json", vision_config(shape).dump(1));
  write_content(directory / "preprocessor_config.json", "{\"min_pixels\": 784}");
  const NamedShapes all = vision_tensors(shape);
  if (!shape.in_two_files) return write_random_tensors(directory / "model.safetensors", all);
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  for (int part = 0; part < 2; ++part) {
    // Every third tensor: not what any limit of sizes would give.
    NamedShapes own;
    const std::string file = "model-0000" + std::to_string(part + 1) + "-of-00002.safetensors";
    for (size_t i = 0; i < all.size(); ++i) {
      if ((i % 3 == 0) != (part == 0)) continue;
      own.push_back(all[i]);
      map[all[i].first] = file;
    }
    write_random_tensors(directory / file, own);
  }
  write_content(
      directory / "model.safetensors.index.json",
      nlohmann::ordered_json{{"metadata", {{"total_size", 1}}}, {"weight_map", map}}.dump());
}

}  // namespace danlu::test
