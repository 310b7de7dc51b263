// What `danlu eval` and `danlu compare` refuse: the exit code, and where to look, before a model is
// loaded wherever that can be known without one.
#include <fmt/format.h>

#include "cli/examined.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class EvalBadInput : public Examined {
 protected:
  /// No model is there: the error is about something else, and comes without one.
  void expect_refused(Flags flags, int exit_code, const std::vector<std::string>& words) const {
    flags.try_emplace("model", "there_is_no_model");
    const ProgramResult result = examine(flags);
    expect_error(result, exit_code, words);
    EXPECT_THAT(result.err, Not(HasSubstr("there_is_no_model")));
    EXPECT_THAT(names_in("out"), IsEmpty());
    EXPECT_FALSE(fs::exists((*this) / "out"));
  }
};

TEST_F(EvalBadInput, TasksThatThereAreNot) {
  expect_refused({{"tasks", "-"}}, 2, {"[--tasks]", "--tasks list shows all"});
  expect_refused({{"tasks", "mmlu_anatomi"}}, 2,
                 {"no task 'mmlu_anatomi'", "did you mean 'mmlu_anatomy'?"});
  expect_refused({{"tasks", "foxs"}}, 2, {"no task 'foxs'", "did you mean 'foxes'?"});
  expect_refused({{"tasks", "qqq_*"}}, 2, {"no task 'qqq_*'"});
  expect_refused({{"tasks", "mmlu"}, {"style", "harness"}}, 2, {"style", "lm-eval"});
}

TEST_F(EvalBadInput, ANameTwice) {
  // In the list it is asked once; two that define it are an error.
  const ProgramResult twice = examine({{"tasks", "foxes,foxes"}});
  ASSERT_EQ(twice.exit_code, 0) << twice.err;
  EXPECT_EQ(samples_in("out", "foxes").size(), 8u);
  fs::remove_all((*this) / "out");
  write("other/mine.yaml", content_of((*this) / "tasks/foxes.yaml"));
  expect_refused({{"include_path", "tasks,other"}}, 2,
                 {"the task 'foxes' is defined twice", "foxes.yaml", "mine.yaml"});
  replace_in_file((*this) / "other/mine.yaml", "task: foxes", "task: boolq");
  expect_refused({{"include_path", "other"}}, 2, {"the task 'boolq' is defined twice"});
}

TEST_F(EvalBadInput, DataThatAreNotThere) {
  expect_refused({{"tasks", "boolq"}, {"data_dir", "-"}}, 3,
                 {"the data of boolq is not named", "--data_dir DIR", "dev.jsonl"});
  expect_refused({{"tasks", "boolq"}, {"data_dir", "nowhere"}}, 3,
                 {"nowhere: there is no such file or directory", "hint: ", "boolean-questions"});
  expect_refused({{"tasks", "boolq"}, {"data_dir", write_mmlu({"anatomy"})}}, 3,
                 {"/mmlu: holds no data of boolq", "dev.jsonl", "boolean-questions"});
  write("mmlu.txt", "no archive");
  expect_refused({{"tasks", "mmlu"}, {"data_dir", "mmlu.txt"}}, 3, {"mmlu.txt"});
  expect_refused({{"data_dir", "tasks"}}, 3, {"/tasks: holds no data of foxes", "as test.jsonl"});
}

TEST_F(EvalBadInput, DataThatAreThereInPart) {
  const fs::path data = write_mmlu({"anatomy", "virology"});
  const Flags two = {{"tasks", "mmlu_anatomy,mmlu_virology"}, {"data_dir", data}};
  expect_refused({{"tasks", "mmlu"}, {"data_dir", data}, {"all_subjects", "true"}}, 3,
                 {"/mmlu: 55 of 57 subjects of mmlu are missing", "test/formal_logic_test.csv",
                  "name in --tasks only", "cais/mmlu"});
  fs::remove(data / "dev/virology_dev.csv");
  Flags five = two;
  five["num_fewshot"] = "5";
  expect_refused(five, 3,
                 {"1 of 2 subjects of mmlu", "dev/virology_dev.csv", "hint: ", "cais/mmlu"});
  EXPECT_EQ(examine(two).exit_code, 0);  // without shots nobody needs it
}

