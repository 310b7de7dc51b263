// What the flags of MindSpeed-LLM's evaluation.py change in `danlu eval`, from the command line to
// the files.
#include <algorithm>

#include "cli/examined.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class EvalMindspeed : public Examined {
 protected:
  /// The question of the row `doc` of `task` as it is asked, and the results of that run.
  struct Asked {
    std::string text, log;
    json results;
  };
  Asked asked(const std::string& task, Flags flags, size_t doc = 0) const {
    static int number = 0;
    flags["output_path"] = "asked-" + std::to_string(++number);
    flags.try_emplace("tasks", task);
    flags.try_emplace("style", "mindspeed");
    flags.try_emplace("max_new_tokens", "1");
    const ProgramResult result = examine(flags);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    Asked asked{.text = "", .log = result.err, .results = results_in(flags["output_path"])};
    const auto samples = samples_in(flags["output_path"], task);
    EXPECT_GT(samples.size(), doc);
    if (samples.size() > doc)
      asked.text = samples[doc].at("arguments").at("gen_args_0").at("arg_0");
    return asked;
  }
  static std::string differences_of(const Asked& asked, const std::string& task) {
    return asked.results.value("differences", json::object()).value(task, json::array()).dump();
  }
};

/// Row `i` of Examined::write_mmlu, as MindSpeed-LLM's chat template of exams has it.
std::string fox(int i, const std::string& end) {
  const std::string n = std::to_string(i);
  return "what does fox " + n + " of anatomy jump over\nA. dog " + n + "\nB. the fox\nC. " + n +
         " dogs\nD. nothing\n" + end;
}

std::string letter(int i) { return {"ABCD"[(i * 3 + 1) % 4]}; }  // of the dev split

std::string turn(const std::string& role, const std::string& text) {
  return "<|im_start|>" + role + "\n" + text + "<|im_end|>\n";
}

TEST_F(EvalMindspeed, ThePromptTypeAsksByTurns) {
  const Flags flags = {{"data_dir", write_mmlu({"anatomy"})}, {"hf_chat_template", "true"}};
  const Asked own = asked("mmlu_anatomy", flags, 7);
  std::string wanted;
  // numpy's RandomState(1234).permutation(5), by tools/eval_goldens/prompts.py.
  for (const int i : {4, 0, 1, 2, 3}) {
    wanted += turn("user", (wanted.empty() ? "The following are multiple choice questions (with "
                                             "answers) about anatomy.\n\n"
                                           : "") +
                               fox(i, "Answer: ")) +
              turn("assistant", letter(i));
  }
  wanted += turn("user", fox(7, "Answer: ")) + "<|im_start|>assistant\n";
  EXPECT_EQ(own.text, wanted);
  EXPECT_EQ(own.results.at("style"), "mindspeed-chat");
  EXPECT_EQ(own.results.at("fewshot_as_multiturn"), true);
  EXPECT_THAT(own.log, HasSubstr("style mindspeed-chat"));
  EXPECT_THAT(differences_of(own, "mmlu_anatomy"), HasSubstr("named templates alone"));

  // MindSpeed-LLM's template of that name; its system message stands before the first turn.
  Flags named = flags;
  named.erase("hf_chat_template");
  named["prompt_type"] = "qwen";
  const Asked by_name = asked("mmlu_anatomy", named, 7);
  const std::string system = turn("system", "You are a helpful assistant.");
  ASSERT_THAT(by_name.text, StartsWith(system));
  EXPECT_EQ(by_name.text.substr(system.size()), wanted);
  EXPECT_THAT(differences_of(by_name, "mmlu_anatomy"), Not(HasSubstr("named templates alone")));

  // Another seed is another order; of RandomState(0) it is 2 0 1 3 4.
  named["seed"] = "0";
  EXPECT_THAT(asked("mmlu_anatomy", named).text, HasSubstr("about anatomy.\n\n" + fox(2, "")));
  // The user's word is the last.
  named["no_chat_template"] = "true";
  const Asked plain = asked("mmlu_anatomy", named);
  EXPECT_THAT(plain.text, StartsWith("The following are"));
  EXPECT_EQ(plain.results.at("style"), "mindspeed");
}

TEST_F(EvalMindspeed, ATemplateWithoutAPromptTypeHoldsTheDirectQuestion) {
  const Flags flags = {{"data_dir", write_mmlu({"anatomy"})}, {"num_fewshot", "1"}};
  const std::string plain = asked("mmlu_anatomy", flags).text;
  Flags by_template = flags;
  by_template["apply_chat_template"] = "true";
  const Asked one = asked("mmlu_anatomy", by_template);
  EXPECT_EQ(one.text, turn("user", plain) + "<|im_start|>assistant\n");
  EXPECT_EQ(one.results.at("fewshot_as_multiturn"), false);
  EXPECT_THAT(differences_of(one, "mmlu_anatomy"), HasSubstr("leaves that last part out"));
  // The task about whole texts has no template in any case.
  Flags whole = flags;
  whole["prompt_type"] = "qwen";
  const Asked texts = asked("ppl_mmlu_anatomy", whole);
  EXPECT_THAT(texts.text, StartsWith("The following are multiple choice questions"));
  EXPECT_THAT(texts.log, HasSubstr("ppl_mmlu is asked without a chat template"));
}

