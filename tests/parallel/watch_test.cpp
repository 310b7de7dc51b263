// When a job of several ranks ends: by what the judge hears, and over a real store.
#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "parallel/comm/judge.h"
#include "support/watched_ranks.h"

namespace danlu::parallel {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

constexpr double kPulse = 0.5;

RankReport report(int64_t beat, std::vector<CallReport> calls = {}) {
  return {beat, "node", 70, 12, false, std::move(calls)};
}

TEST(Judge, ARankThatFallsSilentIsNamedWithItsPlace) {
  Judge judge(3, 6, 1800);
  for (int64_t beat = 1;; ++beat) {
    ASSERT_LT(beat, 20) << "nobody was missed";
    judge.hear(0, report(beat, {{0, {0, 1, 2}, 5, "gather", 1.0}}));
    judge.hear(2, report(beat));
    judge.hear(1, report(1, {{0, {0, 1, 2}, 5, "exchange", 0.1}}));
    const auto verdict = judge.judge(kPulse);
    if (!verdict) continue;
    EXPECT_EQ(beat, 13);  // the first silence of more than 6 s
    EXPECT_EQ(verdict->code, ExitCode::kComm);
    EXPECT_EQ(verdict->what,
              "[ranks] rank 1 on node (process 70) is gone: nothing was heard of it for 6 s; when "
              "it was last heard: step 12, exchange among ranks 0, 1, 2; rank 0 waits in gather "
              "among ranks 0, 1, 2, step 12");
    return;
  }
}

TEST(Judge, AMachineThatIsCutOffIsNamedWhole) {
  Judge judge(4, 6, 1800);
  std::optional<Verdict> verdict;
  for (int64_t beat = 1; beat < 20 && !verdict; ++beat) {
    for (const int64_t rank : {0, 1}) judge.hear(rank, report(beat));
    judge.hear(2, report(1));
    judge.hear(3, report(std::min<int64_t>(beat, 2)));
    verdict = judge.judge(kPulse);
  }
  ASSERT_TRUE(verdict);
  EXPECT_THAT(verdict->what, AllOf(HasSubstr("rank 2 on node"), EndsWith("silent too: rank 3")));
}

TEST(Judge, RanksThatAllLostTheOthersAreNotWaitedFor) {
  Judge judge(2, 6, 1800);
  RankReport first = report(1), second = report(1);
  first.lost = "a card waited too long";
  judge.hear(0, first);
  judge.hear(1, second);
  EXPECT_FALSE(judge.judge(kPulse)) << "the other may be at fault and say so";
  second = RankReport::from_text(second.text());
  second.beat = 2;
  second.lost = "its own did, too";
  judge.hear(1, second);
  const auto verdict = judge.judge(kPulse);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->code, ExitCode::kComm);
  EXPECT_THAT(verdict->what, AllOf(HasSubstr("rank 0 on node (process 70): a card waited"),
                                   HasSubstr("rank 1 on node (process 70): its own did")));
}

TEST(GroupCalls, ACardIsInAnExchangeUntilItSaysOtherwise) {
  GroupCalls calls(3, {0, 1});
  CardProgress card;
  calls.watch_card([&card] { return card; });
  const auto exchange = [&](int64_t rounds) {
    const GroupCalls::Call call(calls, "gather");
    for (int64_t i = 0; i < rounds; ++i) calls.note_given();
  };
  exchange(2);
  exchange(1);
  CallReport now = calls.report();
  EXPECT_EQ(now.what, "gather");
  EXPECT_EQ(now.begun, 0) << "the card has not come to the first";
  card.begun = 1;
  EXPECT_EQ(calls.report().begun, 1);
  card = {3, 2, ""};
  now = calls.report();
  EXPECT_EQ(now.begun, 2);
  EXPECT_EQ(now.what, "gather");
  card = {3, 3, "a link is down"};
  now = calls.report();
  EXPECT_EQ(now.begun, 2);
  EXPECT_EQ(now.what, "");
  EXPECT_EQ(now.failure, "a link is down");
  calls.watch_card({});
  EXPECT_EQ(calls.report().failure, "");
}

TEST(Judge, AVerdictNamesAFileWhoseNameIsNoUtf8) {
  const Verdict said{ExitCode::kIo, "\xca\xfd.jsonl: no such file", "in \xca\xfd", 1};
  const Verdict heard = Verdict::from_text(said.text());
  EXPECT_EQ(heard.code, ExitCode::kIo);
  EXPECT_EQ(heard.rank, 1);
  EXPECT_THAT(heard.what, EndsWith(".jsonl: no such file"));
}

TEST(Judge, ALongStepAndAStarvedPulseAreNoSilence) {
  Judge judge(2, 6, 1800);
  for (int64_t beat = 1; beat < 400; ++beat) {  // heard at every eleventh pulse only
    judge.hear(0, report(beat));
    judge.hear(1, report(beat / 11 + 1));
    ASSERT_FALSE(judge.judge(kPulse)) << beat;
  }
}

