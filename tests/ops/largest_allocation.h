// The largest piece of memory that tensors ask for, of the thread that watches.
#pragma once
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace danlu::test {

/// Set as c10::DebugInfoKind::PROFILER_STATE by a DebugInfoGuard.
class LargestAllocation : public c10::MemoryReportingInfoBase {
#if TORCH_VERSION_MAJOR >= 2
  using Total = size_t;
#else
  using Total = int64_t;
#endif

 public:
  void reportMemoryUsage(void*, int64_t size, Total, Total, c10::Device) override {
    largest = std::max(largest, size);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t largest = 0;
};

}  // namespace danlu::test
