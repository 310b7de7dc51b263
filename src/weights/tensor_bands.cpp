#include "weights/tensor_bands.h"

#include <algorithm>

#include "base/thread_pool.h"

namespace danlu::weights {
namespace {

constexpr int64_t kBandBytes = 2 << 20;
constexpr uint64_t kForgetEvery = 64 << 20;
constexpr size_t kMostThreads = 8;

}  // namespace

size_t streaming_threads(size_t wanted) {
  return wanted > 0 ? wanted : std::min(default_thread_count(), kMostThreads);
}

std::vector<Band> bands_of(const TensorInfo& info) {
  const int64_t elements = info.num_elements();
  const int64_t cols = std::max<int64_t>(1, matrix_of(info.shape).cols);
  int64_t step =
      std::max<int64_t>(1, kBandBytes / static_cast<int64_t>(dtype_size_bytes(info.dtype)));
  if (cols <= step) step -= step % cols;
  std::vector<Band> bands;
  for (int64_t begin = 0; begin < elements; begin += step)
    bands.push_back({begin, std::min(begin + step, elements)});
  return bands;
}

std::span<const std::byte> band_bytes(const TensorSource& source, const TensorInfo& info,
                                      const Band& band, std::vector<std::byte>& buffer) {
  const size_t item = dtype_size_bytes(info.dtype);
  const size_t begin = static_cast<size_t>(band.begin) * item;
  const size_t count = static_cast<size_t>(band.end - band.begin) * item;
  const std::span<const std::byte> bytes = source.mapped(info.name);
  if (!bytes.empty()) return bytes.subspan(begin, count);
  buffer.resize(count);
  source.read_range(info.name, band.begin, band.end, buffer);
  return buffer;
}

void ReadMeter::add(uint64_t bytes) {
  const uint64_t before = done_.fetch_add(bytes), after = before + bytes;
  if (before / kForgetEvery != after / kForgetEvery) {
    for (const TensorSource* source : sources_) source->forget();
  }
  if (progress_) progress_(after);
}

}  // namespace danlu::weights
