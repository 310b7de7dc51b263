// Objects that live too short, and faults that tests plant.
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "card.h"
#include "support/temporary_directory.h"

namespace npu_sim_test {
namespace {

class Lifetimes : public Card {
 protected:
  bool reported(const std::string& words) {
    return std::string(NpuSimLastViolation()).find(words) != std::string::npos;
  }

  /// The first call of out = exp(a).
  aclnnStatus begin(aclTensor* a, aclTensor* out) {
    return aclnnExpGetWorkspaceSize(a, out, &bytes_, &executor_);
  }
  void* workspace(uint64_t bytes) {
    void* p = nullptr;
    EXPECT_EQ(aclrtMalloc(&p, bytes, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    return p;
  }
  aclTensor* alone(const Array& a) {
    return aclCreateTensor(a.dims.data(), a.dims.size(), a.type, nullptr, 0, ACL_FORMAT_ND,
                           a.dims.data(), a.dims.size(), a.data);
  }

  uint64_t bytes_ = 0;
  aclOpExecutor* executor_ = nullptr;
};

TEST_F(Lifetimes, DescriptorsMayGoAfterTheSecondCallButNotBefore) {
  const Array a = put({4}, {0, 0, 0, 0}), out = empty({4});
  aclTensor *x = alone(a), *y = alone(out);
  ASSERT_EQ(begin(x, y), 0);
  ASSERT_EQ(aclnnExp(workspace(bytes_), bytes_, executor_, stream_), 0);
  EXPECT_EQ(aclDestroyTensor(x), 0);
  EXPECT_EQ(get(out)[3], 1);
  x = alone(a);
  ASSERT_EQ(begin(x, y), 0);
  EXPECT_EQ(aclDestroyTensor(x), 0);
  EXPECT_NE(aclnnExp(workspace(bytes_), bytes_, executor_, stream_), 0);
  EXPECT_TRUE(reported("'self' was destroyed before the second call"));
  EXPECT_EQ(aclDestroyTensor(x), 161001);
  EXPECT_TRUE(reported("destroyed that does not live"));
  aclDestroyTensor(y);
}

TEST_F(Lifetimes, AListDestroysItsTensors) {
  const Array a = put({4}, {0, 0, 0, 0});
  const aclTensor* member = alone(a);
  const aclTensorList* list = aclCreateTensorList(&member, 1);
  EXPECT_EQ(aclDestroyTensorList(list), 0);
  EXPECT_EQ(NpuSimCounter("violations"), 0);
  EXPECT_EQ(NpuSimAlive("tensors"), 0);
  EXPECT_EQ(aclDestroyTensor(member), 161001);
  EXPECT_EQ(NpuSimCounter("violations"), 1);
}

TEST_F(Lifetimes, AnExecutorRunsOnceAndOnlyItsOwnOperator) {
  const Array a = put({4}, {0, 0, 0, 0}), out = empty({4});
  ASSERT_EQ(begin(of(a), of(out)), 0);
  void* w = workspace(bytes_);
  ASSERT_EQ(aclnnExp(w, bytes_, executor_, stream_), 0);
  EXPECT_NE(aclnnExp(w, bytes_, executor_, stream_), 0);
  EXPECT_TRUE(reported("consumed before"));
  ASSERT_EQ(begin(of(a), of(out)), 0);
  EXPECT_NE(aclnnLog(w, bytes_, executor_, stream_), 0);
  EXPECT_TRUE(reported("the executor is one of aclnnExp"));
}

TEST_F(Lifetimes, AWorkspaceIsLargeEnoughAndLivesUntilTheWorkRan) {
  NpuSimSchedule("lazy");
  const Array a = put({4}, {0, 0, 0, 0}), out = empty({4});
  ASSERT_EQ(begin(of(a), of(out)), 0);
  EXPECT_GT(bytes_, 0u);
  EXPECT_EQ(bytes_ % 2, 1u);
  EXPECT_EQ(aclnnExp(nullptr, bytes_, executor_, stream_), 161001);
  ASSERT_EQ(begin(of(a), of(out)), 0);
  EXPECT_NE(aclnnExp(workspace(bytes_ / 2), bytes_, executor_, stream_), 0);
  EXPECT_TRUE(reported("smaller than asked for"));
  ASSERT_EQ(begin(of(a), of(out)), 0);
  void* w = workspace(bytes_);
  ASSERT_EQ(aclnnExp(w, bytes_, executor_, stream_), 0);
  aclrtFree(w);
  EXPECT_TRUE(reported("may still use"));
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 507035);
  EXPECT_NE(std::string(aclGetRecentErrMsg()).find("workspace was freed"), std::string::npos);
}

TEST_F(Lifetimes, ViewsLieInTheirStorageAndBasesAreAligned) {
  const Array a = put({4}, {0, 0, 0, 0});
  EXPECT_EQ(view(a, {2, 2}, {2, 1}, 1), nullptr);
  EXPECT_TRUE(reported("the view ends at element 5, its storage at 4"));
  Array shifted = a;
  shifted.data = static_cast<char*>(a.data) + 4;
  EXPECT_EQ(view(shifted, {2}, {1}), nullptr);
  EXPECT_TRUE(reported("not aligned to 32 bytes"));
  EXPECT_EQ(view(a, {2}, {-1}, 1), nullptr);
}

TEST_F(Lifetimes, AViewBeyondItsBlockFailsWhenItRuns) {
  Array a = put({8}, Numbers(8, 0));
  a.dims = {1024};
  const Array out = empty({1024});
  ASSERT_EQ(RUN(aclnnExp, of(a), of(out)), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 507035);
  const std::string text = aclGetRecentErrMsg();
  EXPECT_NE(text.find("aclnnExp"), std::string::npos) << text;
  // The context is dead: later launches say so.
  EXPECT_EQ(RUN(aclnnExp, of(out), of(out)), 361001);
}

TEST_F(Lifetimes, RepeatableExecutorsTakeNewAddresses) {
  const Array a = put({2}, {1, 2}), b = put({2}, {10, 20}), out = empty({2}), other = empty({2});
  aclTensor *x = of(a), *y = of(out);
  ASSERT_EQ(aclnnNegGetWorkspaceSize(x, y, &bytes_, &executor_), 0);
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(executor_), 0);
  void* w = workspace(bytes_);
  ASSERT_EQ(aclnnNeg(w, bytes_, executor_, stream_), 0);
  ASSERT_EQ(aclSetInputTensorAddr(executor_, 0, x, b.data), 0);
  ASSERT_EQ(aclSetOutputTensorAddr(executor_, 0, y, other.data), 0);
  EXPECT_EQ(aclSetInputTensorAddr(executor_, 1, x, b.data), 161002);
  ASSERT_EQ(aclnnNeg(w, bytes_, executor_, stream_), 0);
  EXPECT_EQ(get(out), (Numbers{-1, -2}));
  EXPECT_EQ(get(other), (Numbers{-10, -20}));
  EXPECT_EQ(aclDestroyAclOpExecutor(executor_), 0);
  EXPECT_EQ(NpuSimCounter("violations"), 0);
}

TEST_F(Lifetimes, ArgumentsAreCheckedInTheFirstCallWithAText) {
  const Array a = put({4}, {0, 0, 0, 0}), short_one = empty({3});
  EXPECT_EQ(begin(of(a), nullptr), 161001);
  EXPECT_EQ(begin(of(a), of(short_one)), 161002);
  const std::string text = aclGetRecentErrMsg();
  EXPECT_NE(text.find("EZ1001"), std::string::npos);
  EXPECT_NE(text.find("aclnnExp"), std::string::npos);
}

class Faults : public Card {
 protected:
  aclnnStatus exp_again() { return RUN(aclnnInplaceExp, of(a_)); }
  void SetUp() override {
    Card::SetUp();
    a_ = put({2}, {0, 0});
  }
  Array a_;
};

TEST_F(Faults, TheNthCallFailsWithTheCode) {
  ASSERT_EQ(NpuSimInject("call:aclrtMalloc:2:207001;call:aclnnInplaceExpGetWorkspaceSize:1:561003"),
            0);
  void* p = nullptr;
  EXPECT_EQ(aclrtMalloc(&p, 64, ACL_MEM_MALLOC_HUGE_FIRST), 0);
  EXPECT_EQ(aclrtMalloc(&p, 64, ACL_MEM_MALLOC_HUGE_FIRST), 207001);
  EXPECT_EQ(aclrtMalloc(&p, 64, ACL_MEM_MALLOC_HUGE_FIRST), 0);
  EXPECT_EQ(exp_again(), 561003);
  EXPECT_EQ(exp_again(), 0);
  EXPECT_EQ(NpuSimInject("nonsense"), 1);
}

TEST_F(Faults, AFailingTaskIsSeenAtTheNextWaitWithTheOperatorsName) {
  ASSERT_EQ(NpuSimInject("task:aclnnInplaceExp:2:507015"), 0);
  ASSERT_EQ(exp_again(), 0);
  ASSERT_EQ(exp_again(), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 507015);
  EXPECT_NE(std::string(aclGetRecentErrMsg()).find("fault kernel_name=aclnnInplaceExp"),
            std::string::npos);
  EXPECT_EQ(aclrtSynchronizeDevice(), 507015);
}

TEST_F(Faults, AHungTaskLetsAWaitWithATimeoutGoAndAnAbortEndsIt) {
  NpuSimCollectiveTimeout(60000);
  ASSERT_EQ(NpuSimInject("hang:aclnnInplaceExp:1"), 0);
  ASSERT_EQ(exp_again(), 0);
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream_, 50), 507046);
  EXPECT_EQ(aclrtStreamAbort(stream_), 0);
}

