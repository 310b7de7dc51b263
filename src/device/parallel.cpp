#include "device/parallel.h"

#include <omp.h>

#include <memory>

namespace danlu::device {
namespace parallel_detail {

thread_local bool is_inside = false;

/// libtorch's own loops, where a part calls one, are not divided either.
void begin_member() {
  at::get_num_threads();  // so that libtorch sets this thread's number before it is set here
  omp_set_num_threads(1);
}

}  // namespace parallel_detail

ThreadTeam* thread_team() {
  if (parallel_detail::is_inside || at::in_parallel_region()) return nullptr;
  static thread_local ThreadTeam team(&parallel_detail::begin_member);
  return &team;
}

InsideLoop::InsideLoop() : before_(parallel_detail::is_inside) {
  parallel_detail::is_inside = true;
}
InsideLoop::~InsideLoop() { parallel_detail::is_inside = before_; }

}  // namespace danlu::device
