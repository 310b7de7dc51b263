#include "device/file_memory.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <future>
#include <utility>

#include "base/error.h"
#include "base/temporary.h"
#include "device/file_transfer.h"

namespace danlu::device {
/// The file consists of whole blocks of the alignment.
struct FileTensor::File {
  std::filesystem::path directory;
  int blocks = -1;  ///< a descriptor, past the cache where that is possible

  ~File() {
    if (blocks >= 0) ::close(blocks);
  }
  void read(int64_t begin, int64_t end, std::byte* to) const {
    using namespace file_transfer;
    if (!read_all(blocks, begin, end, to))
      fail(directory, "what is offloaded there cannot be read", errno);
  }
  void write(int64_t begin, int64_t end, const std::byte* from) const {
    using namespace file_transfer;
    if (!write_all(blocks, begin, end, from))
      fail(directory, "what is offloaded cannot be written there", errno);
  }
};

FileTensor::FileTensor(const std::filesystem::path& directory, int64_t elements,
                       at::ScalarType type) {
  using namespace file_transfer;
  const auto options = at::TensorOptions(type);
  if (elements == 0) {
    tensor_ = at::zeros({0}, options);
    return;
  }
  const auto bytes = rounded_up(elements * static_cast<int64_t>(at::elementSize(type)));
  auto file = std::make_shared<File>();
  file->directory = directory;
  file->blocks = open_nameless(directory);
  if (file->blocks < 0) fail(directory, "no file can be made there", errno);
  if (const int error = ::posix_fallocate(file->blocks, 0, bytes))
    fail(directory, "no space", error);
  const auto size = static_cast<size_t>(bytes);
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file->blocks, 0);
  if (memory == MAP_FAILED) fail(directory, "its file cannot be mapped", errno);
  tensor_ =
      at::from_blob(memory, {elements}, [size](void* data) { ::munmap(data, size); }, options);
  file->blocks = past_the_cache(file->blocks, is_direct_);
  file_ = std::move(file);
}

void FileTensor::sync_mapping() const {
  if (is_direct_ && ::msync(tensor_.data_ptr(), tensor_.nbytes(), MS_SYNC) != 0)
    file_transfer::fail(file_->directory, "what is offloaded cannot be written there", errno);
}

void FileTensor::forget_cached() const {
  if (is_direct_) ::posix_fadvise(file_->blocks, 0, 0, POSIX_FADV_DONTNEED);
}

void FileTensor::release_pages() const {
  if (tensor_.numel() == 0) return;
  ::madvise(tensor_.data_ptr(), tensor_.nbytes(), MADV_DONTNEED);
}

/// The same block of several tensors in memory that O_DIRECT may use.
class BlockReader {
 public:
  explicit BlockReader(const std::vector<const FileTensor*>& tensors) : tensors_(tensors) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      void* memory = nullptr;
      if (::posix_memalign(&memory, file_transfer::kAlignment, file_transfer::kBlockBytes) != 0)
        throw std::bad_alloc();
      memory_.emplace_back(static_cast<std::byte*>(memory), &std::free);
    }
  }
  void read(int64_t begin, int64_t end) {
    block_ = {begin, end, {}};
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const auto [from, to] = bytes();
      tensors_[i]->file_->read(from, to, memory_[i].get());
      block_.values.push_back(reinterpret_cast<float*>(memory_[i].get()));
    }
  }
  const Block& block() const { return block_; }
  void write() const {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const auto [from, to] = bytes();
      tensors_[i]->file_->write(from, to, memory_[i].get());
    }
  }

 private:
  std::pair<int64_t, int64_t> bytes() const {
    constexpr auto kElement = static_cast<int64_t>(sizeof(float));
    return {block_.begin * kElement, file_transfer::rounded_up(block_.end * kElement)};
  }
  const std::vector<const FileTensor*>& tensors_;
  std::vector<std::unique_ptr<std::byte, decltype(&std::free)>> memory_;
  Block block_{};
};

void update_blocks(const std::vector<const FileTensor*>& tensors,
                   const std::function<void(const Block&)>& update) {
  constexpr int64_t kElements = file_transfer::kBlockBytes / sizeof(float);
  const int64_t elements = tensors.front()->tensor().numel();
  const int64_t blocks = (elements + kElements - 1) / kElements;
  std::array<BlockReader, 3> buffers{BlockReader(tensors), BlockReader(tensors),
                                     BlockReader(tensors)};
  const auto buffer = [&](int64_t block) -> BlockReader& {
    return buffers[static_cast<size_t>(block) % buffers.size()];
  };
  const auto read = [&](int64_t block) {
    const int64_t begin = block * kElements;
    buffer(block).read(begin, std::min(elements, begin + kElements));
  };
  // Destroyed first, so that whatever is thrown both have ended before the buffers go.
  std::future<void> reading, writing;
  if (blocks > 0) reading = std::async(std::launch::async, read, 0);
  for (int64_t block = 0; block < blocks; ++block) {
    reading.get();
    // The next is read into what was written two blocks ago.
    if (block + 1 < blocks) reading = std::async(std::launch::async, read, block + 1);
    update(buffer(block).block());
    if (writing.valid()) writing.get();
    writing = std::async(std::launch::async, [&buffer, block] { buffer(block).write(); });
  }
  if (writing.valid()) writing.get();
  // Where the system keeps pages that blocks went past, the mapping would show old ones.
  for (const FileTensor* tensor : tensors) tensor->forget_cached();
}

}  // namespace danlu::device
