// optim/chunks.h: cutting many tensors into pieces that threads share, the same way on every
// machine.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

namespace danlu::optim {

/// Elements [begin, end) of tensor `index`; `offset` is where the tensor begins in the flat
/// buffers.
struct Chunk {
  int64_t index = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t offset = 0;
};

/// Where each tensor lies in one flat buffer (64-byte aligned), and its chunks. Borders depend on
/// the sizes only, never on the thread count, so reductions over chunks are reproducible.
class FlatLayout {
 public:
  explicit FlatLayout(const std::vector<int64_t>& sizes);
  int64_t total() const { return total_; }
  int64_t offset(int64_t index) const { return offsets_[static_cast<size_t>(index)]; }
  int64_t size(int64_t index) const { return sizes_[static_cast<size_t>(index)]; }
  const std::vector<Chunk>& chunks() const { return chunks_; }

 private:
  std::vector<int64_t> sizes_, offsets_;
  std::vector<Chunk> chunks_;
  int64_t total_ = 0;
};

/// Calls body(chunk number) for every chunk, on the threads of the tensor engine.
void for_each_chunk(const FlatLayout& layout, const std::function<void(size_t)>& body);

}  // namespace danlu::optim
