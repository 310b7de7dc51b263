// Collectives between processes.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "card.h"
#include "hccl_api.h"
#include "support/temporary_directory.h"

namespace npu_sim_test {
namespace {

namespace fs = std::filesystem;
constexpr int kTimedOut = 40, kMismatch = 41, kLost = 42, kOther = 43;

int number_of(const char* name) { return std::atoi(std::getenv(name)); }

/// A rank's card, stream and communicator.
struct Rank {
  uint32_t rank = static_cast<uint32_t>(number_of("TEST_RANK")),
           size = static_cast<uint32_t>(number_of("TEST_SIZE"));
  aclrtStream stream = nullptr;
  HcclComm comm = nullptr;

  HcclResult join() {
    NpuSimAbortOnViolation(1);
    aclInit(nullptr);
    const char* card = std::getenv("TEST_CARD");
    aclrtSetDevice(card ? std::atoi(card) : static_cast<int>(rank));
    aclrtCreateStream(&stream);
    const std::string file = std::getenv("TEST_FILE");
    HcclRootInfo root;
    if (rank == 0) {
      HcclGetRootInfo(&root);
      std::FILE* out = std::fopen((file + ".part").c_str(), "w");
      std::fwrite(&root, sizeof root, 1, out);
      std::fclose(out);
      fs::rename(file + ".part", file);
    }
    while (!fs::exists(file)) usleep(1000);
    std::FILE* in = std::fopen(file.c_str(), "r");
    const size_t got = std::fread(&root, sizeof root, 1, in);
    std::fclose(in);
    return got == 1 ? HcclCommInitRootInfo(size, &root, rank, &comm) : HCCL_E_OPEN_FILE_FAILURE;
  }