TEST(Judge, WhoIsNotThereYetOrHasLeftIsNotMissed) {
  Judge judge(3, 6, 1800);
  RankReport gone = report(1);
  gone.left = true;
  judge.hear(1, gone);
  for (int64_t beat = 1; beat < 40; ++beat) {
    judge.hear(0, report(beat));
    ASSERT_FALSE(judge.judge(kPulse));
  }
  EXPECT_FALSE(judge.are_others_gone()) << "rank 2 may still come";
  judge.expect_all();
  std::optional<Verdict> verdict;
  for (int64_t beat = 40; beat < 60 && !verdict; ++beat) {
    judge.hear(0, report(beat));
    verdict = judge.judge(kPulse);
  }
  ASSERT_TRUE(verdict);
  EXPECT_THAT(verdict->what, HasSubstr("rank 2 is gone"));
}

TEST(Judge, WhoDoesNotArriveIsListedWithThoseWhoDid) {
  Judge judge(4, 6, 30);
  const std::vector<int64_t> all = {0, 1, 2, 3};
  judge.hear(0, report(1, {{0, all, 9, "gather", 31}}));
  judge.hear(1, report(1, {{0, all, 9, "", 0}}));  // has done its part
  judge.hear(2, report(1, {{0, all, 8, "", 0}, {1, {2, 3}, 4, "exchange", 20}}));
  judge.hear(3, report(1, {{0, all, 8, "", 0}}));
  const auto verdict = judge.judge(kPulse);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->what,
            "[ranks] gather among ranks 0, 1, 2, 3, step 12: it did not end within 30 s; arrived: "
            "0, 1; did not arrive: rank 2 on node (process 70) (step 12, exchange among ranks 2, "
            "3), rank 3 on node (process 70) (step 12, between exchanges)");
}

TEST(Judge, ReportsAndVerdictsGoThroughTheStoreWhole) {
  const RankReport sent = report(3, {{1, {0, 2}, 5, "gather", 0.5}});
  EXPECT_EQ(RankReport::from_text(sent.text()).text(), sent.text());
  const Verdict verdict{ExitCode::kData, "what", "hint", 2};
  EXPECT_EQ(Verdict::from_text(verdict.text()).text(), verdict.text());
}

TEST(Watch, ARankThatWorksLongerThanTheSilenceIsLeftInPeace) {
  test::WatchedRanks ranks;
  ranks.run(3, 4, 600, [](World& world) {
    const auto group = world.make_group_of_all();
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(9));
    group->barrier();
  });
  EXPECT_TRUE(ranks.verdicts.empty()) << ranks.verdicts.begin()->second.what;
}

TEST(Watch, WhoWaitsForItsTurnWaitsAsLongAsThatTakes) {
  test::WatchedRanks ranks;
  // As when one rank tokenises for all: longer than the silence, and than an exchange may take.
  ranks.run(3, 4, 6, [](World& world) {
    if (world.rank() != 0) return world.wait_for("data are there");
    std::this_thread::sleep_for(std::chrono::seconds(10));
    world.post("data are there");
  });
  EXPECT_TRUE(ranks.verdicts.empty()) << ranks.verdicts.begin()->second.what;
}

TEST(Watch, WhoDoesNotArriveWithinTheTimeoutEndsAll) {
  test::WatchedRanks ranks;
  ranks.run(3, 60, 10, [&](World& world) {
    world.note_step(7);
    const auto group = world.make_group_of_all();
    if (world.rank() == 2) ranks.wait_for(3);
    group->barrier();
  });
  ASSERT_EQ(ranks.verdicts.size(), 3u);
  for (const auto& [rank, verdict] : ranks.verdicts) {
    EXPECT_EQ(verdict.code, ExitCode::kComm);
    EXPECT_THAT(verdict.what, HasSubstr("all-reduce among ranks 0, 1, 2, step 7: it did not end "
                                        "within 10 s; arrived: 0, 1; did not arrive: rank 2 on "));
  }
}

TEST(Watch, TheErrorOfOneRankReachesTheOthers) {
  test::WatchedRanks ranks;
  std::atomic<int> told = 0, replaced = 0;
  try {
    ranks.run(2, 60, 600, [&](World& world) {
      world.before_end([&] { ++replaced; });
      world.before_end({});
      if (world.rank() == 0) {
        world.before_end([&] {
          const std::lock_guard lock(ranks.mutex);
          EXPECT_EQ(ranks.verdicts.count(0), 0u) << "it has ended before";
          ++told;
        });
      }
      if (world.rank() == 1) {
        world.give_up(DataError("no rows", "look"));
        throw DataError("no rows");
      }
      ranks.wait_for(1);
    });
    ADD_FAILURE() << "no error";
  } catch (const DataError&) {
  }
  ASSERT_EQ(ranks.verdicts.count(0), 1u);
  EXPECT_EQ(ranks.verdicts[0].code, ExitCode::kData);
  EXPECT_THAT(ranks.verdicts[0].what, testing::EndsWith("failed: no rows"));
  EXPECT_EQ(ranks.verdicts[0].hint, "look");
  EXPECT_EQ(told, 1);
  EXPECT_EQ(replaced, 0);
}

}  // namespace
}  // namespace danlu::parallel
