// `danlu infer` through the program: every way of asking, and that no answer is made in vain.
#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "cli/trained_adapter.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

class Infer : public TrainedAdapter {
 protected:
  /// `danlu infer --model MODEL MORE…`, 12 new tokens unless `more` says otherwise.
  ProgramResult infer(const std::vector<std::string>& more,
                      const fs::path& model = good("model")) const {
    std::vector<std::string> arguments = {"infer", "--model", model.string()};
    if (std::find(more.begin(), more.end(), "--max_new_tokens") == more.end())
      arguments.insert(arguments.end(), {"--max_new_tokens", "12"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  /// The rows that infer wrote with these flags.
  std::vector<json> answers(std::vector<std::string> more,
                            const fs::path& model = good("model")) const {
    fs::remove((*this) / "answers.jsonl");
    more.insert(more.end(), {"--output", "answers.jsonl"});
    const ProgramResult result = infer(more, model);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::istringstream lines(content_of((*this) / "answers.jsonl"));
    std::vector<json> rows;
    for (std::string line; std::getline(lines, line);) rows.push_back(json::parse(line));
    return rows;
  }
  std::string questions() const {
    return write("q.txt", "fox?\nwho jumps over the dog\nthe\nquick brown\nlazy dog 7\n").string();
  }
};

TEST_F(Infer, OnePromptIsAnsweredOnStdoutAlone) {
  const ProgramResult result = infer({"--prompt", "fox?"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_FALSE(result.out.empty());
  EXPECT_THAT(result.err, HasSubstr("12 new tokens"));
  EXPECT_EQ(infer({"--prompt", "fox?"}).out, result.out);
  // The same through a file.
  const auto rows = answers({"--prompt", "fox?"});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["response"].get<std::string>() + "\n", result.out);
  EXPECT_EQ(rows[0]["finish_reason"], "length");
}

TEST_F(Infer, AFileOfLinesAndStandardInputGiveTheSameAnswers) {
  const auto rows = answers({"--dataset", questions()});
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[1]["query"], "who jumps over the dog");
  ProgramSettings settings;
  settings.input = content_of((*this) / "q.txt");
  settings.directory = ((*this) / "").string();
  settings.environment = {{"OMP_NUM_THREADS", "1"}};
  const ProgramResult piped = run_danlu({"infer", "--model", good("model").string(), "--dataset",
                                         "-", "--max_new_tokens", "12", "--output", "piped.jsonl"},
                                        settings);
  ASSERT_EQ(piped.exit_code, 0) << piped.err;
  EXPECT_EQ(content_of((*this) / "piped.jsonl"), content_of((*this) / "answers.jsonl"));
}

TEST_F(Infer, ADataSetBecomesRowsWithQuestionAnswerAndReference) {
  const auto rows = answers({"--dataset", good("good.jsonl").string(), "--max_samples", "3"});
  ASSERT_EQ(rows.size(), 3u);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["messages"].back()["role"], "user");
    EXPECT_EQ(rows[i]["messages"].back()["content"], "fox?");
    EXPECT_EQ(rows[i]["labels"], "dog " + std::to_string(i));
    EXPECT_TRUE(rows[i]["response"].is_string());
    EXPECT_EQ(rows[i]["finish_reason"], "length");
  }
}

TEST_F(Infer, ABatchAnswersAsOneByOne) {
  const std::string file = questions();
  EXPECT_EQ(answers({"--dataset", file, "--batch_size", "1"}),
            answers({"--dataset", file, "--batch_size", "8"}));
  const std::vector<std::string> draws = {"--temperature", "1.0", "--seed", "5"};
  std::vector<std::string> single = {"--dataset", file, "--batch_size", "1"}, all = single;
  all.back() = "3";
  single.insert(single.end(), draws.begin(), draws.end());
  all.insert(all.end(), draws.begin(), draws.end());
  EXPECT_EQ(answers(single), answers(all));
}

TEST_F(Infer, ASeedRepeatsItsDrawsAndAnotherDoesNot) {
  const auto drawn = [&](const std::string& seed) {
    return infer({"--prompt", "fox?", "--temperature", "1.5", "--seed", seed}).out;
  };
  EXPECT_EQ(drawn("1"), drawn("1"));
  EXPECT_NE(drawn("1"), drawn("2"));
  // Without sampling the seed means nothing.
  EXPECT_EQ(infer({"--prompt", "fox?", "--seed", "1"}).out,
            infer({"--prompt", "fox?", "--seed", "2"}).out);
}

TEST_F(Infer, StopTokensOfTheGenerationConfigEndAnAnswer) {
  // Every id of one half stops: the first token of the greedy answer is in one of the halves.
  const auto answer_with = [&](int first_stop_id) {
    json ids = json::array();
    for (int id = first_stop_id; id < first_stop_id + 160; ++id) ids.push_back(id);
    const fs::path model = copy_model("stop-" + std::to_string(first_stop_id));
    write_content(model / "generation_config.json", json{{"eos_token_id", ids}}.dump());
    return answers({"--prompt", "fox?"}, model).at(0);
  };
  const json low = answer_with(0), high = answer_with(160);
  const bool starts_low = low["response"] == "";
  const json& stopped = starts_low ? low : high;
  const json& other = starts_low ? high : low;
  EXPECT_EQ(stopped["response"], "");
  EXPECT_EQ(stopped["finish_reason"], "stop");
  const std::string whole = answers({"--prompt", "fox?"}).at(0)["response"];
  EXPECT_FALSE(other["response"] == "" && other["finish_reason"] == "stop");
  EXPECT_EQ(whole.rfind(other["response"].get<std::string>(), 0), 0u) << whole << " | " << other;
}

TEST_F(Infer, MaxNewTokensComesFromTheGenerationConfigUnlessAFlagSaysOtherwise) {
  const fs::path model = copy_model();
  write_content(model / "generation_config.json", R"({"max_new_tokens": 3})");
  const ProgramResult by_file = run({"infer", "--model", model, "--prompt", "fox?"});
  EXPECT_THAT(by_file.err, HasSubstr(" 3 new tokens"));
  EXPECT_THAT(infer({"--prompt", "fox?", "--max_new_tokens", "2"}, model).err,
              HasSubstr(" 2 new tokens"));
}

TEST_F(Infer, AdaptersNameTheirBaseModelOnceAndChangeTheAnswer) {
  const fs::path run_directory = train_adapter();
  const ProgramResult alone =
      run({"infer", "--adapters", run_directory, "--prompt", "fox?", "--max_new_tokens", "12"});
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_EQ(count_of(alone.err, "base model: "), 1u) << alone.err;
  EXPECT_THAT(alone.err, HasSubstr("base model: " + good("model").string()));
  EXPECT_NE(alone.out, infer({"--prompt", "fox?"}).out);
  EXPECT_EQ(infer({"--prompt", "fox?", "--adapters", run_directory}).out, alone.out);
  // The directory given as the model is found out.
  EXPECT_EQ(infer({"--prompt", "fox?"}, run_directory).out, alone.out);
}

TEST_F(Infer, AnAdapterOfAnotherModelIsRefusedByNameAndTensor) {
  const fs::path run_directory = train_adapter();
  write("wide.json", content_of(good("config.json")));
  replace_in_file((*this) / "wide.json", "\"hidden_size\": 32", "\"hidden_size\": 64");
  ASSERT_EQ(
      run({"init", "--config", "wide.json", "--tokenizer", good("tokenizer"), "--output", "wide"})
          .exit_code,
      0);
  const ProgramResult result =
      infer({"--prompt", "fox?", "--adapters", run_directory}, (*this) / "wide");
  expect_error(result, 4,
               {"this adapter was trained on " + good("model").string(),
                "lora_B.weight is [32, 8], this model needs [64, 8]", "hint: give the base model"});
  EXPECT_EQ(count_of(result.err, "lora_"), 1u) << result.err;
}

TEST_F(Infer, BeamSearchAnswersTheSameEveryTime) {
  const std::vector<std::string> flags = {"--dataset", questions(), "--num_beams", "3"};
  const auto rows = answers(flags);
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(answers(flags), rows);
  const auto by_task =
      answers({"--dataset", questions(), "--task", "beam_search", "--num_beams", "3"});
  EXPECT_EQ(by_task, rows);
}

TEST_F(Infer, BeamsAskedForBesideAModeWithoutThemAreSaid) {
  const ProgramResult result = infer({"--prompt", "fox?", "--task", "greedy", "--num_beams", "3"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("--task greedy names no beams, but 3 are searched"));
  EXPECT_THAT(infer({"--prompt", "fox?", "--task", "greedy"}).err, Not(HasSubstr("beams")));
}

TEST_F(Infer, ABeamSearchOfOneBeamIsRefused) {
  for (const std::string task : {"beam_search", "beam_search_with_sampling"}) {
    expect_error(infer({"--prompt", "fox?", "--task", task, "--num_beams", "1"}), 2,
                 {"[--num_beams] --task " + task + " searches at least 2 beams, got 1",
                  "hint: leave out --num_beams for 2 beams, or --task"});
  }
  // Nothing given is 2 beams.
  EXPECT_EQ(infer({"--prompt", "fox?", "--task", "beam_search"}).out,
            infer({"--prompt", "fox?", "--task", "beam_search", "--num_beams", "2"}).out);
}

TEST_F(Infer, ATemperatureOfZeroDrawsNothingWhateverTheTaskSays) {
  const auto answer = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> all = {"--prompt", "fox?", "--max_new_tokens", "12"};
    all.insert(all.end(), flags.begin(), flags.end());
    return infer(all).out;
  };
  const std::string greedy = answer({"--task", "greedy"});
  for (const char* seed : {"1", "2", "3"})
    EXPECT_EQ(answer({"--task", "do_sample", "--temperature", "0", "--seed", seed}), greedy);
}

TEST_F(Infer, ATypeNamedTwiceIsOneType) {
  expect_error(infer({"--prompt", "fox?", "--dtype", "fp32", "--bf16"}), 2,
               {"--dtype fp32 disagrees with --bf16"});
  const ProgramResult short_name = infer({"--prompt", "fox?", "--dtype", "bf16", "--bf16"});
  EXPECT_EQ(short_name.exit_code, 0) << short_name.err;
  EXPECT_EQ(infer({"--prompt", "fox?", "--torch_dtype", "bfloat16"}).out, short_name.out);
}

TEST_F(Infer, RunsOfOneSecondKeepTheirAnswersApart) {
  constexpr size_t kRuns = 5;
  std::vector<ProgramResult> results(kRuns);
  {
    std::vector<std::jthread> runs;
    for (size_t i = 0; i < kRuns; ++i) {
      std::string rows;
      for (size_t row = 0; row <= i; ++row) rows += fmt::format("run {} row {}\n", i, row);
      const std::string file = write(fmt::format("q{}.txt", i), rows).string();
      runs.emplace_back([&, i, file] { results[i] = infer({"--dataset", file}); });
    }
  }
  std::set<std::string> names;
  for (size_t i = 0; i < kRuns; ++i) {
    ASSERT_EQ(results[i].exit_code, 0) << results[i].err;
    std::smatch place;
    ASSERT_TRUE(std::regex_search(results[i].err, place, std::regex("answers: (\\S+)")));
    names.insert(place[1]);
    std::istringstream lines(content_of((*this) / place[1].str()));
    size_t count = 0;
    for (std::string line; std::getline(lines, line); ++count)
      EXPECT_EQ(json::parse(line)["query"], fmt::format("run {} row {}", i, count));
    EXPECT_EQ(count, i + 1);
  }
  EXPECT_EQ(names.size(), kRuns);
}

TEST_F(Infer, ADataSetsAnswersAreKeptBesideAPromptToo) {
  const ProgramResult both = infer({"--prompt", "fox?", "--dataset", questions()});
  ASSERT_EQ(both.exit_code, 0) << both.err;
  EXPECT_THAT(both.err, HasSubstr("answers: "));
}

TEST_F(Infer, APromptThatIsNotUtf8IsRefused) {
  expect_error(infer({"--prompt", "fox \xC4\xE3"}), 2, {"[--prompt] not UTF-8: byte 0xC4 at 5"});
}

TEST_F(Infer, ALinkToNothingIsCalledOne) {
  fs::create_symlink("moved_away", (*this) / "link");
  expect_error(infer({"--prompt", "fox?"}, (*this) / "link"), 4,
               {"no such directory", "it is a link to moved_away, where nothing is"});
}

TEST_F(Infer, RawTextNeedsSomethingToGoOnFrom) {
  expect_error(infer({"--raw", "--prompt", ""}), 3, {"--prompt: ", "empty"});
  // With a template an empty message is a question like any other.
  EXPECT_EQ(infer({"--prompt", ""}).exit_code, 0);
  EXPECT_EQ(infer({"--raw", "--prompt", "the"}).exit_code, 0);
}

TEST_F(Infer, AResultThatCannotBeWrittenIsFoundBeforeAnyAnswer) {
  write("in_the_way", "");
  expect_error(infer({"--dataset", questions(), "--output", "in_the_way/a.jsonl"}), 8,
               {"in_the_way", "Not a directory"});
  fs::create_directory((*this) / "folder");
  const ProgramResult directory = infer({"--dataset", questions(), "--output", "folder"});
  expect_error(directory, 2, {"[--output] folder: is a directory", "hint: "});
  EXPECT_THAT(directory.err, Not(HasSubstr("new tokens")));
}

TEST_F(Infer, AnswersThatCannotBeWrittenArePrinted) {
  const std::string file = questions();
  answers({"--dataset", file});
  const std::string wanted = content_of((*this) / "answers.jsonl");
  // A limit of no bytes a file is a disk that is full; pipes have none.
  const std::string command = "cd " + ((*this) / "").string() +
                              " && ulimit -f 0 && OMP_NUM_THREADS=1 " + danlu_path() +
                              " infer --model " + good("model").string() + " --dataset " + file +
                              " --max_new_tokens 12 --output full.jsonl 2>&1";
  std::string printed;
  FILE* pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  char chunk[4096];
  for (size_t got = 0; (got = std::fread(chunk, 1, sizeof chunk, pipe)) > 0;)
    printed.append(chunk, got);
  EXPECT_EQ(WEXITSTATUS(::pclose(pipe)), 8);
  EXPECT_THAT(printed, HasSubstr(wanted));
  EXPECT_THAT(printed, HasSubstr("full.jsonl: "));
  EXPECT_THAT(printed, HasSubstr("the answers were printed instead"));
  EXPECT_FALSE(fs::exists((*this) / "full.jsonl"));
}

TEST_F(Infer, ANameTooLongForAFileIsFoundBeforeAnyAnswer) {
  const ProgramResult result =
      infer({"--dataset", questions(), "--output", std::string(300, 'a') + ".jsonl"});
  expect_error(result, 8, {".jsonl: File name too long"});
  EXPECT_THAT(result.err, Not(HasSubstr("new tokens")));
  EXPECT_THAT(result.err, Not(HasSubstr("filesystem error")));
}

TEST_F(Infer, TheTemplateOfTrainingIsReadBackAndAnnounced) {
  const fs::path run_directory = train_adapter({"--template", "default"});
  const ProgramResult recorded =
      run({"infer", "--adapters", run_directory, "--prompt", "fox?", "--max_new_tokens", "12"});
  ASSERT_EQ(recorded.exit_code, 0) << recorded.err;
  EXPECT_EQ(count_of(recorded.err, "template: default, from "), 1u) << recorded.err;
  EXPECT_THAT(recorded.err, HasSubstr("run/args.json"));
  const ProgramResult named =
      infer({"--prompt", "fox?", "--adapters", run_directory, "--prompt-type", "default"});
  EXPECT_THAT(named.err, Not(HasSubstr("template: ")));
  EXPECT_EQ(named.out, recorded.out);
  const ProgramResult other =
      infer({"--prompt", "fox?", "--adapters", run_directory, "--prompt-type", "chatml"});
  EXPECT_EQ(prompt_tokens(named), prompt_tokens(recorded));
  EXPECT_NE(prompt_tokens(other), prompt_tokens(recorded));
}

}  // namespace
}  // namespace danlu::test