// Who downloaded some subjects examines those; the score says of how many it is.
TEST_F(EvalBadInput, SubjectsThatAreThereAreExaminedAndCounted) {
  const fs::path data = write_mmlu({"anatomy", "virology", "astronomy"});
  // Subjects have 8, 8 and 1 rows, so that the two means differ.
  const std::string rows = content_of(data / "test/astronomy_test.csv");
  write_content(data / "test/astronomy_test.csv", rows.substr(0, rows.find('\n') + 1));
  // The examples beside the questions, inside their folder: where MindSpeed's guide puts them.
  fs::rename(data / "dev", data / "test/dev");
  const ProgramResult result = examine({{"tasks", "mmlu"},
                                        {"data_dir", data / "test"},
                                        {"num_fewshot", "5"},
                                        {"output_path", "part"}});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("mmlu: 3 of 57 subjects are asked"));
  EXPECT_THAT(result.out, HasSubstr("mmlu (3 of 57)"));
  EXPECT_THAT(result.out, HasSubstr("stem (2 of 19)"));
  EXPECT_THAT(result.out, Not(HasSubstr("humanities")));
  const nlohmann::json results = results_in("part");
  EXPECT_EQ(results["group_subjects"]["mmlu"], (nlohmann::json{{"asked", 3}, {"of", 57}}));
  double right = 0, means = 0;
  for (const auto& [name, size] :
       {std::pair("mmlu_anatomy", 8.0), {"mmlu_virology", 8.0}, {"mmlu_astronomy", 1.0}}) {
    const double acc = results["results"][name]["acc,none"];
    right += acc * size;
    means += acc / 3;
  }
  EXPECT_NEAR(results["results"]["mmlu"]["acc,none"].get<double>(), right / 17, 1e-12);
  EXPECT_THAT(result.err, HasSubstr(fmt::format("over questions (micro) {:.4f}, over subjects "
                                                "(macro) {:.4f}",
                                                right / 17, means)));
}

TEST_F(EvalBadInput, FewerShotsThanAskedFor) {
  const fs::path data = write_mmlu({"anatomy"});
  expect_refused({{"tasks", "mmlu_anatomy"}, {"data_dir", data}, {"num_fewshot", "6"}}, 3,
                 {"mmlu_anatomy: 6 shots are asked for, and the split dev has 5 rows"});
  expect_refused({{"tasks", "tale"}, {"num_fewshot", "1"}}, 2, {"tale: a perplexity has no shots"});
  write("shots.jsonl", "{\"q\": \"fox\"\n");
  expect_refused({{"num_fewshot", "1"}, {"fewshot_file", "shots.jsonl"}}, 3, {"shots.jsonl"});
}

TEST_F(EvalBadInput, FilesThatAreDamaged) {
  const fs::path data = write_mmlu({"anatomy"}), file = data / "test/anatomy_test.csv";
  const Flags flags = {{"tasks", "mmlu_anatomy"}, {"data_dir", data}};
  const std::string rows = content_of(file);
  write_content(file, "");
  expect_refused(flags, 3, {"anatomy_test.csv: the file is empty"});
  write_content(file, rows + "what,\"['a', 'b', 'c', 'd']\",2\n");
  expect_refused(flags, 3, {"anatomy_test.csv:9: 3 columns", "question, A, B, C, D, answer"});
  write_content(file, rows + "what,a,b,c,d,E\n");
  expect_refused(flags, 3, {"anatomy_test.csv:9: ", "answer"});
  write_content(file, "question,A,B,C,D,answer\n");
  expect_refused(flags, 3, {"anatomy_test.csv: the file holds no rows"});

  const std::string good_rows = content_of((*this) / "rows/test.jsonl");
  const auto with = [&](const std::string& more) { write("rows/test.jsonl", good_rows + more); };
  with("{\"q\": \n");
  expect_refused({}, 3, {"test.jsonl:9"});
  with("[1, 2]\n");
  expect_refused({}, 3, {"test.jsonl", "object"});
  write("rows/test.jsonl", R"({"question": "fox", "choices": ["a", "b"], "gold": 0})");
  expect_refused({}, 3, {"test.jsonl, row 1", "'q'"});
}

TEST_F(EvalBadInput, RowsThatCannotBeScored) {
  const auto row = [&](const std::string& choices, const std::string& gold) {
    write("rows/test.jsonl",
          R"({"q": "fox", "choices": )" + choices + R"(, "gold": )" + gold + "}");
  };
  row(R"(["a", "b"])", "7");
  expect_refused({}, 3, {"foxes", "7"});
  row("[]", "0");
  expect_refused({}, 3, {"foxes", "choice"});
}