TEST_F(EvalMindspeed, AlternativePromptsAreAStyle) {
  Flags flags = {
      {"data_dir", write_mmlu({"anatomy"})}, {"num_fewshot", "0"}, {"alternative_prompt", "true"}};
  const std::string question =
      "There is a single choice question about anatomy. Answer the question by replying A, B, C or "
      "D. \nQuestion: " +
      fox(0, "Answer: ");
  const Asked mmlu = asked("mmlu_anatomy", flags);
  EXPECT_EQ(mmlu.text, question);
  EXPECT_EQ(mmlu.results.at("style"), "mindspeed-alternative");
  // Beside a template it is one message.
  flags["prompt_type"] = "qwen";
  EXPECT_EQ(asked("mmlu_anatomy", flags).text, turn("system", "You are a helpful assistant.") +
                                                   turn("user", question) +
                                                   "<|im_start|>assistant\n");

  write("boolq/dev.jsonl", R"({"question":"is it","title":"It","passage":"It is.","answer":true})"
                           "\n");
  const Flags alone = {{"data_dir", "boolq"}, {"alternative_prompt", "true"}};
  EXPECT_EQ(asked("boolq", alone).text, "It -- It is.\nQuestion: is it\nA. Yes\nB. No\nAnswer:");
  write("agieval/sat-math.jsonl",
        R"({"passage":null,"question":"1+1?","options":["(A)1","(B)2"],"label":"B"})"
        "\n");
  flags = {{"data_dir", "agieval"}, {"alternative_prompt", "true"}};
  EXPECT_EQ(asked("agieval_sat_math", flags).text,
            "The following is a SAT Math question. Please select the correct answer.\n1+1?\n(A)1\n"
            "(B)2\nThe answer is ");
}

TEST_F(EvalMindspeed, WorkedExamplesAreAStyle) {
  write("gsm8k/test.jsonl", "{\"question\":\"How many?\",\"answer\":\"so\\n#### 7\"}\n");
  write("gsm8k/train.jsonl", "{\"question\":\"Who?\",\"answer\":\"I\\n#### 1\"}\n");
  const Flags flags = {{"data_dir", "gsm8k"}, {"num_fewshot", "1"}, {"chain_of_thought", "true"}};
  const Asked worked = asked("gsm8k", flags);
  EXPECT_EQ(worked.text,
            "Question: Who?\nLet's think step by step\nAnswer:\nI\nThe answer is 1\nQuestion: How "
            "many?\nLet's think step by step\nAnswer:");
  EXPECT_EQ(worked.results.at("style"), "mindspeed-cot");
  expect_error(examine({{"style", "mindspeed"},
                        {"tasks", "gsm8k"},
                        {"chain_of_thought", "true"},
                        {"alternative_prompt", "true"}}),
               2, {"mindspeed-cot", "mindspeed-alternative"});
}

TEST_F(EvalMindspeed, TheInstructionTemplateIsThatOfHumanEval) {
  write("HumanEval.jsonl",
        R"({"task_id":"t/0","prompt":"def f():\n","entry_point":"f","test":"pass"})"
        "\n");
  Flags flags = {{"data_dir", "HumanEval.jsonl"},
                 {"predict_only", "true"},
                 {"gen_kwargs", "num_beams=1"},
                 {"instruction_template", "Write it:\n{prompt}Now."}};
  EXPECT_EQ(asked("humaneval", flags).text, "Write it:\ndef f():\nNow.");
  flags["prompt_type"] = "qwen";
  EXPECT_THAT(asked("humaneval", flags).text, HasSubstr(turn("user", "Write it:\ndef f():\nNow.")));
  flags["instruction_template"] = "Write it.";
  flags["tasks"] = "humaneval";
  flags["style"] = "mindspeed";
  expect_error(examine(flags), 2, {"--instruction_template", "{prompt}"});
}

TEST_F(EvalMindspeed, TheLanguageIsThatOfTheWordsAroundQuestions) {
  write("cmmlu/test/agronomy.csv", ",Question,A,B,C,D,Answer\n0,fox,a,b,c,d,D\n");
  Flags flags = {{"data_dir", "cmmlu"}, {"num_fewshot", "0"}, {"prompt_type", "qwen"}};
  const Asked english = asked("cmmlu_agronomy", flags);
  EXPECT_THAT(english.text, HasSubstr("(with answers) about agronomy.\n\nfox\nA. a\nB. b\nC. c\nD. "
                                      "d\nAnswer: <|im_end|>"));
  EXPECT_THAT(english.log, HasSubstr("cmmlu: the words around questions are English"));
  flags["eval_language"] = "zh";
  const Asked chinese = asked("cmmlu_agronomy", flags);
  EXPECT_THAT(chinese.text, HasSubstr("以下是中国关于农学考试的单项选择题，请选出其中的正确答案。"
                                      "\n\nfox\nA. a\nB. b\nC. c\nD. d\n答案：<|im_end|>"));
  EXPECT_THAT(chinese.log, Not(HasSubstr("the words around")));
  EXPECT_THAT(asked("foxes", {{"eval_language", "zh"}, {"style", "lm-eval"}}).log,
              HasSubstr("--eval_language has no effect here"));
  expect_error(examine({{"eval_language", "fr"}}), 2, {"--eval_language", "en", "zh"});
}

