// CPU_AFFINITY_CONF: its grammar, what ranks get, and that threads stay there.
#include "base/cpu_affinity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "support/throws.h"

namespace danlu {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<int> range(int first, int last) {
  std::vector<int> processors;
  for (int i = first; i <= last; ++i) processors.push_back(i);
  return processors;
}

TEST(CpuAffinityText, EveryKey) {
  const CpuAffinity affinity =
      parse_cpu_affinity("1,force:1,npu0:0-2,npu1:8,npu0:5-6,npu_affine:1,lazy_bind:0,bind_irq:0");
  EXPECT_EQ(affinity.mode, 1);
  EXPECT_TRUE(affinity.force);
  EXPECT_THAT(affinity.ranges.at(0), ElementsAre(0, 1, 2, 5, 6)) << "several ranges are united";
  EXPECT_THAT(affinity.ranges.at(1), ElementsAre(8));
  EXPECT_TRUE(affinity.by_card);
  EXPECT_FALSE(parse_cpu_affinity("1,npu_affine:0").by_card);
  EXPECT_THAT(affinity.without_effect, ElementsAre("lazy_bind:0", "bind_irq:0"));
}

TEST(CpuAffinityText, TheModeAlone) {
  EXPECT_EQ(parse_cpu_affinity("2").mode, 2);
  EXPECT_EQ(parse_cpu_affinity("mode:1").mode, 1);
  EXPECT_FALSE(parse_cpu_affinity("0").is_on());
  EXPECT_EQ(parse_cpu_affinity(" 1 , npu0:0-0 ").ranges.size(), 1u);
}

TEST(CpuAffinityText, WhatIsOfNoSuchFormIsNamed) {
  for (const char* wrong :
       {"", "3", "-1", "one", "npu0:0-1", "1,npu0", "1,npu:0-1", "1,npux:0", "1,npu0:3-1",
        "1,npu0:0-99999999", "1,force:2", "1,npu0:a-b", "1,", "1,cpu0:1", "1,npu-1:0"}) {
    EXPECT_THAT(test::error_of<UsageError>([&] { parse_cpu_affinity(wrong); }),
                AllOf(HasSubstr("[CPU_AFFINITY_CONF]"), HasSubstr("npu0:0-15")))
        << wrong;
  }
  EXPECT_THAT(test::error_of<UsageError>([] { parse_cpu_affinity("1,npu0:0-3,npu1:x"); }),
              HasSubstr("'npu1:x'"));
}

TEST(CpuBindings, AnEqualSplitOfWhatIsOnline) {
  // 20 processors and 3 ranks: 6 each, as torch_npu divides (rounded down).
  const auto all = range(0, 19);
  const CpuAffinity on = parse_cpu_affinity("1");
  EXPECT_EQ(cpu_binding(on, 0, 3, all, all).processors, range(0, 5));
  EXPECT_EQ(cpu_binding(on, 2, 3, all, all).processors, range(12, 17));
  EXPECT_THAT(cpu_binding(parse_cpu_affinity("0"), 0, 3, all, all).processors, IsEmpty());
  EXPECT_THAT(cpu_binding(on, 0, 30, all, all).why_not, HasSubstr("30 ranks"));
  EXPECT_THAT(cpu_binding(on, 3, 2, all, all).why_not, HasSubstr("3 is none of 0 to 1"));
}

TEST(CpuBindings, EachOfEightRanksGetsANodeOfAnAtlas800) {
  // Four Kunpeng 920 of 48 cores without hyperthreads, two nodes each, numbered one node after the
  // other.
  const auto all = range(0, 191);
  const CpuAffinity on = parse_cpu_affinity("1");
  for (int rank = 0; rank < 8; ++rank)
    EXPECT_EQ(cpu_binding(on, rank, 8, all, all).processors, range(24 * rank, 24 * rank + 23));
}

TEST(CpuBindings, RanksDivideTheProcessorsThatAreNearTheirCards) {
  const auto all = range(0, 15);
  // Cards 0 and 2 hang on one node, 1 on another; of 3 nobody says where.
  const NearProcessors near = {range(8, 15), range(0, 3), range(8, 15), {}};
  const CpuAffinity affine = parse_cpu_affinity("1,npu_affine:1");
  const auto of = [&](int64_t rank, int64_t size, const std::vector<int>& allowed) {
    return cpu_binding(affine, rank, size, all, allowed, near);
  };
  EXPECT_EQ(of(0, 3, all).processors, range(8, 11));
  EXPECT_EQ(of(1, 3, all).processors, range(0, 3));
  EXPECT_EQ(of(2, 3, all).processors, range(12, 15));
  EXPECT_EQ(of(0, 1, all).processors, range(8, 15)) << "the other rank is not there";
  EXPECT_EQ(of(3, 4, all).processors, range(12, 15)) << "an equal split of all";
  EXPECT_EQ(cpu_binding(parse_cpu_affinity("1"), 0, 2, all, all, near).processors, range(0, 7));
  EXPECT_THAT(of(1, 3, range(2, 15)).why_not, AllOf(HasSubstr("0-3"), HasSubstr("force:1")));
  EXPECT_EQ(cpu_binding(parse_cpu_affinity("1,npu_affine:1,force:1"), 1, 3, all, range(2, 15), near)
                .processors,
            range(2, 3));
  EXPECT_EQ(
      cpu_binding(parse_cpu_affinity("1,npu_affine:1,npu0:5-6"), 0, 3, all, all, near).processors,
      range(5, 6));
}

TEST(CpuBindings, GuideDNamesOneCardAndTheOtherKeepsItsPart) {
  const auto all = range(0, 7);
  const CpuAffinity affinity = parse_cpu_affinity("1,npu0:0-0");
  EXPECT_THAT(cpu_binding(affinity, 0, 2, all, all).processors, ElementsAre(0));
  EXPECT_EQ(cpu_binding(affinity, 1, 2, all, all).processors, range(4, 7));
}

TEST(CpuBindings, WhoIsBoundAlreadyStaysUnlessForced) {
  const auto online = range(0, 7), allowed = range(4, 7);
  const CpuBinding kept = cpu_binding(parse_cpu_affinity("1"), 0, 2, online, allowed);
  EXPECT_THAT(kept.processors, IsEmpty());
  EXPECT_THAT(kept.why_not, AllOf(HasSubstr("4-7"), HasSubstr("force:1")));
  EXPECT_EQ(cpu_binding(parse_cpu_affinity("1,force:1"), 1, 2, online, allowed).processors,
            range(6, 7));
  // A named range is judged by itself.
  EXPECT_EQ(cpu_binding(parse_cpu_affinity("1,npu0:5-6"), 0, 2, online, allowed).processors,
            range(5, 6));
  EXPECT_THAT(cpu_binding(parse_cpu_affinity("1,npu0:3-5"), 0, 2, online, allowed).why_not,
              HasSubstr("4-5 only"));
  EXPECT_THAT(cpu_binding(parse_cpu_affinity("1,npu0:1-2"), 0, 2, online, allowed).why_not,
              HasSubstr("1-2 this process may use none"));
  EXPECT_EQ(cpu_binding(parse_cpu_affinity("1,force:1,npu0:3-5"), 0, 2, online, allowed).processors,
            range(4, 5));
}

/// check() in a child, whose processors are its own affair.
bool holds_in_child(const char* value, const std::function<bool()>& check) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("CPU_AFFINITY_CONF", value, 1);
    ::_exit(check() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(BoundProcess, ItAndItsThreadsStayInTheRange) {
  const auto mine = allowed_cpus();
  ASSERT_FALSE(mine.empty());
  const std::string last = std::to_string(mine.back());
  EXPECT_TRUE(holds_in_child(("1,npu1:" + last).c_str(), [&] {
    RankPlace place;
    place.rank = 5, place.size = 8, place.local_rank = 1, place.local_size = 2;
    bind_process(place);
    std::vector<int> of_thread;
    std::thread([&] { of_thread = allowed_cpus(); }).join();
    const std::vector<int> only = {mine.back()};
    return allowed_cpus() == only && of_thread == only &&
           describe_binding() == "processors " + last + " (CPU_AFFINITY_CONF=1,npu1:" + last + ")";
  }));
}

TEST(BoundProcess, Mode2GivesEachComputeThreadButTheFirstAProcessorOfItsOwn) {
  const auto mine = allowed_cpus();
  if (mine.size() < 2) GTEST_SKIP() << "one processor";
  const std::string list = "2,npu0:" + std::to_string(mine[0]) + ",npu0:" + std::to_string(mine[1]);
  EXPECT_TRUE(holds_in_child(list.c_str(), [&] {
    const std::vector<int> both = {mine[0], mine[1]}, second = {mine[1]};
    bind_process({});
    std::vector<int> of_second;
    std::thread([&] {
      bind_compute_thread(1, 2);
      of_second = allowed_cpus();
    }).join();
    bind_compute_thread(0, 2);
    return allowed_cpus() == both && of_second == second;
  }));
  // More threads than processors: nobody is pinned.
  EXPECT_TRUE(holds_in_child(list.c_str(), [&] {
    bind_process({});
    bind_compute_thread(1, 3);
    return allowed_cpus() == std::vector<int>{mine[0], mine[1]};
  }));
}

TEST(BoundProcess, ARankThatIsAGuessIsNotBound) {
  const auto mine = allowed_cpus();
  EXPECT_TRUE(holds_in_child("1", [&] {
    RankPlace place;
    place.size = place.local_size = 2, place.says_local_rank = false;
    bind_process(place);
    return allowed_cpus() == mine && describe_binding().empty();
  }));
}

}  // namespace
}  // namespace danlu
