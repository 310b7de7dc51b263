#include "base/threads.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include "base/control_group.h"
#include "base/error.h"
#include "base/log.h"

namespace danlu {

namespace {

/// So many a processor are a slip, such as another machine's value: they wait for one another, and
/// an answer of a second takes minutes.
constexpr size_t kMostThreadsPerProcessor = 16, kManyThreadsPerProcessor = 4;
/// What a small machine may be asked for all the same.
constexpr size_t kAllowedAnywhere = 64;

const char* threads_variable() {
  const char* set = std::getenv("OMP_NUM_THREADS");
  return set && *set ? set : nullptr;
}

/// A whole number from 1, with blanks around it; what does not fit is the largest.
std::optional<size_t> count_of_threads(std::string_view word) {
  constexpr std::string_view kBlanks = " \t\n\r";
  const size_t begin = word.find_first_not_of(kBlanks), end = word.find_last_not_of(kBlanks);
  if (begin == word.npos) return std::nullopt;
  word = word.substr(begin, end + 1 - begin);
  size_t count = 0;
  const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), count);
  if (stop != word.data() + word.size() || error == std::errc::invalid_argument)
    return std::nullopt;
  if (error == std::errc::result_out_of_range) return std::numeric_limits<size_t>::max();
  if (count < 1) return std::nullopt;
  return count;
}

size_t usable_processors() {
  cpu_set_t allowed;
  size_t count = std::max(1u, std::thread::hardware_concurrency());
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0)
    count = static_cast<size_t>(std::max(1, CPU_COUNT(&allowed)));
  const size_t quota = cpu_quota();
  return quota > 0 ? std::min(count, quota) : count;
}

/// Errors: UsageError for what is no list of numbers.
std::optional<size_t> asked_threads() {
  const char* set = threads_variable();
  if (!set) return std::nullopt;
  if (const auto count = first_thread_count(set)) return count;
  throw UsageError(tr("[OMP_NUM_THREADS] must be a number of threads, 1 or more, got '{}'", set),
                   tr("unset it: danlu then takes one thread a processor core"));
}

}  // namespace

std::optional<size_t> first_thread_count(std::string_view list) {
  std::optional<size_t> first;
  while (true) {
    const size_t comma = list.find(',');
    const auto count = count_of_threads(list.substr(0, comma));
    if (!count) return std::nullopt;
    if (!first) first = count;
    if (comma == list.npos) return first;
    list.remove_prefix(comma + 1);
  }
}

size_t most_threads(size_t usable) {
  return std::max(kAllowedAnywhere, kMostThreadsPerProcessor * usable);
}

size_t default_thread_count() {
  const auto asked = asked_threads();
  const size_t usable = usable_processors();
  if (!asked) return usable;
  const size_t most = most_threads(usable);
  if (*asked > most) {
    throw UsageError(tr("[OMP_NUM_THREADS] must be at most {} where the processors are {}, got {}",
                        most, usable, threads_variable()),
                     tr("unset it: danlu then takes one thread a processor core"));
  }
  return *asked;
}

void warn_of_many_threads() {
  const size_t asked = default_thread_count(), usable = usable_processors();
  if (asked <= kManyThreadsPerProcessor * usable) return;
  log::warning(
      "OMP_NUM_THREADS={} threads on {} processors: they wait for one another, and everything "
      "becomes slower; unset, it is one thread a processor core",
      asked, usable);
}

size_t thread_count_of_sharer(size_t sharers) {
  const size_t count = default_thread_count();
  cpu_set_t allowed;
  const bool is_bound =
      ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 &&
      static_cast<unsigned>(CPU_COUNT(&allowed)) < std::thread::hardware_concurrency();
  if (threads_variable() || is_bound) return count;
  return std::max<size_t>(1, count / std::max<size_t>(1, sharers));
}

void ThreadGroup::join() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void parallel_for(size_t count, size_t num_threads, const std::function<void(size_t)>& body) {
  const size_t workers = std::min(count, std::max<size_t>(1, num_threads));
  if (workers <= 1) {
    for (size_t i = 0; i < count; ++i) body(i);
    return;
  }
  std::atomic<size_t> next{0};
  std::mutex failure_mutex;
  std::exception_ptr failure;
  const auto fail = [&] {
    const std::lock_guard<std::mutex> lock(failure_mutex);
    if (!failure) failure = std::current_exception();
    next = count;  // the rest would be wasted work
  };
  const auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < count;) {
      try {
        body(i);
      } catch (...) {
        fail();
      }
    }
  };
  ThreadGroup threads;
  try {
    for (size_t i = 1; i < workers; ++i) threads.start(work);
  } catch (...) {
    fail();
  }
  work();
  threads.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace danlu
