#include "cli/engine/model_files.h"

#include <algorithm>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/file.h"

namespace danlu::cli {
namespace {

/// Results may lie beside weights, and come and go.
bool answers_depend_on(const fs::path& file) {
  const std::string name = file.filename(), ending = file.extension();
  constexpr std::string_view kEndings[] = {".safetensors", ".bin", ".pt", ".gguf"};
  return std::ranges::find(kEndings, ending) != std::end(kEndings) || name == "config.json" ||
         name == "adapter_config.json";
}

}  // namespace

Json files_of_model(const InferenceModel& loaded) {
  return files_of_models({loaded.model_directory, loaded.adapter_directory});
}

Json files_of_models(const std::vector<fs::path>& directories) {
  Json files = Json::array();
  for (const fs::path& directory : directories) {
    if (directory.empty()) continue;
    std::vector<fs::path> found;
    if (fs::is_regular_file(directory)) found.push_back(directory);
    std::error_code ignored;
    const auto options = fs::directory_options::skip_permission_denied;
    for (fs::recursive_directory_iterator at(directory, options, ignored), end; at != end;
         at.increment(ignored)) {
      if (at->is_regular_file(ignored) && answers_depend_on(at->path()))
        found.push_back(at->path());
    }
    std::sort(found.begin(), found.end());
    for (const fs::path& file : found) {
      const auto time = fs::last_write_time(file, ignored).time_since_epoch().count();
      files.push_back({file.string(), fs::file_size(file, ignored), time});
    }
  }
  return files;
}

}  // namespace danlu::cli
