// What `danlu infer` writes: nothing of the user's is lost, and every line keeps its place.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "cli/bad_input.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

size_t num_lines(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

class InferOutput : public BadInput {
 protected:
  ProgramResult infer(const std::vector<std::string>& more, const std::string& length = "4") const {
    std::vector<std::string> arguments = {"infer", "--model", good("model"), "--max_new_tokens",
                                          length};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  std::vector<json> answers(const std::string& name, const std::string& content) const {
    fs::remove((*this) / "answers.jsonl");
    const ProgramResult result =
        infer({"--dataset", write(name, content), "--output", "answers.jsonl"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("warning"))) << content;
    std::istringstream lines(content_of((*this) / "answers.jsonl"));
    std::vector<json> rows;
    for (std::string line; std::getline(lines, line);) rows.push_back(json::parse(line));
    return rows;
  }
};

TEST_F(InferOutput, NeverReplacesAFileThatIsRead) {
  const std::string content = "{\"query\": \"hi\", \"response\": \"there\"}\n";
  const fs::path own = write("own.jsonl", content);
  fs::create_symlink("own.jsonl", (*this) / "link.jsonl");
  for (const std::string name : {"own.jsonl", "./own.jsonl", "link.jsonl", own.c_str()}) {
    expect_error(infer({"--dataset", "own.jsonl", "--output", name, "--overwrite"}), 2,
                 {"[--output] " + name, "which this run reads", "hint: choose another file"});
    EXPECT_EQ(content_of(own), content);
  }
  // The rows of a killed run, and the model itself.
  write("a.jsonl.partial", content);
  expect_error(infer({"--dataset", "a.jsonl.partial", "--handler_name", "query_response",
                      "--output", "a.jsonl"}),
               3, {"a.jsonl.partial"});
  EXPECT_EQ(content_of((*this) / "a.jsonl.partial"), content);
  const fs::path model = copy_model();
  expect_error(run({"infer", "--model", model, "--prompt", "hi", "--output",
                    (model / "config.json").string(), "--overwrite"}),
               2, {"config.json, which this run reads"});
}

TEST_F(InferOutput, ReplacesAnotherFileOnlyIfTold) {
  write("old.jsonl", "precious\n");
  expect_error(infer({"--prompt", "hi", "--output", "old.jsonl"}), 2,
               {"[--output] old.jsonl exists", "hint: choose another name, or give --overwrite"});
  EXPECT_EQ(content_of((*this) / "old.jsonl"), "precious\n");
  EXPECT_EQ(infer({"--prompt", "hi", "--output", "old.jsonl", "--overwrite"}).exit_code, 0);
  EXPECT_THAT(content_of((*this) / "old.jsonl"), HasSubstr("\"response\""));
  EXPECT_FALSE(fs::exists((*this) / "old.jsonl.partial"));
}

/// `danlu WORDS…` in `folder`, killed once `partial` there has 2000 bytes.
void kill_on_its_way(const std::string& folder, const fs::path& partial,
                     std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), danlu_path());
  std::vector<char*> words;
  for (std::string& word : arguments) words.push_back(word.data());
  words.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::chdir(folder.c_str()) != 0) ::_exit(126);
    if (!::freopen("/dev/null", "w", stderr)) ::_exit(126);
    ::execv(words[0], words.data());
    ::_exit(127);
  }
  ASSERT_GT(child, 0);
  for (int i = 0; i < 60000 && !(fs::exists(partial) && fs::file_size(partial) > 2000); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
}

