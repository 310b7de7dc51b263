// device/scratch_file.h: a file for tensors that are not in memory for a while.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>

namespace danlu::device {

/// Has no name, so that its space comes back with the process whatever ends it. It grows to the
/// most that is there at one time, and goes past the system's cache where the file system can.
class ScratchFile {
 public:
  /// Errors: IoError naming the directory.
  explicit ScratchFile(const std::filesystem::path& directory);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  struct Place {
    int64_t begin = 0, bytes = 0;
  };
  /// Room for a tensor: what was given back, else more of the disk. Thread-safe, as give_back is.
  /// Errors: IoError where there is none.
  Place take(int64_t bytes);
  void give_back(const Place& place);

  /// `elements` [n], contiguous, of any device, to or from a place of its bytes, through 4 MiB of
  /// host memory. One thread at a time. Errors: IoError.
  void write(const at::Tensor& elements, const Place& place);
  void read(const at::Tensor& elements, const Place& place);

 private:
  template <typename Block>
  void go_through(const at::Tensor& elements, const Place& place, const Block& block);

  std::filesystem::path directory_;
  int file_ = -1;
  std::unique_ptr<std::byte, void (*)(void*)> buffer_;
  std::mutex mutex_;
  int64_t end_ = 0;
  std::map<int64_t, int64_t> free_;  ///< begin -> bytes, apart from one another
};

}  // namespace danlu::device
