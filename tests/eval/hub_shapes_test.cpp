// Trees as they lie on Hugging Face: names of parquet files, columns and their types, one row each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "data/readers/duckdb_api.h"
#include "eval/benchmarks/prompts.h"
#include "eval/data/choose_layout.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

namespace danlu::eval {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class HubShapes : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& columns) const {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::string_view done;
    data::DuckDb()
        .stream("COPY (SELECT " + columns + ") TO " + data::sql_path(path.string()) +
                " (FORMAT parquet)")
        ->next(&done);
  }

  /// The one item of a task, without shots.
  Item item_of(const std::string& name, const std::string& style = "lm-eval") const {
    const Task task = catalogue_.select({name}, style).leaves.at(0);
    const PromptSettings settings{
        .num_fewshot = 0, .limit = std::nullopt, .system_instruction = std::nullopt};
    const Benchmark& benchmark = catalogue_.benchmark(task.benchmark);
    WantedData wanted{.benchmark = name, .subjects = {}, .splits = {}, .source = ""};
    if (!task.subject.empty()) wanted.subjects = {task.subject};
    wanted.splits = needed_splits(task, 0);
    const ChosenLayout chosen =
        choose_layout(DataTree::open(folder_ / ""), benchmark.layouts, wanted);
    const TaskRows rows =
        read_rows(benchmark, task, benchmark.layouts[chosen.index], chosen.tree, 0);
    const std::vector<Item> items = make_items(task, rows.test, rows.shots, settings);
    EXPECT_EQ(items.size(), 1u);
    return items.at(0);
  }

  Catalogue catalogue_ = Catalogue::built_in();
  test::TemporaryDirectory folder_;
};

TEST_F(HubShapes, MmluHasListsAndAnIndex) {
  put("abstract_algebra/test-00000-of-00001.parquet",
      "'Q?' AS question, 'abstract_algebra' AS subject, ['a', 'b', 'c', 'd'] AS choices, "
      "2::BIGINT AS answer");
  const Item item = item_of("mmlu_abstract_algebra");
  EXPECT_THAT(item.calls[0].context, testing::EndsWith("Q?\nA. a\nB. b\nC. c\nD. d\nAnswer:"));
  EXPECT_EQ(item.target, 2);
}

TEST_F(HubShapes, CevalHasAnIdOfFourBytesAndLetters) {
  put("accountant/val-00000-of-00001.parquet",
      "0::INTEGER AS id, '问' AS question, '一' AS A, '二' AS B, '三' AS C, '四' AS D, 'C' AS "
      "answer, "
      "'' AS explanation");
  const Item item = item_of("ceval-valid_accountant");
  EXPECT_THAT(item.calls[0].context, testing::EndsWith("问\nA. 一\nB. 二\nC. 三\nD. 四\n答案："));
  EXPECT_EQ(item.target, 2);
}

TEST_F(HubShapes, CmmluHasCapitalNames) {
  put("agronomy/test-00000-of-00001.parquet",
      "'问' AS Question, '一' AS A, '二' AS B, '三' AS C, '四' AS D, 'D' AS Answer");
  const Item item = item_of("cmmlu_agronomy");
  EXPECT_THAT(item.calls[0].context, HasSubstr("问\nA. 一"));
  EXPECT_EQ(item.target, 3);
}

TEST_F(HubShapes, HellaSwagsLabelIsAText) {
  put("data/validation-00000-of-00001.parquet",
      "24::INTEGER AS ind, 'Roof' AS activity_label, 'A man sits.' AS ctx_a, 'he' AS ctx_b, "
      "'A man sits. he' AS ctx, ['one', 'two', 'three', 'four'] AS endings, 'x~1' AS source_id, "
      "'val' AS split, 'indomain' AS split_type, '3' AS label");
  const Item item = item_of("hellaswag");
  EXPECT_EQ(item.calls[1].context, "Roof: A man sits. He");
  EXPECT_EQ(item.calls[1].continuation, " two");
  EXPECT_EQ(item.target, 3);
}

TEST_F(HubShapes, BoolqOfTwoRepositories) {
  put("boolq/validation-00000-of-00001.parquet",
      "'is it' AS question, 'It is.' AS passage, 0::INTEGER AS idx, 1::BIGINT AS label");
  EXPECT_EQ(item_of("boolq").target, 1);
  fs::remove_all(folder_ / "boolq");
  put("data/validation-00000-of-00001.parquet",
      "'is it' AS question, false AS answer, 'It is.' AS passage");
  const Item item = item_of("boolq");
  EXPECT_EQ(item.calls[0].context, "It is.\nQuestion: is it?\nAnswer:");
  EXPECT_EQ(item.target, 0);
}

TEST_F(HubShapes, Gsm8kLiesInAFolderOfItsConfiguration) {
  put("socratic/test-00000-of-00001.parquet", "'no' AS question, 'no #### 1' AS answer");
  put("main/test-00000-of-00001.parquet", "'How many?' AS question, 'so #### 7' AS answer");
  EXPECT_EQ(item_of("gsm8k").calls[0].context, "Question: How many?\nAnswer:");
}

TEST_F(HubShapes, HumanEvalLiesInAFolderOfItsName) {
  put("openai_humaneval/test-00000-of-00001.parquet",
      "'HumanEval/0' AS task_id, 'def f():' AS prompt, ' pass' AS canonical_solution, 'x' AS test, "
      "'f' AS entry_point");
  EXPECT_EQ(item_of("humaneval").calls[0].context, "def f():");
}

TEST_F(HubShapes, BbhHasAConfigurationForEachTask) {
  put("boolean_expressions/test-00000-of-00001.parquet",
      "'not True is' AS input, 'False' AS target");
  EXPECT_THAT(item_of("bbh_fewshot_boolean_expressions").calls[0].context,
              testing::EndsWith("Q: not True is\nA:"));
}

TEST_F(HubShapes, AgievalIsAlreadyAQuery) {
  put("agieval-lsat-ar/data/test-00000-of-00001-0a1b2c3d.parquet",
      "'Q: why? Answer Choices: (A)a (B)b\nA: Among A through B, the answer is' AS query, "
      "['(A)a', '(B)b'] AS choices, [1::BIGINT] AS gold");
  const Item item = item_of("agieval_lsat_ar");
  EXPECT_THAT(item.calls[0].context, testing::StartsWith("Q: why?"));
  EXPECT_EQ(item.choices.size(), 2u);
  EXPECT_EQ(item.target, Json({1}));
}

// A query cannot be taken apart again.
TEST_F(HubShapes, AQueryIsRefusedWhereTheQuestionIsAsked) {
  put("agieval-lsat-ar/data/test-00000-of-00001.parquet",
      "'Q: why?' AS query, ['(A)a', '(B)b'] AS choices, [1::BIGINT] AS gold");
  for (const char* style : {"mindspeed", "opencompass"})
    EXPECT_THAT(test::error_of<DataError>([&] { item_of("agieval_lsat_ar", style); }),
                HasSubstr("is undefined; the row has: query, choices, gold"))
        << style;
}

}  // namespace
}  // namespace danlu::eval
