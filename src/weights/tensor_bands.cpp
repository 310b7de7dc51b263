#include "weights/tensor_bands.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/threads.h"

namespace danlu::weights {
namespace {

constexpr int64_t kReadBandBytes = 2 << 20;
constexpr uint64_t kForgetEvery = 64 << 20;
/// How often the size of mapped pages is asked: narrow columns touch more than is read of them.
constexpr uint64_t kLookEvery = 8 << 20;
constexpr uint64_t kMostMapped = uint64_t{256} << 20;
constexpr size_t kMostThreads = 8;

/// Bytes of mapped files that are in this process's memory; 0 where the system does not say.
uint64_t mapped_resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total = 0, resident = 0, shared = 0;
  if (!(statm >> total >> resident >> shared)) return 0;
  return shared * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

size_t streaming_threads(size_t wanted) {
  return wanted > 0 ? wanted : std::min(default_thread_count(), kMostThreads);
}

std::vector<Band> bands_of(const TensorInfo& info) {
  const int64_t elements = info.num_elements();
  const int64_t cols = std::max<int64_t>(1, matrix_of(info.shape).cols);
  int64_t step =
      std::max<int64_t>(1, kReadBandBytes / static_cast<int64_t>(dtype_size_bytes(info.dtype)));
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
  const bool is_time = before / kForgetEvery != after / kForgetEvery;
  const bool may_look = before / kLookEvery != after / kLookEvery;
  if (is_time || (may_look && mapped_resident_bytes() > kMostMapped)) {
    for (const TensorSource* source : sources_) source->forget();
  }
  if (progress_) progress_(after);
}

}  // namespace danlu::weights
