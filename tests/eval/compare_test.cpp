// Two runs, item by item.
#include "eval/compare/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "eval/compare/compare_run.h"
#include "eval/results/results.h"
#include "eval/results/samples.h"
#include "eval/results/sha256.h"
#include "evaluation.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

namespace danlu::eval {
namespace compare_test {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

// min(1, 2 * sum(math.comb(n, i) for i in range(fewer + 1)) / 2**n) of Python.
TEST(Compare, TheSignTestIsTheBinomialTail) {
  EXPECT_EQ(sign_test_p_value(0, 0), 1);
  EXPECT_EQ(sign_test_p_value(1, 0), 1);
  EXPECT_NEAR(sign_test_p_value(5, 0), 0.0625, 1e-12);
  EXPECT_NEAR(sign_test_p_value(10, 2), 0.03857421875, 1e-12);
  EXPECT_NEAR(sign_test_p_value(2, 10), 0.03857421875, 1e-12);
  EXPECT_EQ(sign_test_p_value(3, 3), 1);
  EXPECT_NEAR(sign_test_p_value(120, 80), 0.0056851559967503055, 1e-10);
  EXPECT_NEAR(sign_test_p_value(600, 500), 0.0028195449914364275, 1e-10);
}

// The mean difference of n pairs is nearly normal: 1.96 of its errors on both sides.
TEST(Compare, TheIntervalIsThatOfPairedDifferences) {
  std::vector<PairedItem> items;
  double sum = 0, squares = 0;
  for (int i = 0; i < 500; ++i) {
    // A and B vary together far more than they differ: unpaired, the interval would be ten times
    // as wide.
    const double shared = (i * 7919) % 1000 / 100.0, own = (i * 31) % 17 / 17.0;
    items.push_back({.a = shared, .b = shared + own});
    sum += own, squares += own * own;
  }
  const double mean = sum / 500, error = std::sqrt((squares / 500 - mean * mean) / 500);
  const std::vector<double> drawn = bootstrap_differences(PairedValue::kMean, items, 1);
  ASSERT_EQ(drawn.size(), kResamples);
  EXPECT_NEAR(middle_95(drawn).low, mean - 1.96 * error, 0.1 * error);
  EXPECT_NEAR(middle_95(drawn).high, mean + 1.96 * error, 0.1 * error);
  EXPECT_LT(bootstrap_p_value(drawn), 0.001);
  EXPECT_EQ(drawn, bootstrap_differences(PairedValue::kMean, items, 1));
  EXPECT_NE(drawn, bootstrap_differences(PairedValue::kMean, items, 2));
}

TEST(Compare, WithoutADifferenceNothingIsSignificant) {
  std::vector<PairedItem> items;
  for (int i = 0; i < 100; ++i) items.push_back({.a = i % 2 * 1.0, .b = (i + 1) % 2 * 1.0});
  EXPECT_GT(bootstrap_p_value(bootstrap_differences(PairedValue::kMean, items, 3)), 0.8);
  EXPECT_EQ(bootstrap_p_value(std::vector<double>(kResamples, 0.0)), 1);
}

TEST(Compare, ItemsThatChangedAreCountedEachWayAndShown) {
  test::TemporaryDirectory at;
  test_run::write_run(at / "a", {1, 1, 0, 0, 1, 0});
  test_run::write_run(at / "b", {1, 0, 1, 1, 1, 0});
  const RunComparison all = compare_runs(at / "a", at / "b");
  EXPECT_THAT(all.warnings, IsEmpty());
  ASSERT_EQ(all.tasks.size(), 1u);
  EXPECT_EQ(all.tasks[0].name, "boolq");
  const MetricComparison& acc = all.tasks[0].metrics.at(0);
  EXPECT_EQ(acc.metric, "acc");
  EXPECT_DOUBLE_EQ(acc.a, 0.5);
  EXPECT_DOUBLE_EQ(acc.b, 4.0 / 6);
  EXPECT_EQ(acc.num_better, 2);
  EXPECT_EQ(acc.num_worse, 1);
  EXPECT_EQ(acc.test, "sign_test");
  EXPECT_EQ(acc.p_value, 1);
  EXPECT_LT(acc.interval.low, 0);
  EXPECT_GT(acc.interval.high, 1.0 / 6);
  ASSERT_EQ(acc.changed.size(), 3u);
  EXPECT_EQ(acc.changed[0].doc_id, 1);
  EXPECT_EQ(acc.changed[0].target, "0: a");
  EXPECT_EQ(acc.changed[0].answer_a, "0: a");
  EXPECT_EQ(acc.changed[0].answer_b, "1: b");
  const std::string text = comparison_text(all, 2);
  EXPECT_THAT(text, HasSubstr("|boolq|none  |acc↑  |    6|0.5000|0.6667|+0.1667|"));
  EXPECT_THAT(text, HasSubstr("|boolq  |acc,none|     1|0: a |0: a  |1: b  |  1|  0|"));
  EXPECT_THAT(text, HasSubstr("… and 1 more (--show 0 prints all)"));
  EXPECT_THAT(comparison_text(all, 0), ::testing::Not(HasSubstr("more (")));
  const Json json = comparison_json(all);
  EXPECT_EQ(json["tasks"]["boolq"][0]["changed"].size(), 3u);
  EXPECT_EQ(json["tasks"]["boolq"][0]["better"], 2);
  EXPECT_THAT(comparison_text(compare_runs(at / "a", at / "a"), 10), HasSubstr("no item changed"));
}

TEST(Compare, WhatMakesRunsUnlikeIsSaid) {
  test::TemporaryDirectory at;
  const fs::path a = test_run::write_run(at / "a", {1, 1, 0});
  const fs::path b = test_run::write_run(at / "b", {1, 0, 1, 1}, "2026-01-02T03-04-05.000006",
                                         "boolq", "Q: shot\n\n");
  Json results = read_json_file(b);
  results["style"] = "opencompass";
  results["n-shot"]["boolq"] = 0;
  results["versions"]["boolq"] = 2;
  results["config"]["limit"] = 4;
  write_json_file(b, results);
  const RunComparison all = compare_runs(a, b);
  EXPECT_THAT(all.warnings, ElementsAre("other style: lm-eval / opencompass", "other limit: - / 4",
                                        "other n-shot: boolq 5 / 0", "other versions: boolq 1 / 2",
                                        "boolq: 3 items are in both, 0 only in A, 1 only in B",
                                        "boolq: other prompts for 3 of 3 items"));
  EXPECT_EQ(all.tasks[0].metrics[0].num_items, 3);
  EXPECT_EQ(comparison_json(all)["warnings"].size(), 6u);
}

TEST(Compare, ADirectoryStandsForItsNewestResults) {
  test::TemporaryDirectory at;
  test_run::write_run(at / "runs" / "model", {0}, "2026-01-02T03-04-05.000006");
  const fs::path newest =
      test_run::write_run(at / "runs" / "model", {1}, "2026-02-01T00-00-00.000000");
  test_run::write_run(at / "runs", {0}, "2025-12-31T23-59-59.999999");
  EXPECT_EQ(find_results(at / "runs"), newest);
  EXPECT_EQ(find_results(newest), newest);
}

TEST(Compare, WhatCannotBeComparedIsAnError) {
  test::TemporaryDirectory at;
  const fs::path a = test_run::write_run(at / "a", {1, 0});
  const auto said = [&](const fs::path& b) {
    return test::error_of<DataError>([&] { compare_runs(a, b); });
  };
  EXPECT_THAT(test::error_of<DataError>([&] { compare_runs(a, at / "absent"); }),
              HasSubstr("there is no such file or directory"));
  fs::create_directory(at / "empty");
  EXPECT_THAT(said(at / "empty"), HasSubstr("no results_*.json in it"));
  // Without --log_samples.
  const fs::path bare = test_run::write_run(at / "bare", {1, 0});
  fs::remove(at / "bare" / samples_file_name("boolq", "2026-01-02T03-04-05.000006"));
  EXPECT_THAT(said(bare), AllOf(HasSubstr("no samples_*_2026-01-02T03-04-05.000006.jsonl"),
                                HasSubstr("evaluate with --log_samples")));
  EXPECT_THAT(said(test_run::write_run(at / "c", {1, 0}, "2026-01-02T03-04-05.000006", "arc")),
              HasSubstr("the runs have nothing in common: A has boolq, B has arc"));
  const auto spoiled = [&](const char* name, const std::string& lines) {
    const fs::path path = test_run::write_run(at / name, {1, 0});
    std::ofstream(at / name / samples_file_name("boolq", "2026-01-02T03-04-05.000006")) << lines;
    return said(path);
  };
  EXPECT_THAT(spoiled("d", "{\"doc_hash\": \"x\"}\n{\"doc"),
              HasSubstr("000006.jsonl:2:1:6: not valid JSON"));
  EXPECT_THAT(spoiled("e", "{\"doc_id\": 0}\n"), HasSubstr("the sample has no 'doc_hash'"));
  EXPECT_THAT(spoiled("f", "[1]\n"), HasSubstr("a sample must be an object"));
  EXPECT_THAT(spoiled("g", "{\"doc_hash\": \"other\", \"metrics\": [\"acc\"], \"acc\": 1}\n"),
              HasSubstr("nothing in common"));
  std::ofstream(at / "h.json") << "{\"configs\": {}}";
  EXPECT_THAT(said(at / "h.json"), HasSubstr("it has no object 'results'"));
}

constexpr const char* kTime = "2026-01-02T03-04-05.000006";

/// A results file and samples of boolq as lm-eval itself writes them, not with our code: its row
/// has other fields than ours, so its hash is another.
fs::path write_foreign_run(const fs::path& directory, const std::vector<Json>& changes,
                           const Json& config = Json::object()) {
  fs::create_directories(directory);
  std::ofstream lines(directory / samples_file_name("boolq", kTime));
  for (size_t i = 0; i < changes.size(); ++i) {
    const std::string question = "q" + std::to_string(i);
    Json line = {
        {"doc_id", i},
        {"doc", {{"question", question}, {"passage", "p"}, {"idx", i}, {"label", 0}}},
        {"target", "0"},
        {"arguments",
         {{"gen_args_0", {{"arg_0", "p\n" + question}, {"arg_1", " no"}}},
          {"gen_args_1", {{"arg_0", "p\n" + question}, {"arg_1", " yes"}}}}},
        {"resps", {{{"-1.5", "False"}}, {{"-2.5", "False"}}}},
        {"filtered_resps", {{"-1.5", "False"}, {"-2.5", "False"}}},
        {"filter", "none"},
        {"metrics", {"acc"}},
        {"doc_hash", "of-row-" + std::to_string(i)},
        {"prompt_hash", "of-prompt-" + std::to_string(i)},
        // printf 0 | sha256sum
        {"target_hash", "5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9"},
        {"acc", 1.0}};
    line.update(changes[i]);
    lines << line.dump() << "\n";
  }
  const Json results = {
      {"results", {{"boolq", {{"alias", "boolq"}, {"acc,none", 0.5}}}}},
      {"group_subtasks", {{"boolq", Json::array()}}},
      {"configs", {{"boolq", config}}},
      {"versions", {{"boolq", 1}}},
      {"n-shot", {{"boolq", 5}}},
      {"higher_is_better", {{"boolq", {{"acc", true}}}}},
      {"config", {{"model", "hf"}, {"limit", nullptr}}},
  };
  const fs::path path = directory / ("results_" + std::string(kTime) + ".json");
  std::ofstream(path) << results.dump(2);
  return path;
}

TEST(Compare, RowsOfTheHarnessAreFoundByTheirPlaceAndAnswer) {
  test::TemporaryDirectory at;
  const fs::path ours = test_run::write_run(at / "ours", {1, 0, 1, 0});
  const Json none = Json::object(), wrong = {{"acc", 0.0}};
  const RunComparison all =
      compare_runs(ours, write_foreign_run(at / "foreign", {none, none, wrong, none}));
  const MetricComparison& acc = all.tasks.at(0).metrics.at(0);
  EXPECT_EQ(acc.num_items, 4);
  EXPECT_DOUBLE_EQ(acc.a, 0.5);
  EXPECT_DOUBLE_EQ(acc.b, 0.75);
  EXPECT_EQ(acc.num_better, 2);
  EXPECT_EQ(acc.num_worse, 1);
  EXPECT_EQ(acc.changed.at(0).doc_id, 1);
  EXPECT_THAT(all.warnings,
              Contains("boolq: 4 of 4 rows matched by their place and right answer alone"));
  EXPECT_THAT(all.warnings, Contains("boolq: other prompts for 4 of 4 items"));
}

TEST(Compare, APromptThatIsTheSameNeedsNoWarning) {
  test::TemporaryDirectory at;
  const fs::path ours = test_run::write_run(at / "ours", {1, 0});
  std::vector<Json> changes;
  for (const char* question : {"q0\nAnswer:", "q1\nAnswer:"})
    changes.push_back({{"prompt_hash", sha256_hex(question)}, {"target_hash", "other"}});
  const RunComparison all = compare_runs(ours, write_foreign_run(at / "foreign", changes));
  EXPECT_EQ(all.tasks.at(0).metrics.at(0).num_items, 2);
  EXPECT_THAT(all.warnings, Not(Contains(HasSubstr("place"))));
  EXPECT_THAT(all.warnings, Contains("boolq: other right answers for 2 of 2 items"));
}

// Half of the right answers are the same: as it is by chance of other rows.
TEST(Compare, OtherRowsAreNotMatchedByChance) {
  test::TemporaryDirectory at;
  const fs::path ours = test_run::write_run(at / "ours", {1, 0, 1, 0});
  const Json same = Json::object(), other = {{"target_hash", "other"}};
  EXPECT_THAT(test::error_of<DataError>([&] {
                compare_runs(ours, write_foreign_run(at / "b", {same, other, same, other}));
              }),
              AllOf(HasSubstr("nothing in common"), HasSubstr("4 only in A, 4 only in B")));
  // One of them corrected: the others are compared.
  const RunComparison all =
      compare_runs(ours, write_foreign_run(at / "c", {same, other, same, same}));
  EXPECT_EQ(all.tasks.at(0).metrics.at(0).num_items, 3);
}

TEST(Compare, ATaskOfTwoStylesNamesTheMetricsOfBoth) {
  test::TemporaryDirectory at;
  const fs::path ours = test_run::write_run(at / "ours", {1, 0});
  const Json written = {
      {"metrics", {"exact_match"}}, {"exact_match", 1.0}, {"filter", "get-answer"}};
  EXPECT_THAT(test::error_of<DataError>([&] {
                compare_runs(ours, write_foreign_run(at / "foreign", {written, written}));
              }),
              HasSubstr("the runs have nothing in common: boolq: no metric is in both: A has "
                        "acc,none; B has exact_match,get-answer"));
}

Json config_of(const char* metric, const char* aggregation) {
  return {{"metric_list", {{{"metric", metric}, {"aggregation", aggregation}}}}};
}

TEST(Compare, AMetricIsAggregatedAsItsTaskSays) {
  test::TemporaryDirectory at;
  const auto lines = [](const Json& first, const Json& second) {
    return std::vector<Json>{{{"metrics", {"own", "acc"}}, {"own", first}},
                             {{"metrics", {"own", "acc"}}, {"own", second}}};
  };
  const auto compared = [&](const std::string& aggregation, const std::vector<Json>& a,
                            const std::vector<Json>& b) {
    const Json config = config_of("own", aggregation.c_str());
    return compare_runs(write_foreign_run(at / "a", a, config),
                        write_foreign_run(at / "b", b, config));
  };
  // math.exp(6 / 5), -(-6 / 5) / math.log(2), math.exp(3) of Python.
  const std::vector<Json> pairs = lines({-4.0, 2}, {-2.0, 3});
  EXPECT_NEAR(compared("weighted_perplexity", pairs, pairs).tasks.at(0).metrics.at(1).a,
              3.3201169227365472, 1e-12);
  EXPECT_NEAR(compared("bits_per_byte", pairs, pairs).tasks.at(0).metrics.at(1).a,
              1.7312340490667562, 1e-12);
  const std::vector<Json> numbers = lines(-4.0, -2.0);
  EXPECT_NEAR(compared("perplexity", numbers, numbers).tasks.at(0).metrics.at(1).a,
              20.085536923187668, 1e-12);
  EXPECT_DOUBLE_EQ(compared("mean", numbers, numbers).tasks.at(0).metrics.at(1).a, -3);
  // What cannot be: the other metric stays.
  const auto left_out = [&](const std::string& aggregation, const std::vector<Json>& values) {
    const RunComparison all = compared(aggregation, values, values);
    EXPECT_EQ(all.tasks.at(0).metrics.size(), 1u);
    EXPECT_EQ(all.tasks.at(0).metrics.at(0).metric, "acc");
    return all.warnings;
  };
  EXPECT_THAT(
      left_out("mean", pairs),
      ElementsAre("boolq: own is left out: as 'mean' it cannot aggregate item 0: [-4.0,2]"));
  EXPECT_THAT(left_out("def agg(items):\n    return 1", numbers),
              ElementsAre("boolq: own is left out: its aggregation 'def agg(items):' is none of "
                          "mean, perplexity, weighted_perplexity, bits_per_byte"));
  const RunComparison unlike =
      compare_runs(write_foreign_run(at / "a", numbers, config_of("own", "mean")),
                   write_foreign_run(at / "b", numbers, config_of("own", "perplexity")));
  EXPECT_THAT(unlike.warnings, ElementsAre("boolq: own is left out: A aggregates it as 'mean', B "
                                           "as 'perplexity'"));
}

TEST(Compare, AGroupThatHoldsItselfIsAnError) {
  test::TemporaryDirectory at;
  const fs::path run = write_foreign_run(at / "run", {Json::object()});
  const auto said = [&](const Json& groups) {
    Json results = read_json_file(run);
    results["group_subtasks"] = groups;
    for (const auto& [name, members] : groups.items())
      results["group_weighting"][name] = std::vector<double>(members.size(), 1);
    write_json_file(run, results);
    return test::error_of<DataError>([&] { compare_runs(run, run); });
  };
  EXPECT_THAT(said({{"one", {"two", "boolq"}}, {"two", {"one"}}}),
              HasSubstr("a group must not hold itself: one → two → one"));
  EXPECT_THAT(said({{"one", {"one"}}}), HasSubstr("must not hold itself: one → one"));
}

/// samples_test of 0/1 verdicts of three leaves, as of test_run::small(), into `directory`.
fs::path write_group_run(const fs::path& directory,
                         const std::vector<std::vector<double>>& verdicts, bool by_size) {
  Evaluation all = test_run::small();
  all.groups[0].weight_by_size = by_size;
  fs::create_directories(directory);
  for (size_t t = 0; t < all.tasks.size(); ++t) {
    all.results[t] = test_run::scored(all.tasks[t], verdicts[t]);
    SamplesFile file(directory, all.tasks[t].name, all.run.time_id);
    for (size_t i = 0; i < verdicts[t].size(); ++i) {
      const Item item = test_run::choice_item(static_cast<int64_t>(i), 0);
      const std::vector<Answer> answers = {{.log_likelihood = verdicts[t][i] > 0 ? -1.0 : -2.0},
                                           {.log_likelihood = -1.5}};
      file.add(sample_record(all.tasks[t], item, answers,
                             score_item(all.tasks[t], item, answers).at(0)));
    }
    file.commit();
  }
  return write_results(directory, all);
}

// A: means 0.625, 0.75, 1/3 of 8, 4, 3 items: 0.6 by items. B has two more of the first right.
TEST(Compare, GroupsAreWeightedAsTheRunSays) {
  test::TemporaryDirectory at;
  const std::vector<std::vector<double>> a = {{1, 0, 1, 1, 0, 1, 0, 1}, {1, 1, 1, 0}, {0, 0, 1}};
  std::vector<std::vector<double>> b = a;
  b[0][1] = b[0][4] = 1;
  write_group_run(at / "a", a, true);
  write_group_run(at / "b", b, true);
  const RunComparison all = compare_runs(at / "a", at / "b");
  ASSERT_EQ(all.groups.size(), 2u);
  EXPECT_EQ(all.groups[1].alias, "stem");
  const MetricComparison& mmlu = all.groups[0].metrics.at(0);
  EXPECT_EQ(mmlu.num_items, 15);
  EXPECT_DOUBLE_EQ(mmlu.a, 0.6);
  EXPECT_DOUBLE_EQ(mmlu.b, 11.0 / 15);
  EXPECT_EQ(mmlu.num_better, 2);
  EXPECT_DOUBLE_EQ(mmlu.stderr_a.value(), 0.13522957160708982);
  EXPECT_EQ(mmlu.test, "sign_test");
  EXPECT_EQ(mmlu.p_value, 0.5);
  write_group_run(at / "c", a, false);
  const RunComparison macro = compare_runs(at / "c", at / "b");
  EXPECT_DOUBLE_EQ(macro.groups[0].metrics.at(0).a, (0.625 + 0.75 + 1.0 / 3) / 3);
  EXPECT_NEAR(macro.groups[0].metrics[0].b - macro.groups[0].metrics[0].a, 0.25 / 3, 1e-12);
  EXPECT_EQ(macro.groups[0].metrics[0].test, "bootstrap");
  // 2 of 8 items changed: resampled, Binomial(8, 1/4), of which 97.5 % are 5 at the most and one in
  // ten is none.
  EXPECT_DOUBLE_EQ(macro.groups[0].metrics[0].interval.high, 5.0 / 8 / 3);
  EXPECT_DOUBLE_EQ(macro.groups[0].metrics[0].interval.low, 0);
  EXPECT_NEAR(macro.groups[0].metrics[0].p_value, 2 * std::pow(0.75, 8), 0.02);
  // By weights: 0.4 of stem, whose 12 items have 8 right, and 0.6 of law.
  const fs::path weighted = write_group_run(at / "d", a, true);
  Json results = read_json_file(weighted);
  results["group_weighting"]["mmlu"] = {2, 3};
  write_json_file(weighted, results);
  const RunComparison by_weights = compare_runs(weighted, at / "b");
  EXPECT_DOUBLE_EQ(by_weights.groups[0].metrics.at(0).a, 0.4 * 8 / 12 + 0.6 / 3);
  EXPECT_DOUBLE_EQ(by_weights.groups[0].metrics[0].b, 0.4 * 10 / 12 + 0.6 / 3);
  EXPECT_EQ(by_weights.groups[0].metrics[0].test, "bootstrap");
}

TEST(Compare, ThePictureHasABarForEachRunOfEachGroup) {
  test::TemporaryDirectory at;
  const std::vector<std::vector<double>> a = {{1, 0, 1, 1, 0, 1, 0, 1}, {1, 1, 1, 0}, {0, 0, 1}};
  write_group_run(at / "a", a, true);
  const RunComparison all = compare_runs(at / "a", at / "a");
  const std::string svg = comparison_picture(all, pictures::PictureFormat::kSvg);
  EXPECT_THAT(svg, AllOf(HasSubstr("mmlu (acc)"), HasSubstr("stem (acc)"), HasSubstr("0.600")));
  // The bars' colours: two in the legend, one a run and group. Newer Cairos write blanks in them.
  std::string plain = svg;
  std::erase(plain, ' ');
  size_t blue = 0;
  for (size_t i = 0; (i = plain.find("rgb(10%,42%,70%)", i)) != std::string::npos; ++i) ++blue;
  EXPECT_EQ(blue, 3u);
  EXPECT_THAT(comparison_picture(all, pictures::PictureFormat::kPng), StartsWith("\x89PNG"));
}

TEST(Compare, PerplexitiesAreComparedByWords) {
  test::TemporaryDirectory at;
  const auto write = [&](const char* name, double shift) {
    Evaluation all;
    all.run.time_id = "t";
    all.tasks = {test_run::leaf("wikitext", "")};
    all.tasks[0].output = OutputType::kRollingLikelihood;
    all.tasks[0].metrics = {{.name = "word_perplexity", .higher_is_better = false}};
    fs::create_directories(at / name);
    SamplesFile file(at / name, "wikitext", "t");
    std::vector<std::vector<ItemScore>> scores;
    for (int i = 0; i < 20; ++i) {
      Item item;
      item.doc = {{"page", i}};
      item.target = std::string(static_cast<size_t>(i % 3), ' ') + "a b c";
      item.calls.push_back(
          {.kind = CallKind::kRolling, .context = "", .continuation = item.target, .rules = {}});
      const std::vector<Answer> answers = {{.log_likelihood = -10.0 - i % 4 + shift}};
      scores.push_back(score_item(all.tasks[0], item, answers));
      file.add(sample_record(all.tasks[0], item, answers, scores.back().at(0)));
    }
    file.commit();
    all.results = {aggregate(all.tasks[0], scores)};
    return write_results(at / name, all);
  };
  const RunComparison all = compare_runs(write("a", 0), write("b", 1));
  const MetricComparison& metric = all.tasks.at(0).metrics.at(0);
  // Words: 3 (7 items), 4, 4 (13 items, " a b c" has an empty first one): 73. Sum A: -20*10 - 30.
  EXPECT_DOUBLE_EQ(metric.a, std::exp(230.0 / 73));
  EXPECT_DOUBLE_EQ(metric.b, std::exp(210.0 / 73));
  EXPECT_EQ(metric.num_better, 20);
  EXPECT_LT(metric.interval.high, 0);
  EXPECT_EQ(metric.test, "bootstrap");
  EXPECT_LT(metric.p_value, 0.001);
}

}  // namespace compare_test
}  // namespace danlu::eval
