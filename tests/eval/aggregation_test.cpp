// Numbers of items become those of tasks and groups. Expected values are Python's: statistics.mean,
// statistics.stdev / sqrt(n), math.exp, and the pooled variance written out.
#include "eval/scoring/aggregation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "eval/scoring/scores.h"
#include "support/throws.h"

namespace danlu::eval {
namespace aggregation_test {

using ::testing::HasSubstr;

Task task_named(const std::string& name) {
  Task task;
  task.name = name;
  task.metrics = {{.name = "acc"}};
  return task;
}

TaskResult result_of(const std::string& name, std::initializer_list<int> verdicts) {
  std::vector<std::vector<ItemScore>> scores;
  for (const int verdict : verdicts)
    scores.push_back({{.filter = "none", .values = {{"acc", double(verdict)}}}});
  return aggregate(task_named(name), scores);
}

TaskResult first() { return result_of("a", {1, 0, 1, 1, 0, 1, 0, 1}); }
TaskResult second() { return result_of("b", {1, 1, 1, 0}); }
TaskResult third() { return result_of("c", {0, 0, 1}); }

TEST(Aggregation, AMeanHasTheSampleErrorOfTheMean) {
  const MetricResult metric = first().metrics.at(0);
  EXPECT_DOUBLE_EQ(metric.value, 0.625);
  EXPECT_DOUBLE_EQ(metric.stderr_value.value(), 0.18298126367784995);
  EXPECT_FALSE(result_of("one", {1}).metrics[0].stderr_value.has_value());
  EXPECT_THAT(test::error_of<DataError>([] { result_of("none", {}); }),
              HasSubstr("none: there is no item to score"));
}

TEST(Aggregation, AGroupIsTheMeanOfItemsOrOfTasks) {
  const Group micro{.name = "all", .alias = "", .members = {}, .metrics = {"acc"}};
  Group macro = micro;
  macro.weight_by_size = false;
  const TaskResult by_items = aggregate_group(micro, {first(), second(), third()});
  EXPECT_DOUBLE_EQ(by_items.metrics.at(0).value, 0.6);
  EXPECT_DOUBLE_EQ(by_items.metrics[0].stderr_value.value(), 0.13522957160708982);
  EXPECT_EQ(by_items.num_items, 15);
  const TaskResult by_tasks = aggregate_group(macro, {first(), second(), third()});
  EXPECT_DOUBLE_EQ(by_tasks.metrics.at(0).value, 0.5694444444444444);
  EXPECT_DOUBLE_EQ(by_tasks.metrics[0].stderr_value.value(), 0.1516916660599);
}

TEST(Aggregation, GroupsOfGroupsStandForTheirLeavesEachOnce) {
  const Group group{.name = "g", .alias = "", .members = {}, .metrics = {"acc"}};
  Group macro = group;
  macro.weight_by_size = false;
  const TaskResult hard = aggregate_group(group, {first(), second()});
  const TaskResult other = aggregate_group(group, {second(), third()});
  const TaskResult all = aggregate_group(macro, {hard, other});
  EXPECT_EQ(all.leaves.size(), 3u);
  EXPECT_DOUBLE_EQ(all.metrics.at(0).value, 0.5694444444444444);
  Group wrong = group;
  wrong.metrics = {"acc_norm"};
  EXPECT_THAT(test::error_of<DataError>([&] { aggregate_group(wrong, {first()}); }),
              HasSubstr("group 'g': none of its members has a metric"));
}

TEST(Aggregation, ATaskWithoutAnErrorLeavesItsGroupWithout) {
  const Group group{.name = "g", .alias = "", .members = {}, .metrics = {"acc"}};
  EXPECT_FALSE(aggregate_group(group, {first(), result_of("one", {1})}).metrics[0].stderr_value);
}

TEST(Aggregation, PerplexitiesAreWeighted) {
  const std::vector<Json> pairs = {{-10, 4}, {-20, 7}, {-3, 2}};
  EXPECT_DOUBLE_EQ(aggregated("weighted_perplexity", "word_perplexity", pairs), 12.660178782560491);
  EXPECT_DOUBLE_EQ(aggregated("bits_per_byte", "bits_per_byte", pairs), 3.66222587302583);
  EXPECT_FALSE(standard_error("weighted_perplexity", "word_perplexity", pairs));
  const std::vector<Json> sums = {-1, -2, -3.5};
  EXPECT_DOUBLE_EQ(aggregated("perplexity", "perplexity", sums), 8.72913836372013);
  EXPECT_EQ(aggregation_of({.name = "word_perplexity"}), "weighted_perplexity");
  EXPECT_EQ(aggregation_of({.name = "bits_per_byte"}), "bits_per_byte");
}

// The delta method: exp(-mean) times the error of the mean, near which the bootstrap must be.
TEST(Aggregation, ThePerplexitysErrorIsTheBootstrapsAndAlwaysTheSame) {
  std::vector<Json> values;
  for (int i = 0; i < 400; ++i) values.push_back(-1 - 0.01 * ((i * 37) % 100));
  const double value = aggregated("perplexity", "perplexity", values);
  const double of_mean = standard_error("mean", "acc", values).value();
  const double error = standard_error("perplexity", "perplexity", values).value();
  EXPECT_NEAR(error, value * of_mean, 0.1 * value * of_mean);
  EXPECT_EQ(error, standard_error("perplexity", "perplexity", values).value());
}

// Every subset of k draws out of n, counted.
TEST(Aggregation, PassAtKIsTheShareOfSubsetsWithOneThatPasses) {
  for (int n = 1; n <= 10; ++n) {
    for (int c = 0; c <= n; ++c) {
      for (int k = 1; k <= n; ++k) {
        int all = 0, passing = 0;
        for (int subset = 0; subset < 1 << n; ++subset) {
          if (__builtin_popcount(static_cast<unsigned>(subset)) != k) continue;
          ++all;
          passing += (subset & ((1 << c) - 1)) != 0;  // the first c draws pass
        }
        EXPECT_NEAR(pass_at_k(n, c, k), double(passing) / all, 1e-12) << n << " " << c << " " << k;
      }
    }
  }
  // math.comb of Python: 1 - comb(190, 100) / comb(200, 100).
  EXPECT_NEAR(pass_at_k(200, 10, 100), 0.9992289739372822, 1e-13);
  EXPECT_NEAR(pass_at_k(100000, 1, 1), 1e-5, 1e-16);
  EXPECT_EQ(item_number("pass@1", Json::array({4, 1})), 0.25);
  EXPECT_EQ(item_number("pass@1", true), 1);
  EXPECT_FALSE(item_number("acc", Json::array({4, 1})));
  EXPECT_THAT(test::error_of<DataError>([] { pass_at_k(5, 1, 10); }),
              HasSubstr("pass@10 needs at least 10 answers to an item, got 5"));
}

// None, two and four of four draws pass: 1 - C(2,2)/C(4,2) = 5/6 of pass@2.
TEST(Aggregation, PassAtKIsReportedForEveryKThatDrawsAllow) {
  Task task = task_named("humaneval");
  task.output = OutputType::kGenerateUntil;
  task.metrics = {{.name = "pass@k", .arguments = {{"k", {1, 2, 10}}}}};
  check_scoring(task);
  std::vector<std::vector<ItemScore>> scores;
  for (const int passed : {0, 2, 4})
    scores.push_back({{.filter = "none", .values = {{"pass@k", Json::array({4, passed})}}}});
  const TaskResult result = aggregate(task, scores);
  ASSERT_EQ(result.metrics.size(), 2u);
  EXPECT_EQ(result.metrics[0].metric, "pass@1");
  EXPECT_DOUBLE_EQ(result.metrics[0].value, 0.5);
  EXPECT_EQ(result.metrics[1].metric, "pass@2");
  EXPECT_DOUBLE_EQ(result.metrics[1].value, (0 + 5.0 / 6 + 1) / 3);
  const Group group{.name = "g", .alias = "", .members = {}, .metrics = {"pass@k"}};
  EXPECT_EQ(aggregate_group(group, {result}).metrics.size(), 2u);
}

// 0.4 * 0.625 + 0.6 * the micro mean of b and c, 4/7.
TEST(Aggregation, AGroupMayWeighItsMembers) {
  const Group inner{.name = "bc", .alias = "", .members = {"b", "c"}, .metrics = {"acc"}};
  const Group outer{.name = "all",
                    .alias = "",
                    .members = {"a", "bc"},
                    .metrics = {"acc"},
                    .weights = {0.8, 1.2}};
  const TaskResult bc = aggregate_group(inner, {second(), third()});
  const TaskResult all = aggregate_group(outer, {first(), bc});
  EXPECT_DOUBLE_EQ(all.metrics.at(0).value, 0.4 * 0.625 + 0.6 * 4 / 7);
  EXPECT_DOUBLE_EQ(all.metrics[0].stderr_value.value(),
                   std::hypot(0.4 * 0.18298126367784995, 0.6 * bc.metrics[0].stderr_value.value()));
  EXPECT_THAT(test::error_of<DataError>([&] { aggregate_group(outer, {first()}); }),
              HasSubstr("none of its members has a metric"));
}

}  // namespace aggregation_test
}  // namespace danlu::eval
