// cli/engine/model_record.h: what args.json beside weights says of the adapters merged into them.
// text/template_record.h reads what it says of templates.
#pragma once
#include <filesystem>

namespace danlu::cli {

/// Whether `base`'s record says that the adapter of this directory was merged into it; warns if so.
bool warn_if_merged_already(const std::filesystem::path& base,
                            const std::filesystem::path& adapter);

/// Writes args.json of a merged model: what the adapter's run recorded (else the base's), the
/// template's own file copied beside it, and the list of merges.
void write_merged_record(const std::filesystem::path& directory, const std::filesystem::path& base,
                         const std::filesystem::path& adapter);

}  // namespace danlu::cli
