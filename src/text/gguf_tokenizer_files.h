// text/gguf_tokenizer_files.h: what GGUF needs of a tokenizer's files beyond the Tokenizer
// interface.
#pragma once
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace danlu::text {

/// tokenizer.json without its vocabulary.
struct TokenizerJsonParts {
  std::vector<std::pair<std::string, std::string>> merges;  ///< by rank
  Json model = Json::object();                              ///< without "vocab" and "merges"
  Json rest = Json::object();  ///< normalizer, pre_tokenizer, added_tokens, …
};
/// Errors: ModelError naming file and line.
TokenizerJsonParts read_tokenizer_json_parts(const std::filesystem::path& file);

/// merges.txt. Errors: IoError.
std::vector<std::pair<std::string, std::string>> read_merges_file(
    const std::filesystem::path& file);

struct SentencePiecePart {
  std::string piece;
  float score = 0;
  int32_t type = 1;  ///< GgufTokenType has the same numbers
};
/// The fields of a SentencePiece model that decide how llama.cpp must treat it.
struct SentencePieceParts {
  std::vector<SentencePiecePart> pieces;
  int32_t model_type = 1;  ///< 1 Unigram, 2 BPE
  bool has_character_map = false, add_dummy_prefix = true, remove_extra_whitespaces = true;
};
/// Errors: ModelError if the file is cut off or no SentencePiece model.
SentencePieceParts read_sentencepiece_parts(const std::filesystem::path& file);

}  // namespace danlu::text
