// settings/embedding_files.h: what files beside a model say of the vectors that it gives of texts.
#pragma once
#include <filesystem>
#include <optional>
#include <vector>

#include "arch/model_config.h"
#include "base/json.h"

namespace danlu::settings {

/// sentence-transformers' files: modules.json beside the model.
bool has_sentence_files(const std::filesystem::path& model);

/// What its 1_Pooling/config.json says that the vector of a text is.
enum class RecordedPooling { kLastToken, kMean, kOther };
inline constexpr const char* kPoolingFile = "1_Pooling/config.json";
/// nullopt: there is no such file. Errors: as read_json_file.
std::optional<RecordedPooling> recorded_pooling(const std::filesystem::path& model);

/// Whether a run's args.json is of a training of vectors.
bool is_embedding_record(const Json& record);

/// The sizes to which its vectors may be cut (--mrl_dims), ascending; empty: it learnt none.
std::vector<int64_t> recorded_sizes(const Json& record);

/// Whether the model embeds conversations as its template writes them: as the record of its
/// training says, else not where it has sentence-transformers' files, which embed texts as they
/// stand. nullopt: nothing says that it embeds. Errors: ModelError if args.json is broken.
std::optional<bool> embedded_by_template(const std::filesystem::path& model);

/// Writes what sentence-transformers opens the directory by: modules.json, 1_Pooling/config.json
/// (the last token, of an encoder as its Pooling says) and its versions' and prompts' file
/// config_sentence_transformers.json, which is `from`'s if it has one. What is there already stays.
/// Errors: IoError.
void write_sentence_files(const std::filesystem::path& directory, const arch::ModelConfig& model,
                          const std::filesystem::path& from);

}  // namespace danlu::settings
