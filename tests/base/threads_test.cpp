#include "base/threads.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"

namespace danlu {
namespace {

TEST(ParallelFor, CallsEveryIndexOnce) {
  for (const size_t num_threads : {0, 1, 3, 64}) {
    std::vector<std::atomic<int>> calls(50);
    parallel_for(calls.size(), num_threads, [&](size_t i) { ++calls[i]; });
    for (const auto& count : calls) EXPECT_EQ(count, 1);
  }
  parallel_for(0, 4, [](size_t) { FAIL(); });
}

TEST(ThreadCount, OfOneOfSeveralIsItsPartUnlessSomebodyHasChosen) {
  const auto counts = [] {
    ::unsetenv("OMP_NUM_THREADS");
    const size_t all = default_thread_count();
    const bool divides = std::thread::hardware_concurrency() == all;
    if (divides && thread_count_of_sharer(2) != std::max<size_t>(1, all / 2)) ::_exit(1);
    if (thread_count_of_sharer(1) != all || thread_count_of_sharer(100000) < 1) ::_exit(2);
    ::setenv("OMP_NUM_THREADS", "3", 1);
    if (thread_count_of_sharer(2) != 3) ::_exit(3);
    ::unsetenv("OMP_NUM_THREADS");
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    if (std::thread::hardware_concurrency() > 1) {
      if (::sched_setaffinity(0, sizeof one, &one) != 0) ::_exit(4);
      if (thread_count_of_sharer(2) != 1) ::_exit(5);
    }
    ::_exit(0);
  };
  EXPECT_EXIT(counts(), testing::ExitedWithCode(0), "");
}

TEST(ParallelFor, RethrowsAndStopsHandingOutWork) {
  std::atomic<int> calls{0};
  EXPECT_THROW(parallel_for(100000, 2,
                            [&](size_t i) {
                              ++calls;
                              if (i == 3) throw DataError("row 3");
                            }),
               DataError);
  EXPECT_LT(calls, 100000);
}

/// In a process of its own that has address space for a few threads' stacks.
[[noreturn]] void start_more_threads_than_there_can_be() {
  long pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const auto bytes = static_cast<rlim_t>(pages * ::sysconf(_SC_PAGESIZE) + (64 << 20));
  const rlimit limit{bytes, bytes};
  ::setrlimit(RLIMIT_AS, &limit);
  int refused = 0;
  try {
    ThreadGroup threads;
    for (int i = 0; i < 1000; ++i) threads.start([] { std::this_thread::yield(); });
  } catch (const std::system_error&) {
    ++refused;
  }
  try {
    parallel_for(1000, 1000, [](size_t) { std::this_thread::yield(); });
  } catch (const std::system_error&) {
    ++refused;
  }
  std::_Exit(refused);
}

TEST(ThreadGroup, ThreadsThatCannotBeMadeAreAnErrorAndTheOthersEnd) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's own memory does not fit the limit";
#endif
  EXPECT_EXIT(start_more_threads_than_there_can_be(), testing::ExitedWithCode(2), "");
}

TEST(DefaultThreadCount, FollowsOmpNumThreads) {
  ::setenv("OMP_NUM_THREADS", "3", 1);
  EXPECT_EQ(default_thread_count(), 3u);
  ::setenv("OMP_NUM_THREADS", "100000", 1);
  EXPECT_THROW(default_thread_count(), UsageError);
  for (const char* wrong : {"many", "0", "-3", "2,", "2,x", ",2", "1.5", " "}) {
    ::setenv("OMP_NUM_THREADS", wrong, 1);
    EXPECT_THROW(default_thread_count(), UsageError) << wrong;
    EXPECT_THROW(warn_of_many_threads(), UsageError) << wrong;
  }
  ::setenv("OMP_NUM_THREADS", "", 1);
  EXPECT_GE(default_thread_count(), 1u);
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_GE(default_thread_count(), 1u);
}

TEST(DefaultThreadCount, IsTheFirstOfAList) {
  EXPECT_EQ(first_thread_count("4,2"), 4u);
  EXPECT_EQ(first_thread_count(" 7 , 1 "), 7u);
  EXPECT_EQ(first_thread_count("4,zwei"), std::nullopt);
  EXPECT_EQ(first_thread_count("4,0"), std::nullopt);
  EXPECT_EQ(first_thread_count("99999999999999999999999"), std::numeric_limits<size_t>::max());
}

TEST(DefaultThreadCount, FarMoreThanProcessorsIsAWarningAndThenRefused) {
  const auto on_one_processor = [](const char* threads) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    if (::sched_setaffinity(0, sizeof one, &one) != 0) ::_exit(1);
    ::setenv("OMP_NUM_THREADS", threads, 1);
    try {
      warn_of_many_threads();
      ::_exit(default_thread_count() == std::strtoul(threads, nullptr, 10) ? 0 : 2);
    } catch (const UsageError&) {
      ::_exit(3);
    }
  };
  const auto ends = [](int code) { return testing::ExitedWithCode(code); };
  EXPECT_EXIT(on_one_processor("4"), ends(0), "^$");
  EXPECT_EXIT(on_one_processor("5,9"), ends(0), "OMP_NUM_THREADS=5 threads on 1 processors");
  EXPECT_EXIT(on_one_processor("64"), ends(0), "OMP_NUM_THREADS=64 threads on 1 processors");
  EXPECT_EXIT(on_one_processor("65"), ends(3), "^$");
}

}  // namespace
}  // namespace danlu
