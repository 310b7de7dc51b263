// text/tiktoken.h: vocabularies in tiktoken's own form.
#pragma once
#include <filesystem>
#include <memory>
#include <string_view>

#include "text/gguf_tokenizer_files.h"
#include "text/tokenizer.h"

namespace danlu::text {

/// Reads a `.tiktoken` file: on each line a token's bytes in base64, a space, its rank, which is
/// its id. Text is cut as cl100k_base cuts it (and Llama 3, whose tokenizer.model is such a file);
/// vocabularies that cut otherwise (o200k_base, Qwen 1) must not be given. Such a file names no
/// special tokens, so none are known. id_to_token spells bytes in the byte-level alphabet
/// (text/tokenizer/byte_level.h).
/// Errors: IoError; ModelError naming file and line, or a byte that is no token.
std::shared_ptr<const Tokenizer> load_tiktoken(const std::filesystem::path& path);

/// Whether a vocabulary file begins with such a line.
bool is_tiktoken(std::string_view text);

/// The tokenizer of a model that ships such a file: Qwen 1 (qwen.tiktoken) and GLM-4 as its own
/// repository has it (tokenizer.model). tokenizer_class of the tokenizer_config.json beside it says
/// which. Qwen's special tokens follow the ranks: <|endoftext|>, <|im_start|>, <|im_end|>,
/// <|extra_0|> to <|extra_204|>; GLM-4's are those of added_tokens_decoder, and add_special puts
/// [gMASK]<sop> before a text. Errors: as load_tiktoken; ModelError for any other class.
std::shared_ptr<const Tokenizer> load_tiktoken_of_model(const std::filesystem::path& path);

/// The same tokenizer as a tokenizer.json would say it, with a merge for each token: of the two
/// that its bytes are joined to by lower ranks. Errors: as load_tiktoken_of_model. Source:
/// llama.cpp, convert_hf_to_gguf.py, QwenModel.bpe.
TokenizerJsonParts parts_of_tiktoken(const std::filesystem::path& path);

}  // namespace danlu::text
