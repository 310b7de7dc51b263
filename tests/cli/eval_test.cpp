// `danlu eval` on small benchmarks: what its flags do, and that neither batches nor processes nor
// the way an adapter is given change an answer.
#include <algorithm>
#include <cmath>
#include <regex>
#include <sstream>

#include "cli/examined.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kBatchRelative = 1e-5;  // what batches and processes may change

class Eval : public Examined {};

/// Index of the largest; the first of equal ones.
int64_t first_largest(const std::vector<double>& numbers) {
  return std::max_element(numbers.begin(), numbers.end()) - numbers.begin();
}

std::string argument_of(const json& sample, const char* name) {
  return sample.at("arguments").at("gen_args_0").at(name);
}

size_t times_in(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_F(Eval, ListsAllTasksAndTheUsersOwn) {
  const ProgramResult result =
      run({"eval", "--tasks", "list", "--include_path", "tasks/foxes.yaml"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* name :
       {"\nmmlu ", "\n  mmlu_stem\n", "\n  mmlu_virology\n", "\ncmmlu ", "\nceval", "\nagieval",
        "\nbbh", "boolq ", "\nhumaneval ", "\ngsm8k ", "\nhellaswag ", "\nneedlebench ", "\nfoxes"})
    EXPECT_THAT("\n" + result.out, HasSubstr(name));
}

TEST_F(Eval, AUsersMultipleChoiceIsScoredByItsLikelihoods) {
  const auto samples = samples_of("foxes", {});
  ASSERT_EQ(samples.size(), 8u);
  for (const json& sample : samples) {
    std::vector<double> by_length = likelihoods(sample);
    const int64_t gold = sample.at("doc").at("gold");
    EXPECT_EQ(sample.at("acc").get<double>(), first_largest(by_length) == gold);
    for (size_t i = 0; i < by_length.size(); ++i)
      by_length[i] /= static_cast<double>(
          sample.at("doc").at("choices").at(i).get<std::string>().size());  // ASCII
    EXPECT_EQ(sample.at("acc_norm").get<double>(), first_largest(by_length) == gold);
    EXPECT_EQ(argument_of(sample, "arg_0"), sample.at("doc").at("q").get<std::string>());
    EXPECT_EQ(argument_of(sample, "arg_1"), " dog");
  }
}

TEST_F(Eval, AUsersGenerationIsReadByItsRegex) {
  ASSERT_EQ(examine({{"tasks", "talk"}}).exit_code, 0);
  const auto samples = samples_in("out", "talk");
  ASSERT_EQ(samples.size(), 8u);
  double right = 0, with_digits = 0;
  for (const json& sample : samples) {
    const std::string said = sample.at("resps").at(0).at(0);
    EXPECT_THAT(said, Not(HasSubstr("zq")));
    // group_select -1: the last match.
    std::string wanted = "[invalid]";
    const std::regex digit("[0-9]");
    for (std::sregex_iterator it(said.begin(), said.end(), digit), end; it != end; ++it)
      wanted = it->str();
    EXPECT_EQ(sample.at("filtered_resps"), json::array({wanted})) << said;
    const bool is_right = wanted == sample.at("target").get<std::string>();
    EXPECT_EQ(sample.at("exact_match").get<double>(), is_right) << said;
    right += is_right;
    with_digits += wanted != "[invalid]";
  }
  EXPECT_GT(with_digits, 0) << "the model writes no digit: choose another";
  EXPECT_DOUBLE_EQ(results_in("out")["results"]["talk"]["exact_match,digits"], right / 8);
}

TEST_F(Eval, AUsersPerplexityIsThatOfItsWords) {
  const ProgramResult result = examine({{"tasks", "tale"}});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  double sum = 0, words = 0;
  for (const json& sample : samples_in("out", "tale")) {
    const json& said = sample.at("resps").at(0).at(0);
    sum += std::stod(said.is_string() ? said.get<std::string>() : said.at(0).get<std::string>());
    std::istringstream text(sample.at("doc").at("text").get<std::string>());
    for (std::string word; text >> word;) ++words;
  }
  ASSERT_GT(words, 8);
  const double got = results_in("out")["results"]["tale"]["word_perplexity,none"];
  EXPECT_NEAR(got, std::exp(-sum / words), 1e-9 * got);
}

TEST_F(Eval, ALimitIsANumberOfRowsOrAPartOfThem) {
  for (const auto& [limit, count] : std::map<std::string, size_t>{{"3", 3}, {"0.4", 4}}) {
    const std::string out = "out" + limit;
    ASSERT_EQ(examine({{"limit", limit}, {"output_path", out}}).exit_code, 0);
    const auto samples = samples_in(out, "foxes");
    ASSERT_EQ(samples.size(), count) << limit;  // 0.4 of 8, rounded up as lm-eval does
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(samples[i].at("doc_id"), i);
    EXPECT_EQ(results_in(out)["n-samples"]["foxes"], (json{{"original", 8}, {"effective", count}}));
  }
}

TEST_F(Eval, PredictOnlyWritesAnswersAndScoresNothing) {
  const ProgramResult result = examine({{"tasks", "talk"}, {"predict_only", "true"}});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, Not(HasSubstr("exact_match")));
  EXPECT_EQ(results_in("out").at("results").at("talk").count("exact_match,digits"), 0u);
  const auto samples = samples_in("out", "talk");
  ASSERT_EQ(samples.size(), 8u);
  EXPECT_FALSE(samples[0].contains("exact_match"));
  EXPECT_FALSE(samples[0].at("filtered_resps").empty());
}

TEST_F(Eval, SamplesAndTheFirstPromptAreShownOnRequest) {
  const ProgramResult result = examine({{"log_samples", "false"}, {"write_out", "true"}});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(samples_in("out", "foxes").size(), 0u);
  EXPECT_FALSE(results_in("out").is_null());
  EXPECT_THAT(result.out, HasSubstr("fox 0 jumps?[ dog]\n"));
  EXPECT_THAT(result.out, Not(HasSubstr("fox 1 jumps")));
  EXPECT_THAT(examine({{"output_path", "quiet"}}).out, Not(HasSubstr("fox 0 jumps")));
}

TEST_F(Eval, TheLinesOfLmEvalNameTheSameModelAndFolder) {
  const auto plain = samples_of("foxes", {});
  ASSERT_EQ(examine({{"model", "hf"},
                     {"model_args", "pretrained=" + wide_model().string() + ",dtype=float32"},
                     {"output_path", "their/name.json"}})
                .exit_code,
            0);
  EXPECT_EQ(samples_in("their", "foxes"), plain);
  EXPECT_EQ(results_in("their").at("config").at("model_args"),
            "pretrained=" + wide_model().string() + ",dtype=float32");
  // A window that is made smaller cuts.
  const ProgramResult cut = examine({{"model_args", "max_length=12"}, {"output_path", "cut"}});
  ASSERT_EQ(cut.exit_code, 0) << cut.err;
  EXPECT_GT(results_in("cut").at("cut_contexts").at("foxes"), 0);
}

TEST_F(Eval, TheModelsFolderMayBeTheCurrentOne) {
  copy_model();
  const ProgramResult result = run_danlu(
      {"eval", "--model", ".", "--tasks", "foxes", "--include_path", "../tasks", "--data_dir",
       "../rows"},
      {.environment = {{"OMP_NUM_THREADS", "1"}}, .directory = ((*this) / "model").string()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(names_in("model/eval_result"), ElementsAre("model"));
}

TEST_F(Eval, WhatTheWindowCutsIsCountedAndSaid) {
  const fs::path narrow = make_model("narrow", 20);
  const ProgramResult result = examine({{"model", narrow}});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  int64_t cut = 0;
  for (const json& sample : samples_in("out", "foxes")) cut += sample.at("cut_tokens") > 0;
  ASSERT_GT(cut, 0);
  ASSERT_LT(cut, 8);
  EXPECT_EQ(results_in("out").at("cut_contexts").at("foxes"), cut);
  EXPECT_THAT(result.err, HasSubstr(std::to_string(cut) + " items did not fit the model's window"));
  EXPECT_THAT(examine({{"output_path", "wide"}}).err, Not(HasSubstr("did not fit")));
  EXPECT_EQ(results_in("wide").at("cut_contexts").at("foxes"), 0);
}

TEST_F(Eval, ATemplateIsAppliedOnRequest) {
  const auto plain = samples_of("talk", {}),
             asked = samples_of("talk", {{"apply_chat_template", "true"}});
  EXPECT_EQ(argument_of(plain[0], "arg_0"), "fox 0 jumps?");
  EXPECT_EQ(argument_of(asked[0], "arg_0"),
            "<|im_start|>user\nfox 0 jumps?<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(Eval, ATemplateIsAppliedByItsName) {
  const auto named =
      samples_of("talk", {{"prompt_type", "alpaca"}, {"apply_chat_template", "true"}});
  EXPECT_THAT(argument_of(named[0], "arg_0"), HasSubstr("### Instruction"));
  EXPECT_EQ(samples_of("talk", {{"apply_chat_template", "alpaca"}}), named);
}

// lm-eval: split(think_end_token)[-1].lstrip(), of whatever was answered.
TEST_F(Eval, WhatStandsBeforeTheEndOfThoughtsIsNoAnswer) {
  const auto whole = samples_of("talk", {});
  const std::string answer = whole[0].at("resps")[0][0];
  const auto end = std::find_if(answer.begin() + static_cast<std::ptrdiff_t>(answer.size() / 3),
                                answer.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  ASSERT_NE(end, answer.end()) << answer;
  const auto cut = samples_of("talk", {{"model_args", std::string("think_end_token=") + *end}});
  for (size_t i = 0; i < whole.size(); ++i) {
    const std::string all = whole[i].at("resps")[0][0];
    const size_t last = all.rfind(*end);
    const std::string rest = last == all.npos ? all : all.substr(last + 1);
    const size_t begin = rest.find_first_not_of(" \t\n\r\f\v");
    EXPECT_EQ(cut[i].at("resps")[0][0], begin == rest.npos ? "" : rest.substr(begin)) << all;
  }
}

TEST_F(Eval, ABackendOfMsSwiftsAsksInTalks) {
  const auto talk = samples_of("talk", {{"eval_backend", "Native"}, {"temperature", "0.5"}});
  EXPECT_EQ(argument_of(talk[0], "arg_0"),
            "<|im_start|>user\nfox 0 jumps?<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(talk[0].at("arguments").at("gen_args_0").at("arg_1").at("temperature"), 0.5);
  const auto plain = samples_of(
      "talk", {{"eval_backend", "Native"},
               {"no_chat_template", "true"},
               {"eval_generation_config", R"({"max_new_tokens": 5, "temperature": 0})"}});
  EXPECT_EQ(argument_of(plain[0], "arg_0"), "fox 0 jumps?");
  EXPECT_EQ(plain[0].at("arguments").at("gen_args_0").at("arg_1").at("max_gen_toks"), 5);
  const ProgramResult said = examine({{"eval_backend", "Native"}, {"tasks", "talk"}});
  ASSERT_EQ(said.exit_code, 0) << said.err;
  EXPECT_THAT(said.err, HasSubstr("--eval_backend: questions are put into the model's template"));
  EXPECT_THAT(results_in("out").at("differences").at("talk").dump(), HasSubstr("EvalScope"));
}

TEST_F(Eval, TheWordsOfLmEvalsLineMayStay) {
  const ProgramResult list = run({"eval", "ls", "tasks"});
  EXPECT_EQ(list.exit_code, 0) << list.err;
  EXPECT_THAT(list.out, HasSubstr("gsm8k"));
  std::vector<std::string> line = words_of({{"seed", "0,None,8,52"}, {"limit", "1"}});
  line.insert(line.begin() + 1, "run");
  line.insert(line.end(), {"-v", "INFO", "--trackio_args", "project=p"});
  const ProgramResult asked = run(line);
  ASSERT_EQ(asked.exit_code, 0) << asked.err;
  const json config = results_in("out").at("config");
  EXPECT_EQ(config.at("numpy_seed"), 1234);
  EXPECT_EQ(config.at("fewshot_seed"), 52);
  EXPECT_EQ(run({"eval", "validate", "--tasks", "foxes"}).exit_code, 2);
}

TEST_F(Eval, AFileMayHoldMapsOfArguments) {
  const auto typed =
      samples_of("talk", {{"gen_kwargs", R"({"until": ["}", "a, b"], "max_gen_toks": 5})"},
                          {"model_args", "max_length=100,dtype=float32"}});
  EXPECT_EQ(typed[0].at("arguments").at("gen_args_0").at("arg_1").at("until"), json({"}", "a, b"}));
  for (const auto& [name, text] : std::map<std::string, std::string>{
           {"run.yaml",
            "gen_kwargs: {until: [\"}\", \"a, b\"], max_gen_toks: 5}\nmodel_args:\n"
            "  max_length: 100\n  dtype: float32\n"},
           {"run.json",
            R"({"gen_kwargs": {"until": ["}", "a, b"], "max_gen_toks": 5},
                "model_args": {"max_length": 100, "dtype": "float32"}})"}}) {
    write(name, text);
    EXPECT_EQ(samples_of("talk", {{"config", name}}), typed) << name;
  }
  // lm-eval takes several words.
  std::vector<std::string> words = words_of({{"tasks", "talk"}, {"output_path", "words"}});
  words.insert(words.end(),
               {"--gen_kwargs", "max_gen_toks=5", "do_sample=true", "temperature=0.5"});
  ASSERT_EQ(run(words).exit_code, 0);
  EXPECT_EQ(results_in("words").at("config").at("model_dtype"), "torch.float32");
  EXPECT_EQ(
      samples_in("words", "talk")[0].at("arguments").at("gen_args_0").at("arg_1").at("temperature"),
      0.5);
}

/// lm-eval's own way to name local files: from the current folder, else from the task file's.
TEST_F(Eval, ATaskFileMayNameItsFiles) {
  const auto plain = samples_of("talk", {});
  std::vector<std::string> lines;
  std::istringstream rows(content_of((*this) / "rows/test.jsonl"));
  for (std::string line; std::getline(rows, line);) lines.push_back(line);
  std::string csv = "q,a\n", first, list;
  for (int i = 0; i < 8; ++i) {
    const json row = json::parse(lines[i]);
    csv += row.at("q").get<std::string>() + "," + row.at("a").get<std::string>() + "\n";
    if (i < 3) first += lines[i] + "\n";
    if (i >= 3) list += (list.empty() ? "[" : ",") + lines[i];
  }
  write("near/all.csv", csv);
  write("here/first.jsonl", first);
  write("here/rest.json", list + "]");
  const std::string good_task = content_of((*this) / "tasks/talk.yaml");
  for (const std::string& files :
       {std::string("near/all.csv"), "{test: " + ((*this) / "near/all.csv").string() + "}",
        std::string("{test: [here/first.jsonl, here/rest.json]}"),
        std::string("{test: ../near/all.csv}")}) {
    write_content((*this) / "tasks/talk.yaml",
                  good_task + "dataset_path: json\ndataset_kwargs: {data_files: " + files + "}\n");
    const auto named = samples_of("talk", {{"data_dir", "-"}});
    ASSERT_EQ(named.size(), plain.size()) << files;
    for (size_t i = 0; i < named.size(); ++i) EXPECT_EQ(named[i].at("resps"), plain[i].at("resps"));
  }
}

TEST_F(Eval, ShotsStandBeforeQuestions) {
  const fs::path data = write_mmlu({"anatomy"});
  const Flags flags = {{"data_dir", data}, {"num_fewshot", "2"}};
  const auto samples = samples_of("mmlu_anatomy", flags);
  ASSERT_EQ(samples.size(), 8u);
  const auto question = [](int i, const std::string& answer) {
    const std::string n = std::to_string(i);
    return "what does fox " + n + " of anatomy jump over\nA. dog " + n + "\nB. the fox\nC. " + n +
           " dogs\nD. nothing\nAnswer:" + answer;
  };
  // The dev split's answers are "ABCD"[(3 i + 1) % 4].
  EXPECT_EQ(argument_of(samples[7], "arg_0"),
            "The following are multiple choice questions (with answers) about anatomy.\n\n" +
                question(0, " B\n\n") + question(1, " A\n\n") + question(7, ""));
}

TEST_F(Eval, BatchesDoNotChangeAnswers) {
  const fs::path data = write_mmlu({"anatomy", "virology"});
  Flags flags = {{"tasks", "mmlu_anatomy,mmlu_virology,foxes,talk,tale"}, {"num_fewshot", "0"}};
  // All data below one folder.
  fs::copy((*this) / "rows/test.jsonl", (*this) / "mmlu/test.jsonl");
  flags["data_dir"] = data;
  std::map<std::string, std::map<std::string, std::string>> alone;
  std::map<std::string, std::vector<json>> together;
  for (const char* size : {"1", "7", "auto"}) {
    flags["batch_size"] = size;
    flags["output_path"] = std::string("alone-") + size;
    flags["deterministic"] = "true";
    ProgramResult result = examine(flags);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    alone[size] = timeless(flags["output_path"]);
    for (auto it = alone[size].begin(); it != alone[size].end();)
      it = it->first.starts_with("results_") ? alone[size].erase(it) : std::next(it);
    ASSERT_EQ(alone[size].size(), 5u);
    flags["output_path"] = std::string("together-") + size;
    flags["deterministic"] = "false";
    result = examine(flags);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    together[size] = samples_in(flags["output_path"], "mmlu_virology");
  }
  EXPECT_EQ(alone["7"], alone["1"]);
  EXPECT_EQ(alone["auto"], alone["1"]);
  for (const char* size : {"1", "7", "auto"})
    expect_near_samples(samples_in("alone-1", "mmlu_virology"), together[size], kBatchRelative);
}

TEST_F(Eval, ProcessesDoNotChangeAnswers) {
  Flags flags = {{"tasks", "foxes,talk,tale"}, {"data_dir", write_rows("seven", 7)}};
  const auto examined = [&](const std::string& nproc, bool deterministic) {
    flags["nproc"] = nproc;
    flags["deterministic"] = deterministic ? "true" : "false";
    flags["output_path"] = "out-" + nproc + flags["deterministic"];
    const ProgramResult result = examine(flags);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(times_in(result.out, "word_perplexity"), 1u) << result.out;
    return flags["output_path"];
  };
  const auto of_one = timeless(examined("1", true));
  EXPECT_EQ(of_one.size(), 4u);
  for (const char* nproc : {"2", "3"}) EXPECT_EQ(timeless(examined(nproc, true)), of_one) << nproc;
  const auto plain = samples_in(examined("1", false), "foxes");
  const std::string of_three = examined("3", false);
  expect_near_samples(plain, samples_in(of_three, "foxes"), kBatchRelative);
}

TEST_F(Eval, AWrongGoldChangesTheScoreByThatItem) {
  ASSERT_EQ(examine({{"output_path", "a"}}).exit_code, 0);
  const json before = samples_in("a", "foxes").at(5);
  // What the model chooses becomes right; if it was, another one.
  const int64_t chosen = first_largest(likelihoods(before));
  const int64_t gold = before.at("doc").at("gold"),
                other = chosen == gold ? (gold + 1) % 3 : chosen;
  std::string rows = content_of((*this) / "rows/test.jsonl");
  size_t line = 0;
  for (int i = 0; i < 5; ++i) line = rows.find('\n', line) + 1;
  const size_t at = rows.find("\"gold\":" + std::to_string(gold), line);
  ASSERT_NE(at, rows.npos);
  rows[at + 7] = static_cast<char>('0' + other);
  write("changed/test.jsonl", rows);
  ASSERT_EQ(examine({{"data_dir", "changed"}, {"output_path", "b"}}).exit_code, 0);
  const double a = results_in("a")["results"]["foxes"]["acc,none"],
               b = results_in("b")["results"]["foxes"]["acc,none"];
  EXPECT_DOUBLE_EQ(std::abs(b - a), 1.0 / 8);
  const ProgramResult compared = run({"compare", "a", "b", "--output", "difference.json"});
  ASSERT_EQ(compared.exit_code, 0) << compared.err;
  EXPECT_THAT(compared.err, HasSubstr("foxes: other right answers for 1 of 8 items"));
  const json difference = json::parse(content_of((*this) / "difference.json"));
  const json& acc = difference.at("tasks").at("foxes").at(0);
  EXPECT_EQ(acc.at("metric"), "acc");
  ASSERT_EQ(acc.at("changed").size(), 1u) << acc.dump(1);
  EXPECT_EQ(acc.at("changed")[0].at("doc_id"), 5);
}

TEST_F(Eval, AnAdapterIsTheModelThatItIsMergedInto) {
  train_adapter();
  ASSERT_EQ(run({"merge", "--adapters", "run", "--output", "merged"}).exit_code, 0);
  const std::string base = good("model");
  const auto of_base = samples_of("foxes", {{"model", base}});
  const auto of_adapter = samples_of("foxes", {{"model", base}, {"adapters", "run"}});
  EXPECT_EQ(samples_of("foxes", {{"model", base}, {"lora-load", "run"}}), of_adapter);
  EXPECT_EQ(samples_of("foxes", {{"model", "-"}, {"adapters", "run"}}), of_adapter);
  EXPECT_EQ(
      samples_of("foxes", {{"model", "hf"}, {"model_args", "pretrained=" + base + ",peft=run"}}),
      of_adapter);
  expect_near_samples(of_adapter, samples_of("foxes", {{"model", "merged"}}), kBatchRelative);
  for (size_t i = 0; i < of_base.size(); ++i) {
    const double of = likelihoods(of_base[i])[0];
    EXPECT_GT(std::abs(likelihoods(of_adapter[i])[0] - of), 1e-3 * std::abs(of));
  }
}

}  // namespace
}  // namespace danlu::test
