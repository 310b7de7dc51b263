// ops/scratch_cpu.h: memory that a thread keeps between calls. Internal to ops.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <memory>

namespace danlu::ops::cpu {

/// Memory that a thread keeps for its next product: fresh pages would cost as much as packing.
class ScratchMemory {
 public:
  /// Aligned to a page, a huge one where it is as large. What was there is lost where it grows.
  /// Errors: std::bad_alloc.
  char* of(size_t bytes);
  float* floats(size_t count) { return reinterpret_cast<float*>(of(count * sizeof(float))); }

 private:
  struct Free {
    void operator()(char* data) const { std::free(data); }
  };
  std::unique_ptr<char, Free> data_;
  size_t size_ = 0;
};

}  // namespace danlu::ops::cpu
