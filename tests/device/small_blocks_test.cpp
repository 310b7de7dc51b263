// Memory of some kilobytes that a thread keeps for its next tensors.
#include "device/small_blocks.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "device/counted_memory.h"

namespace danlu::device {
namespace {

void* fresh(size_t bytes) { return std::malloc(SmallBlocks::rounded(bytes)); }

TEST(SmallBlocks, GivesBackWhatIsLargeEnoughAndNothingElse) {
  SmallBlocks blocks;
  EXPECT_EQ(blocks.take(700), nullptr);
  void* const block = fresh(700);  // 1024 bytes
  ASSERT_TRUE(blocks.keep(block, 1024 + 8));
  EXPECT_EQ(blocks.kept_bytes(), 1024u);
  EXPECT_EQ(blocks.take(1025), nullptr);
  EXPECT_EQ(blocks.take(512), nullptr) << "a size of its own";
  EXPECT_EQ(blocks.take(513), block);
  EXPECT_EQ(blocks.take(513), nullptr);
  EXPECT_EQ(blocks.kept_bytes(), 0u);
  std::free(block);
}

TEST(SmallBlocks, KeepsNoMoreThanItMayAndNoSizeThatIsNotItsOwn) {
  SmallBlocks blocks;
  constexpr size_t kMost = SmallBlocks::kMostKept / SmallBlocks::kLargest;
  for (size_t i = 0; i < kMost; ++i)
    EXPECT_TRUE(blocks.keep(fresh(SmallBlocks::kLargest), SmallBlocks::kLargest));
  EXPECT_EQ(blocks.kept_bytes(), SmallBlocks::kMostKept);
  void* const other = fresh(2000);
  EXPECT_TRUE(blocks.keep(other, 2048)) << "sizes that are asked for no more make room";
  EXPECT_EQ(blocks.kept_bytes(), 2048u);
  EXPECT_EQ(blocks.take(SmallBlocks::kLargest), nullptr);
  EXPECT_EQ(blocks.take(2000), other);
  std::free(other);
  SmallBlocks others;
  char small[SmallBlocks::kUnit];
  EXPECT_FALSE(others.keep(small, SmallBlocks::kUnit - 1));
  EXPECT_FALSE(others.keep(small, SmallBlocks::kLargest + SmallBlocks::kUnit));
}

/// Whether tensors take their memory from where count_host_memory() says, not from the C library as
/// under sanitizers.
bool has_pool() {
  count_host_memory();
  const at::Tensor large = at::empty({int64_t{1} << 20}, at::kByte);
  return mapped_host_memory() > 0;
}

TEST(SmallBlocks, ATensorTakesWhatAnotherOfItsThreadLeft) {
  if (!has_pool()) GTEST_SKIP() << "memory is the C library's";
  const auto address_of = [](int64_t bytes) { return at::empty({bytes}, at::kByte).data_ptr(); };
  const void* const first = address_of(5000);
  const at::Tensor between = at::empty({3000}, at::kByte);
  EXPECT_EQ(address_of(4700), first);
}

/// Each filled with a number of its own, so that two that shared memory would show.
TEST(SmallBlocks, TensorsOfThreadsNeverShareMemory) {
  count_host_memory();
  const int64_t before = host_memory();
  std::vector<at::Tensor> moved;
  const auto churn = [&moved](unsigned seed, bool keeps) {
    std::mt19937 random(seed);
    std::vector<at::Tensor> alive;
    for (int i = 0; i < 3000; ++i) {
      const auto bytes = static_cast<int64_t>(random() % (70u << 10));
      alive.push_back(at::empty({bytes}, at::kByte));
      const int mark = static_cast<int>(random() % 256);
      std::memset(alive.back().data_ptr(), mark, static_cast<size_t>(bytes));
      if (alive.size() < 20) continue;
      const size_t gone = random() % alive.size();
      const auto* const data = alive[gone].data_ptr<uint8_t>();
      for (int64_t at = 1; at < alive[gone].numel(); ++at) ASSERT_EQ(data[at], data[0]);
      alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(gone));
    }
    if (keeps) moved = alive;
  };
  std::thread first([&] { churn(1, true); }), second([&] { churn(2, false); });
  first.join();
  second.join();
  churn(3, false);
  moved.clear();  // in a thread that did not take them, which has ended
  EXPECT_EQ(host_memory(), before);
}

}  // namespace
}  // namespace danlu::device
