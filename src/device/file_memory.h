// device/file_memory.h: tensors whose memory is a file's.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

namespace danlu::device {

/// A CPU tensor [elements] of zeros in an unnamed file of `directory`, which goes with it. The
/// space is taken at once. It is mapped, for whoever reads all of it at leisure, and gone through
/// in blocks by update_blocks().
class FileTensor {
 public:
  FileTensor() = default;
  /// Errors: IoError naming the directory (none such, no space, no mapping).
  FileTensor(const std::filesystem::path& directory, int64_t elements,
             at::ScalarType type = at::kFloat);
  /// The mapping, which outlives the FileTensor.
  const at::Tensor& tensor() const { return tensor_; }
  /// What was written to the mapping is where blocks are read. Errors: IoError.
  void sync_mapping() const;
  /// For a while nobody needs the mapping: what it holds of memory is given back.
  void release_pages() const;

 private:
  friend class BlockReader;
  friend void update_blocks(const std::vector<const FileTensor*>& tensors,
                            const std::function<void(const struct Block&)>& update);
  void forget_cached() const;
  struct File;
  std::shared_ptr<const File> file_;
  at::Tensor tensor_;
  bool is_direct_ = false;  ///< blocks go past the cache (O_DIRECT), as not every file system can
};

/// Elements [begin, end) of FileTensors, values[i] those of the i-th.
struct Block {
  int64_t begin, end;
  std::vector<float*> values;
};
/// update(block) for every block of f32 tensors of one length, in order; what it changes is written
/// back. Meanwhile the next block is read and the last one is written. This takes three times 4 MiB
/// of memory for each tensor, whatever their length. Errors: IoError; what update throws.
void update_blocks(const std::vector<const FileTensor*>& tensors,
                   const std::function<void(const Block&)>& update);

}  // namespace danlu::device
