// weights/tensor_bands.h: going through tensors of any size in pieces of a few megabytes, with the
// memory of what was read given back.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <vector>

#include "weights/tensor_source.h"

namespace danlu::weights {

/// Told from several threads how many bytes were read so far.
using BytesProgress = std::function<void(uint64_t done)>;

/// Threads for streaming work: `wanted`, or (0) as many as the process may use, at most 8: more
/// outrun any disk, and each holds buffers.
size_t streaming_threads(size_t wanted = 0);

/// Elements [begin, end) of a flattened tensor: whole rows where a row is small enough.
struct Band {
  int64_t begin = 0, end = 0;
};
/// Bands of about 2 MB that cover the tensor in order; none for one without elements.
std::vector<Band> bands_of(const TensorInfo& info);

/// The bytes of a band: where they are mapped, else read into `buffer`.
std::span<const std::byte> band_bytes(const TensorSource& source, const TensorInfo& info,
                                      const Band& band, std::vector<std::byte>& buffer);

/// Counts bytes read from mapped sources and lets go of them every 64 MB, and whenever more than
/// 256 MB of mapped files are in memory. Thread-safe.
class ReadMeter {
 public:
  ReadMeter(std::initializer_list<const TensorSource*> sources, BytesProgress progress)
      : sources_(sources), progress_(std::move(progress)) {}
  void add(uint64_t bytes);

 private:
  std::vector<const TensorSource*> sources_;
  BytesProgress progress_;
  std::atomic<uint64_t> done_{0};
};

}  // namespace danlu::weights
