// text/gguf_tokenizer.h: the tokenizer that lies in a GGUF file, as the files of a model directory.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "text/gguf_vocabulary.h"
#include "text/tokenizer.h"

namespace danlu::text {

/// Whether a path names a GGUF file, by its first bytes; false for what cannot be read.
bool is_gguf(const std::filesystem::path& path);

struct GgufTokenizerFiles {
  std::string name;     ///< "tokenizer.json" or "tokenizer.model"
  std::string content;  ///< of it
  Json config;          ///< tokenizer_config.json
};
/// Files that mean the same. Errors: ModelError naming `origin` where the lists contradict each
/// other.
GgufTokenizerFiles tokenizer_files(const GgufVocabulary& vocabulary, const std::string& origin);

/// What those files are loaded as; `file` is what Tokenizer::files() names.
std::shared_ptr<const Tokenizer> make_gguf_tokenizer(const GgufVocabulary& vocabulary,
                                                     const std::filesystem::path& file);

/// nullopt: the file holds none. Errors: as vocabulary_in and gguf::parse_header.
std::optional<GgufVocabulary> read_gguf_file_vocabulary(const std::filesystem::path& file);
/// Errors: MissingTokenizer if the file holds none; as read_gguf_file_vocabulary, tokenizer_files.
std::shared_ptr<const Tokenizer> load_gguf_tokenizer(const std::filesystem::path& file);

/// Writes those files into a directory, beside what is there; false if the file holds no tokenizer.
/// Errors: as load_gguf_tokenizer; IoError.
bool write_gguf_tokenizer(const std::filesystem::path& file,
                          const std::filesystem::path& directory);

/// Errors: ModelError naming the first token that a GGUF file of a model and `tokenizer`, which was
/// named beside it, have under the same id and spell otherwise, or their sizes. A file without a
/// tokenizer agrees with any.
void refuse_other_tokenizer(const std::filesystem::path& file, const Tokenizer& tokenizer,
                            const std::string& named);

}  // namespace danlu::text
