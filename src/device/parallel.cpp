#include "device/parallel.h"

#include <omp.h>

#include <memory>

namespace danlu::device {
namespace {

thread_local bool is_in_loop = false;

void begin_member() {
  at::get_num_threads();  // so that libtorch sets this thread's number before it is set here
}

}  // namespace

ThreadTeam* thread_team() {
  if (is_in_loop || at::in_parallel_region()) return nullptr;
  static thread_local ThreadTeam team(&begin_member);
  return &team;
}

InsideLoop::InsideLoop() : was_inside_(is_in_loop), threads_before_(omp_get_max_threads()) {
  is_in_loop = true;
  omp_set_num_threads(1);
}
InsideLoop::~InsideLoop() {
  is_in_loop = was_inside_;
  omp_set_num_threads(threads_before_);
}

}  // namespace danlu::device
