#include "plan/simulate.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "plan/draw.h"

namespace danlu::plan {
namespace {

using testing::HasSubstr;

template <typename Make>
Simulated run(const Make& make, int64_t stages, int64_t micro, const WorkTimes& times,
              const StageLink& link = {}) {
  std::vector<arch::Schedule> schedules;
  for (int64_t s = 0; s < stages; ++s) schedules.push_back(make(s, stages, micro));
  const auto count = static_cast<size_t>(stages);
  return simulate(schedules, {count, {times}}, {count, link});
}

TEST(Simulate, OneForwardOneBackwardHasTheBubbleOfTheFormula) {
  for (int64_t p : {1, 2, 3, 4, 8}) {
    for (int64_t m : {8, 9, 32}) {
      const Simulated got = run(arch::one_forward_one_backward, p, m, {1, 1, 1});
      EXPECT_NEAR(got.bubble, static_cast<double>(p - 1) / static_cast<double>(m + p - 1), 1e-12);
      EXPECT_DOUBLE_EQ(got.seconds, static_cast<double>(3 * (m + p - 1)));
      for (int64_t s = 0; s < p; ++s)
        EXPECT_EQ(got.peak_in_flight[static_cast<size_t>(s)], std::min(m, p - s));
    }
  }
}

// arXiv:2401.10241, table 2: ZB-H1 has a bubble of (p - 1)(F + B - W) where 1F1B has (p - 1)(F + B
// + W).
TEST(Simulate, ZeroBubbleWaitsLess) {
  const int64_t p = 4, m = 16;
  const Simulated zero = run(arch::zero_bubble, p, m, {1, 1, 1});
  EXPECT_DOUBLE_EQ(zero.seconds, 3.0 * m + (p - 1));
  EXPECT_LT(zero.seconds, run(arch::one_forward_one_backward, p, m, {1, 1, 1}).seconds);
}

TEST(Simulate, LinksTakeTheirTimeOnTheWayInAndOut) {
  const Simulated got = run(arch::one_forward_one_backward, 2, 1, {1, 1, 1}, {0.25, 0.5});
  EXPECT_DOUBLE_EQ(got.seconds, 1 + 0.75 + 3 + 0.75 + 2);
}

TEST(Simulate, TheSlowStageSetsThePace) {
  std::vector<arch::Schedule> schedules;
  for (int64_t s : {0, 1}) schedules.push_back(arch::one_forward_one_backward(s, 2, 10));
  const Simulated got = simulate(schedules, {{{1, 1, 1}}, {{2, 2, 2}}}, {{}, {}});
  EXPECT_DOUBLE_EQ(got.seconds, 1 + 10 * 6 + 2);
}

TEST(Simulate, AScheduleThatStopsIsAnError) {
  const std::vector<arch::Schedule> schedules = {{{arch::Work::kReceiveGrad, 0}},
                                                 {{arch::Work::kReceiveHidden, 0}}};
  EXPECT_THROW(simulate(schedules, {{{1, 1, 1}}, {{1, 1, 1}}}, {{}, {}}), UsageError);
}

/// What `simulate` makes of 1F1B over `stages` with exchanges of the data axis.
Simulated with_exchanges(int64_t stages, int64_t micro, const DataExchanges& exchanges) {
  std::vector<arch::Schedule> schedules;
  for (int64_t s = 0; s < stages; ++s)
    schedules.push_back(arch::one_forward_one_backward(s, stages, micro));
  const auto count = static_cast<size_t>(stages);
  return simulate(schedules, {count, {{1, 1, 1}}}, {count, StageLink{}}, {count, exchanges});
}

TEST(Simulate, SumsOfGradientsGoBesideTheLastBackwardUnitByUnit) {
  // Four layers: ready at 2 × 3 + 1 + (0.5, 1, 1.5, 2) of three micro-batches; the last has no work
  // left to hide it.
  const Simulated hidden = with_exchanges(1, 3, {.summed = {{4, 0.25}}});
  EXPECT_DOUBLE_EQ(hidden.seconds, 9);
  EXPECT_DOUBLE_EQ(hidden.with_sums, 9.25);
  // 1 s each: one after another from 7.5 on.
  const Simulated exposed = with_exchanges(1, 3, {.summed = {{4, 1}}});
  EXPECT_DOUBLE_EQ(exposed.with_sums, 7.5 + 4);
  // A first stage of two ends last; the second has its sums done before.
  const Simulated two = with_exchanges(2, 4, {.summed = {{4, 0.5}}});
  EXPECT_DOUBLE_EQ(two.seconds, 3.0 * (4 + 1));
  EXPECT_DOUBLE_EQ(two.with_sums, 15.5);
}

TEST(Simulate, TheFirstForwardWaitsForWhatTheLastUpdateLeftElsewhere) {
  // Layers of 0.25 s; parameters come every 0.5 s: the last at 2, then its layer.
  EXPECT_DOUBLE_EQ(with_exchanges(1, 3, {.gathered = {{4, 0.5}}}).seconds, 9 - 1 + 2.25);
  // Faster than the layers: only the first is waited for.
  EXPECT_DOUBLE_EQ(with_exchanges(1, 3, {.gathered = {{4, 0.125}}}).seconds, 9 + 0.125);
}

TEST(Simulate, ALongPipelineTakesNoTimeToSpeakOf) {
  const Simulated got = run(arch::one_forward_one_backward, 64, 512, {1, 1, 1});
  EXPECT_DOUBLE_EQ(got.seconds, 3.0 * (512 + 63));
}

TEST(Draw, HasALegendAndAnAxisInSeconds) {
  const Simulated got = run(arch::zero_bubble, 2, 4, {1, 1, 1});
  const std::string svg = draw_schedule(got, "two stages");
  EXPECT_THAT(svg, HasSubstr("backward: weights"));
  EXPECT_THAT(svg, HasSubstr(">12 s<"));
}

TEST(Draw, HasABoxForEachWork) {
  const Simulated got = run(arch::one_forward_one_backward, 3, 5, {1, 1, 1});
  const std::string svg = draw_schedule(got, "a < b");
  size_t boxes = 0;
  for (size_t at = svg.find("<rect"); at != std::string::npos; at = svg.find("<rect", at + 1))
    ++boxes;
  EXPECT_EQ(boxes, 3U * 5 * 2);
  EXPECT_THAT(svg, HasSubstr("a &lt; b; bubble 28.6 %"));
}

}  // namespace
}  // namespace danlu::plan
