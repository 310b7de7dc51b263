#include "device/parallel.h"

#include <omp.h>

#include <memory>

namespace danlu::device {
namespace parallel_detail {

thread_local bool is_inside = false;

void begin_member() {
  at::get_num_threads();  // so that libtorch sets this thread's number before it is set here
}

}  // namespace parallel_detail

ThreadTeam* thread_team() {
  if (parallel_detail::is_inside || at::in_parallel_region()) return nullptr;
  static thread_local ThreadTeam team(&parallel_detail::begin_member);
  return &team;
}

InsideLoop::InsideLoop()
    : was_inside_(parallel_detail::is_inside), threads_before_(omp_get_max_threads()) {
  parallel_detail::is_inside = true;
  omp_set_num_threads(1);
}
InsideLoop::~InsideLoop() {
  parallel_detail::is_inside = was_inside_;
  omp_set_num_threads(threads_before_);
}

}  // namespace danlu::device
