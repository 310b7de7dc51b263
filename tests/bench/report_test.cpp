// The report as JSON and as a table, and which processors are of one kind.
#include "bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cpu_class.h"
#include "base/error.h"
#include "bench/processor.h"

namespace danlu::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const Limits kLimits{2e9, 4e9, 1e10, 8e9, 1.5e10};

Sample sample(double seconds, bool is_steady = true) {
  return {seconds, kLimits, kLimits, is_steady};
}

Report small_report() {
  Report report;
  report.on = {"A Processor",          "amd-25-17-avx2", "AVX2", 2,      4,       false,
               "2026-01-02T03:04:05Z", "0.1.0",          "abc",  "12.2", "1.13.0"};
  // 1e9 multiplications at 2e9 a second are half a second: 0.5 of the limit.
  report.rows.push_back({"step",
                         kTraining,
                         "fp32",
                         {1e9, false, 0, 0},
                         100,
                         {sample(1.0), sample(1.25), sample(0.8)}});
  report.readings = {kLimits, kLimits};
  return report;
}

TEST(BenchReport, ComesBackFromItsJson) {
  const Json json = to_json(small_report());
  EXPECT_EQ(to_json(report_from_json(json)), json);
  EXPECT_EQ(json["rows"][0]["share"], 0.5);
  EXPECT_EQ(json["rows"][0]["bound"], "compute");
  EXPECT_EQ(json["rows"][0]["tokens_per_s"], 100);
  EXPECT_EQ(json["rows"][0]["samples"].size(), 3u);
}

TEST(BenchReport, ARowOfAnotherRunKeepsItsLimitsInTheFile) {
  Report report = small_report();
  report.rows[0].of_run = kLimits;
  report.rows[0].of_run.f32_flops = 2.2e9;  // the row's own moments were not much slower
  const double share = report.best_share(report.rows[0]);
  const Report again = report_from_json(to_json(report));
  EXPECT_DOUBLE_EQ(again.best_share(again.rows[0]), share);
  EXPECT_NE(small_report().best_share(small_report().rows[0]), share);
}

TEST(BenchReport, UnsteadySamplesCountOnlyWhereMostAreSo) {
  Row row = small_report().rows[0];
  row.samples = {sample(1), sample(1), sample(9, false)};
  EXPECT_TRUE(row.is_steady());
  EXPECT_DOUBLE_EQ(row.seconds(), 1);
  row.samples = {sample(1), sample(9, false), sample(9, false)};
  EXPECT_FALSE(row.is_steady());
  EXPECT_DOUBLE_EQ(row.seconds(), 9);
}

TEST(BenchReport, TheBestShareIsOfTheFastestSampleAtTheRunsLimits) {
  Report report = small_report();
  report.readings.assign(100, kLimits);
  report.readings[0].f32_flops = 9e9;  // one reading that is far off
  // 1e9 at 2e9 a second are 0.5 s; the fastest sample took 0.8.
  EXPECT_DOUBLE_EQ(report.best_share(report.rows[0]), 0.625);
}

TEST(BenchReport, WhereTheMachineWasSlowAllTheRowsTimeItsOwnLimitsCount) {
  Report report = small_report();
  for (Sample& sample : report.rows[0].samples)
    sample.before.f32_flops = sample.after.f32_flops = 1.25e9;
  EXPECT_DOUBLE_EQ(report.best_share(report.rows[0]), 1.0);
}

TEST(BenchReport, AMemoryThatWasSlowAllTheTimeDoesNotBoundWhatCameFromCaches) {
  Report report = small_report();
  // 1e9 at 1e9 a second would be 1 s, and the fastest sample took 0.8: the run's limits count.
  for (Sample& sample : report.rows[0].samples)
    sample.before.f32_flops = sample.after.f32_flops = 1e9;
  EXPECT_DOUBLE_EQ(report.best_share(report.rows[0]), 0.625);
}

TEST(BenchReport, BrokenFilesAreNamedByWhatIsWrong) {
  const auto error_of = [](const std::function<void(Json&)>& change) {
    Json json = to_json(small_report());
    change(json);
    try {
      report_from_json(json);
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(error_of([](Json& j) { j["format"] = "other"; }), HasSubstr("danlu-bench-1"));
  EXPECT_THAT(error_of([](Json& j) { j = Json::array(); }), HasSubstr("format"));
  EXPECT_THAT(error_of([](Json& j) { j.erase("threads"); }), HasSubstr("\"threads\""));
  EXPECT_THAT(error_of([](Json& j) { j["rows"] = Json::array(); }), HasSubstr("rows"));
  EXPECT_THAT(error_of([](Json& j) { j["rows"][0]["samples"][0]["seconds"] = 0; }),
              HasSubstr("\"seconds\" must be above 0"));
  EXPECT_THAT(error_of([](Json& j) { j["rows"][0]["samples"][0]["before"] = 3; }),
              HasSubstr("before"));
  EXPECT_THAT(error_of([](Json& j) { j["rows"][0]["flops"] = -1; }), HasSubstr("\"flops\""));
  EXPECT_THAT(error_of([](Json& j) { j["rows"][0]["flops"] = 0; }), HasSubstr("moves no byte"));
  EXPECT_THAT(error_of([](Json& j) { j["rows"].push_back(j["rows"][0]); }), HasSubstr("twice"));
}

TEST(BenchReport, TheTableSaysLimitsTimesAndShares) {
  const std::string text = describe(small_report());
  EXPECT_THAT(text, HasSubstr("A Processor, AVX2; 2 of 4 processors"));
  EXPECT_THAT(text, HasSubstr("2.0 GFLOP/s"));
  EXPECT_THAT(text, HasSubstr("training step"));
  EXPECT_THAT(text, HasSubstr("1.00 s"));
  EXPECT_THAT(text, HasSubstr("50 %"));
  EXPECT_THAT(text, Not(HasSubstr("unsteady")));
}

TEST(Processor, IsOfOneKindByMakerFamilyModelAndInstructions) {
  const Processor amd = processor_of(
      "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n"
      "model name\t: AMD EPYC 9R14\nflags\t\t: fpu\n\nprocessor\t: 1\nmodel\t\t: 99\n");
  EXPECT_EQ(amd.name, "AMD EPYC 9R14");
  EXPECT_EQ(amd.key.rfind("amd-25-17-", 0), 0u) << amd.key;
  EXPECT_EQ(processor_of("CPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd40\n")
                .key.rfind("0x41-8-0xd40-", 0),
            0u);
  EXPECT_EQ(processor_of("").key.rfind("unknown-", 0), 0u);
}

}  // namespace
}  // namespace danlu::bench
