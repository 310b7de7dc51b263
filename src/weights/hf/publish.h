// weights/hf/publish.h: in which order finished weight files replace those of an earlier save, so
// that a process killed between two steps never leaves a mixture that loads.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace danlu::weights {

struct PublishStep {
  enum class Kind { kRename, kRemove } kind;
  std::string name;  ///< in the directory; kRename: moved there from the staging folder
};

/// Steps that put `names` (files of one save, the index last if there are shards) over `existing`
/// ones. After every step the directory holds the old set, the new one, or shards without an index,
/// which is no model to any reader.
std::vector<PublishStep> publish_steps(const std::vector<std::string>& existing,
                                       const std::vector<std::string>& names,
                                       const std::string& base_name);

/// Does the steps. Errors: IoError.
void publish(const std::filesystem::path& staging, const std::filesystem::path& directory,
             const std::vector<PublishStep>& steps);

/// The folder that files wait in until all are written is a Temporary beside this name.
inline constexpr const char* kStagingStem = "saving";

}  // namespace danlu::weights
