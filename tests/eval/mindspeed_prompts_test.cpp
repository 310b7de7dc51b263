// Prompts of MindSpeed-LLM's alternative mode, of its worked examples and of its questions to tuned
// models, as text, and how it finds their answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "eval/benchmarks/prompts.h"
#include "eval/data/choose_layout.h"
#include "eval/scoring/metrics.h"
#include "eval/scoring/scores.h"
#include "eval/shown_chat.h"
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
    PromptSettings settings = settings_;
    settings.num_fewshot = num_shots;
    WantedData wanted{.benchmark = name, .subjects = {}, .splits = {}, .source = ""};
    if (!task_.subject.empty()) wanted.subjects = {task_.subject};
    wanted.splits = needed_splits(task_, num_shots);
    const ChosenLayout chosen =
        choose_layout(DataTree::open(folder_ / ""), benchmark.layouts, wanted);
    const TaskRows rows =
        read_rows(benchmark, task_, benchmark.layouts[chosen.index], chosen.tree, num_shots);
    return make_items(task_, rows.test, rows.shots, settings, &chat_).at(0);
  }
  double score(const Item& item, const std::string& text) const {
    const std::vector<Answer> answers = {{.text = text}};
    const std::string metric = reported_names(task_.metrics.at(0)).at(0);
    return score_item(task_, item, answers).at(0).values.at(metric).get<double>();
  }
  /// Asked by a template, with --eval-language.
  Item first_in_chat(const std::string& name, int64_t num_shots,
                     const std::string& language = "en") {
    settings_.apply_chat_template = true;
    settings_.language = language;
    return first(name, "mindspeed-chat", num_shots);
  }

  Task task_;
  PromptSettings settings_;
  ShownChat chat_;
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
  settings_.language = "zh";
  const Item cmmlu = first("cmmlu_agronomy", "mindspeed-alternative", 1);
  const std::string heading = "以下是关于农学的单项选择题，请直接给出正确答案的选项。\n题目：";
  EXPECT_EQ(cmmlu.calls[0].context, heading + "何物?\nA. 一\nB. 二\nC. 三\nD. 四\n答案是: A\n" +
                                        heading + "何者?\nA. 甲\nB. 乙\nC. 丙\nD. 丁\n答案是: ");
  EXPECT_EQ(score(cmmlu, "D"), 1);
  settings_.language = "en";
  const std::string english =
      "There is a single choice question about agronomy. Answer the question by replying A, B, C "
      "or "
      "D. \nQuestion: ";
  EXPECT_EQ(first("cmmlu_agronomy", "mindspeed-alternative", 1).calls[0].context,
            english + "何物?\nA. 一\nB. 二\nC. 三\nD. 四\n答案是: A\n" + english +
                "何者?\nA. 甲\nB. 乙\nC. 丙\nD. 丁\n答案是: ");

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

TEST_F(MindspeedPrompts, BoolqsAlternativeAsksForALetter) {
  put("dev.jsonl", R"({"question":"is it","title":"It","passage":"It is.","answer":true})"
                   "\n");
  const Item item = first("boolq", "mindspeed-alternative", 0);
  EXPECT_EQ(item.calls[0].context, "It -- It is.\nQuestion: is it\nA. Yes\nB. No\nAnswer:");
  EXPECT_EQ(item.target, "A");
  for (const char* right : {" A. Yes", "Yes", "True", "it is Yes"})
    EXPECT_EQ(score(item, right), 1);
  for (const char* wrong : {"B", "No", "False", "C", "D", "Maybe", "yes", ""})
    EXPECT_EQ(score(item, wrong), 0) << wrong;
}

TEST_F(MindspeedPrompts, AgievalsAlternativeHasATextForEachSubject) {
  put("sat-math.jsonl",
      R"j({"passage":null,"question":"1+1?","options":["(A)1","(B)2","(C)3","(D)4"],"label":"B"})j"
      "\n");
  Item item = first("agieval_sat_math", "mindspeed-alternative", 0);
  EXPECT_EQ(item.calls[0].context,
            "The following is a SAT Math question. Please select the correct answer.\n1+1?\n(A)1\n"
            "(B)2\n(C)3\n(D)4\nThe answer is ");
  EXPECT_EQ(score(item, "(B) 2."), 1);
  EXPECT_EQ(score(item, "A, not B"), 0);
  put("gaokao-physics.jsonl",
      R"j({"passage":"甲。","question":"何者?","options":["(A)一","(B)二 "],"label":["A","B"]})j"
      "\n");
  item = first("agieval_gaokao_physics", "mindspeed-alternative", 0);
  EXPECT_EQ(item.calls[0].context,
            "以下是一道中国高考物理选择题，请选择正确的答案。\n甲。何者?\n(A)一\n(B)二\n答案是： ");
  EXPECT_EQ(score(item, "AB。"), 1);
  EXPECT_EQ(score(item, "A"), 0);
  put("math.jsonl",
      R"j({"passage":null,"question":"$x$?","options":null,"label":null,"answer":"$\\frac12$"})j"
      "\n");
  item = first("agieval_math", "mindspeed-alternative", 0);
  EXPECT_EQ(item.calls[0].context,
            "The following is a Math question. Please select the correct answer.\n$x$?\nThe answer "
            "is ");
  EXPECT_EQ(score(item, "x is $x=\\frac12$."), 1);
  EXPECT_EQ(score(item, "$0.5$"), 0);  // as a text
}