TEST_F(EvalMindspeed, QuestionsToTunedModelsNeedATemplate) {
  for (const char* flag : {"no_chat_template", "apply_chat_template"}) {
    const char* text = flag[0] == 'n' ? "true" : "false";
    expect_error(examine({{"style", "mindspeed-chat"}, {flag, text}}), 2,
                 {"mindspeed-chat", "conversation", "--style mindspeed"});
  }
}

/// A folder in the shape of opencompass/NeedleBench, of texts that are long enough for 2000 tokens.
void write_needles(const fs::path& folder) {
  std::string english, chinese, needles;
  for (int essay = 0; essay < 40; ++essay) {
    std::string text, zh;
    for (int i = 0; i < 20; ++i) {
      const std::string where = std::to_string(essay) + "." + std::to_string(i);
      text += "The fox of essay " + where + " jumps over the lazy dog. ";
      zh += "第" + where + "只狐狸跳过懒狗。";
    }
    english += json{{"text", text}}.dump() + "\n";
    chinese += json{{"text", zh}}.dump() + "\n";
  }
  for (const char* name : {"apple", "plum", "pear"}) {
    const std::string fruit = name;
    needles += json{{"language", "English"},
                    {"needle", "The fruit is " + fruit + "."},
                    {"retrieval_question",
                     "Which fruit? Please answer in the format 'The fruit is ______.'"},
                    {"arg2", fruit}}
                   .dump() +
               "\n" +
               json{{"language", "Chinese"},
                    {"needle", "水果是" + fruit + "。"},
                    {"retrieval_question", "哪种水果？请按照'水果是______。'的格式回答。"},
                    {"arg2", fruit}}
                   .dump() +
               "\n";
  }
  write_content(folder / "PaulGrahamEssays.jsonl", english);
  write_content(folder / "zh_finance.jsonl", chinese);
  write_content(folder / "needles.jsonl", needles);
  json chains = json::array();
  chains.push_back({{"question", "Who?"}, {"answer", "I"}, {"derivations", {"I am.", "It is I."}}});
  for (const char* language : {"en", "zh"})
    write_content(folder / ("multi_needle_reasoning_" + std::string(language) + ".json"),
                  chains.dump());
}

TEST_F(EvalMindspeed, NeedleBenchTakesItsWindowFromThePositions) {
  write_needles((*this) / "needles");
  const Flags flags = {{"model", make_model("long", 4096)},
                       {"style", "mindspeed"},
                       {"tasks", "needlebench"},
                       {"data_dir", "needles"},
                       {"limit", "4"},
                       {"max_new_tokens", "4"}};
  Flags named = flags;
  named["max_position_embeddings"] = "4096";
  const ProgramResult result = examine(named);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("needlebench in the style mindspeed: needlebench_4k_s_rt"));
  const auto samples = samples_in("out", "needlebench_4k_s_rt");
  ASSERT_EQ(samples.size(), 4u);
  for (const json& sample : samples) {
    const std::string asked = sample.at("arguments").at("gen_args_0").at("arg_0");
    EXPECT_THAT(asked, AllOf(StartsWith("<|im_start|>user\n"), HasSubstr("<|im_end|>")));
    EXPECT_GE(sample.at("needle_score").get<double>(), 0);
    EXPECT_LE(sample.at("needle_score").get<double>(), 100);
  }
  const json results = results_in("out");
  EXPECT_TRUE(results.at("results").contains("needlebench_4k_s_rt"));
  EXPECT_THAT(results.at("differences").at("needlebench_4k_s_rt").dump(),
              AllOf(HasSubstr("a line break"), HasSubstr("tokens")));
  size_t pictures = 0;
  for (const std::string& name : names_in("out")) {
    if (!name.starts_with("heat_map_needlebench_4k_s_rt_")) continue;
    ++pictures;
    const std::string picture = content_of((*this) / "out" / name);
    EXPECT_TRUE(name.ends_with(".svg") ? picture.starts_with("<") && picture.ends_with("</svg>\n")
                                       : picture.starts_with("\x89PNG"))
        << name;
  }
  EXPECT_EQ(pictures, 2u);

  expect_error(examine(flags), 2, {"which window?", "--max-position-embeddings"});
  named["max_position_embeddings"] = "5000000";
  expect_error(examine(named), 2, {"no window of 5000000 tokens", "needlebench_128k_s_rt"});
}

}  // namespace
}  // namespace danlu::test
