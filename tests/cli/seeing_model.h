// tests/cli/seeing_model.h: a small Qwen2.5-VL that the program makes itself, and rows for it.
#pragma once
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/run_program.h"
#include "support/shared_data.h"

namespace danlu::test {

/// Width 32, two layers, two blocks of width 16, vocabulary 320; 24 rows: two thirds with a
/// picture, some with a video of four frames. REQUIRES: shared data.
struct SeeingModel {
  std::filesystem::path model, rows;
};

inline nlohmann::json seeing_config(const nlohmann::json& added_tokens) {
  nlohmann::json ids;
  for (const nlohmann::json& token : added_tokens)
    ids[token.at("content").get<std::string>()] = token.at("id");
  return {{"model_type", "qwen2_5_vl"},
          {"vocab_size", 320},
          {"hidden_size", 32},
          {"intermediate_size", 40},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", 1e6},
          {"max_position_embeddings", 512},
          {"tie_word_embeddings", false},
          {"hidden_act", "silu"},
          {"torch_dtype", "float32"},
          {"bos_token_id", ids.at("<|endoftext|>")},
          {"eos_token_id", ids.at("<|im_end|>")},
          {"vision_start_token_id", ids.at("<|vision_start|>")},
          {"vision_end_token_id", ids.at("<|vision_end|>")},
          {"image_token_id", ids.at("<|image_pad|>")},
          {"video_token_id", ids.at("<|video_pad|>")},
          {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {1, 1, 2}}}},
          {"vision_config",
           {{"depth", 2},
            {"hidden_size", 16},
            {"intermediate_size", 20},
            {"out_hidden_size", 32},
            {"num_heads", 2},
            {"hidden_act", "silu"},
            {"patch_size", 14},
            {"spatial_merge_size", 2},
            {"temporal_patch_size", 2},
            {"window_size", 56},
            {"fullatt_block_indexes", {1}},
            {"tokens_per_second", 2}}}};
}

/// Row `i`, with a picture, another one, a video or none; `media` is where their files lie.
inline nlohmann::json seeing_row(int i, const std::string& media) {
  const std::string n = std::to_string(i);
  std::string question = "the fox " + n + "?";
  nlohmann::json row;
  if (i % 3 == 0) row["images"] = {media + "/a.png"};
  if (i % 3 == 1) row["images"] = {media + "/b.jpg"};
  if (i % 3 < 2) question = "<image>" + question;
  if (i % 6 == 5) {
    std::vector<std::string> frames;
    for (int k = 0; k < 4; ++k) frames.push_back(media + "/v0_" + std::to_string(k) + ".png");
    row["videos"] = nlohmann::json::array({frames});
    question = "<video>" + question;
  }
  row["messages"] = {{{"role", "user"}, {"content", question}},
                     {{"role", "assistant"}, {"content", "dog " + std::to_string(7 * i)}}};
  return row;
}

/// Throws std::runtime_error with what a command said that failed.
inline SeeingModel make_seeing_model(const std::filesystem::path& folder) {
  const auto must = [&](const std::vector<std::string>& words) {
    const ProgramResult result = run_danlu(words, {.directory = folder});
    if (result.exit_code != 0) throw std::runtime_error(result.err);
  };
  std::filesystem::create_directories(folder);
  std::ofstream texts(folder / "texts.txt"), rows(folder / "seen.jsonl");
  for (int i = 0; i < 24; ++i) {
    texts << "the fox " << i << " jumps over the lazy dog " << i * 7 << "\n";
    rows << seeing_row(i, (shared_dir() / "golden/vl/rows/media").string()) << "\n";
  }
  texts.close();
  must({"tokenizer", "train", "--input", "texts.txt", "--vocab_size", "300", "--special_tokens",
        "<|endoftext|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>",
        "--chat_template", "chatml", "--output", "seeing-tokenizer"});
  std::ifstream tokenizer(folder / "seeing-tokenizer/tokenizer.json");
  std::ofstream(folder / "seeing.json")
      << seeing_config(nlohmann::json::parse(tokenizer).at("added_tokens"));
  must(
      {"init", "--config", "seeing.json", "--tokenizer", "seeing-tokenizer", "--output", "seeing"});
  std::filesystem::copy_file(shared_dir() / "golden/vl/qwen2_5_vl/preprocessor_config.json",
                             folder / "seeing/preprocessor_config.json");
  return {folder / "seeing", folder / "seen.jsonl"};
}

}  // namespace danlu::test