TEST_F(EvalBadInput, TaskFilesThatCannotBeUsed) {
  const fs::path file = (*this) / "tasks/foxes.yaml";
  const std::string good_task = content_of(file);
  const auto refused = [&](const std::string& from, const std::string& to,
                           const std::vector<std::string>& words, int exit_code = 2) {
    write_content(file, good_task);
    replace_in_file(file, from, to);
    for (const char* path : {"tasks", "tasks/foxes.yaml"})
      expect_refused({{"include_path", path}}, exit_code, words);
  };
  refused("\"{{q}}\"", "!function utils.doc_to_text", {"foxes.yaml:4", "!function", "not run"});
  refused("doc_to_choice: choices", "process_docs: !function utils.process",
          {"foxes.yaml:5", "!function"});
  refused("multiple_choice", "many_choices", {"foxes.yaml", "many_choices", "multiple_choice"});
  refused("metric: acc}", "metric: accc}", {"foxes", "accc", "acc"});
  refused("doc_to_text", "doc_to_txt", {"foxes.yaml", "doc_to_txt"});
  refused("\"{{q}}\"", "\"{{q\"", {"foxes"});
  refused("\"{{q}}\"", "\"{{nothing}}\"", {"row 1", "nothing"}, 3);  // or the data are
  refused("task: foxes", "task: [", {"foxes.yaml:", "not valid YAML"});
  expect_refused({{"include_path", "nowhere"}}, 2, {"nowhere"});
  write("empty/readme.md", "");
  expect_refused({{"include_path", "empty"}}, 2, {"empty: holds no *.yaml file"});
}

TEST_F(EvalBadInput, ABrokenPatternIsTheTaskFiles) {
  replace_in_file((*this) / "tasks/talk.yaml", "([0-9])", "([0-9]");
  expect_refused({{"tasks", "talk"}}, 2, {"talk: ", "([0-9]"});
}

TEST_F(EvalBadInput, FilesThatATaskFileNames) {
  const fs::path file = (*this) / "tasks/foxes.yaml";
  const std::string good_task = content_of(file);
  const auto with = [&](const std::string& files) {
    write_content(file,
                  good_task + "dataset_path: json\ndataset_kwargs: {data_files: " + files + "}\n");
  };
  with("{test: rows/tset.jsonl}");
  expect_refused({{"data_dir", "-"}}, 3,
                 {"foxes.yaml: data_files: test: the file rows/tset.jsonl is missing",
                  "/rows/tset.jsonl", "/tasks/rows/tset.jsonl"});
  with("{train: rows/test.jsonl}");
  expect_refused({{"data_dir", "-"}}, 3, {"no file is named for the split 'test'", "train"});
  with("https://host/test.jsonl");
  expect_refused({{"data_dir", "-"}}, 3, {"https://host/test.jsonl is an address"});
  with("[rows/test.jsonl, rows/more.jsonl]");
  expect_refused({{"data_dir", "-"}}, 3, {"the file rows/more.jsonl is missing"});
}

TEST_F(EvalBadInput, TemplatesNamedTwiceOrNotAtAll) {
  expect_refused({{"apply_chat_template", "tasks"}}, 2,
                 {"[--apply_chat_template] tasks is a directory", "--model"});
  expect_refused({{"apply_chat_template", "llama2"}, {"prompt_type", "qwen"}}, 2,
                 {"two templates are named: llama2 and qwen"});
}

TEST_F(EvalBadInput, AStyleByAFlagThatATaskHasNot) {
  expect_refused({{"tasks", "hellaswag"}, {"alternative-prompt", "true"}}, 2,
                 {"[--alternative-prompt] hellaswag has no style", "it has: lm-eval"});
}