TEST_F(InferOutput, AKilledRunGoesOnAfterTheAnswersThatItLeft) {
  // Rows with answers of their own: matches are counted over all.
  std::string rows;
  for (int i = 0; i < 600; ++i)
    rows += R"({"query": "fox )" + std::to_string(i) + R"(?", "response": "dog"})" + "\n";
  write("q.jsonl", rows);
  const std::vector<std::string> line = {"--dataset", "q.jsonl", "--batch_size", "4",
                                         "--dtype",   "fp32",    "--do_sample",  "true",
                                         "--seed",    "5",       "--output"};
  const auto with = [&](const std::string& output, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = line;
    words.push_back(output);
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  ASSERT_EQ(infer(with("whole.jsonl")).exit_code, 0);
  const std::string whole = content_of((*this) / "whole.jsonl");
  ASSERT_EQ(num_lines(whole), 600u);

  std::vector<std::string> killed = {"infer", "--model", good("model"), "--max_new_tokens", "4"};
  for (const std::string& word : with("x.jsonl")) killed.push_back(word);
  const fs::path partial = (*this) / "x.jsonl.partial";
  kill_on_its_way((*this) / "", partial, killed);
  const std::string left = content_of(partial);
  const std::string kept = left.substr(0, left.rfind('\n') + 1);
  ASSERT_TRUE(whole.starts_with(kept));
  ASSERT_LT(kept.size(), whole.size());
  write_content(partial, kept + R"({"messages": [{"role": "us)");  // torn by a lost machine
  const ProgramResult again = infer(with("x.jsonl"));
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr(std::to_string(num_lines(kept)) +
                                   " of 600 answers are there from a run that was broken off"));
  EXPECT_THAT(again.err, HasSubstr("of 600)")) << "matches of all rows";
  EXPECT_EQ(content_of((*this) / "x.jsonl"), whole);
  for (const char* left_over : {"x.jsonl.partial", "x.jsonl.partial.request"})
    EXPECT_FALSE(fs::exists((*this) / left_over));

  // Another request's answers are not mixed with this one's.
  kill_on_its_way((*this) / "", (*this) / "y.jsonl.partial", [&] {
    std::vector<std::string> words = killed;
    words.back() = "y.jsonl";
    return words;
  }());
  const ProgramResult other = infer(with("y.jsonl", {"--temperature", "0.5"}));
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(other.err, HasSubstr("of a run that was stopped; it is kept as"));
  EXPECT_GT(num_lines(content_of((*this) / "y.jsonl.partial.1")), 0u);
  ASSERT_EQ(infer(with("cold.jsonl", {"--temperature", "0.5"})).exit_code, 0);
  EXPECT_EQ(content_of((*this) / "y.jsonl"), content_of((*this) / "cold.jsonl"));
}

TEST_F(InferOutput, AKilledRunLeavesWhatItHadAnswered) {
  std::string rows;
  for (int i = 0; i < 20000; ++i) rows += "fox " + std::to_string(i % 10) + "\n";
  write("q.txt", rows);
  const fs::path partial = (*this) / "x.jsonl.partial";
  kill_on_its_way((*this) / "", partial,
                  {"infer", "--model", good("model"), "--dataset", "q.txt", "--max_new_tokens", "2",
                   "--batch_size", "4", "--output", "x.jsonl"});
  EXPECT_FALSE(fs::exists((*this) / "x.jsonl"));
  ASSERT_TRUE(fs::exists(partial));
  const std::string kept = content_of(partial);
  std::istringstream lines(kept);
  size_t row = 0;
  for (std::string line; std::getline(lines, line) && !lines.eof(); ++row)
    EXPECT_EQ(json::parse(line)["query"], "fox " + std::to_string(row % 10));
  EXPECT_GT(row, 8u);

  // The next run says so, and has another look only once it has an answer itself.
  const ProgramResult missing =
      run({"infer", "--model", "nowhere", "--prompt", "hi", "--output", "x.jsonl"});
  EXPECT_NE(missing.exit_code, 0);
  EXPECT_EQ(content_of(partial), kept);
  const ProgramResult again = infer({"--prompt", "hi", "--output", "x.jsonl"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("x.jsonl.partial: holds " + std::to_string(num_lines(kept)) +
                                   " row(s) of a run that was stopped"));
  EXPECT_FALSE(fs::exists(partial));
  EXPECT_EQ(num_lines(content_of((*this) / "x.jsonl")), 1u);
}

TEST_F(InferOutput, RowsWithoutAnAnswerAreQuestions) {
  const std::string queries[] = {
      R"({"query": "hi"})",
      R"({"messages": [{"role": "user", "content": "hi"}]})",
      R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": ""}]})",
      R"({"conversations": [{"from": "human", "value": "hi"}]})",
      R"({"conversation": [{"human": "hi"}]})",
      R"({"instruction": "hi", "input": ""})",
      R"({"instruction": "hi", "input": "", "output": ""})",
      R"({"instruction": "hi"})",
      R"({"query": "hi", "response": null})"};
  for (const std::string& row : queries) {
    SCOPED_TRACE(row);
    const auto rows = answers("rows.jsonl", row + "\n");
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0]["messages"].back()["role"], "user");
    EXPECT_EQ(rows[0]["messages"].back()["content"], "hi");
    EXPECT_FALSE(rows[0].contains("labels"));
  }
  // Ids without labels are a prompt as a whole.
  const auto tokens = answers("ids.jsonl", "{\"input_ids\": [65, 66, 67]}\n");
  ASSERT_EQ(tokens.size(), 1u);
  EXPECT_NE(tokens[0]["query"], "");
  EXPECT_FALSE(tokens[0].contains("labels"));
  // Where some rows have an answer, those keep it.
  const auto mixed = answers("mixed.jsonl",
                             "{\"query\": \"hi\"}\n"
                             "{\"query\": \"hi\", \"response\": \"there\"}\n");
  ASSERT_EQ(mixed.size(), 2u);
  EXPECT_FALSE(mixed[0].contains("labels"));
  EXPECT_EQ(mixed[1]["labels"], "there");
}

