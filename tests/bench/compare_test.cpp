// Whether an operation has become slower: decided on figures that were measured, in
// tests/bench/recorded.
#include "bench/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"

namespace danlu::bench {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr double kLimit = 1.1;

Report recorded(const std::string& name) {
  return read_report(fs::path(DANLU_SOURCE_DIR) / "tests/bench/recorded" / (name + ".json"));
}

std::vector<std::string> failing(const std::vector<RowChange>& changes) {
  std::vector<std::string> ids;
  for (const RowChange& change : changes)
    if (change.fails()) ids.push_back(change.id);
  return ids;
}

/// What a user comes to: suspects are measured again, here in other recorded runs.
std::vector<std::string> verdict(const Report& before, Report now,
                                 const std::vector<Report>& looks) {
  auto changes = compare(before, now, kLimit);
  for (const Report& look : looks) {
    const auto wanted = suspects(changes);
    if (wanted.empty()) break;
    Report again = look;
    std::erase_if(again.rows, [&](const Row& row) {
      return std::find(wanted.begin(), wanted.end(), row.id()) == wanted.end();
    });
    take_better(now, again);
    changes = compare(before, now, kLimit);
  }
  return failing(changes);
}

Report slowed(Report report, const std::string& id, double factor) {
  for (Row& row : report.rows)
    if (row.id() == id)
      for (Sample& sample : row.samples) sample.seconds *= factor;
  return report;
}

TEST(BenchCompare, RunsOfOneProgramOnOneMachineRaiseNoAlarm) {
  const Report a = recorded("a"), b = recorded("b"), c = recorded("c");
  EXPECT_THAT(verdict(a, b, {c}), IsEmpty());
  EXPECT_THAT(verdict(a, c, {b}), IsEmpty());
  EXPECT_THAT(verdict(b, c, {a}), IsEmpty());
  EXPECT_THAT(verdict(b, a, {c}), IsEmpty());
}

/// Other programs ran on the machine while these were recorded: some rows bound by memory differ by
/// themselves, from one process to the next, by so much that a fifth is not found for certain.
bool agree(const std::string& id, const std::vector<const Report*>& runs) {
  double least = 1e30, most = 0;
  for (const Report* run : runs) {
    least = std::min(least, run->best_share(*run->find(id)));
    most = std::max(most, run->best_share(*run->find(id)));
  }
  return most < 1.07 * least;
}

TEST(BenchCompare, AFifthMoreTimeInAnyOneRowIsFoundAndNamed) {
  const Report a = recorded("a"), b = recorded("b"), c = recorded("c");
  ASSERT_EQ(a.rows.size(), 62u);
  int64_t tried = 0;
  for (const Row& row : a.rows) {
    const std::string id = row.id();
    if (!agree(id, {&a, &b, &c})) continue;
    ++tried;
    EXPECT_THAT(verdict(a, slowed(b, id, 1.2), {slowed(c, id, 1.2)}), ElementsAre(id));
  }
  EXPECT_GE(tried, 52);
}

Report of_shares(const std::vector<std::pair<std::string, double>>& rows, bool is_steady = true) {
  const Limits limits{1e9, 1e9, 1e9, 1e9, 1e9};
  Report report;
  report.on.processor_key = "x";
  report.readings = {limits};
  for (const auto& [name, share] : rows) {
    report.rows.push_back(
        {name, kElements, "fp32", {1e9, false, 0, 0}, 0, {{1 / share, limits, limits, is_steady}}});
  }
  return report;
}

TEST(BenchCompare, TheLimitIsOfTheRatioOfShares) {
  const Report before = of_shares({{"op", 0.55}});
  EXPECT_THAT(failing(compare(before, of_shares({{"op", 0.501}}), kLimit)), IsEmpty());
  EXPECT_THAT(failing(compare(before, of_shares({{"op", 0.499}}), kLimit)), ElementsAre("op.fp32"));
}

TEST(BenchCompare, ASlowerMachineIsNoSlowerOperation) {
  // Half the peak, twice the time.
  Report now = of_shares({{"op", 0.5}});
  now.readings[0].f32_flops = 0.5e9;
  for (Sample& sample : now.rows[0].samples) {
    sample.before.f32_flops = sample.after.f32_flops = 0.5e9;
    sample.seconds *= 2;
  }
  EXPECT_THAT(failing(compare(of_shares({{"op", 0.5}}), now, kLimit)), IsEmpty());
}

TEST(BenchCompare, WhatIsGoneFailsAndWhatIsNewOrFasterIsSaid) {
  const auto changes = compare(of_shares({{"gone", 0.5}, {"fast", 0.3}}),
                               of_shares({{"fast", 0.5}, {"new", 0.5}}), kLimit);
  ASSERT_EQ(changes.size(), 3u);
  EXPECT_EQ(changes[0].change, Change::kGone);
  EXPECT_EQ(changes[1].change, Change::kFaster);
  EXPECT_EQ(changes[2].change, Change::kNew);
  EXPECT_THAT(failing(changes), ElementsAre("gone.fp32"));
  EXPECT_THAT(suspects(changes), IsEmpty());
  EXPECT_THAT(describe(changes, kLimit), HasSubstr("GONE"));
}

TEST(BenchCompare, WhatAnUnsteadyMachineLeavesUndecidedIsNoPass) {
  const auto changes =
      compare(of_shares({{"op", 0.5}}), of_shares({{"op", 0.3}}, /*is_steady=*/false), kLimit);
  EXPECT_EQ(changes[0].change, Change::kUnsteady);
  EXPECT_THAT(failing(changes), ElementsAre("op.fp32"));
  EXPECT_THAT(suspects(changes), ElementsAre("op.fp32"));
}

TEST(BenchCompare, AnotherLookCountsWhereItIsSteadierOrBetter) {
  Report report = of_shares({{"op", 0.4}}, /*is_steady=*/false);
  take_better(report, of_shares({{"op", 0.3}}));
  EXPECT_DOUBLE_EQ(report.best_share(report.rows[0]), 0.3);
  take_better(report, of_shares({{"op", 0.5}}));
  EXPECT_DOUBLE_EQ(report.best_share(report.rows[0]), 0.5);
  take_better(report, of_shares({{"op", 0.4}}));
  EXPECT_DOUBLE_EQ(report.best_share(report.rows[0]), 0.5);
  take_better(report, of_shares({{"op", 0.9}}, /*is_steady=*/false));
  EXPECT_DOUBLE_EQ(report.best_share(report.rows[0]), 0.5);
}

TEST(BenchCompare, ABestThatFewLooksHaveComeNearIsLookedAtAgain) {
  const auto look = [](double calm, double restless, double unsteady) {
    Report report = of_shares({{"calm", calm}, {"restless", restless}});
    const Report other = of_shares({{"unsteady", unsteady}}, /*is_steady=*/false);
    report.rows.push_back(other.rows[0]);
    return report;
  };
  std::vector<Report> looks{look(0.50, 0.5, 0.5), look(0.49, 0.5, 0.5)};
  EXPECT_THAT(unconfirmed(looks), SizeIs(3)) << "two looks are no three";
  looks.push_back(look(0.495, 0.6, 0.5));
  EXPECT_THAT(unconfirmed(looks), ElementsAre("restless.fp32", "unsteady.fp32"));
  const Report again = of_shares({{"restless", 0.59}});
  looks.insert(looks.end(), {again, again});
  EXPECT_THAT(unconfirmed(looks), ElementsAre("unsteady.fp32")) << "looks at some rows count";
}

TEST(BenchCompare, FiguresOfOtherMachinesThreadsAndShapesAreRefused) {
  const Report one = of_shares({{"op", 0.5}});
  Report other = one;
  other.on.processor_key = "y";
  EXPECT_THROW(compare(one, other, kLimit), DataError);
  other = one;
  other.on.threads = 2;
  EXPECT_THROW(compare(one, other, kLimit), DataError);
  other = one;
  other.on.quick = true;
  EXPECT_THROW(compare(one, other, kLimit), DataError);
}

}  // namespace
}  // namespace danlu::bench
