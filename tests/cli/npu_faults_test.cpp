// What breaks on cards and between them, through the program on the simulated NPU: the exit code,
// and words that name the card, the rank and what helps, in both languages.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "cli/launch.h"

namespace danlu::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class NpuFaults : public Launch {
 protected:
  using Environment = std::map<std::string, std::string>;

  /// Trains on `ranks` cards while a fault is planted.
  ProgramResult train(int64_t ranks, const std::string& fault, Environment more = {},
                      const std::vector<std::string>& flags = {}) const {
    more["DANLU_NPU_LIBRARY"] = DANLU_BUILD_DIR "/npu_sim/current";
    more["NPU_SIM_DELAY_US"] = "100";
    more["NPU_SIM_FAULT"] = fault;
    std::vector<std::string> words = training("run", {"--max_steps", "30", "--device", "npu"});
    words.insert(words.end(), flags.begin(), flags.end());
    if (ranks == 1) return run_words(words, more);
    std::vector<std::string> all = {"launch", "--nproc_per_node=" + std::to_string(ranks)};
    all.insert(all.end(), words.begin(), words.end());
    return run_words(all, more);
  }
};

TEST_F(NpuFaults, AFullCardSaysWhatTookItsMemory) {
  const Environment small = {{"NPU_SIM_MEMORY", "6M"}};
  const std::vector<std::string> unplanned = {"--no-plan-check"};
  const ProgramResult full = train(1, "", small, unplanned);
  expect_error(full, 6,
               {"npu:0 has no", "left", "this process's tensors have", "kept for", "free",
                "smaller micro batches"});
  Environment chinese = small;
  chinese["DANLU_LANG"] = "zh";
  EXPECT_THAT(train(1, "", chinese, unplanned).err,
              AllOf(HasSubstr("npu:0 没有"), HasSubstr("请减小微批次")));
}

TEST_F(NpuFaults, ATrainingThatDoesNotFitTheCardIsRefusedBeforeItBegins) {
  expect_error(train(1, "", {{"NPU_SIM_MEMORY", "400000"}}), 6,
               {"a process will need", "are available to it", "--no-plan-check"});
}

TEST_F(NpuFaults, GroupsOfRanksThatDoNotFitNameTheirBuffers) {
  const ProgramResult full = train(2, "", {{"NPU_SIM_MEMORY", "300M"}});
  EXPECT_EQ(full.exit_code, 6) << full.err;
  EXPECT_THAT(full.err, AllOf(HasSubstr("HCCL_BUFFSIZE"), HasSubstr("npu:")));
}

TEST_F(NpuFaults, ADeadCardIsNamedWithItsRank) {
  const ProgramResult dead = train(2, "card1/dead:aclnnMatmul:60:507054");
  EXPECT_EQ(dead.exit_code, 5) << dead.err;
  EXPECT_THAT(dead.err, AllOf(HasSubstr("rank 1 on"), HasSubstr("npu:1: "), HasSubstr("507054"),
                              HasSubstr("memory is faulty (ECC)")));
  const ProgramResult chinese = train(1, "card5/dead:aclnnMatmul:60",
                                      {{"DANLU_LANG", "zh"}, {"ASCEND_RT_VISIBLE_DEVICES", "5"}});
  EXPECT_EQ(chinese.exit_code, 5) << chinese.err;
  EXPECT_THAT(chinese.err, AllOf(HasSubstr("npu:0 (第 5 号卡)"), HasSubstr("507010"),
                                 HasSubstr("卡有故障或已失联")));
}

TEST_F(NpuFaults, AFailedOperatorIsNamedWithItsCard) {
  const ProgramResult failed = train(1, "task:aclnnRmsNorm:40:507035");
  expect_error(failed, 5, {"npu:0: ", "507035", "aclnnRmsNorm", "ASCEND_LAUNCH_BLOCKING=1"});
}

TEST_F(NpuFaults, WhatACardDoesNotTakeAtTheStartIsSaid) {
  expect_error(train(1, "call:aclrtSetSysParamOpt:1:507899"), 5,
               {"npu", "aclrtSetSysParamOpt failed with 507899"});
  expect_error(train(1, "call:aclrtSetOpWaitTimeout:1:507899"), 5,
               {"npu", "aclrtSetOpWaitTimeout failed with 507899"});
  for (const char* seconds : {"abc", "12s", "-1", "", "99999999999"}) {
    expect_error(train(1, "", {{"HCCL_EVENT_TIMEOUT", seconds}}), 2,
                 {"HCCL_EVENT_TIMEOUT=" + std::string(seconds), "whole number of seconds"});
  }
}

TEST_F(NpuFaults, ADeadRankIsNamed) {
  const ProgramResult dead = train(2, "card1/kill:aclnnMatmul:60");
  EXPECT_EQ(dead.exit_code, 7) << dead.err;
  EXPECT_THAT(dead.err, HasSubstr("rank 1"));
}

TEST_F(NpuFaults, ACardThatHangsIsNamedAsTheOneThatDidNotArrive) {
  const std::vector<std::string> soon = {"--dist-timeout", "4"};
  const ProgramResult hung = train(2, "card1/hang:aclnnMatmul:60", {}, soon);
  EXPECT_EQ(hung.exit_code, 7) << hung.err;
  EXPECT_THAT(hung.err, AllOf(HasSubstr("did not end within 4 s"), HasSubstr("arrived: 0;"),
                              HasSubstr("did not arrive: rank 1 on")));
  const ProgramResult chinese = train(2, "card0/hang:aclnnMatmul:60", {{"DANLU_LANG", "zh"}}, soon);
  EXPECT_EQ(chinese.exit_code, 7) << chinese.err;
  EXPECT_THAT(chinese.err, AllOf(HasSubstr("4 秒内未结束"), HasSubstr("上的 rank 0（进程")));
}

TEST_F(NpuFaults, AnExchangeThatHangsEndsAllRanks) {
  const ProgramResult hung =
      train(2, "card1/hang:HcclBatchSendRecv:20", {}, {"--dist-timeout", "4"});
  EXPECT_EQ(hung.exit_code, 7) << hung.err;
  EXPECT_THAT(hung.err, AllOf(HasSubstr("did not end within 4 s"), HasSubstr("arrived: 0, 1")));
}

TEST_F(NpuFaults, WhatHcclItselfGivesUpNamesRanksAndCards) {
  const ProgramResult late =
      train(2, "card1/hang:HcclBatchSendRecv:20", {{"NPU_SIM_EXEC_TIMEOUT_MS", "2000"}});
  EXPECT_EQ(late.exit_code, 7) << late.err;
  EXPECT_THAT(late.err, AllOf(HasSubstr("rank 0 on"), HasSubstr("npu:0: "), HasSubstr("EI0002")));
}

TEST_F(NpuFaults, ALinkThatBreaksIsHeardOfBeforeAnyTimeout) {
  const ProgramResult broken = train(2, "card1/link:HcclBatchSendRecv:20");
  EXPECT_EQ(broken.exit_code, 7) << broken.err;
  EXPECT_THAT(broken.err,
              AllOf(HasSubstr("rank 1 on"), HasSubstr("npu:1: HCCL says"), HasSubstr("hccn_tool")));
  EXPECT_THAT(broken.err, Not(HasSubstr("did not end within")));
}

}  // namespace
}  // namespace danlu::test
