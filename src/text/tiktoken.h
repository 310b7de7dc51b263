// text/tiktoken.h: vocabularies in tiktoken's own form.
#pragma once
#include <filesystem>
#include <memory>

#include "text/tokenizer.h"

namespace danlu::text {

/// Reads a `.tiktoken` file: on each line a token's bytes in base64, a space, its rank, which is
/// its id. Text is cut as cl100k_base cuts it (and Llama 3, whose tokenizer.model is such a file);
/// vocabularies that cut otherwise (o200k_base, Qwen 1) must not be given. Such a file names no
/// special tokens, so none are known. id_to_token spells bytes in the byte-level alphabet
/// (text/tokenizer/byte_level.h).
/// Errors: IoError; ModelError naming file and line, or a byte that is no token.
std::shared_ptr<const Tokenizer> load_tiktoken(const std::filesystem::path& path);

}  // namespace danlu::text
