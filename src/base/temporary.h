// base/temporary.h: files and directories that die with the process that made them.
#pragma once
#include <filesystem>
#include <string>

namespace danlu {

/// A hidden sibling ".<name>.tmp-<machine>-<process>-<random>" of what it is to become or to hold,
/// locked (flock) for as long as it lives. <machine> is a hash of the host's name and boot id.
/// Making one removes, once a process and directory, what dead processes left there
/// (sweep_temporaries). Movable; not thread-safe.
class Temporary {
 public:
  enum class Kind {
    kFile,
    kDirectory,
    /// A directory that keeps what was taken from beside it: should we die, it is put back where
    /// nothing has taken its place.
    kAside,
  };
  /// Never throws: on failure fd() is -1 and errno says why.
  Temporary(const std::filesystem::path& sibling, Kind kind);
  Temporary(Temporary&& other) noexcept;
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  Temporary& operator=(Temporary&&) = delete;
  /// Removes what has its name, with all it holds, unless it was released.
  ~Temporary();

  /// Open for reading and writing; a directory for reading.
  int fd() const { return fd_; }
  const std::filesystem::path& path() const { return path_; }
  /// Hands descriptor and name to the caller: nothing is removed here any more.
  int release();

 private:
  std::filesystem::path path_;  ///< empty when nothing is left to remove
  int fd_ = -1;
};

/// Removes from `directory` what dead processes left: the temporaries that were made on this
/// machine since it started and whose lock is free. Those of other machines or an earlier start,
/// and all where locks do not work, stay: one line names them, a warning those that hold what was
/// taken aside. Other names, and links, are never touched. Errors are passed over: the next command
/// sweeps again.
void sweep_temporaries(const std::filesystem::path& directory);

/// sweep_temporaries at the first call for `directory` in this process.
void sweep_temporaries_once(const std::filesystem::path& directory);

/// A file without a name in `directory`, open for reading and writing; -1 on an error, which is in
/// errno. The system takes its space back when it is closed.
int open_nameless(const std::filesystem::path& directory);

}  // namespace danlu
