#include "ops/scratch_cpu.h"

#include <sys/mman.h>

#include <new>

namespace danlu::ops::cpu {

char* ScratchMemory::of(size_t bytes) {
  constexpr size_t kPage = 4096, kHugePage = size_t{2} << 20;
  if (bytes <= size_) return data_.get();
  data_.reset();
  size_ = 0;
  const size_t size = (bytes + kPage - 1) / kPage * kPage;
  const bool is_large = size >= kHugePage;
  void* data = nullptr;
  if (::posix_memalign(&data, is_large ? kHugePage : kPage, size) != 0) throw std::bad_alloc();
  data_.reset(static_cast<char*>(data));
  size_ = size;
  // Refused where huge pages are off: nothing else changes.
  if (is_large) ::madvise(data, size / kHugePage * kHugePage, MADV_HUGEPAGE);
  return data_.get();
}

}  // namespace danlu::ops::cpu