// numpy's RandomState(1234).permutation(5), by tools/eval_goldens/prompts.py.
TEST_F(MindspeedPrompts, TunedModelsGetShotsAsTurnsInAnotherOrder) {
  put("test/us_foreign_policy_test.csv", "Which?,w,x,y,z,C\n");
  std::string dev;
  for (int i = 0; i < 5; ++i)
    dev += std::to_string(i) + "?,a,b,c,d," + "ABCDA"[i] + std::string("\n");
  put("dev/us_foreign_policy_dev.csv", dev);
  Item item = first_in_chat("mmlu_us_foreign_policy", 5);
  const auto conversation = [](const std::string& heading, const std::string& end) {
    std::string text = "<s>";
    for (const int i : {4, 0, 1, 2, 3}) {
      text += "[user|" + (text == "<s>" ? heading : "") + std::to_string(i) +
              "?\nA. a\nB. b\nC. c\nD. d\n" + end + "][assistant|" + "ABCDA"[i] + "]";
    }
    return text + "[user|Which?\nA. w\nB. x\nC. y\nD. z\n" + end + "][assistant|";
  };
  EXPECT_EQ(item.calls[0].context,
            conversation("The following are multiple choice questions (with answers) about "
                         "us_foreign_policy.\n\n",
                         "Answer: "));
  EXPECT_EQ(score(item, "C"), 1);
  EXPECT_EQ(score(item, " D. or C"), 0);
  item = first_in_chat("mmlu_us_foreign_policy", 5, "zh");
  EXPECT_EQ(
      item.calls[0].context,
      conversation("以下是中国关于us_foreign_policy考试的单项选择题，请选出其中的正确答案。\n\n",
                   "答案："));
  settings_.seed = 0;  // 2 0 1 3 4
  EXPECT_THAT(first_in_chat("mmlu_us_foreign_policy", 2).calls[0].context,
              testing::AllOf(testing::HasSubstr("\n\n2?\nA. a"), testing::HasSubstr("[user|0?")));
  EXPECT_THAT(first_in_chat("mmlu_us_foreign_policy", 0).calls[0].context,
              testing::StartsWith("<s>[user|The following are"));
}

TEST_F(MindspeedPrompts, CevalAndCmmluNameTheSubjectInTheirOwnWays) {
  put("test/agronomy.csv", ",Question,A,B,C,D,Answer\n0,何者?,甲,乙,丙,丁,D\n");
  put("val/law_val.csv", "id,question,A,B,C,D,answer\n0,何者?,甲,乙,丙,丁,D\n");
  const auto asked = [](const std::string& heading, const std::string& end) {
    return "<s>[user|" + heading + "\n\n何者?\nA. 甲\nB. 乙\nC. 丙\nD. 丁\n" + end + "][assistant|";
  };
  const std::string english = "The following are multiple choice questions (with answers) about ";
  const auto chinese = [](const std::string& subject) {
    return "以下是中国关于" + subject + "考试的单项选择题，请选出其中的正确答案。";
  };
  EXPECT_EQ(first_in_chat("cmmlu_agronomy", 0).calls[0].context,
            asked(english + "agronomy.", "Answer: "));
  EXPECT_EQ(first_in_chat("cmmlu_agronomy", 0, "zh").calls[0].context,
            asked(chinese("农学"), "答案："));
  EXPECT_EQ(first_in_chat("ceval-valid_law", 0).calls[0].context,
            asked(english + "law.", "Answer: "));
  const Item item = first_in_chat("ceval-valid_law", 0, "zh");
  EXPECT_EQ(item.calls[0].context, asked(chinese("law"), "答案："));
  EXPECT_EQ(score(item, " D\n"), 1);
  EXPECT_EQ(score(item, "D."), 0);  // the whole answer, as version 2.0.0 has it
}

