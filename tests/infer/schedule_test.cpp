#include "infer/schedule.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/rng.h"
#include "ops/pages.h"

namespace danlu::infer {
namespace schedule_test {

constexpr int64_t kPage = ops::kPageTokens;

int64_t pages_of(int64_t tokens) { return (tokens + kPage - 1) / kPage; }

TEST(Schedule, TokensOfAnswersAndPartsOfPromptsShareAPass) {
  const std::vector<RequestProgress> running = {{101, 100}, {51, 50}, {1000, 200}};
  const Schedule schedule = schedule_running(running, {8, 64, 100});
  EXPECT_EQ(schedule.tokens, (std::vector<int64_t>{1, 1, 62}));
  EXPECT_EQ(schedule.preempted, 0);
  EXPECT_EQ(schedule.left.tokens, 0);
  EXPECT_EQ(schedule.left.sequences, 5);
}

TEST(Schedule, TheLastGivesItsPagesToTheFirst) {
  // The first needs a page, none is free, the last holds two of its own.
  const std::vector<RequestProgress> running = {
      {kPage + 1, kPage, 1}, {kPage, kPage - 1, 1}, {2 * kPage, 2 * kPage - 1, 2}};
  const Schedule schedule = schedule_running(running, {8, 64, 0});
  EXPECT_EQ(schedule.tokens, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(schedule.preempted, 1);
  EXPECT_EQ(schedule.left.pages, 1);
}

TEST(Schedule, WhoFindsNoPageGivesItsOwnBack) {
  const std::vector<RequestProgress> running = {{5, 4, 1}, {kPage + 1, kPage, 0}};
  const Schedule schedule = schedule_running(running, {8, 64, 0});
  EXPECT_EQ(schedule.tokens, (std::vector<int64_t>{1}));
  EXPECT_EQ(schedule.preempted, 1);
}

TEST(Schedule, AWholePromptIsNotDividedAndMayBeLongerThanAPass) {
  const RequestProgress whole{.total = 500, .computed = 0, .is_whole = true};
  StepRoom room{8, 64, 100};
  EXPECT_EQ(admit(whole, 0, 0, room), 500);
  // What runs gives its tokens meanwhile: it does not wait until the server is empty.
  room = {8, 61, 100};
  EXPECT_EQ(admit(whole, 0, 3, room), 500);
  EXPECT_EQ(room.tokens, 0);
  EXPECT_EQ(admit(whole, 0, 4, room), 0) << "a pass has one that is longer than the pass";
  const std::vector<RequestProgress> running = {
      {101, 100}, {500, 0, 0, true}, {500, 0, 0, true}, {101, 100}};
  EXPECT_EQ(schedule_running(running, {8, 64, 100}).tokens, (std::vector<int64_t>{1, 500, 0, 0}));
}

/// Requests of all kinds come without end. None waits for longer than it takes to read what was
/// there before it, whether it may be divided or not.
TEST(Schedule, WhoIsFirstInTheQueueIsAdmittedWhileOthersAreAnswered) {
  PythonRandom rng(5);
  for (int round = 0; round < 2000; ++round) {
    std::vector<RequestProgress> running(1 + rng.below(20), {101, 100, 1});
    const int64_t budget = std::ssize(running) + 1 + static_cast<int64_t>(rng.below(64));
    StepRoom room = schedule_running(running, {64, budget, 1000}).left;
    const RequestProgress first{.total = 1 + static_cast<int64_t>(rng.below(3000)),
                                .computed = 0,
                                .is_whole = rng.below(2) == 0};
    const int64_t left = room.tokens;
    ASSERT_EQ(admit(first, 0, std::ssize(running), room),
              first.is_whole ? first.total : std::min(first.total, left));
    ASSERT_GE(room.tokens, 0);
  }
}

TEST(Schedule, IsAdmittedOnlyWhereAllOfItsPromptHasPages) {
  StepRoom room{8, 16, 4};
  EXPECT_EQ(admit({.total = 5 * kPage, .computed = 0}, 0, 0, room), 0);
  EXPECT_EQ(admit({.total = 4 * kPage, .computed = 0}, 0, 0, room), 16);
  EXPECT_EQ(room.pages, 3);
  EXPECT_EQ(room.promised, 3);
  room = {8, 16, 4};
  EXPECT_EQ(admit({.total = 4 * kPage, .computed = 0}, 0, 1, room), 0) << "one is left for another";
  // Two of its pages are there already, and count as free.
  EXPECT_EQ(admit({.total = 4 * kPage, .computed = 2 * kPage}, 2, 0, room), 16);
  EXPECT_EQ(room.pages, 1);
}

TEST(Schedule, NeverGivesMoreThanThereIsAndAlwaysMovesTheFirst) {
  PythonRandom rng(3);
  for (int round = 0; round < 20000; ++round) {
    std::vector<RequestProgress> running;
    int64_t own = 0;
    for (uint64_t i = rng.below(6); i-- > 0;) {
      const auto computed = static_cast<int64_t>(rng.below(200));
      const auto more = static_cast<int64_t>(rng.below(100));
      running.push_back({computed + 1 + more, computed, pages_of(computed)});
      own += pages_of(computed);
    }
    const StepRoom before{8, 1 + static_cast<int64_t>(rng.below(64)),
                          static_cast<int64_t>(rng.below(8))};
    Schedule schedule = schedule_running(running, before);
    ASSERT_EQ(std::ssize(schedule.tokens) + schedule.preempted, std::ssize(running));
    int64_t tokens = 0, grown = 0, freed = 0, promised = 0;
    for (size_t i = 0; i < running.size(); ++i) {
      if (i >= schedule.tokens.size()) {
        freed += running[i].own_pages;
        continue;
      }
      const int64_t now = running[i].computed + schedule.tokens[i];
      ASSERT_LE(now, running[i].total);
      tokens += schedule.tokens[i];
      grown += pages_of(now) - pages_of(running[i].computed);
      promised += pages_of(running[i].total) - pages_of(now);
    }
    ASSERT_LE(tokens, before.tokens);
    ASSERT_EQ(schedule.left.pages, before.pages + freed - grown);
    ASSERT_GE(schedule.left.pages, 0);
    ASSERT_EQ(schedule.left.promised, promised);
    // All pages there are hold the first; it moves whatever the others do.
    if (!running.empty() && before.pages + own >= pages_of(running[0].total)) {
      ASSERT_FALSE(schedule.tokens.empty());
      ASSERT_GE(schedule.tokens[0], 1);
    }
    const StepRoom left = schedule.left;
    const RequestProgress waiting{1 + static_cast<int64_t>(rng.below(300)), 0};
    const int64_t admitted = admit(waiting, 0, std::ssize(schedule.tokens), schedule.left);
    ASSERT_LE(admitted, left.tokens);
    ASSERT_GE(schedule.left.pages, 0);
    if (admitted > 0) {
      ASSERT_GE(left.pages, pages_of(waiting.total));
    }
  }
}

}  // namespace schedule_test
}  // namespace danlu::infer