TEST_F(EvalBadInput, FlagsThatSayNothing) {
  for (const auto& [text, words] : std::map<std::string, std::vector<std::string>>{
           {"max_gen_tokens=4", {"unknown key 'max_gen_tokens'", "max_gen_toks"}},
           {"foo=1", {"unknown key 'foo'", "do_sample, until"}},
           {"temperature", {"key=value"}},
           {"temperature=nan", {"temperature", "a number"}},
           {"max_gen_toks=0", {"max_gen_toks", "at least 1"}},
           {"max_gen_toks=1e300", {"max_gen_toks", "whole number"}},
           {"until=[1]", {"until", "list of texts"}},
           {"{\"until\": [1]}", {"until", "list of texts"}},
           {"{\"until\"", {"--gen_kwargs", "not valid JSON"}}})
    expect_refused({{"gen_kwargs", text}}, 2, words);
  for (const char* size : {"0", "many"})
    expect_refused({{"batch_size", size}}, 2, {"batch_size", "auto or a number"});
  for (const char* limit : {"0", "nan"}) expect_refused({{"limit", limit}}, 2, {"limit"});
  expect_refused({{"seed", "1,2"}}, 2, {"[--seed] one number or four, got 2"});
  expect_refused({{"model", "-"}, {"model_args", "pretrained=x,enable_thinking=True"}}, 2,
                 {"think_end_token is missing", "think_end_token=</think>"});
  expect_refused({{"eval_generation_config", R"({"stream": true})"}}, 2,
                 {"[--eval_generation_config] unknown key 'stream'"});
  expect_refused({{"fewshot_as_multiturn", "true"}}, 2, {"--fewshot_as_multiturn"});
}

TEST_F(EvalBadInput, ModelsThatAreNone) {
  const std::string model = wide_model();
  expect_error(examine({{"model", "nowhere"}}), 4, {"nowhere"});
  expect_error(examine({{"model", "-"}}), 2, {"no model was given"});
  expect_error(examine({{"model", "hf"}}), 2, {"pretrained=DIR"});
  expect_error(examine({{"model", "vllm"}}), 2, {"vllm"});
  const auto args = [&](const std::string& text, const std::string& named = "hf") {
    return examine({{"model", named}, {"model_args", text}});
  };
  expect_error(args("pretraind=" + model), 2,
               {"unknown key 'pretraind'", "did you mean pretrained?"});
  expect_error(args("dtype=float32"), 2, {"pretrained=DIR is missing"});
  expect_error(args("pretrained=" + model, model), 2, {"two models are named"});
  expect_error(args("pretrained=" + model + ",dtype=float8"), 2, {"float8"});
  expect_error(args("pretrained=" + model + ",load_in_4bit=True,load_in_8bit=True"), 2,
               {"load_in_8bit", "asks for q8_0", "load_in_4bit", "for nf4"});
  expect_error(args("pretrained=" + model + ",max_length=513"), 2, {"513", "window of 512"});
  expect_error(args("pretrained=" + model + ",prefix_token_id=5000"), 2,
               {"prefix_token_id", "5000"});
  expect_error(args("pretrained=" + model + ",peft=nowhere"), 4, {"nowhere"});
  EXPECT_FALSE(fs::exists((*this) / "out"));
}

TEST_F(EvalBadInput, AVocabularyThatIsSmallerThanTheTokenizer) {
  make_model("small", 64);
  replace_in_file((*this) / "small.json", "\"vocab_size\":320", "\"vocab_size\":270");
  fs::remove_all((*this) / "small");
  ASSERT_EQ(run({"init", "--config", "small.json", "--output", "small"}).exit_code, 0);
  expect_error(examine({{"model", "small"}, {"tokenizer", good("tokenizer")}}), 4,
               {"280 ids", "vocabulary only 270", "do not belong to this model"});
  EXPECT_FALSE(fs::exists((*this) / "out"));
}

TEST_F(EvalBadInput, AnswersThatLeaveNoRoomAndChoicesThatDoNotFit) {
  const std::string narrow = make_model("narrow", 20);
  expect_error(examine({{"model", narrow}, {"tasks", "talk"}}), 3,
               {"24 tokens leave no room", "window of 20", "max_gen_toks=10"});
  std::string long_choice(400, 'q');
  write("rows/test.jsonl",
        R"({"q": "fox", "choices": [")" + long_choice + R"(", "b"], "gold": 0})");
  expect_error(examine({{"model", narrow}}), 3, {"a continuation of", "holds 20"});
}

