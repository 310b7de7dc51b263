// weights/native/machine_part.h: what one machine keeps of a training checkpoint of a job whose
// machines share no storage. docs/formats/run_directory.md.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace danlu::weights {

struct MachinePart {
  std::filesystem::path checkpoint;
  bool has_model = false;  ///< or the adapter: as a rule on rank 0's machine alone
  std::vector<int64_t> ranks = {},
                       all_ranks = {};  ///< whose files of the state are here, are in its index
  bool is_all() const { return has_model && ranks.size() == all_ranks.size(); }
};

/// Reads it from a finished checkpoint, or from the newest one of a run's directory; nullopt: it is
/// neither, or keeps no state. Never throws.
std::optional<MachinePart> machine_part(const std::filesystem::path& directory);

/// "optimizer state of ranks 4-7 (of 0-7)".
std::string describe(const MachinePart& part);

/// Where weights are looked for: a part that lies elsewhere. Errors: ModelError for one without a
/// model, which says where that is; else nothing happens.
void refuse_part_without_model(const std::filesystem::path& directory);

}  // namespace danlu::weights
