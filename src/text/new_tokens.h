// text/new_tokens.h: tokens that a tokenizer gains, as Hugging Face's tokenizers add them.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace danlu::text {

struct NewToken {
  std::string content;
  bool special = true;  ///< left out of texts that skip special tokens
  bool operator==(const NewToken&) const = default;
};

/// What became of new tokens.
struct GrownTokenizer {
  std::shared_ptr<const Tokenizer> tokenizer;
  /// Ids of tokens that were not there, in the order of the list.
  std::vector<TokenId> new_ids;
};

/// The tokenizer at `path` with `tokens` behind its own: each that it does not have takes the next
/// id; one that it has keeps its own, and becomes special where that is asked. White space beside a
/// new token stays in the text. What is loaded is what write_new_tokens writes.
/// Errors: as Tokenizer::load; ModelError for files that cannot hold new tokens: a GGUF file,
/// qwen.tiktoken, a pair NAMEvocab.json and NAMEmerges.txt.
GrownTokenizer load_with_tokens(const std::filesystem::path& path,
                                const std::vector<NewToken>& tokens);

/// Adds `tokens` to the tokenizer's files in `directory`, with the ids that load_with_tokens gives:
/// tokenizer.json's added_tokens; tokenizer_config.json's added_tokens_decoder and
/// additional_special_tokens; special_tokens_map.json's list, where the file is there; without a
/// tokenizer.json, added_tokens.json. Tokens that are there already stay as they are.
/// Errors: as load_with_tokens, IoError.
void write_new_tokens(const std::filesystem::path& directory, const std::vector<NewToken>& tokens);

}  // namespace danlu::text
