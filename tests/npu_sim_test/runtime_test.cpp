// Streams run late, the host may not look before it waits, and memory is as on a card.
#include <unistd.h>

#include <cstring>
#include <thread>

#include "card.h"

namespace npu_sim_test {
namespace {

class Runtime : public Card {
 protected:
  /// out = a + a, on a stream.
  aclnnStatus twice(const Array& a, const Array& out, aclrtStream on) {
    return launch(aclnnAddGetWorkspaceSize, aclnnAdd, on, of(a), of(a), scalar(1), of(out));
  }
};

TEST_F(Runtime, AThreadWithoutADeviceGets107002) {
  aclError error = 0;
  std::string text;
  std::thread([&] {
    void* p = nullptr;
    error = aclrtMalloc(&p, 64, ACL_MEM_MALLOC_HUGE_FIRST);
    const char* message = aclGetRecentErrMsg();
    text = message ? message : "";
  }).join();
  EXPECT_EQ(error, 107002);
  EXPECT_NE(text.find("no current context"), std::string::npos);
}

TEST_F(Runtime, InitialisingTwiceAndUsingAfterFinaliseAreRefused) {
  EXPECT_EQ(aclInit(nullptr), 100002);
  EXPECT_EQ(aclFinalize(), 0);
  void* p = nullptr;
  EXPECT_EQ(aclrtMalloc(&p, 64, ACL_MEM_MALLOC_HUGE_FIRST), 100001);
  EXPECT_EQ(aclFinalize(), 100037);
}

TEST_F(Runtime, DevicesOutsideAreRefused) {
  uint32_t count = 0;
  EXPECT_EQ(aclrtGetDeviceCount(&count), 0);
  EXPECT_EQ(count, 8u);
  EXPECT_EQ(aclrtSetDevice(8), 107001);
  EXPECT_EQ(aclrtSetDevice(-1), 107001);
}

TEST_F(Runtime, AHostReadBeforeSynchroniseSeesPoison) {
  const Array a = put({1000}, Numbers(1000, 1.5)), out = put({1000}, Numbers(1000, 0));
  ASSERT_EQ(twice(a, out, stream_), 0);
  EXPECT_TRUE(std::isnan(read_now(out)[999]));
  EXPECT_EQ(NpuSimCounter("poisoned_reads"), 1);
  EXPECT_EQ(get(out)[999], 3.0);
  EXPECT_EQ(read_now(out)[0], 3.0);
  EXPECT_EQ(NpuSimCounter("poisoned_reads"), 1);
}

TEST_F(Runtime, ALazyStreamRunsOnlyWhenSomebodyWaits) {
  NpuSimSchedule("lazy");
  const Array a = put({4}, {1, 2, 3, 4}), out = put({4}, {0, 0, 0, 0});
  aclrtEvent event = nullptr;
  ASSERT_EQ(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC), 0);
  ASSERT_EQ(twice(a, out, stream_), 0);
  ASSERT_EQ(aclrtRecordEvent(event, stream_), 0);
  aclrtStream other = nullptr;
  ASSERT_EQ(aclrtCreateStream(&other), 0);
  ASSERT_EQ(aclrtStreamWaitEvent(other, event), 0);
  ASSERT_EQ(twice(out, a, other), 0);
  // The other stream's wait makes the first run.
  EXPECT_EQ(aclrtSynchronizeStream(other), 0);
  EXPECT_EQ(read_now(a), (Numbers{4, 8, 12, 16}));
  EXPECT_EQ(NpuSimCounter("violations"), 0);
}

TEST_F(Runtime, StreamsThatShareMemoryWithoutAnEventAreReported) {
  const Array a = put({64}, Numbers(64, 1)), out = empty({64}), far = empty({64});
  aclrtStream other = nullptr;
  ASSERT_EQ(aclrtCreateStream(&other), 0);
  ASSERT_EQ(twice(a, out, stream_), 0);
  ASSERT_EQ(twice(a, far, other), 0);  // both only read `a`
  EXPECT_EQ(NpuSimCounter("violations"), 0);
  ASSERT_EQ(twice(out, far, other), 0);
  EXPECT_EQ(NpuSimCounter("violations"), 1);
  EXPECT_NE(std::string(NpuSimLastViolation()).find("no event orders them"), std::string::npos);
}

TEST_F(Runtime, AnEventOrdersStreamsAndAWaitOfTheHostDoes) {
  const Array a = put({64}, Numbers(64, 1)), out = empty({64}), far = empty({64});
  aclrtStream other = nullptr;
  aclrtEvent event = nullptr;
  ASSERT_EQ(aclrtCreateStream(&other), 0);
  ASSERT_EQ(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC), 0);
  ASSERT_EQ(aclrtStreamWaitEvent(other, event), 0);  // never recorded: no wait
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(twice(a, out, stream_), 0);
    ASSERT_EQ(aclrtRecordEvent(event, stream_), 0);
    ASSERT_EQ(aclrtStreamWaitEvent(other, event), 0);
    ASSERT_EQ(twice(out, far, other), 0);
    ASSERT_EQ(aclrtSynchronizeStream(other), 0);
    EXPECT_EQ(read_now(far)[63], 4);
  }
  EXPECT_EQ(NpuSimCounter("violations"), 0);
}