  template <typename T>
  T* put(const std::vector<T>& values) {
    void* p = nullptr;
    aclrtMalloc(&p, std::max<size_t>(values.size(), 1) * sizeof(T), ACL_MEM_MALLOC_HUGE_FIRST);
    if (!values.empty())
      aclrtMemcpy(p, values.size() * sizeof(T), values.data(), values.size() * sizeof(T),
                  ACL_MEMCPY_HOST_TO_DEVICE);
    return static_cast<T*>(p);
  }
  template <typename T>
  std::vector<T> get(const T* p, size_t n) {
    std::vector<T> values(n);
    if (aclrtSynchronizeStream(stream) != 0) return {};
    aclrtMemcpy(values.data(), n * sizeof(T), p, n * sizeof(T), ACL_MEMCPY_DEVICE_TO_HOST);
    return values;
  }
  int finish() {
    if (HcclCommDestroy(comm) != HCCL_SUCCESS) return kOther;
    aclrtDestroyStream(stream);
    aclrtResetDevice(0);
    return NpuSimCounter("violations") == 0 ? 0 : kOther;
  }
};

class Collectives : public testing::Test {
 protected:
  /// The exit statuses of the ranks of a program.
  std::vector<int> statuses(const std::string& program, int size,
                            const std::vector<std::string>& environment = {}) {
    const danlu::test::TemporaryDirectory folder;
    const std::string file = "TEST_FILE=" + (folder / "root").string();
    std::vector<Child> children;
    for (int rank = 0; rank < size; ++rank) {
      std::vector<std::string> variables = environment;
      variables.insert(variables.end(), {"TEST_RANK=" + std::to_string(rank),
                                         "TEST_SIZE=" + std::to_string(size), file});
      children.push_back(start_program(program, variables));
    }
    std::vector<int> result;
    for (const Child& child : children) result.push_back(child.wait());
    return result;
  }
};

#define CHECK(condition)                                                              \
  if (!(condition)) {                                                                 \
    const char* text = aclGetRecentErrMsg();                                          \
    std::fprintf(stderr, "rank %u, line %d: %s (%s)\n", r.rank, __LINE__, #condition, \
                 text ? text : "");                                                   \
    return kOther;                                                                    \
  }

const bool kEverything = add_program("every_collective", [] {
  Rank r;
  CHECK(r.join() == HCCL_SUCCESS);
  const auto n = static_cast<float>(r.size), me = static_cast<float>(r.rank);
  const uint32_t size = r.size;
  // AllReduce: sum and maximum; in place.
  float* a = r.put<float>({me, 10 * me});
  CHECK(HcclAllReduce(a, a, 2, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, r.comm, r.stream) ==
        HCCL_SUCCESS);
  const float all = n * (n - 1) / 2;
  CHECK((r.get(a, 2) == std::vector<float>{all, 10 * all}));
  CHECK(HcclAllReduce(a, a, 2, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_MAX, r.comm, r.stream) ==
        HCCL_SUCCESS);
  CHECK((r.get(a, 2) == std::vector<float>{all, 10 * all}));
  // bf16 rounds after each addition: 256 + 1 + 1 is 256, whereas 1 + 1 + 256 is 258.
  uint16_t* b =
      r.put<uint16_t>({to_bf16(r.rank == 0 ? 256 : 1), to_bf16(r.rank + 1 == size ? 256 : 1)});
  CHECK(HcclAllReduce(b, b, 2, HCCL_DATA_TYPE_BFP16, HCCL_REDUCE_SUM, r.comm, r.stream) ==
        HCCL_SUCCESS);
  CHECK((r.get(b, 2) ==
         std::vector<uint16_t>{to_bf16(256), to_bf16(256 + size - 1 - (size == 2 ? 1 : 0))}));
  // AllGather and ReduceScatter.
  float *one = r.put<float>({me}), *many = r.put(std::vector<float>(size, 0));
  CHECK(HcclAllGather(one, many, 1, HCCL_DATA_TYPE_FP32, r.comm, r.stream) == HCCL_SUCCESS);
  std::vector<float> row;
  for (uint32_t i = 0; i < size; ++i) row.push_back(static_cast<float>(i));
  CHECK(r.get(many, size) == row);
  CHECK(HcclReduceScatter(many, one, 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, r.comm, r.stream) ==
        HCCL_SUCCESS);
  CHECK(r.get(one, 1)[0] == n * me);
  // Broadcast, Reduce and Scatter from the last rank.
  float* c = r.put<float>({me + 1});
  CHECK(HcclBroadcast(c, 1, HCCL_DATA_TYPE_FP32, size - 1, r.comm, r.stream) == HCCL_SUCCESS);
  CHECK(r.get(c, 1)[0] == n);
  CHECK(HcclReduce(c, one, 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_PROD, 0, r.comm, r.stream) ==
        HCCL_SUCCESS);
  CHECK(r.rank != 0 || r.get(one, 1)[0] == std::pow(n, n));
  CHECK(HcclScatter(many, one, 1, HCCL_DATA_TYPE_FP32, size - 1, r.comm, r.stream) == HCCL_SUCCESS);
  CHECK(r.get(one, 1)[0] == me);
  // AlltoAll: element j of rank i goes to element i of rank j.
  std::vector<int32_t> mine, wanted;
  for (uint32_t i = 0; i < size; ++i) {
    mine.push_back(static_cast<int32_t>(r.rank * 10 + i));
    wanted.push_back(static_cast<int32_t>(i * 10 + r.rank));
  }
  int32_t *give = r.put(mine), *take = r.put(std::vector<int32_t>(size, 0));
  CHECK(HcclAlltoAll(give, 1, HCCL_DATA_TYPE_INT32, take, 1, HCCL_DATA_TYPE_INT32, r.comm,
                     r.stream) == HCCL_SUCCESS);
  CHECK(r.get(take, size) == wanted);
  // AlltoAllV: rank i gives j+1 elements to rank j, AllGatherV: rank i gives i elements.
  std::vector<uint64_t> send_counts, sdispls, recv_counts, rdispls, counts, displs;
  uint64_t total = 0, gathered = 0;
  for (uint64_t i = 0; i < size; ++i) {
    send_counts.push_back(i + 1);
    sdispls.push_back(total);
    total += i + 1;
    recv_counts.push_back(r.rank + 1);
    rdispls.push_back(i * (r.rank + 1));
    counts.push_back(i);
    displs.push_back(gathered);
    gathered += i;
  }
  int32_t *v = r.put(std::vector<int32_t>(total, static_cast<int32_t>(r.rank))),
          *w = r.put(std::vector<int32_t>(size * (r.rank + 1), -1));
  CHECK(HcclAlltoAllV(v, send_counts.data(), sdispls.data(), HCCL_DATA_TYPE_INT32, w,
                      recv_counts.data(), rdispls.data(), HCCL_DATA_TYPE_INT32, r.comm,
                      r.stream) == HCCL_SUCCESS);
  const std::vector<int32_t> got = r.get(w, size * (r.rank + 1));
  for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == static_cast<int32_t>(i / (r.rank + 1)));
  int32_t* g = r.put(std::vector<int32_t>(gathered + 1, -1));
  CHECK(HcclAllGatherV(v, r.rank, g, counts.data(), displs.data(), HCCL_DATA_TYPE_INT32, r.comm,
                       r.stream) == HCCL_SUCCESS);
  CHECK(r.get(g, gathered).back() == static_cast<int32_t>(size) - 1);
  CHECK(HcclReduceScatterV(v, send_counts.data(), sdispls.data(), w, r.rank + 1,
                           HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, r.comm,
                           r.stream) == HCCL_SUCCESS);
  CHECK(r.get(w, 1)[0] == static_cast<int32_t>(size * (size - 1) / 2));
  CHECK(HcclBarrier(r.comm, r.stream) == HCCL_SUCCESS);
  CHECK(aclrtSynchronizeStream(r.stream) == 0);
  // Types that are not reduced; overlapping buffers are said, not refused.
  CHECK(HcclAllReduce(a, a, 1, HCCL_DATA_TYPE_FP64, HCCL_REDUCE_SUM, r.comm, r.stream) ==
        HCCL_E_NOT_SUPPORT);
  CHECK(HcclAllReduce(b, b, 1, HCCL_DATA_TYPE_BFP16, HCCL_REDUCE_PROD, r.comm, r.stream) ==
        HCCL_E_NOT_SUPPORT);
  CHECK(HcclBroadcast(a, 1, HCCL_DATA_TYPE_FP32, size, r.comm, r.stream) == HCCL_E_PARA);
  return r.finish();
});

TEST_F(Collectives, GiveTheirResultsOnTwoThreeAndFourRanks) {
  for (const int size : {2, 3, 4})
    EXPECT_EQ(statuses("every_collective", size), std::vector<int>(static_cast<size_t>(size), 0));
}

const bool kNeighbours = add_program("neighbours", [] {
  Rank r;
  CHECK(r.join() == HCCL_SUCCESS);
  const uint32_t next = (r.rank + 1) % r.size, before = (r.rank + r.size - 1) % r.size;
  int64_t *a = r.put<int64_t>({r.rank}), *b = r.put<int64_t>({-1});
  // By parity, then all at once.
  const bool even = r.rank % 2 == 0;
  CHECK((even ? HcclSend(a, 1, HCCL_DATA_TYPE_INT64, next, r.comm, r.stream)
              : HcclRecv(b, 1, HCCL_DATA_TYPE_INT64, before, r.comm, r.stream)) == HCCL_SUCCESS);
  CHECK((even ? HcclRecv(b, 1, HCCL_DATA_TYPE_INT64, before, r.comm, r.stream)
              : HcclSend(a, 1, HCCL_DATA_TYPE_INT64, next, r.comm, r.stream)) == HCCL_SUCCESS);
  CHECK(r.get(b, 1)[0] == before);
  HcclSendRecvItem items[] = {{HCCL_SEND, a, 1, HCCL_DATA_TYPE_INT64, before},
                              {HCCL_RECV, b, 1, HCCL_DATA_TYPE_INT64, next}};
  CHECK(HcclBatchSendRecv(items, 2, r.comm, r.stream) == HCCL_SUCCESS);
  CHECK(r.get(b, 1)[0] == next);
  CHECK(HcclSend(a, 1, HCCL_DATA_TYPE_INT64, r.rank, r.comm, r.stream) == HCCL_E_PARA);
  return r.finish();
});

TEST_F(Collectives, NeighboursExchange) {
  EXPECT_EQ(statuses("neighbours", 2), (std::vector<int>{0, 0}));
  EXPECT_EQ(statuses("neighbours", 4), (std::vector<int>{0, 0, 0, 0}));
}

/// What the stream's failure was.
int status_of(Rank& r) {
  const aclError error = aclrtSynchronizeStream(r.stream);
  const char* message = aclGetRecentErrMsg();
  const std::string text = message ? message : "";
  if (error == 107020 && text.find("EI0002") != std::string::npos) return kTimedOut;
  if (error == 507011 && text.find("EI0005") != std::string::npos) return kMismatch;
  return error == 0 ? 0 : kOther;
}

const bool kDifferent = add_program("different_calls", [] {
  Rank r;
  CHECK(r.join() == HCCL_SUCCESS);
  const std::string what = std::getenv("TEST_WHAT");
  const bool odd = r.rank == 1;
  float* a = r.put<float>({1, 2, 3, 4, 5, 6, 7, 8});
  float* b = r.put(std::vector<float>(8, 0));
  const uint64_t count = what == "count" && odd ? 3 : 2;
  const HcclDataType type = what == "type" && odd ? HCCL_DATA_TYPE_INT32 : HCCL_DATA_TYPE_FP32;
  const HcclReduceOp op = what == "reduction" && odd ? HCCL_REDUCE_MAX : HCCL_REDUCE_SUM;
  if (what == "operation" && odd) {
    CHECK(HcclBroadcast(a, 2, type, 0, r.comm, r.stream) == HCCL_SUCCESS);
  } else if (what == "peers") {
    uint64_t counts[2] = {1, 1}, wrong[2] = {2, 2}, displs[2] = {0, 2};
    CHECK(HcclAlltoAllV(a, counts, displs, type, b, odd ? wrong : counts, displs, type, r.comm,
                        r.stream) == HCCL_SUCCESS);
  } else {
    CHECK(HcclAllReduce(a, b, count, type, op, r.comm, r.stream) == HCCL_SUCCESS);
  }
  return status_of(r);
});

TEST_F(Collectives, DifferentCallsOnDifferentRanksFailOnAll) {
  for (const std::string what : {"count", "type", "reduction", "operation", "peers"}) {
    EXPECT_EQ(statuses("different_calls", 2, {"TEST_WHAT=" + what}),
              (std::vector<int>{kMismatch, kMismatch}))
        << what;
  }
  EXPECT_EQ(statuses("different_calls", 2, {"TEST_WHAT=nothing"}), (std::vector<int>{0, 0}));
}

const bool kBothSend = add_program("both_send_first", [] {
  Rank r;
  CHECK(r.join() == HCCL_SUCCESS);
  float* a = r.put<float>({1});
  CHECK(HcclSend(a, 1, HCCL_DATA_TYPE_FP32, 1 - r.rank, r.comm, r.stream) == HCCL_SUCCESS);
  CHECK(HcclRecv(a, 1, HCCL_DATA_TYPE_FP32, 1 - r.rank, r.comm, r.stream) == HCCL_SUCCESS);
  CHECK(HcclCommDestroy(r.comm) == HCCL_E_AGAIN);
  return status_of(r);
});

TEST_F(Collectives, TwoThatBothSendFirstWaitUntilTheTimeIsUp) {
  EXPECT_EQ(statuses("both_send_first", 2, {"NPU_SIM_EXEC_TIMEOUT_MS=300"}),
            (std::vector<int>{kTimedOut, kTimedOut}));
}

const bool kReduces = add_program("reduces_thrice", [] {
  Rank r;
  CHECK(r.join() == HCCL_SUCCESS);
  float* a = r.put<float>({1});
  for (int i = 0; i < 3; ++i)
    CHECK(HcclAllReduce(a, a, 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, r.comm, r.stream) ==
          HCCL_SUCCESS);
  if (std::getenv("TEST_WATCH")) {
    for (int i = 0; i < 2000; ++i) {
      HcclResult error = HCCL_SUCCESS;
      HcclGetCommAsyncError(r.comm, &error);
      if (error == HCCL_E_REMOTE) return kLost;
      usleep(1000);
    }
  }
  return status_of(r);
});

TEST_F(Collectives, AHungRankMakesTheOthersTimeOut) {
  const std::vector<std::string> hung = {"NPU_SIM_EXEC_TIMEOUT_MS=300",
                                         "NPU_SIM_FAULT=card2/hang:HcclAllReduce:2"};
  EXPECT_EQ(statuses("reduces_thrice", 3, hung),
            (std::vector<int>{kTimedOut, kTimedOut, kTimedOut}));
}

TEST_F(Collectives, ADeadRankIsSeenByWhoAsksAndByTheTimeout) {
  const std::vector<std::string> killed = {"NPU_SIM_EXEC_TIMEOUT_MS=1500",
                                           "NPU_SIM_FAULT=card1/kill:HcclAllReduce:2"};
  EXPECT_EQ(statuses("reduces_thrice", 3, killed), (std::vector<int>{kTimedOut, -9, kTimedOut}));
  const std::vector<std::string> cut = {"NPU_SIM_EXEC_TIMEOUT_MS=1500", "TEST_WATCH=1",
                                        "NPU_SIM_FAULT=card1/link:HcclAllReduce:2"};
  EXPECT_EQ(statuses("reduces_thrice", 3, cut)[1], kLost) << "the process of a broken link";
  std::vector<std::string> watched = killed;
  watched.push_back("TEST_WATCH=1");
  EXPECT_EQ(statuses("reduces_thrice", 3, watched), (std::vector<int>{kLost, -9, kLost}));
}

const bool kJoins = add_program("joins", [] {
  Rank r;
  const HcclResult result = r.join();
  return result == HCCL_SUCCESS ? r.finish() : static_cast<int>(result);
});

TEST_F(Collectives, ARankThatDoesNotComeAndACardThatIsTakenAreRefused) {
  EXPECT_EQ(statuses("joins", 1), (std::vector<int>{0}));
  const danlu::test::TemporaryDirectory folder;
  const Child alone = start_program(
      "joins", {"TEST_RANK=0", "TEST_SIZE=2", "TEST_FILE=" + (folder / "root").string(),
                "NPU_SIM_CONNECT_TIMEOUT_MS=200"});
  EXPECT_EQ(alone.wait(), HCCL_E_TIMEOUT);
  const std::vector<int> same =
      statuses("joins", 2, {"TEST_CARD=0", "NPU_SIM_CONNECT_TIMEOUT_MS=300"});
  EXPECT_TRUE(same == (std::vector<int>{HCCL_E_TIMEOUT, HCCL_E_PARA}) ||
              same == (std::vector<int>{HCCL_E_PARA, HCCL_E_TIMEOUT}));
}

const bool kTwoStreams = add_program("two_streams", [] {
  Rank r;
  CHECK(r.join() == HCCL_SUCCESS);
  aclrtStream other = nullptr;
  aclrtCreateStream(&other);
  float *a = r.put<float>({1}), *b = r.put<float>({1});
  CHECK(HcclAllReduce(a, a, 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, r.comm, r.stream) ==
        HCCL_SUCCESS);
  if (std::getenv("TEST_WAIT")) aclrtSynchronizeStream(r.stream);
  CHECK(HcclAllReduce(b, b, 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, r.comm, other) ==
        HCCL_SUCCESS);
  return static_cast<int>(aclrtSynchronizeStream(other));
});

TEST_F(Collectives, OneCommunicatorOnTwoStreamsAtATimeIsReported) {
  EXPECT_EQ(statuses("two_streams", 1, {"NPU_SIM_SCHEDULE=lazy"}), (std::vector<int>{-6}));
  EXPECT_EQ(statuses("two_streams", 1, {"NPU_SIM_SCHEDULE=lazy", "TEST_WAIT=1"}),
            (std::vector<int>{0}));
}

const bool kBuffers = add_program("small_card", [] {
  Rank r;
  CHECK(r.join() == HCCL_SUCCESS);
  float* a = r.put<float>({1});
  return static_cast<int>(
      HcclAllReduce(a, a, 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, r.comm, r.stream));
});

TEST_F(Collectives, BuffersOfACommunicatorComeOutOfTheCardsMemory) {
  EXPECT_EQ(statuses("small_card", 1, {"NPU_SIM_MEMORY=300M"}), (std::vector<int>{HCCL_E_MEMORY}));
  EXPECT_EQ(statuses("small_card", 1, {"NPU_SIM_MEMORY=300M", "HCCL_BUFFSIZE=20"}),
            (std::vector<int>{HCCL_SUCCESS}));
}

}  // namespace
}  // namespace npu_sim_test
