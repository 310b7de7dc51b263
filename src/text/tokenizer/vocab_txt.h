// text/tokenizer/vocab_txt.h: BERT's vocabulary as a file of lines, where there is no
// tokenizer.json.
#pragma once
#include <filesystem>
#include <memory>

#include "text/tokenizer.h"

namespace danlu::text {

/// WordPiece with BERT's normalizer; do_lower_case (true), strip_accents, tokenize_chinese_chars
/// (true) and names of special tokens are tokenizer_config.json's. Source: transformers'
/// BertTokenizer. Errors: ModelError naming the file, also where [UNK], [CLS], [SEP] or [PAD] has
/// no line.
std::shared_ptr<const Tokenizer> load_vocab_txt(const std::filesystem::path& path);

}  // namespace danlu::text
