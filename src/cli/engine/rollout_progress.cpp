#include "cli/engine/rollout_progress.h"

#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "cli/engine/infer_output.h"
#include "cli/engine/infer_resume.h"

namespace danlu::cli {

fs::path progress_file_of(const fs::path& output) { return output.string() + ".partial.progress"; }

bool note_progress(const fs::path& output, size_t prompts, uint64_t bytes, const Json& counts) {
  try {
    write_file_atomic(progress_file_of(output),
                      dump_text({{"prompts", prompts}, {"bytes", bytes}, {"counts", counts}}));
    return true;
  } catch (const IoError&) {  // a run that is killed then begins further back
    return false;
  }
}

std::optional<RolloutProgress> earlier_progress(const fs::path& output,
                                                const std::string& identity) {
  const fs::path partial = partial_of(output), request = request_file_of(output),
                 progress = progress_file_of(output);
  std::error_code ignored;
  for (const fs::path& file : {partial, request, progress}) {
    if (!fs::is_regular_file(file, ignored)) return std::nullopt;
  }
  if (read_file(request) != identity) return std::nullopt;
  const auto json = try_parse_json(read_file(progress));
  if (!json || !json->is_object() || !json->contains("counts")) return std::nullopt;
  const auto prompts = json_get<uint64_t>(*json, "prompts"),
             bytes = json_get<uint64_t>(*json, "bytes");
  std::string rows = read_file(partial);
  if (!prompts || !bytes || *bytes == 0 || *bytes > rows.size()) return std::nullopt;
  rows.resize(*bytes);
  return RolloutProgress{*prompts, std::move(rows), json->at("counts")};
}

}  // namespace danlu::cli
