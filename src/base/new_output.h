// base/new_output.h: outputs that destroy nothing by accident, each made by one process at a time.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/file_lock.h"

namespace danlu {

/// Whether replacing `output`, a file or a whole directory, would take `input` away: it is the
/// same, through links too, or lies in it. Never if there is no `output`.
bool would_replace(const fs::path& output, const fs::path& input);

/// Errors: UsageError naming the first of `inputs` that replacing `output` would take away.
void refuse_to_replace_inputs(const fs::path& output, const std::vector<fs::path>& inputs);

/// `output` as an absolute path without "." and a last slash. Errors: UsageError if it is empty.
fs::path place_of(const fs::path& output);

/// Anything but an empty directory, a link to nothing included.
bool is_taken(const fs::path& output);
/// Errors: UsageError, always: `output` is taken and may not be replaced.
[[noreturn]] void throw_taken(const fs::path& output);

/// The directory in which `output` is made, under another name at first. Errors: as MadeDirectory.
MadeDirectory parent_of(const fs::path& output);

/// The file that stands for the lock on `output`: hidden, beside it.
fs::path lock_file_of(const fs::path& output);
/// Keeps other processes from making `output`. Its directory must be there.
/// Errors: IoError naming the process that is making it.
FileLock lock_output(const fs::path& output);

/// Held in a directory by who works in it for long, as training does.
/// Errors: as FileLock::try_take.
std::optional<FileLock> try_lock_contents(const fs::path& directory);
/// "process 1234 on HOST": who holds the lock of try_lock_contents.
std::string holder_of_contents(const fs::path& directory);

/// A directory that a command makes as a whole and gives its name when it is complete.
class NewDirectory {
 public:
  /// Makes the parent if it is missing, and locks the name until this goes; a link to a directory
  /// stays one. `inputs`: what the command reads.
  /// `require_replaceable`: throws where what is there, at `overwrite`, holds what is not ours.
  /// Errors: UsageError (an input would be replaced; it exists and is not empty, without
  /// `overwrite`); IoError (another process is making it, or works in it or below; the parent is
  /// not writable); as require_replaceable.
  using Check = std::function<void(const fs::path&)>;
  NewDirectory(fs::path output, bool overwrite, const std::vector<fs::path>& inputs,
               Check require_replaceable = {});
  /// See write_directory_atomic. Errors: UsageError if the name was taken meanwhile, without
  /// `overwrite`; IoError if another process works there by now.
  void publish(const std::function<void(const fs::path&)>& fill) const;

 private:
  void require_free() const;
  fs::path name_, output_;  ///< as given; absolute, behind a link
  bool overwrite_;
  Check require_replaceable_;
  MadeDirectory parent_;
  FileLock lock_;
};

}  // namespace danlu
