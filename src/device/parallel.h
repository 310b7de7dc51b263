// device/parallel.h: loops over the calling thread's team, for what a step does thousands of times.
#pragma once
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/thread_team.h"

namespace danlu::device {

/// The calling thread's own team; null inside of a loop, which is not divided again.
ThreadTeam* thread_team();

/// Keeps loops in this thread undivided while it lives, libtorch's own too.
class InsideLoop {
 public:
  InsideLoop();
  ~InsideLoop();
  InsideLoop(const InsideLoop&) = delete;
  InsideLoop& operator=(const InsideLoop&) = delete;

 private:
  const bool was_inside_;
  const int threads_before_;
};

/// Like at::parallel_for, calls body(first, past) for parts of [begin, end) of one size, in at most
/// ceil((end - begin) / grain) parts and at::get_num_threads() threads; but these are of a
/// ThreadTeam, which does not sleep between two loops. Errors: the first that a part throws.
template <typename Body>
void parallel_for(int64_t begin, int64_t end, int64_t grain, const Body& body) {
  if (begin >= end) return;
  const int64_t most =
      (end - begin + std::max<int64_t>(grain, 1) - 1) / std::max<int64_t>(grain, 1);
  ThreadTeam* const team = most > 1 ? thread_team() : nullptr;
  const int64_t threads = team ? std::min<int64_t>(at::get_num_threads(), most) : 1;
  if (threads <= 1) return body(begin, end);
  const int64_t count = (end - begin + threads - 1) / threads;
  struct Loop {
    const Body& body;
    int64_t begin, end, count;
  } loop{body, begin, end, count};
  const auto parts = static_cast<size_t>((end - begin + count - 1) / count);
  team->run(
      parts,
      [](void* context, size_t part) {
        const Loop& of = *static_cast<const Loop*>(context);
        const InsideLoop inside;
        const int64_t first = of.begin + static_cast<int64_t>(part) * of.count;
        of.body(first, std::min(of.end, first + of.count));
      },
      &loop);
}

/// body(i) for each i in [0, count).
template <typename Index, typename Body>
void parallel_each(Index count, const Body& body) {
  parallel_for(0, static_cast<int64_t>(count), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(static_cast<Index>(i));
  });
}

/// body(first, past) for parts of tasks that differ, of about as much work each: start_of(i) says
/// how much lies before task i, and start_of(count) how much there is. Each thread takes the tasks
/// that begin in its share of the work. REQUIRES: no task is without work.
template <typename Index, typename Start, typename Body>
void parallel_parts_by_work(Index count, const Start& start_of, const Body& body) {
  const auto work_before = [&](Index i) { return static_cast<int64_t>(start_of(i)); };
  parallel_for(0, work_before(count), 1, [&](int64_t begin, int64_t end) {
    Index i = 0, past = count;
    while (i < past) {
      const Index middle = i + (past - i) / 2;
      if (work_before(middle) < begin) {
        i = middle + 1;
      } else {
        past = middle;
      }
    }
    const Index first = i;
    while (i < count && work_before(i) < end) ++i;
    if (first < i) body(first, i);
  });
}

/// body(i, begin, end) for parts of [0, size_of(i)), for each i in [0, count), as one loop over all
/// of them: a loop's end is waited for by all threads.
template <typename Index, typename Size, typename Body>
void parallel_ranges(Index count, int64_t grain, const Size& size_of, const Body& body) {
  int64_t all = 0;
  for (Index i = 0; i < count; ++i) all += size_of(i);
  parallel_for(0, all, grain, [&](int64_t begin, int64_t end) {
    int64_t before = 0;
    for (Index i = 0; i < count && before < end; ++i) {
      const int64_t size = size_of(i);
      const int64_t first = std::max<int64_t>(begin - before, 0);
      const int64_t past = std::min(end - before, size);
      if (first < past) body(i, first, past);
      before += size;
    }
  });
}

}  // namespace danlu::device
