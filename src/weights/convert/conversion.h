// weights/convert/conversion.h: writing a planned checkpoint to disk: aside, restartable, checked,
// and under its name only when it is whole.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weights/compare/tensor_digest.h"
#include "weights/compare/verify_copy.h"
#include "weights/convert/target.h"
#include "weights/tensor_source.h"

namespace danlu::weights {

/// What is written besides Target: config.json, tokenizer files, …, into the given directory.
using WriteCompanions = std::function<void(const std::filesystem::path& directory)>;
/// Opens what was written as the same named global tensors as the source.
using Reopen =
    std::function<std::shared_ptr<const TensorSource>(const std::filesystem::path& directory)>;

struct Conversion {
  std::shared_ptr<const TensorSource> source;  ///< every global tensor of target.layout
  Target target;
  /// A directory; or a file, for targets of one file and no texts.
  std::filesystem::path output;
  bool output_is_file = false;
  bool overwrite = false;
  WriteCompanions write_companions = {};
  /// The source's files: a conversion that was interrupted goes on only if they are unchanged.
  std::vector<std::filesystem::path> source_files;
  /// Everything else the result depends on (merged adapters' settings, …), for the same purpose.
  std::string settings = {};
  Reopen reopen = {};  ///< unset: no check
  size_t num_threads = 0;
  bool ends_on_signal = true;  ///< else who called decides what a signal ends
  /// Called by the writing threads as they go on; what it throws ends the conversion.
  std::function<void()> on_progress = {};
};

struct ConversionReport {
  uint64_t written_bytes = 0, reused_bytes = 0;  ///< reused: finished before an interruption
  /// An earlier call had put everything in place, checked as asked, and was killed after that.
  bool was_complete = false;
  bool was_up_to_date = false;  ///< is_up_to_date: nothing was done
  double write_seconds = 0;
  std::vector<TensorDigest> digests;  ///< of the result, if it was checked
};

/// Writes into "<output>.converting", then renames. Killed at any moment it leaves the old output
/// and finished files, which the same call takes up, or the new one, which it says. Without
/// overwrite, what is_up_to_date stays as it is. Errors:
/// UsageError if another output exists (unless overwrite), is the source, or holds it; IoError
/// (space, checked before; permission; the read-back differs: the difference is named and the
/// attempt removed); what reading the source throws.
ConversionReport convert(const Conversion& conversion);

/// In the staging folder: which conversion it is. It stays in a directory that was published, where
/// it lists the files as well.
inline constexpr const char* kConversionFile = "danlu_conversion.json";

/// Whether the output is a directory that this very conversion made: of the same files, unchanged
/// since, with the same settings, and every file is there in its size, small ones in their words.
/// Not for files: they have no place for a record. Errors: IoError if a source cannot be read.
bool is_up_to_date(const Conversion& conversion);

/// The folder an interrupted conversion to `output` waits in.
std::filesystem::path staging_of(const std::filesystem::path& output);

}  // namespace danlu::weights
