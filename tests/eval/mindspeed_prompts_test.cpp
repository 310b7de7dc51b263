// Prompts of MindSpeed-LLM's alternative mode and of its worked examples, as text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "eval/benchmarks/prompts.h"
#include "eval/data/choose_layout.h"
#include "eval/scoring/metrics.h"
#include "eval/scoring/scores.h"
#include "support/temporary_directory.h"

namespace danlu::eval {
namespace {

class MindspeedPrompts : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    write_file_atomic(folder_ / name, text);
  }
  Item first(const std::string& name, const std::string& style, int64_t num_shots) {
    task_ = Catalogue::built_in().select({name}, style).leaves.at(0);
    const Catalogue catalogue = Catalogue::built_in();
    const Benchmark& benchmark = catalogue.benchmark(task_.benchmark);
    const PromptSettings settings{
        .num_fewshot = num_shots, .limit = std::nullopt, .system_instruction = std::nullopt};
    WantedData wanted{.benchmark = name, .subjects = {}, .splits = {}, .source = ""};
    if (!task_.subject.empty()) wanted.subjects = {task_.subject};
    wanted.splits = needed_splits(task_, num_shots);
    const ChosenLayout chosen =
        choose_layout(DataTree::open(folder_ / ""), benchmark.layouts, wanted);
    const TaskRows rows =
        read_rows(benchmark, task_, benchmark.layouts[chosen.index], chosen.tree, num_shots);
    return make_items(task_, rows.test, rows.shots, settings).at(0);
  }
  double score(const Item& item, const std::string& text) const {
    const std::vector<Answer> answers = {{.text = text}};
    const std::string metric = reported_names(task_.metrics.at(0)).at(0);
    return score_item(task_, item, answers).at(0).values.at(metric).get<double>();
  }
  Task task_;
  test::TemporaryDirectory folder_;
};

TEST_F(MindspeedPrompts, MmluAsksToReplyALetter) {
  put("test/us_foreign_policy_test.csv", "Which?,w,x,y,z,C\n");
  put("dev/us_foreign_policy_dev.csv", "What?,a,b,c,d,B\n");
  const Item item = first("mmlu_us_foreign_policy", "mindspeed-alternative", 1);
  const std::string heading =
      "There is a single choice question about us foreign policy. Answer the question by replying "
      "A, B, C or D. \nQuestion: ";
  EXPECT_EQ(item.calls[0].context, heading + "What?\nA. a\nB. b\nC. c\nD. d\nAnswer: \nB\n\n" +
                                       heading + "Which?\nA. w\nB. x\nC. y\nD. z\nAnswer: ");
  EXPECT_EQ(score(item, " C"), 1);
  EXPECT_EQ(score(item, "I think the correct answer is (C)."), 1);
  EXPECT_EQ(score(item, "答案是：C"), 1);
  EXPECT_EQ(score(item, "B, not C"), 0);  // the right answer is not looked for
}

TEST_F(MindspeedPrompts, CmmluAndCevalSayTheirHeadingInEachShot) {
  put("test/agronomy.csv", ",Question,A,B,C,D,Answer\n0,何者?,甲,乙,丙,丁,D\n");
  put("dev/agronomy.csv", ",Question,A,B,C,D,Answer\n0,何物?,一,二,三,四,A\n");
  const Item cmmlu = first("cmmlu_agronomy", "mindspeed-alternative", 1);
  const std::string heading = "以下是关于农学的单项选择题，请直接给出正确答案的选项。\n题目：";
  EXPECT_EQ(cmmlu.calls[0].context, heading + "何物?\nA. 一\nB. 二\nC. 三\nD. 四\n答案是: A\n" +
                                        heading + "何者?\nA. 甲\nB. 乙\nC. 丙\nD. 丁\n答案是: ");
  EXPECT_EQ(score(cmmlu, "D"), 1);

  put("val/law_val.csv", "id,question,A,B,C,D,answer\n0,何者?,甲,乙,丙,丁,D\n");
  put("dev/law_dev.csv", "id,question,A,B,C,D,answer,explanation\n0,何物?,一,二,三,四,A,\n");
  const Item ceval = first("ceval-valid_law", "mindspeed-alternative", 1);
  const std::string of_law = "以下是中国关于法学考试的单项选择题，请选出其中的正确答案。\n";
  EXPECT_EQ(ceval.calls[0].context, of_law + "何物?\nA. 一\nB. 二\nC. 三\nD. 四\n答案: \nA\n" +
                                        of_law + "何者?\nA. 甲\nB. 乙\nC. 丙\nD. 丁\n答案: ");
  EXPECT_EQ(score(ceval, "是 D，不是 A"), 1);
  EXPECT_EQ(score(ceval, "Z or D"), 0);  // the first capital, whichever
}

TEST_F(MindspeedPrompts, BbhWithWorkedExamplesIsLowerCased) {
  put("bbh/boolean_expressions.json", R"({"examples":[{"input":"not True is","target":"False"}]})");
  put("cot-prompts/boolean_expressions.txt",
      "canary\n-----\nEvaluate.\n\nQ: not False is\nA: Let's think step by step.\nFlip it. So the "
      "answer is True.\n");
  const Item item = first("bbh_cot_fewshot_boolean_expressions", "mindspeed-cot", 1);
  EXPECT_EQ(
      item.calls[0].context,
      "Follow the given examples and answer the question.\nEvaluate.\n\nQ: not False is\nA: "
      "Let's think step by step.\nFlip it. So the answer is True.\n\nQ: not True is\nA: Let's "
      "think step by step.");
  EXPECT_EQ(score(item, "So the answer is false.\n\nQ: what"), 1);
  EXPECT_EQ(score(item, "So the answer is True."), 0);
}

TEST_F(MindspeedPrompts, Gsm8kWithWorkedExamplesTakesTheLastNumber) {
  put("test.jsonl", "{\"question\":\"How many?\",\"answer\":\"so\\n#### 1,007\"}\n");
  put("train.jsonl", "{\"question\":\"x\",\"answer\":\"y\\n#### 1\"}\n");
  const Item item = first("gsm8k", "mindspeed-cot", 0);
  EXPECT_EQ(item.calls[0].context, "Question: How many?\nLet's think step by step\nAnswer:");
  EXPECT_EQ(score(item, " 3 boxes of 1 are 3, so 1007 in all."), 1);
  EXPECT_EQ(score(item, " It is 1007, not 1006."), 0);  // the last one counts, not any
  // As OpenCompass reads it: a comma ends a number.
  EXPECT_EQ(score(item, " So 1,007 in all."), 0);
}

}  // namespace
}  // namespace danlu::eval
