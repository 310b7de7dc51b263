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

}  // namespace danlu::text
