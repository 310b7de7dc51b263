// checkpoint/state_index.h: who has written what of an optimizer's state, and who is to read it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "weights/native/native.h"

namespace danlu::checkpoint {

/// A file as its writer has left it.
struct WrittenFile {
  uint64_t bytes = 0;
  std::string xxh3;  ///< as checksum_of
};

/// What a rank holds of the state.
struct HeldParts {
  std::vector<weights::native::Part> written;  ///< by itself
  WrittenFile file;                            ///< with these
  std::vector<weights::native::Part>
      written_by_others;  ///< by a neighbour on the tensor axis, or by the first stage
};

/// Ranks that hold different parts of a state: in every stage of the pipeline, which has so many
/// ranks, neighbours of the data axis that share it, each with its tensor axis. Ranks after them
/// hold the same again.
struct Holders {
  int64_t tensor = 1, sharers = 1, stages = 1, stage_size = 1;
  int64_t experts = 1;  ///< ranks among which experts are divided; more: nobody's parts are listed
  int64_t per_stage() const { return tensor * sharers; }
  int64_t count() const { return per_stage() * stages; }
  /// The first rank of the job that is holder number `index`.
  int64_t rank_of(int64_t index) const {
    return index / per_stage() * stage_size + index % per_stage();
  }
  /// The number of the holder that holds what `rank` of the job does.
  int64_t same_as(int64_t rank) const {
    return rank / stage_size * per_stage() + rank % stage_size % per_stage();
  }
};

/// The file of what a rank writes.
std::string state_file(int64_t rank);

/// What a rank holds as one line, which another rank's write_state_index and files_written take.
std::string listed(const HeldParts& held);

/// The ranks' files, by their names in the checkpoint; listed[r]: what rank r holds.
std::map<std::string, WrittenFile> files_written(const std::vector<std::string>& listed);

/// The index, in `folder`, of what the ranks have written; listed[r]: what rank r holds. all_here:
/// Errors: IoError for a file that is not.
void write_state_index(const std::filesystem::path& folder, const std::vector<std::string>& listed,
                       const Holders& holders, bool all_here);

/// The files of a checkpoint, with the folders they are in, that each of `ranks` ranks reads to go
/// on, which are as `holders` holds it. Where others have written it that is all of the state.
/// Errors: DataError for broken JSON; Json::exception.
std::vector<std::vector<std::string>> files_read(const std::filesystem::path& checkpoint,
                                                 const Holders& holders, int64_t ranks);

}  // namespace danlu::checkpoint
