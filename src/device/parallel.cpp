#include "device/parallel.h"

#include <omp.h>

#include <memory>

namespace danlu::device {
namespace {

thread_local bool is_in_loop = false;

/// This thread's, after libtorch has set it where a loop would first ask: in the library, and from
/// 2.x on apart from that in what is compiled here.
int threads_of_libtorch() {
  at::internal::lazy_init_num_threads();
  at::get_num_threads();
  return omp_get_max_threads();
}

void begin_member() { threads_of_libtorch(); }

}  // namespace

ThreadTeam* thread_team() {
  if (is_in_loop || at::in_parallel_region()) return nullptr;
  static thread_local ThreadTeam team(&begin_member);
  return &team;
}

InsideLoop::InsideLoop() : was_inside_(is_in_loop), threads_before_(threads_of_libtorch()) {
  is_in_loop = true;
  omp_set_num_threads(1);
}
InsideLoop::~InsideLoop() {
  is_in_loop = was_inside_;
  omp_set_num_threads(threads_before_);
}

}  // namespace danlu::device