TEST_F(EvalBadInput, ATemplateThatIsNotThere) {
  const fs::path plain = make_model("plain", 64, "llama");
  fs::remove(plain / "chat_template.jinja");
  replace_in_file(plain / "tokenizer_config.json", "\"chat_template\"", "\"was_template\"");
  expect_error(examine({{"model", plain}, {"tasks", "talk"}, {"apply_chat_template", "true"}}), 4,
               {"no chat template", "--prompt_type"});
  EXPECT_FALSE(fs::exists((*this) / "out"));
}

TEST_F(EvalBadInput, CodeIsNotRunUnlessThatIsAllowed) {
  const std::string marker = (*this) / "was_run";
  // A model's words do nothing; the test of the row would.
  write("code/HumanEval.jsonl",
        json{{"task_id", "HumanEval/0"},
             {"prompt", "def f(x):\n"},
             {"entry_point", "f"},
             {"test", "open('" + marker + "', 'w')\ndef check(c):\n    pass\n"},
             {"canonical_solution", "    return x\n"}}
                .dump() +
            "\n");
  const Flags flags = {{"tasks", "humaneval"}, {"data_dir", "code"}, {"max_new_tokens", "4"}};
  expect_refused(flags, 2,
                 {"humaneval", "not executed unless you allow it", "--allow_code_execution",
                  "--predict_only"});
  Flags python = flags;
  python["allow_code_execution"] = "true";
  python["python"] = "there_is_no_python";
  expect_refused(python, 2, {"--python there_is_no_python"});
  Flags answers = flags;
  answers["predict_only"] = "true";
  ASSERT_EQ(examine(answers).exit_code, 0);
  EXPECT_EQ(samples_in("out", "humaneval").size(), 1u);
  EXPECT_FALSE(fs::exists(marker));
}

TEST_F(EvalBadInput, OutputsThatCannotBeWritten) {
  write("taken", "mine");
  expect_error(examine({{"output_path", "taken"}}), 8, {"[--output_path] taken", "another folder"});
  expect_error(examine({{"output_path", "taken/below"}}), 8, {"[--output_path] taken/below"});
  expect_error(examine({{"output_path", "/proc/here"}}), 8, {"[--output_path] /proc/here"});
  EXPECT_EQ(content_of((*this) / "taken"), "mine");
}

TEST_F(EvalBadInput, RunsThatCannotBeCompared) {
  ASSERT_EQ(examine({{"output_path", "a"}}).exit_code, 0);
  ASSERT_EQ(examine({{"output_path", "talks"}, {"tasks", "talk"}}).exit_code, 0);
  ASSERT_EQ(examine({{"output_path", "bare"}, {"log_samples", "false"}}).exit_code, 0);
  expect_error(run({"compare", "a"}), 2, {"name two runs"});
  expect_error(run({"compare", "a", "nowhere"}), 3, {"nowhere"});
  expect_error(run({"compare", "a", "tasks"}), 3, {"tasks: no results_*.json"});
  expect_error(run({"compare", "a", "bare"}), 3, {"no samples_*", "--log_samples"});
  expect_error(run({"compare", "a", "talks"}), 3, {"nothing in common"});
  expect_error(run({"compare", "a", "a", "--plot", "x.txt"}), 2, {".svg or .png", "x.txt"});
  expect_error(run({"compare", "a", "a", "--output", "tasks"}), 2, {"tasks is a directory"});
  std::string results, samples;
  for (const std::string& name : names_in("a"))
    (name.starts_with("results_") ? results : samples) = ((*this) / "a" / name).string();
  const std::string before = content_of(results), lines = content_of(samples);
  expect_error(run({"compare", "a", "a", "--output", results}), 2, {fs::path(results).filename()});
  EXPECT_EQ(content_of(results), before);
  write_content(results, before.substr(0, before.size() / 2));
  expect_error(run({"compare", "a", "a"}), 3, {fs::path(results).filename(), "not valid JSON"});
  write_content(results, "{\"other\": 1}");
  expect_error(run({"compare", "a", "a"}), 3, {fs::path(results).filename(), "'results'"});
  write_content(results, before);
  write_content(samples, lines.substr(0, lines.size() - 20));
  expect_error(run({"compare", "a", "a"}), 3,
               {fs::path(samples).filename().string() + ":8", "not valid JSON"});
  write_content(samples, "{\"doc_id\": 0}\n");
  expect_error(run({"compare", "a", "a"}), 3,
               {fs::path(samples).filename().string() + ":1", "doc_hash"});
}

}  // namespace
}  // namespace danlu::test