TEST_F(Runtime, TheHostCannotReachTheCardsMemory) {
  const Array a = put({16}, Numbers(16, 1));
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(write(ends[1], a.data, 64), -1);  // EFAULT: a pointer would have died
  close(ends[0]);
  close(ends[1]);
}

TEST_F(Runtime, FreshMemoryIsPoisonAndSmallBlocksAreAlignedTo64BytesOnly) {
  const Array a = empty({256});
  for (const double v : read_now(a)) EXPECT_TRUE(std::isnan(v));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data) % 64, 0u);
  EXPECT_NE(reinterpret_cast<uintptr_t>(a.data) % 128, 0u);
}

TEST_F(Runtime, MemoryIsLimitedAndTwoMebibytesAreTheGrain) {
  size_t free = 0, total = 0, left = 0;
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total), 0);
  EXPECT_EQ(total, (63ull << 30));  // a gibibyte is the system's
  void* p = nullptr;
  EXPECT_EQ(aclrtMalloc(&p, total + 1, ACL_MEM_MALLOC_HUGE_FIRST), 207001);
  EXPECT_NE(std::string(aclGetRecentErrMsg()).find("EL0004"), std::string::npos);
  ASSERT_EQ(aclrtMalloc(&p, (2 << 20) + 1, ACL_MEM_MALLOC_HUGE_FIRST), 0);
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &left, &total), 0);
  EXPECT_EQ(free - left, 4u << 20);
  EXPECT_EQ(aclrtFree(p), 0);
}

TEST_F(Runtime, ABlockOfManyGigabytesCostsNoMemory) {
  void* p = nullptr;
  ASSERT_EQ(aclrtMalloc(&p, 40ull << 30, ACL_MEM_MALLOC_HUGE_FIRST), 0);
  char last[4] = {};
  ASSERT_EQ(
      aclrtMemcpy(last, 4, static_cast<char*>(p) + (40ull << 30) - 4, 4, ACL_MEMCPY_DEVICE_TO_HOST),
      0);
  EXPECT_EQ(last[3], '\xff');
  EXPECT_EQ(aclrtFree(p), 0);
}

TEST_F(Runtime, CopiesWithTheWrongKindOrBeyondABlockAreRefused) {
  const Array a = put({4}, {1, 2, 3, 4});
  float host[8] = {};
  EXPECT_EQ(aclrtMemcpy(host, 16, a.data, 16, ACL_MEMCPY_HOST_TO_DEVICE), 107000);
  EXPECT_EQ(aclrtMemcpy(host, 8, a.data, 16, ACL_MEMCPY_DEVICE_TO_HOST), 107000);
  char large[4096];
  EXPECT_EQ(aclrtMemcpy(large, sizeof large, a.data, sizeof large, ACL_MEMCPY_DEVICE_TO_HOST),
            107000);
  EXPECT_EQ(aclrtMemcpyAsync(host, 16, large, 16, ACL_MEMCPY_HOST_TO_HOST, stream_), 207000);
}

TEST_F(Runtime, APinnedSourceIsReadWhenTheCopyRuns) {
  NpuSimSchedule("lazy");
  void* pinned = nullptr;
  ASSERT_EQ(aclrtMallocHost(&pinned, 16), 0);
  const Array a = empty({4});
  std::memset(pinned, 0, 16);
  ASSERT_EQ(aclrtMemcpyAsync(a.data, 16, pinned, 16, ACL_MEMCPY_HOST_TO_DEVICE, stream_), 0);
  static_cast<float*>(pinned)[0] = 1;
  EXPECT_EQ(get(a)[0], 1);
  EXPECT_EQ(NpuSimCounter("violations"), 1);
  EXPECT_NE(std::string(NpuSimLastViolation()).find("changed before the copy ran"),
            std::string::npos);
}

TEST_F(Runtime, APinnedDestinationIsPoisonUntilTheStreamWasThere) {
  NpuSimSchedule("lazy");
  void* pinned = nullptr;
  ASSERT_EQ(aclrtMallocHost(&pinned, 16), 0);
  const Array a = put({4}, {1, 2, 3, 4});
  ASSERT_EQ(aclrtMemcpyAsync(pinned, 16, a.data, 16, ACL_MEMCPY_DEVICE_TO_HOST, stream_), 0);
  EXPECT_TRUE(std::isnan(static_cast<float*>(pinned)[3]));
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  EXPECT_EQ(static_cast<float*>(pinned)[3], 4);
  EXPECT_EQ(aclrtFreeHost(pinned), 0);
}

