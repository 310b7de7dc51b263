// base/at_exit.h: what is done at the end of a scope, also where it is left by an exception.
#pragma once
#include <utility>

namespace danlu {

/// REQUIRES: work() does not throw.
template <typename Work>
class [[nodiscard]] AtExit {
 public:
  explicit AtExit(Work work) : work_(std::move(work)) {}
  ~AtExit() { work_(); }
  AtExit(const AtExit&) = delete;
  AtExit& operator=(const AtExit&) = delete;

 private:
  Work work_;
};

}  // namespace danlu
