// text/template_record.h: args.json beside weights: the chat template they were trained with.
// Training writes it into run directories and checkpoints, `danlu merge` into what it makes;
// transformers passes over it.
#pragma once
#include <filesystem>
#include <string>

#include "base/json.h"

namespace danlu::text {

/// The record's name in a directory.
inline constexpr const char* kRecordFile = "args.json";

/// args.json of a directory; an empty object if it has none. Errors: ModelError if it is broken.
Json read_record(const std::filesystem::path& directory);

/// The text under `key`; "" where there is none.
std::string recorded_text(const Json& record, const char* key);

/// ms-swift's name for texts that are embedded as they stand: no template of conversations.
inline constexpr const char* kPlainTexts = "qwen3_emb";
/// Whether texts were trained without a template.
bool was_plain(const Json& record);

/// Whose record counts: the adapter's if it has one, else the model's. `adapter` may be empty.
std::filesystem::path directory_of_record(const std::filesystem::path& model,
                                          const std::filesystem::path& adapter);

struct RecordedTemplate {
  std::string name;                      ///< "", "auto" or "hf": the tokenizer's own
  std::filesystem::path templates_file;  ///< may be empty
  /// A template that args.json had to name: "auto" and nothing are what a model has anyway.
  bool is_named() const { return !name.empty() && name != "auto" && name != "hf"; }
};
/// The template that the record of `directory` names; files are found from there, else from here.
/// Errors: ModelError if a named file is gone.
RecordedTemplate recorded_template(const Json& record, const std::filesystem::path& directory);

/// `now`, the name of this line, unless the record is of a run that began when that name meant
/// MindSpeed-LLM's template in LLaMA-Factory's lines too: then that one's, with which it goes on.
std::string template_of_earlier_run(const Json& record, const std::string& now);

}  // namespace danlu::text