TEST_F(Runtime, CopiesOfRectanglesMoveTheirRows) {
  const Array a = put({3, 4}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}),
              out = put({3, 2}, Numbers(6, 0));
  ASSERT_EQ(aclrtMemcpy2dAsync(out.data, 8, a.data, 16, 8, 3, ACL_MEMCPY_DEVICE_TO_DEVICE, stream_),
            0);
  EXPECT_EQ(get(out), (Numbers{0, 1, 4, 5, 8, 9}));
}

TEST_F(Runtime, FreeingOrOverwritingWhatAStreamUsesIsReported) {
  const Array a = put({64}, Numbers(64, 1)), out = empty({64});
  ASSERT_EQ(twice(a, out, stream_), 0);
  float zero[64] = {};
  aclrtMemcpy(a.data, sizeof zero, zero, sizeof zero, ACL_MEMCPY_HOST_TO_DEVICE);
  EXPECT_EQ(NpuSimCounter("violations"), 1);
  aclrtFree(out.data);
  EXPECT_EQ(NpuSimCounter("violations"), 2);
  aclrtFree(out.data);
  EXPECT_NE(std::string(NpuSimLastViolation()).find("freed twice"), std::string::npos);
}

TEST_F(Runtime, EventsOfEachKindKeepTheirRules) {
  aclrtEvent timed = nullptr, also = nullptr, old = nullptr;
  ASSERT_EQ(aclrtCreateEventExWithFlag(&timed, ACL_EVENT_TIME_LINE), 0);
  ASSERT_EQ(aclrtCreateEventExWithFlag(&also, ACL_EVENT_TIME_LINE), 0);
  ASSERT_EQ(aclrtCreateEventWithFlag(&old, ACL_EVENT_SYNC), 0);
  EXPECT_EQ(aclrtStreamWaitEvent(stream_, timed), 107000);
  ASSERT_EQ(aclrtRecordEvent(timed, stream_), 0);
  ASSERT_EQ(aclrtRecordEvent(also, stream_), 0);
  ASSERT_EQ(aclrtSynchronizeEvent(also), 0);
  float ms = -1;
  EXPECT_EQ(aclrtEventElapsedTime(&ms, timed, also), 0);
  EXPECT_GE(ms, 0);
  ASSERT_EQ(aclrtRecordEvent(old, stream_), 0);
  EXPECT_EQ(aclrtRecordEvent(old, stream_), 107000);
  EXPECT_EQ(NpuSimCounter("violations"), 1);
  ASSERT_EQ(aclrtResetEvent(old, stream_), 0);
  EXPECT_EQ(aclrtRecordEvent(old, stream_), 0);
  EXPECT_EQ(aclrtEventElapsedTime(&ms, old, also), 107000);
  EXPECT_EQ(aclrtDestroyEvent(old), 0);
  EXPECT_EQ(aclrtDestroyEvent(old), 107000);
}

TEST_F(Runtime, AStreamOfAnotherContextIsRefused) {
  aclrtContext first = nullptr, second = nullptr;
  ASSERT_EQ(aclrtGetCurrentContext(&first), 0);
  ASSERT_EQ(aclrtCreateContext(&second, 1), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 107003);
  ASSERT_EQ(aclrtSetCurrentContext(first), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 0);
}

TEST_F(Runtime, AGraphRunsItsCallsEachTimeAgain) {
  const Array a = put({2}, {1, 2});
  ASSERT_EQ(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL), 0);
  ASSERT_EQ(RUN(aclnnInplaceMuls, of(a), scalar(2)), 0);
  aclmdlRI graph = nullptr;
  ASSERT_EQ(aclmdlRICaptureEnd(stream_, &graph), 0);
  EXPECT_EQ(get(a), (Numbers{1, 2}));
  for (int i = 0; i < 3; ++i) ASSERT_EQ(aclmdlRIExecuteAsync(graph, stream_), 0);
  EXPECT_EQ(get(a), (Numbers{8, 16}));
  EXPECT_EQ(aclmdlRIDestroy(graph), 0);
}

TEST_F(Runtime, CountersCountWaitsLaunchesAndBytes) {
  const Array a = put({8}, Numbers(8, 1)), out = empty({8});
  ASSERT_EQ(twice(a, out, stream_), 0);
  get(out);
  EXPECT_EQ(NpuSimCounter("launches.aclnnAdd"), 1);
  EXPECT_EQ(NpuSimCounter("synchronise.stream"), 1);
  EXPECT_EQ(danlu_sim_counter("bytes.h2d"), 32);
  EXPECT_EQ(NpuSimCounter("bytes.d2h"), 32);
  EXPECT_EQ(NpuSimCounter("allocations"), 3);
}

}  // namespace
}  // namespace npu_sim_test