TEST_F(MindspeedPrompts, TunedModelsAreAskedBbhWithoutItsLetters) {
  put("bbh/boolean_expressions.json", R"({"examples":[{"input":"not True is","target":"False"}]})");
  put("cot-prompts/boolean_expressions.txt",
      "canary\n-----\nEvaluate.\n\nQ: not False is\nA: Let's think step by step.\nSo the answer is "
      "True.\n\nQ: True is\nA: Let's think step by step.\nSo the answer is True.\n");
  Item item = first_in_chat("bbh_cot_fewshot_boolean_expressions", 2);
  EXPECT_EQ(item.calls[0].context,
            "<s>[user|Evaluate. Question: not False is\nAnswer: ][assistant|True][user|True is\n"
            "Answer: ][assistant|True][user|not True is\nAnswer: ][assistant|");
  for (const char* right : {"False", " false.", "It is False, not true", "(false)"})
    EXPECT_EQ(score(item, right), 1) << right;
  for (const char* wrong : {"True", "unclear\nFalse", "no"})
    EXPECT_EQ(score(item, wrong), 0) << wrong;

  put("bbh/snarks.json",
      R"j({"examples":[{"input":"Which?\nOptions:\n(A) this one\n(B) that","target":"(B)"}]})j");
  put("cot-prompts/snarks.txt",
      "canary\n-----\nDetermine.\n\nQ: What?\nOptions:\n(A) x\n(B) y\nA: Let's think step by "
      "step.\n"
      "So the answer is (A).\n");
  item = first_in_chat("bbh_cot_fewshot_snarks", 1);
  EXPECT_EQ(item.calls[0].context,
            "<s>[user|Determine. Question: What?\nOptions:\n(A) x\n(B) y\nAnswer: ][assistant|A]"
            "[user|Which?\nOptions:\n(A) this one\n(B) that\nAnswer: ][assistant|");
  for (const char* right : {"B", "(B)", " The answer is (B) that.", "that", "B. that"})
    EXPECT_EQ(score(item, right), 1) << right;
  for (const char* wrong : {"A", "this one", "(A)\n(B)", "The answer is B"})
    EXPECT_EQ(score(item, wrong), 0) << wrong;

  put("bbh/dyck_languages.json", R"j({"examples":[{"input":"( (","target":") )"}]})j");
  put("cot-prompts/dyck_languages.txt",
      "canary\n-----\nClose.\n\nQ: [\nA: Let's think step by step.\nSo the answer is ].\n");
  item = first_in_chat("bbh_cot_fewshot_dyck_languages", 1);
  EXPECT_EQ(score(item, " ) ).\nQ"), 1);
  EXPECT_EQ(score(item, ")"), 0);
}

// Where it has no questions of its own for tuned models, what it asks others is one message.
TEST_F(MindspeedPrompts, OtherBenchmarksAreOneMessage) {
  put("test.jsonl", "{\"question\":\"How many?\",\"answer\":\"so\\n#### 7\"}\n");
  put("train.jsonl", "{\"question\":\"Who?\",\"answer\":\"I\\n#### 1\"}\n");
  settings_.system_instruction = "Be brief.";
  EXPECT_EQ(first_in_chat("gsm8k", 1).calls[0].context,
            "<s>[system|Be brief.][user|Q: Who?\n\nA:I The answer is 1.\n\nHow many?][assistant|");
  put("sat-math.jsonl",
      R"j({"passage":null,"question":"1+1?","options":["(A)1","(B)2"],"label":"B"})j"
      "\n");
  EXPECT_EQ(
      first_in_chat("agieval_sat_math", 0).calls[0].context,
      "<s>[system|Be brief.][user|Here are the answers for the problems in the exam.\nProblem "
      "1.   1+1?\n\nChoose from the following options:\n\n(A)1\n(B)2\n\nAnswer:][assistant|");
  // A user may want turns all the same.
  settings_.fewshot_as_multiturn = true;
  EXPECT_EQ(first_in_chat("gsm8k", 1).calls[0].context,
            "<s>[system|Be brief.][user|Q: Who?\n\nA:][assistant|I The answer is 1.][user|How "
            "many?][assistant|");
}

TEST_F(MindspeedPrompts, WholeTextsAreComparedWithoutATemplate) {
  put("test/anatomy_test.csv", "Which?,w,x,y,z,C\n");
  const Item item = first_in_chat("ppl_mmlu_anatomy", 0);
  EXPECT_EQ(item.calls[0].context,
            "The following are multiple choice questions (with answers) about  anatomy.\n\nWhich?\n"
            "A. w\nB. x\nC. y\nD. z\nAnswer:");
  EXPECT_EQ(item.calls[2].continuation, " C");
  EXPECT_FALSE(item.calls[0].has_own_bos);
}

}  // namespace
}  // namespace danlu::eval
