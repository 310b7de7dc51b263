// tests/cli/random_model_dir.h: Hugging Face directories of real shapes with random bits, cut to a
// few layers.
#pragma once
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cli/bad_input.h"

namespace danlu::test {

struct ModelShape {
  std::string model_type = "qwen2", architecture = "Qwen2ForCausalLM";
  int64_t layers = 2, hidden = 64, ffn = 96, heads = 4, kv_heads = 2, vocab = 300;
  bool tied = false;
  bool qkv_bias() const { return model_type == "qwen2"; }
};

inline std::string config_text(const ModelShape& shape) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  return "{\"architectures\": [\"" + shape.architecture + "\"], \"model_type\": \"" +
         shape.model_type +
         "\", \"hidden_act\": \"silu\", \"hidden_size\": " + number(shape.hidden) +
         ", \"intermediate_size\": " + number(shape.ffn) +
         ", \"num_hidden_layers\": " + number(shape.layers) +
         ", \"num_attention_heads\": " + number(shape.heads) +
         ", \"num_key_value_heads\": " + number(shape.kv_heads) +
         ", \"vocab_size\": " + number(shape.vocab) +
         ", \"tie_word_embeddings\": " + (shape.tied ? "true" : "false") +
         ", \"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-6, \"rope_theta\": 1000000.0, "
         "\"torch_dtype\": \"bfloat16\", \"bos_token_id\": 1, \"eos_token_id\": 2}\n";
}

/// Names and shapes, in file order.
using NamedShapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;

/// A safetensors file of bf16, finite random bits.
inline void write_random_tensors(const std::filesystem::path& path, const NamedShapes& tensors) {
  std::string header = "{\"__metadata__\": {\"format\": \"pt\"}";
  uint64_t offset = 0;
  for (const auto& [name, sizes] : tensors) {
    uint64_t bytes = 2;
    std::string list;
    for (const int64_t size : sizes) {
      bytes *= static_cast<uint64_t>(size);
      list += (list.empty() ? "" : ", ") + std::to_string(size);
    }
    header += ", \"" + name + "\": {\"dtype\": \"BF16\", \"shape\": [" + list +
              "], \"data_offsets\": [" + std::to_string(offset) + ", " +
              std::to_string(offset + bytes) + "]}";
    offset += bytes;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::ofstream file(path, std::ios::binary);
  const uint64_t length = header.size();
  file.write(reinterpret_cast<const char*>(&length), sizeof length);
  file << header;
  // One block again and again, from another place each time, so that no two stretches are alike.
  std::mt19937_64 random(17);
  std::vector<uint64_t> block(1 << 17);
  for (uint64_t& word : block) word = random() & 0xBFFFBFFFBFFFBFFFull;  // no infinities, no NaNs
  const auto* bytes = reinterpret_cast<const char*>(block.data());
  uint64_t start = 0;
  for (uint64_t left = offset; left > 0; start = (start + 10) % 4096) {
    const uint64_t count = std::min<uint64_t>(left, block.size() * 8 - start);
    file.write(bytes + start, static_cast<std::streamsize>(count));
    left -= count;
  }
}

/// config.json, model.safetensors (bf16, finite random bits) and a stand-in for a tokenizer file.
inline void write_random_model(const std::filesystem::path& directory, const ModelShape& shape) {
  NamedShapes tensors;
  const int64_t d = shape.hidden / shape.heads;
  tensors.push_back({"model.embed_tokens.weight", {shape.vocab, shape.hidden}});
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    tensors.push_back({at + "input_layernorm.weight", {shape.hidden}});
    for (const auto& [name, rows] :
         {std::pair{"q", shape.heads * d}, {"k", shape.kv_heads * d}, {"v", shape.kv_heads * d}}) {
      tensors.push_back({at + "self_attn." + name + "_proj.weight", {rows, shape.hidden}});
      if (shape.qkv_bias()) tensors.push_back({at + "self_attn." + name + "_proj.bias", {rows}});
    }
    tensors.push_back({at + "self_attn.o_proj.weight", {shape.hidden, shape.heads * d}});
    tensors.push_back({at + "post_attention_layernorm.weight", {shape.hidden}});
    tensors.push_back({at + "mlp.gate_proj.weight", {shape.ffn, shape.hidden}});
    tensors.push_back({at + "mlp.up_proj.weight", {shape.ffn, shape.hidden}});
    tensors.push_back({at + "mlp.down_proj.weight", {shape.hidden, shape.ffn}});
  }
  tensors.push_back({"model.norm.weight", {shape.hidden}});
  if (!shape.tied) tensors.push_back({"lm_head.weight", {shape.vocab, shape.hidden}});
  std::filesystem::create_directories(directory);
  write_content(directory / "config.json", config_text(shape));
  write_random_tensors(directory / "model.safetensors", tensors);
}

}  // namespace danlu::test