TEST_F(InferOutput, ALoneQuestionIsATextWithoutATemplate) {
  const fs::path rows = write("rows.jsonl", "{\"query\": \"the quick\"}\n");
  ASSERT_EQ(infer({"--raw", "--dataset", rows, "--output", "raw.jsonl"}).exit_code, 0);
  EXPECT_EQ(json::parse(content_of((*this) / "raw.jsonl"))["response"].get<std::string>() + "\n",
            infer({"--raw", "--prompt", "the quick"}).out);
  const std::string turns = R"({"query": "c", "history": [["a", "b"]]})";
  expect_error(infer({"--raw", "--dataset", write("turns.jsonl", turns + "\n")}), 2,
               {"turns.jsonl:1: ", "a conversation", "hint: leave out --raw"});
}

TEST_F(InferOutput, ARowTooLongIsMarkedInItsPlace) {
  std::string words;
  for (int i = 0; i < 100; ++i) words += "fox ";
  const fs::path rows = write("q.txt", "the\n" + words + "\nquick\n");
  const ProgramResult result = infer({"--dataset", rows, "--output", "a.jsonl"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("q.txt:2: [generate] the prompt has "));
  std::istringstream lines(content_of((*this) / "a.jsonl"));
  std::vector<json> found;
  for (std::string line; std::getline(lines, line);) found.push_back(json::parse(line));
  ASSERT_EQ(found.size(), 3u);
  EXPECT_FALSE(found[0].contains("error"));
  EXPECT_EQ(found[1]["finish_reason"], "error");
  EXPECT_THAT(found[1]["error"].get<std::string>(), HasSubstr("window holds 64"));
  EXPECT_EQ(found[2]["query"], "quick");
  EXPECT_FALSE(found[2].contains("error"));
  EXPECT_THAT(infer({"--prompt", words}).err, Not(HasSubstr("history")));
}

TEST_F(InferOutput, RowsAreTheSameInEveryLanguage) {
  std::string words;
  for (int i = 0; i < 80; ++i) words += "fox ";
  const std::string rows = write("q.txt", "the\n" + words + "\n");
  const auto answer = [&](const std::string& language) {
    const std::string name = language + ".jsonl";
    const ProgramResult result = run_danlu(
        {"infer", "--model", good("model"), "--max_new_tokens", "4", "--dataset", rows, "--output",
         name},
        {.environment = {{"DANLU_LANG", language}}, .directory = ((*this) / "").string()});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err.find("首个") != result.err.npos, language == "zh") << result.err;
    return content_of((*this) / name);
  };
  EXPECT_EQ(answer("zh"), answer("en"));
}