TEST_F(Faults, ADeadCardAnswersNothingMore) {
  ASSERT_EQ(NpuSimInject("dead:aclnnInplaceExp:1"), 0);
  ASSERT_EQ(exp_again(), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 507010);
  void* p = nullptr;
  EXPECT_EQ(aclrtMalloc(&p, 64, ACL_MEM_MALLOC_HUGE_FIRST), 507010);
  aclrtDeviceStatus status = ACL_RT_DEVICE_STATUS_NORMAL;
  EXPECT_EQ(aclrtQueryDeviceStatus(0, &status), 0);
  EXPECT_EQ(status, ACL_RT_DEVICE_STATUS_ABNORMAL);
}

TEST_F(Faults, SlowTasksAreSlow) {
  ASSERT_EQ(NpuSimInject("slow:aclnnInplaceExp:30"), 0);
  aclrtEvent from = nullptr, to = nullptr;
  ASSERT_EQ(aclrtCreateEvent(&from), 0);
  ASSERT_EQ(aclrtCreateEvent(&to), 0);
  ASSERT_EQ(aclrtRecordEvent(from, stream_), 0);
  ASSERT_EQ(exp_again(), 0);
  ASSERT_EQ(aclrtRecordEvent(to, stream_), 0);
  ASSERT_EQ(aclrtSynchronizeEvent(to), 0);
  float ms = 0;
  ASSERT_EQ(aclrtEventElapsedTime(&ms, from, to), 0);
  EXPECT_GE(ms, 30);
}

