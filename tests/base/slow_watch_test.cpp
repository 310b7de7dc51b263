#include "base/slow_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <utility>

namespace danlu {
namespace {

const WorkDone kTotal = {48, 72};  // 24 layers, forward and backward; backward counts twice

TEST(SlowNews, TellsWhatIsDoneAndWhatTheWholeWillTake) {
  SlowNews news;
  // 7 of 72 took 20 s: the whole takes 205.7 s.
  EXPECT_EQ(news.of("step 1 of 300", "a step", 20, {7, 7}, kTotal),
            "step 1 of 300: 20.0s so far, 7 of 48 layer passes done, about 3m26s a step");
  // 24 forward and 12 backward passes are 48 of 72.
  EXPECT_EQ(SlowNews().of("step 2 of 3", "a step", 60, {36, 48}, kTotal),
            "step 2 of 3: 1m00s so far, 36 of 48 layer passes done, about 1m30s a step");
}

TEST(SlowNews, IsRepeatedUntilThereIsAnEstimateAndThenOnlyIfThatIsFarOff) {
  SlowNews news;
  const auto asked = [&](double elapsed_s, const WorkDone& done) {
    return news.of("step 1 of 9", "a step", elapsed_s, done, kTotal);
  };
  EXPECT_EQ(asked(20, {0, 0}), "step 1 of 9: 20.0s so far, 0 of 48 layer passes done");
  EXPECT_EQ(asked(40, {0, 0}), "step 1 of 9: 40.0s so far, 0 of 48 layer passes done");
  EXPECT_EQ(asked(80, {24, 24}),
            "step 1 of 9: 1m20s so far, 24 of 48 layer passes done, about 4m00s a step");
  EXPECT_EQ(news.told_s("a step"), 240);
  EXPECT_EQ(asked(160, {36, 48}), "");  // still 240 s
  EXPECT_EQ(asked(470, {47, 71}), "");  // 476.6 s: not yet twice
  EXPECT_NE(asked(500, {47, 71}), "");  // 507 s
  EXPECT_EQ(news.of("step 2 of 9", "a step", 20, {6, 6}, kTotal),
            "step 2 of 9: 20.0s so far, 6 of "
            "48 layer passes done, about 4m00s a step");  // half of 507 s and less
  EXPECT_NE(news.of("evaluation after step 2", "an evaluation", 20, {6, 6}, kTotal), "");
}

TEST(SlowNews, MorePassesThanExpectedAreNotCounted) {
  EXPECT_EQ(SlowNews().of("x", "a step", 30, {60, 100}, kTotal),
            "x: 30.0s so far, 48 of 48 layer passes done, about 30.0s a step");
}

TEST(SlowWatch, SpeaksOfTheWorkThatRunsAndOfNothingElse) {
  std::atomic<int64_t> passes = 1000;
  std::promise<std::string> said;
  SlowWatch watch([&] { return WorkDone{passes, static_cast<double>(passes)}; },
                  [&, told = false](const std::string& line) mutable {
                    if (!std::exchange(told, true)) said.set_value(line);
                  },
                  0);
  passes = 1024;  // before the work: does not count
  watch.begin("step 5 of 7", "a step", kTotal);
  const std::string line = said.get_future().get();
  EXPECT_EQ(line.find("step 5 of 7: "), 0u) << line;
  EXPECT_NE(line.find(" so far, 0 of 48 layer passes done"), std::string::npos) << line;
  watch.end();
}

TEST(SlowWatch, WorkWithinThePatienceSaysNothing) {
  SlowWatch watch([] { return WorkDone(); }, [](const std::string& line) { ADD_FAILURE() << line; },
                  1e6);
  for (int i = 0; i < 1000; ++i) {
    watch.begin("quick", "a step", kTotal);
    watch.end();
  }
}

}  // namespace
}  // namespace danlu