TEST_F(InferOutput, LineKAnswersLineKAndABlankOneIsMarked) {
  const std::string content = "the\n\nquick\n \nlazy\n";
  const fs::path file = write("q.txt", content);
  const ProgramResult named = infer({"--dataset", file, "--output", "answers.jsonl"});
  ASSERT_EQ(named.exit_code, 0) << named.err;
  EXPECT_THAT(named.err, HasSubstr("2 row(s) cannot be answered and are marked \"error\"; the "
                                   "first: " +
                                   file.string() + ":2: blank line"));
  const auto rows_in = [&](const std::string& name) {
    std::istringstream lines(content_of((*this) / name));
    std::vector<json> rows;
    for (std::string line; std::getline(lines, line);) rows.push_back(json::parse(line));
    return rows;
  };
  auto rows = rows_in("answers.jsonl");
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[2]["query"], "quick");
  EXPECT_EQ(rows[4]["query"], "lazy");
  for (const size_t row : {0, 2, 4}) EXPECT_EQ(rows[row]["finish_reason"], "length");
  for (const size_t blank : {1, 3}) {
    EXPECT_EQ(rows[blank]["query"], "");
    EXPECT_EQ(rows[blank]["response"], "");
    EXPECT_EQ(rows[blank]["finish_reason"], "error");
    EXPECT_EQ(rows[blank]["error"],
              file.string() + ":" + std::to_string(blank + 1) + ": blank line");
  }
  ProgramSettings settings;
  settings.input = content;
  settings.directory = ((*this) / "").string();
  const ProgramResult piped = run_danlu({"infer", "--model", good("model"), "--dataset", "-",
                                         "--max_new_tokens", "4", "--output", "piped.jsonl"},
                                        settings);
  ASSERT_EQ(piped.exit_code, 0) << piped.err;
  auto piped_rows = rows_in("piped.jsonl");
  ASSERT_EQ(piped_rows.size(), 5u);
  EXPECT_EQ(piped_rows[3].value("error", ""), "<stdin>:4: blank line");
  for (const size_t blank : {1, 3}) rows[blank]["error"] = piped_rows[blank]["error"] = "";
  EXPECT_EQ(piped_rows, rows);
  expect_error(infer({"--dataset", write("blank.txt", "\n\n")}), 3, {"no usable row"});
  std::string words;
  for (int i = 0; i < 100; ++i) words += "fox ";
  expect_error(infer({"--dataset", write("long.txt", "\n" + words + "\n")}), 3,
               {"long.txt:2: [generate] the prompt has "});
}

TEST_F(InferOutput, OnePromptIsAnsweredBareByBeamsToo) {
  const ProgramResult beams = infer({"--prompt", "fox?", "--num_beams", "3"});
  ASSERT_EQ(beams.exit_code, 0) << beams.err;
  EXPECT_THAT(beams.out, Not(HasSubstr("[QUERY]")));
  EXPECT_THAT(beams.out, Not(HasSubstr("---")));
  const ProgramResult file =
      infer({"--prompt", "fox?", "--num_beams", "3", "--output", "beams.jsonl"});
  ASSERT_EQ(file.exit_code, 0) << file.err;
  EXPECT_EQ(json::parse(content_of((*this) / "beams.jsonl"))["response"].get<std::string>() + "\n",
            beams.out);
  EXPECT_EQ(infer({"--prompt", "fox?", "--no-stream"}).out, infer({"--prompt", "fox?"}).out);
}

TEST_F(InferOutput, FlagsWithoutEffectAreNamed) {
  const auto notice = [&](const std::vector<std::string>& flags, const std::string& text) {
    std::vector<std::string> all = {"--prompt", "fox?"};
    all.insert(all.end(), flags.begin(), flags.end());
    const ProgramResult result = infer(all);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("notice: " + text));
  };
  notice({"--raw", "--system", "x", "--enable_thinking", "false"},
         "--system, --enable_thinking have no effect with --raw");
  notice({"--raw", "--template", "chatml"}, "--template has no effect with --raw");
  notice({"--columns", "{\"a\":\"query\"}", "--max_samples", "3"},
         "--columns, --max_samples have no effect with --prompt alone");
  notice({"--task", "greedy", "--temperature", "0.7"},
         "--temperature has no effect with --task greedy");
  notice({"--do_sample", "false", "--top_p", "0.7"},
         "--top_p has no effect with --do_sample false");
  notice({"--do_sample", "--temperature", "0"}, "--do_sample has no effect with --temperature 0");
  notice({"--do_sample", "--top_k", "5", "--temperature", "0"},
         "--do_sample, --top_k have no effect with --temperature 0");
  notice({"--task", "greedy", "--do_sample"}, "--do_sample has no effect with --task greedy");
  notice({"--length_penalty", "2"}, "--length_penalty has no effect without --num_beams");
  const ProgramResult used = infer({"--prompt", "fox?", "--system", "x", "--temperature", "0.7",
                                    "--seed", "3", "--num_beams", "2", "--length_penalty", "2"});
  EXPECT_THAT(used.err, Not(HasSubstr("no effect")));
}

}  // namespace
}  // namespace danlu::test