/// exp(0) with a fault planted by the environment; ends by a signal.
const bool kKilled = add_program("killed_by_a_task", [] {
  aclInit(nullptr);
  aclrtSetDevice(1);
  void* p = nullptr;
  aclrtMalloc(&p, 64, ACL_MEM_MALLOC_HUGE_FIRST);
  aclrtMemsetAsync(p, 64, 0, 64, nullptr);
  aclrtSynchronizeDevice();
  return 0;
});

TEST(FaultsOfTheEnvironment, KillTheProcessOfOneCardOnly) {
  EXPECT_EQ(
      start_program("killed_by_a_task", {"NPU_SIM_FAULT=card1/kill:aclrtMemsetAsync:1"}).wait(),
      -9);
  EXPECT_EQ(
      start_program("killed_by_a_task", {"NPU_SIM_FAULT=card0/kill:aclrtMemsetAsync:1"}).wait(), 0);
}

/// A rule is broken and nobody asked for a report only.
const bool kBroken = add_program("breaks_a_rule", [] {
  aclInit(nullptr);
  aclrtSetDevice(0);
  int on_the_stack = 0;
  aclrtFree(&on_the_stack);
  return 0;
});

TEST(FaultsOfTheEnvironment, ABrokenRuleEndsTheProcess) {
  EXPECT_EQ(start_program("breaks_a_rule", {}).wait(), -6);
  EXPECT_EQ(start_program("breaks_a_rule", {"NPU_SIM_ABORT=0"}).wait(), 0);
}

/// A stream is forgotten.
const bool kLeaks = add_program("leaks_a_stream", [] {
  aclInit(nullptr);
  aclrtSetDevice(0);
  aclrtStream stream = nullptr;
  aclrtCreateStream(&stream);
  aclFinalize();
  return 0;
});

TEST(FaultsOfTheEnvironment, StrictnessTellsOfWhatWasForgotten) {
  EXPECT_EQ(start_program("leaks_a_stream", {"NPU_SIM_STRICT=1"}).wait(), 97);
  EXPECT_EQ(start_program("leaks_a_stream", {}).wait(), 0);
}

/// Allocates once, and ends as programs do.
const bool kCounts = add_program("allocates_once", [] {
  aclInit(nullptr);
  aclrtSetDevice(0);
  void* p = nullptr;
  aclrtMalloc(&p, 64, ACL_MEM_MALLOC_HUGE_FIRST);
  std::exit(0);
  return 0;
});

TEST(Counters, AreWrittenToAFileAtTheEnd) {
  const danlu::test::TemporaryDirectory folder;
  const Child child =
      start_program("allocates_once", {"NPU_SIM_COUNTERS=" + (folder / "%p.txt").string()});
  EXPECT_EQ(child.wait(), 0);
  std::ifstream file(folder / (std::to_string(child.process) + ".txt"));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_NE(text.find("allocations 1\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace npu_sim_test
