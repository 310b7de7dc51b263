// cli/engine/model_record.h: args.json beside weights: which chat template they were trained with
// and which adapters are merged into them. Training writes it into run directories and checkpoints,
// `danlu merge` into what it makes; transformers passes over it.
#pragma once
#include <filesystem>
#include <string>

#include "base/json.h"

namespace danlu::cli {

/// args.json of a directory; an empty object if it has none. Errors: ModelError if it is broken.
Json read_record(const std::filesystem::path& directory);

struct RecordedTemplate {
  std::string name;                      ///< "" or "auto": the tokenizer's own
  std::filesystem::path templates_file;  ///< may be empty
  /// A template that args.json had to name: "auto" and nothing are what a model has anyway.
  bool is_named() const { return !name.empty() && name != "auto" && name != "hf"; }
};
/// The template that the record of `directory` names; files are found from there, else from here.
/// Errors: ModelError if a named file is gone.
RecordedTemplate recorded_template(const Json& record, const std::filesystem::path& directory);

/// Whether `base`'s record says that the adapter of this directory was merged into it; warns if so.
bool warn_if_merged_already(const std::filesystem::path& base,
                            const std::filesystem::path& adapter);

/// Writes args.json of a merged model: what the adapter's run recorded (else the base's), the
/// template's own file copied beside it, and the list of merges.
void write_merged_record(const std::filesystem::path& directory, const std::filesystem::path& base,
                         const std::filesystem::path& adapter);

}  // namespace danlu::cli
