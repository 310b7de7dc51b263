// Blocks that are kept and used again, and tensors that lie in them.
#include "device/block_pool.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "device/counted_memory.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kHasShadow = true;
#else
constexpr bool kHasShadow = false;
#endif

namespace danlu::device {
namespace {

constexpr size_t kMiB = 1 << 20;

TEST(BlockPool, ABlockIsUsedAgainAndNothingMoreIsMapped) {
  BlockPool pool;
  void* const first = pool.take(3 * kMiB);
  EXPECT_EQ(pool.mapped_bytes(), 4 * kMiB);  // whole pages of 2 MiB
  EXPECT_EQ(pool.give_back(first), 3 * kMiB);
  void* const again = pool.take(3 * kMiB);
  EXPECT_EQ(again, first);
  EXPECT_EQ(pool.mapped_bytes(), 4 * kMiB);
  pool.give_back(again);
}

TEST(BlockPool, FreeRangesThatMeetBecomeOneInAnyOrder) {
  for (const std::vector<int>& order :
       {std::vector{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}) {
    BlockPool pool;
    std::vector<void*> blocks;
    for (int i = 0; i < 3; ++i) blocks.push_back(pool.take(2 * kMiB));
    for (const int i : order) pool.give_back(blocks[static_cast<size_t>(i)]);
    void* const whole = pool.take(6 * kMiB);
    EXPECT_EQ(pool.mapped_bytes(), 6 * kMiB);
    pool.give_back(whole);
  }
}

TEST(BlockPool, MapsOnlyWhatIsMissing) {
  BlockPool pool;
  void* const low = pool.take(2 * kMiB);
  void* const high = pool.take(4 * kMiB);
  pool.give_back(high);
  void* const larger = pool.take(10 * kMiB);  // 4 of them are there
  EXPECT_EQ(pool.mapped_bytes(), 12 * kMiB);
  pool.give_back(low);
  pool.give_back(larger);
}

TEST(BlockPool, TakesTheSmallestRangeThatHoldsTheBlock) {
  BlockPool pool;
  void* const large = pool.take(8 * kMiB);
  void* const wall = pool.take(2 * kMiB);
  void* const small = pool.take(2 * kMiB);
  void* const end = pool.take(2 * kMiB);
  pool.give_back(large);
  pool.give_back(small);
  EXPECT_EQ(pool.take(2 * kMiB), small);
  EXPECT_EQ(pool.take(6 * kMiB), large);
  for (void* block : {wall, small, large, end}) pool.give_back(block);
}

TEST(BlockPool, KnowsItsBlocksAlone) {
  BlockPool pool;
  alignas(512) static char other[1024];
  EXPECT_EQ(pool.give_back(other), 0u);
  char* const block = static_cast<char*>(pool.take(100000));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 512, 0u);
  EXPECT_EQ(pool.size_of(block), 100352u);  // 196 x 512
  EXPECT_EQ(pool.give_back(block + 512), 0u);
  EXPECT_EQ(pool.used_bytes(), 100352u);
  EXPECT_EQ(pool.give_back(block), 100352u);
  EXPECT_EQ(pool.give_back(block), 0u);
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST(BlockPool, ReleaseGivesFreePagesBackAndLeavesBlocksAlone) {
  BlockPool pool;
  char* const first = static_cast<char*>(pool.take(5 * kMiB));
  char* const held = static_cast<char*>(pool.take(kMiB));
  char* const last = static_cast<char*>(pool.take(6 * kMiB));
  std::memset(held, 7, kMiB);
  pool.give_back(first);
  pool.give_back(last);
  EXPECT_EQ(pool.release(), 10 * kMiB);  // [0, 4) and [6, 12): the block lies in [5, 6)
  EXPECT_EQ(pool.mapped_bytes(), 2 * kMiB);
  EXPECT_TRUE(std::all_of(held, held + kMiB, [](char c) { return c == 7; }));
  unsigned char there;
  EXPECT_NE(::mincore(last + kMiB, 4096, &there), 0) << "still mapped";
  void* const again = pool.take(6 * kMiB);
  std::memset(again, 1, 6 * kMiB);
  pool.give_back(again);
  pool.give_back(held);
  pool.release();
  EXPECT_EQ(pool.mapped_bytes(), 0u);
}

// Every block keeps what was written to it: none overlaps another, and books and sums agree.
TEST(BlockPool, BlocksOfSeveralThreadsDoNotOverlap) {
  BlockPool pool;
  const auto work = [&pool](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::pair<unsigned char*, size_t>> held;
    for (int i = 0; i < 3000; ++i) {
      if (held.size() < 12 && random() % 3 != 0) {
        const size_t bytes = 64 * 1024 + random() % 300000;
        auto* const block = static_cast<unsigned char*>(pool.take(bytes));
        for (const size_t at : {size_t{0}, bytes / 2, bytes - 1})
          block[at] = static_cast<unsigned char>(seed);
        held.emplace_back(block, bytes);
      } else if (!held.empty()) {
        std::swap(held[random() % held.size()], held.back());
        const auto [block, bytes] = held.back();
        for (const size_t at : {size_t{0}, bytes / 2, bytes - 1}) ASSERT_EQ(block[at], seed);
        ASSERT_GE(pool.give_back(block), bytes);
        held.pop_back();
      }
      if (i % 500 == 0) pool.release();
    }
    for (const auto& [block, bytes] : held) pool.give_back(block);
  };
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 4; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.used_bytes(), 0u);
  const size_t mapped = pool.mapped_bytes();
  EXPECT_EQ(pool.release(), mapped) << "not all of it is one range again";
}

/// Runs `body` with little address space, in a process of its own.
[[noreturn]] void in_limits(const std::function<bool()>& body) {
  std::ifstream pages("/proc/self/statm");
  size_t mapped = 0;
  pages >> mapped;
  const rlim_t bytes = mapped * static_cast<size_t>(::sysconf(_SC_PAGESIZE)) + 96 * kMiB;
  const rlimit limit{bytes, bytes};
  ::setrlimit(RLIMIT_AS, &limit);
  ::_exit(body() ? 0 : 1);
}

TEST(BlockPoolDeathTest, WhereTheSystemGrantsNoMoreFreeBlocksAreGivenBackFirst) {
  if (kHasShadow) GTEST_SKIP() << "a sanitizer's own memory is beyond such limits";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(in_limits([] {
                BlockPool pool;
                // Two of 32 and a wall between: no range holds 64, and 128 are not to be had.
                void* const first = pool.take(32 * kMiB);
                void* const wall = pool.take(2 * kMiB);
                void* const second = pool.take(32 * kMiB);
                void* const other = pool.take(2 * kMiB);
                pool.give_back(first);
                pool.give_back(second);
                void* const large = pool.take(64 * kMiB);
                return large && other && wall && !pool.take(64 * kMiB);
              }),
              testing::ExitedWithCode(0), "");
}

TEST(BlockPoolDeathTest, NewFindsWhatTensorsLeft) {
  if (kHasShadow) GTEST_SKIP() << "a sanitizer's own memory is beyond such limits";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(in_limits([] {
                count_host_memory();
                {
                  const at::Tensor gone = at::empty({int64_t{64} << 20}, at::kByte);
                }
                // What nobody looks at, compilers leave out.
                auto* const more = static_cast<volatile char*>(::operator new(64 * kMiB));
                more[0] = 1;
                return more[0] == 1;
              }),
              testing::ExitedWithCode(0), "");
}

TEST(HostMemory, CountsTensorsAndKeepsTheirBlocks) {
  count_host_memory();
  const int64_t before = host_memory();
  reset_peak_host_memory();
  const void* where = nullptr;
  for (int i = 0; i < 3; ++i) {
    const at::Tensor tensor = at::zeros({3 << 20}, at::kByte);
    EXPECT_NEAR(static_cast<double>(host_memory() - before), 3 << 20, 4096);
    if (mapped_host_memory() > 0 && where) {
      EXPECT_EQ(tensor.data_ptr(), where);
    }
    where = tensor.data_ptr();
  }
  EXPECT_EQ(host_memory(), before);
  EXPECT_NEAR(static_cast<double>(peak_host_memory() - before), 3 << 20, 4096);
  if (mapped_host_memory() > 0) {
    EXPECT_GT(release_host_memory(), 0);
  }
}

// A step takes the same sizes again and again; the system is asked for a page the first time only.
TEST(HostMemory, WhatIsTakenAgainFaultsNoPage) {
  count_host_memory();
  if (mapped_host_memory() == 0 && (at::zeros({1 << 20}), mapped_host_memory() == 0))
    GTEST_SKIP() << "tensors take their memory from the C library here";
  const auto step = [] {
    std::vector<at::Tensor> kept;
    for (int64_t size = 1; size <= 32; ++size) kept.push_back(at::zeros({size << 18}, at::kByte));
    while (!kept.empty()) kept.pop_back();
  };
  const auto faults = [] {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt;
  };
  step();
  const int64_t before = faults();
  for (int i = 0; i < 5; ++i) step();
  EXPECT_LE(faults() - before, 8);  // 132 MiB are 33792 pages
}

}  // namespace
}  // namespace danlu::device
