// What answers are worth: filters and metrics against what Python's `re` and the harness itself
// said of the same answers (tests/eval/goldens/scoring.json, tools/eval_goldens/scoring.py), and
// rules worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/pattern.h"
#include "eval/scoring/filters.h"
#include "eval/scoring/math_equal.h"
#include "eval/scoring/metrics.h"
#include "eval/scoring/scores.h"
#include "support/throws.h"

namespace danlu::eval {
namespace scoring_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

const Json& golden() {
  static const Json kGolden =
      read_json_file(std::filesystem::path(DANLU_SOURCE_DIR) / "tests/eval/goldens/scoring.json");
  return kGolden;
}

Filter filter_of(const Json& steps) {
  Filter filter;
  for (const Json& step : steps) filter.steps.push_back({step[0].get<std::string>(), step[1]});
  return filter;
}

Item choice_item(std::vector<std::string> choices, Json target) {
  Item item;
  item.doc_id = 7;
  item.choices = std::move(choices);
  item.target = std::move(target);
  item.calls.resize(item.choices.size());
  return item;
}

std::vector<Answer> likelihoods(std::initializer_list<double> values) {
  std::vector<Answer> answers;
  for (const double value : values) answers.push_back({.log_likelihood = value});
  return answers;
}

Task choice_task(std::initializer_list<const char*> metrics) {
  Task task;
  task.name = "colours";
  for (const char* metric : metrics) task.metrics.push_back({.name = metric});
  return task;
}

double value_of(const ItemScore& score, const char* metric) {
  return score.values.at(metric).get<double>();
}

TEST(Scoring, FiltersGiveWhatTheHarnessGives) {
  int count = 0;
  for (const Json& group : golden()["filters"]) {
    const Filter filter = filter_of(group["steps"]);
    check_filter(filter);
    Item item;
    item.choices = group["choices"].get<std::vector<std::string>>();
    for (const Json& entry : group["cases"]) {
      const auto filtered = apply_filter(filter, item, {entry[0].get<std::string>()});
      EXPECT_EQ(filtered.texts[0], entry[1].get<std::string>())
          << dump_text(group["steps"]) << " of " << dump_text(entry[0]);
      ++count;
    }
  }
  EXPECT_EQ(count, 226);
  for (const Json& entry : golden()["votes"]) {
    const auto voted = apply_filter({"", {{"majority_vote"}}}, {}, entry[0]);
    EXPECT_THAT(voted.texts, ::testing::ElementsAre(entry[1].get<std::string>()));
  }
}

TEST(Scoring, PatternsFindWhatPythonFinds) {
  for (const Json& entry : golden()["find_all"]) {
    Json found = Json::array();
    for (const auto& match :
         Pattern(entry[0], PatternUse::kText).find_all(entry[1].get<std::string>()))
      found.push_back(Json::array({match.begin, match.end}));
    EXPECT_EQ(found, entry[2]) << dump_text(entry[0]) << " in " << dump_text(entry[1]);
  }
}

TEST(Scoring, ExactMatchesAreThoseOfTheHarness) {
  Item item;
  for (const Json& group : golden()["exact_match"]) {
    const Metric metric{.name = "exact_match", .arguments = group["arguments"]};
    check_metric(metric, OutputType::kGenerateUntil);
    for (const Json& entry : group["cases"]) {
      item.target = entry[1];
      EXPECT_EQ(text_metric(metric, item, {{entry[0].get<std::string>()}, true}),
                entry[2].get<bool>())
          << dump_text(entry);
    }
  }
}

TEST(Scoring, MathematicalAnswersAreEqualWhereTheDataSetsOwnCheckSaysSo) {
  for (const Json& entry : golden()["math_normal"]) {
    const auto normal = normal_math_text(entry[0].get<std::string>());
    EXPECT_EQ(normal ? Json(*normal) : Json(), entry[1]) << entry[0];
  }
  for (const Json& entry : golden()["math_equal"])
    EXPECT_EQ(math_equal(entry[0], entry[1]), entry[2].get<bool>()) << dump_text(entry);
  for (const Json& entry : golden()["math_final"]) {
    const auto answer = final_math_answer(entry[0].get<std::string>());
    EXPECT_EQ(answer ? Json(*answer) : Json(), entry[1]) << entry[0];
  }
}

TEST(Scoring, AFenceHoldsTheCodeWithOrWithoutALanguage) {
  const auto code = [](const std::string& text) {
    return apply_filter({"", {{"code_fence"}, {"take_first"}}}, {}, {text}).texts[0];
  };
  EXPECT_EQ(code("Sure:\n```python\ndef f():\n    pass\n```\nand ```x\ny\n```"),
            "def f():\n    pass\n");
  EXPECT_EQ(code("```\nx = 1\n```"), "x = 1\n");
  EXPECT_EQ(code("```python\nx = 1\n"), "x = 1\n");  // cut off by the stop string
  EXPECT_EQ(code("```py\n```"), "");
  EXPECT_EQ(code("    return 1\n"), "    return 1\n");
  EXPECT_EQ(code("```python"), "");
}

TEST(Scoring, TheFirstPatternThatIsFoundWins) {
  const Filter filter{"letter",
                      {{"pattern_list",
                        {{"patterns", {R"(答案[是为：:]\s*([A-D]))", R"(^\s*([A-D])(?![a-z]))"}},
                         {"fallback", "?"}}}}};
  check_filter(filter);
  const auto letter = [&](const char* text) { return apply_filter(filter, {}, {text}).texts[0]; };
  EXPECT_EQ(letter("B。因为答案是 C"), "C");
  EXPECT_EQ(letter("B。"), "B");
  EXPECT_EQ(letter("Because"), "?");
  EXPECT_EQ(apply_filter({"", {{"first_line"}}}, {}, {"\n (A) \n(B)"}).texts[0], "(A)");
  EXPECT_THAT(apply_filter({"", {{"take_first_k", {{"k", 2}}}}}, {}, {"a", "b", "c"}).texts,
              ::testing::ElementsAre("a", "b"));
}

TEST(Scoring, LastNumbersAreComparedByValue) {
  const auto equal = [](const char* answer, const char* target, Json arguments) {
    Item item;
    item.target = target;
    return text_metric({.name = "number_equal", .arguments = std::move(arguments)}, item,
                       {{answer}, true}) == 1;
  };
  EXPECT_TRUE(equal("so 48 + 24 = 72.0 clips", "72", Json::object()));
  EXPECT_TRUE(equal("1,234", "1234", Json::object()));
  EXPECT_FALSE(equal("1,234", "1234", {{"thousands_separators", false}}));
  EXPECT_FALSE(equal("1,23", "123", Json::object()));
  EXPECT_TRUE(equal("0.3333333", "0.33333339", Json::object()));
  EXPECT_FALSE(equal("0.333332", "0.333334", Json::object()));
  EXPECT_FALSE(equal("none", "0", Json::object()));
  EXPECT_FALSE(equal(std::string(400, '9').c_str(), "9", Json::object()));
}

// lm-eval: the first of equals; per character; per byte. "ab" has 2 characters, "é" one of two
// bytes, "红" one of three.
TEST(Scoring, ChoicesAreRankedBySumByCharacterAndByByte) {
  const Task task = choice_task({"acc", "acc_norm", "acc_bytes"});
  const auto scores = [&](Item item, std::vector<Answer> answers) {
    return score_item(task, item, answers).at(0);
  };
  // Sums: -4, -2.4, -3: the second. Per character: -1, -1.2, -3: the first. Per byte the third is
  // -1 exactly, and the first comes before it.
  ItemScore score = scores(choice_item({"abcd", "éa", "红"}, 0), likelihoods({-4, -2.4, -3}));
  EXPECT_EQ(value_of(score, "acc"), 0);
  EXPECT_EQ(value_of(score, "acc_norm"), 1);
  EXPECT_EQ(value_of(score, "acc_bytes"), 0);  // -1, -0.8, -1
  EXPECT_TRUE(scores(choice_item({"a", "b"}, 0), likelihoods({-2, -2})).is_near_tie);
  EXPECT_EQ(value_of(scores(choice_item({"a", "b"}, 0), likelihoods({-2, -2})), "acc"), 1);
  EXPECT_EQ(value_of(scores(choice_item({"a", "b"}, 1), likelihoods({-2, -2})), "acc"), 0);
  // A list is met by any of its members; a text names its choice.
  EXPECT_EQ(
      value_of(scores(choice_item({"a", "b", "c"}, {0, 2}), likelihoods({-3, -2, -1})), "acc"), 1);
  EXPECT_EQ(
      value_of(scores(choice_item({"a", "b", "c"}, {0, 1}), likelihoods({-3, -2, -1})), "acc"), 0);
  EXPECT_EQ(value_of(scores(choice_item({"a", "b"}, "b"), likelihoods({-3, -2})), "acc"), 1);
  // An empty choice has no length to divide by: it is never the best.
  EXPECT_EQ(value_of(scores(choice_item({"", "b"}, 1), likelihoods({0, -2})), "acc_norm"), 1);
}

TEST(Scoring, ANearTieIsOneOfTheTwoBestOnly) {
  const Task task = choice_task({"acc"});
  const auto tie = [&](std::initializer_list<double> values) {
    return score_item(task, choice_item({"a", "b", "c"}, 0), likelihoods(values))[0].is_near_tie;
  };
  EXPECT_TRUE(tie({-10, -10.00009, -50}));
  EXPECT_FALSE(tie({-10, -10.00011, -50}));
  EXPECT_FALSE(tie({-1, -10, -10}));
}

// OpenCompass: -20/10 = -2 a token beats -15/5 = -3, where the sums say the opposite.
TEST(Scoring, PerplexityOfTheWholeMayRankOtherwiseThanTheSum) {
  Task task = choice_task({"acc", "ppl_acc"});
  EXPECT_TRUE(wants_whole(task));
  EXPECT_FALSE(wants_whole(choice_task({"acc"})));
  std::vector<Answer> answers = likelihoods({-3, -1});
  answers[0].whole_log_likelihood = -20, answers[0].num_whole_tokens = 10;
  answers[1].whole_log_likelihood = -15, answers[1].num_whole_tokens = 5;
  const ItemScore score = score_item(task, choice_item({"a", "b"}, 0), answers)[0];
  EXPECT_EQ(value_of(score, "acc"), 0);
  EXPECT_EQ(value_of(score, "ppl_acc"), 1);
}

TEST(Scoring, ANumberThatIsNoneNamesTaskAndItem) {
  const Task task = choice_task({"acc"});
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(test::error_of<NumericError>(
                  [&] { score_item(task, choice_item({"a", "b"}, 0), likelihoods({-1, nan})); }),
              HasSubstr("colours: item 7: the model's log-likelihood is not a number"));
}

TEST(Scoring, ATargetThatIsNoChoiceIsAnError) {
  const Task task = choice_task({"acc"});
  for (const Json& target : {Json(2), Json(-1), Json("c"), Json()}) {
    EXPECT_THAT(test::error_of<DataError>([&] {
                  score_item(task, choice_item({"a", "b"}, target), likelihoods({-1, -2}));
                }),
                HasSubstr("colours: item 7: the right answer must be one of 2 choices"))
        << target;
  }
}

TEST(Scoring, WordsAreCountedAsPythonSplitsThem) {
  Item item;
  item.calls.resize(1);
  const auto words = [&](const char* text) {
    item.target = text;
    return likelihood_metric({.name = "word_perplexity"}, item, {.log_likelihood = -1});
  };
  // len(re.split(r"\s+", text)) of Python 3.11.
  EXPECT_EQ(words("a b"), Json::array({-1.0, 2}));
  EXPECT_EQ(words(" a \n b\t"), Json::array({-1.0, 4}));
  EXPECT_EQ(words(""), Json::array({-1.0, 1}));
  EXPECT_EQ(words("春　眠\x1e不"), Json::array({-1.0, 3}));
  item.target = "é!";
  EXPECT_EQ(likelihood_metric({.name = "byte_perplexity"}, item, {.log_likelihood = -1}),
            Json::array({-1.0, 3}));
}

TEST(Scoring, EachDrawAndEachTargetCounts) {
  Task task;
  task.name = "sums";
  task.output = OutputType::kGenerateUntil;
  task.metrics = {{.name = "exact_match", .report_as = "acc"},
                  {.name = "pass@k", .arguments = {{"k", {1, 2}}}}};
  task.filters = {{"first", {{"take_first"}}}, {"all", {{"remove_whitespace"}}}};
  check_scoring(task);
  Item item;
  item.target = {"4", "four"};
  item.calls.resize(4);
  std::vector<Answer> answers(4);
  for (size_t i = 0; i < 4; ++i)
    answers[i].text = std::vector<std::string>{" 5", "four", " 4", "x"}[i];
  const auto scores = score_item(task, item, answers);
  ASSERT_EQ(scores.size(), 2u);
  EXPECT_EQ(scores[0].filtered, Json::array({" 5"}));
  EXPECT_EQ(value_of(scores[0], "acc"), 0);
  EXPECT_EQ(scores[1].filtered, (Json::array({Json::array({"5", "four", "4", "x"})})));
  EXPECT_EQ(value_of(scores[1], "acc"), 0.5);
  EXPECT_EQ(scores[1].values.count("pass@k"), 0u);  // measured by who runs the code
}

/// Without steps a text is the first draw, and programs are all draws, whatever is beside them.
TEST(Scoring, ProgramsBesideTextsAreAllDraws) {
  Task task;
  task.name = "sums";
  task.output = OutputType::kGenerateUntil;
  task.filters = {{"none", {}}};
  Item item;
  item.target = "4";
  item.calls.resize(2);
  std::vector<Answer> answers(2);
  answers[0].text = "4";
  answers[1].text = "5";
  const Metric text{.name = "exact_match"}, program{.name = "pass@k", .arguments = {{"k", {2}}}};
  const Json first = Json::array({"4"}), both = Json::array({Json::array({"4", "5"})});
  for (const auto& [metrics, filtered] : std::vector<std::pair<std::vector<Metric>, Json>>{
           {{text}, first}, {{program}, both}, {{text, program}, both}}) {
    task.metrics = metrics;
    const ItemScore score = score_item(task, item, answers).at(0);
    EXPECT_EQ(score.filtered, filtered);
    if (metrics[0].name == "exact_match") {
      EXPECT_EQ(value_of(score, "exact_match"), 1);
    }
  }
}

TEST(Scoring, WhatATaskSaysWrongIsFoundBeforeAModelAnswers) {
  Task task;
  task.name = "sums";
  task.output = OutputType::kGenerateUntil;
  const auto said = [&](std::vector<Filter> filters, std::vector<Metric> metrics) {
    task.filters = std::move(filters);
    task.metrics = std::move(metrics);
    return test::error_of<UsageError>([&] { check_scoring(task); });
  };
  const Metric fine{.name = "exact_match"};
  EXPECT_THAT(said({{"f", {{"regexp"}}}}, {fine}),
              HasSubstr("sums: filter 'f': there is no filter step 'regexp'"));
  EXPECT_THAT(said({{"f", {{"regex", {{"pattern", "a"}}}}}}, {fine}),
              HasSubstr("the filter step 'regex' has no argument 'pattern'"));
  EXPECT_THAT(said({{"f", {{"regex", {{"regex_pattern", "(a"}}}}}}, {fine}),
              AllOf(HasSubstr("filter 'f'"), HasSubstr("'(a' is not a valid regular expression")));
  EXPECT_THAT(said({{"f", {{"regex", {{"group_select", "last"}}}}}}, {fine}),
              HasSubstr("\"group_select\" must be a whole number"));
  EXPECT_THAT(said({{"f", {{"pattern_list"}}}}, {fine}), HasSubstr("needs 'patterns'"));
  EXPECT_THAT(said({{}, {}}, {fine}), HasSubstr("the filter 'none' is there twice"));
  EXPECT_THAT(said({{}}, {fine, fine}), HasSubstr("the metric 'exact_match' is there twice"));
  EXPECT_THAT(said({{}}, {}), HasSubstr("at least one metric"));
  EXPECT_THAT(said({{}}, {{.name = "acc_norm"}}), HasSubstr("there is no metric 'acc_norm'"));
  EXPECT_THAT(said({{}}, {{.name = "pass@0"}}), HasSubstr("there is no metric 'pass@0'"));
  EXPECT_THAT(said({{}}, {{.name = "exact_match", .aggregation = "median"}}),
              HasSubstr("there is no aggregation 'median'"));
  EXPECT_THAT(
      said({{}}, {{.name = "exact_match", .arguments = {{"regexes_to_ignore", {"[", "a"}}}}}),
      HasSubstr("'[' is not a valid regular expression"));
  EXPECT_THAT(said({{}}, {{.name = "exact_match", .arguments = {{"ignore", true}}}}),
              HasSubstr("the metric 'exact_match' has no argument 'ignore'"));
  task.output = OutputType::kMultipleChoice;
  EXPECT_THAT(said({{"f", {{"lowercase"}}}}, {{.name = "acc"}}),
              HasSubstr("only generated texts are filtered"));
}

}  // namespace scoring_test
}  // namespace danlu::eval
