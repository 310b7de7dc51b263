// Answers that a model draws, as rows to train on.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <map>

#include "cli/bad_input.h"
#include "cli/logged_steps.h"
#include "support/file_size_limit.h"

namespace danlu::test {
namespace {

using testing::HasSubstr;

class RolloutLine : public BadInput {
 protected:
  void SetUp() override {
    BadInput::SetUp();
    std::string prompts;
    for (int i = 0; i < 6; ++i) {
      prompts +=
          Json{{"messages", {{{"role", "user"}, {"content", "question " + std::to_string(i)}}}},
               {"solution", "7"},
               {"number", i}}
              .dump() +
          "\n";
    }
    write("prompts.jsonl", prompts);
    // What is longer than the mean of all is better; an answer that begins with a space has no
    // score.
    write("judge.sh",
          "#!/bin/sh\nsed -E 's/.*\"completion\":\"(([^\"\\\\]|\\\\.)*)\".*/\\1/' | "
          "awk '{ print (substr($0, 1, 1) == \" \") ? \"null\" : length($0) }'\n");
  }
  std::vector<std::string> line(const std::string& to,
                                const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"rollout",
                                      "--model",
                                      good("model").string(),
                                      "--dataset",
                                      "prompts.jsonl",
                                      "--num_generations",
                                      "4",
                                      "--max_new_tokens",
                                      "6",
                                      "--reward_funcs",
                                      "program:sh judge.sh",
                                      "--batch_size",
                                      "5",
                                      "--output",
                                      to};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::vector<Json> rows(const std::string& name) const {
    std::ifstream file(*this / name);
    std::vector<Json> found;
    for (std::string text; std::getline(file, text);) found.push_back(Json::parse(text));
    return found;
  }
};

/// What the trained model says gets the same numbers in its run and behind it.
TEST_F(RolloutLine, RewardModelsJudgeAsInTraining) {
  std::string pairs;
  for (size_t i = 0; i < 12; ++i) {
    pairs += Json{{"prompt", "question " + std::to_string(i)},
                  {"chosen", "yes, " + std::string(i % 4, 'y')},
                  {"rejected", "no"}}
                 .dump() +
             "\n";
  }
  write("pairs.jsonl", pairs);
  const auto train = [&](const std::string& type, const std::string& data, const std::string& to,
                         const std::vector<std::string>& more) {
    std::vector<std::string> words = {"rlhf",
                                      "--rlhf_type",
                                      type,
                                      "--model",
                                      good("model").string(),
                                      "--dataset",
                                      data,
                                      "--output_dir",
                                      to,
                                      "--max_steps",
                                      "2",
                                      "--lr",
                                      "1e-2",
                                      "--batch_size",
                                      "4",
                                      "--accum",
                                      "1",
                                      "--dtype",
                                      "fp32",
                                      "--version_dir",
                                      "false",
                                      "--val_ratio",
                                      "0",
                                      "--seed",
                                      "5"};
    words.insert(words.end(), more.begin(), more.end());
    return ok(words);
  };
  // Its answers end: reward models see the token that ended them.
  std::string brief;
  for (int i = 0; i < 6; ++i) {
    brief += Json{{"query", "question " + std::to_string(i)}, {"response", "y"}}.dump() + "\n";
  }
  write("brief.jsonl", brief);
  ok({"sft",
      "--model",
      good("model").string(),
      "--dataset",
      "brief.jsonl",
      "--output_dir",
      "brief",
      "--tuner",
      "full",
      "--max_steps",
      "40",
      "--lr",
      "1e-2",
      "--dtype",
      "fp32",
      "--version_dir",
      "false",
      "--val_ratio",
      "0",
      "--save_strategy",
      "no"});
  train("rm", "pairs.jsonl", "whole", {"--tuner", "full"});
  train("rm", "pairs.jsonl", "adapters", {"--tuner", "lora"});
  for (const std::string judge : {"whole", "adapters"}) {
    SCOPED_TRACE(judge);
    train("grpo", "prompts.jsonl", "by_" + judge,
          {"--model", "brief", "--lr", "1e-5", "--reward_model", judge, "--tuner", "full",
           "--num_generations", "2", "--max_completion_length", "6", "--val_dataset",
           "prompts.jsonl", "--eval_steps", "2"});
    double trained = 0;
    std::ifstream log(*this / ("by_" + judge) / "logging.jsonl");
    for (std::string text; std::getline(log, text);)
      trained = Json::parse(text).value("eval_reward", trained);
    ASSERT_NE(trained, 0);
    ok({"rollout",
        "--model",
        "by_" + judge,
        "--dataset",
        "prompts.jsonl",
        "--num_generations",
        "1",
        "--temperature",
        "0",
        "--max_new_tokens",
        "6",
        "--reward_model",
        judge,
        "--dtype",
        "fp32",
        "--reward_funcs",
        "repetition",
        "--reward_weights",
        "0",
        "1",
        "--output",
        judge + ".jsonl"});
    double sum = 0;
    int ends = 0;
    const std::vector<Json> found = rows(judge + ".jsonl");
    ASSERT_EQ(found.size(), 6u);
    for (const Json& row : found) {
      ends += row.at("finish_reason") == "stop" ? 1 : 0;
      sum += row.at("rewards").at(judge).get<double>();
      EXPECT_EQ(row.at("reward"), row.at("rewards").at(judge));
    }
    EXPECT_GT(ends, 0);
    EXPECT_NEAR(sum / 6, trained, 1e-5);
  }
  expect_error(run(line("x.jsonl", {"--reward_model", good("model").string()})), 4,
               {"no reward model", "danlu rlhf --rlhf_type rm"});
  EXPECT_FALSE(std::filesystem::exists(*this / "x.jsonl"));
}

TEST_F(RolloutLine, ASignalDoesNotWaitForAProgramThatHangs) {
  write("judge.sh", "echo > asked\nsleep 600\n");
  ProgramSettings settings;
  settings.directory = (*this / "").string();
  settings.signal = SIGTERM;
  settings.signal_when = [&] { return std::filesystem::exists(*this / "asked"); };
  const ProgramResult result = run_danlu(line("out.jsonl"), settings);
  EXPECT_EQ(result.exit_code, 143) << result.err;
  EXPECT_THAT(result.err, testing::Not(HasSubstr("took longer")));
  EXPECT_FALSE(std::filesystem::exists(*this / "out.jsonl"));
}

TEST_F(RolloutLine, AKilledOneGoesOnBehindTheRowsThatItLeft) {
  ok(line("whole.jsonl"));
  std::ifstream judge(*this / "judge.sh");
  const std::string judging((std::istreambuf_iterator<char>(judge)), {});
  write("judge.sh",
        "#!/bin/sh\necho >> asked\n[ -e hang ] && [ $(wc -l < asked) -gt 1 ] && sleep "
        "600\n" +
            judging.substr(judging.find('\n') + 1));
  write("hang", "");
  const auto asked = [&] {
    std::ifstream file(*this / "asked");
    return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  };
  ProgramSettings settings;
  settings.directory = (*this / "").string();
  settings.signal = SIGKILL;
  settings.signal_when = [&] { return asked() == 2; };
  run_danlu(line("out.jsonl"), settings);
  std::filesystem::remove(*this / "hang");
  const ProgramResult again = ok(line("out.jsonl"));
  EXPECT_THAT(again.err, HasSubstr("5 of 6 prompts are done by a run that was broken off"));
  EXPECT_THAT(again.err, HasSubstr("6 prompts, 24 answers"));
  EXPECT_EQ(asked(), 3) << "what was judged is not judged again";
  EXPECT_EQ(rows("out.jsonl"), rows("whole.jsonl"));
  EXPECT_FALSE(std::filesystem::exists(*this / "out.jsonl.partial.progress"));
  write("hang", "");
  write("asked", "");
  run_danlu(line("out.jsonl", {"--overwrite"}), settings);
  std::filesystem::remove(*this / "hang");
  ok(line("out.jsonl", {"--overwrite", "--seed", "3"}));
  ok(line("other.jsonl", {"--seed", "3"}));
  EXPECT_EQ(rows("out.jsonl"), rows("other.jsonl")) << "another request's rows are not taken";
}

TEST_F(RolloutLine, AFullDiskKeepsWhatIsDoneAndTheSameCommandGoesOn) {
  const auto few_at_a_time = [&](const std::string& to) {
    return line(to, {"--batch_size", "2"});  // of 4 answers each: 2 prompts
  };
  ok(few_at_a_time("whole.jsonl"));
  const auto bytes = std::filesystem::file_size(*this / "whole.jsonl");
  ProgramResult full;
  const int code = with_file_size_limit(bytes - 1, [&] {
    full = run(few_at_a_time("out.jsonl"));
    std::ofstream(*this / "said") << full.err;
    return full.exit_code;
  });
  EXPECT_EQ(code, 8);
  std::ifstream said(*this / "said");
  const std::string error((std::istreambuf_iterator<char>(said)), {});
  EXPECT_THAT(error, HasSubstr("out.jsonl.partial: cannot write: File too large; 4 of 6 prompts "
                               "are done, and stay there"));
  EXPECT_THAT(error, HasSubstr("the same command goes on behind the prompts that are done"));
  EXPECT_FALSE(std::filesystem::exists(*this / "out.jsonl"));
  const ProgramResult again = ok(few_at_a_time("out.jsonl"));
  EXPECT_THAT(again.err, HasSubstr("4 of 6 prompts are done by a run that was broken off"));
  EXPECT_EQ(rows("out.jsonl"), rows("whole.jsonl"));
}

TEST_F(RolloutLine, WritesEveryAnswerWithItsRewards) {
  const ProgramResult result = ok(line("all.jsonl"));
  EXPECT_THAT(result.err, HasSubstr("6 prompts, 24 answers"));
  const std::vector<Json> all = rows("all.jsonl");
  ASSERT_FALSE(all.empty());
  std::map<int, std::vector<double>> rewards;
  for (const Json& row : all) {
    EXPECT_EQ(row.at("solution"), "7") << "the columns of the prompt stay";
    ASSERT_EQ(row.at("messages").size(), 2u);
    EXPECT_EQ(row.at("messages")[1].at("role"), "assistant");
    ASSERT_EQ(row.at("rewards").size(), 1u);
    EXPECT_EQ(*row.at("rewards").begin(), row.at("reward"));
    rewards[row.at("number").get<int>()].push_back(row.at("reward").get<double>());
  }
  for (const auto& [number, of_prompt] : rewards) {
    EXPECT_LE(of_prompt.size(), 4u);
    EXPECT_TRUE(std::is_sorted(of_prompt.rbegin(), of_prompt.rend())) << "the best first";
  }
  ok(line("again.jsonl", {"--batch_size", "64"}));
  EXPECT_EQ(rows("again.jsonl"), all) << "draws depend on seed and prompt alone";
  ok(line("other.jsonl", {"--seed", "3"}));
  EXPECT_NE(rows("other.jsonl"), all);
}

TEST_F(RolloutLine, KeepsTheBestAndRejectsTheWorst) {
  const ProgramResult all = ok(line("all.jsonl"));
  std::map<int, std::vector<Json>> of_prompt;
  for (const Json& row : rows("all.jsonl")) of_prompt[row.at("number").get<int>()].push_back(row);
  double sum = 0, count = 0, best = 0;
  for (const auto& [number, drawn] : of_prompt) {
    best += drawn.front().at("reward").get<double>();
    for (const Json& row : drawn) sum += row.at("reward").get<double>();
    count += static_cast<double>(drawn.size());
  }
  best /= static_cast<double>(of_prompt.size());
  EXPECT_GT(best, sum / count);
  EXPECT_THAT(all.err, HasSubstr(fmt::format("best of 4: mean reward {:.4f}", best)));
  EXPECT_THAT(all.err,
              HasSubstr(fmt::format("program:judge.sh: mean {:.4f}, {:.0f} answers that it "
                                    "could not judge",
                                    sum / count, 24 - count)));
  ok(line("pairs.jsonl", {"--n_best_to_keep", "1", "--keep_rejected", "true"}));
  const std::vector<Json> pairs = rows("pairs.jsonl");
  size_t expected = 0;
  for (const auto& [number, drawn] : of_prompt)
    expected += drawn.front().at("reward") != drawn.back().at("reward");
  ASSERT_GT(expected, 0u);
  ASSERT_EQ(pairs.size(), expected);
  for (const Json& pair : pairs) {
    const std::vector<Json>& drawn = of_prompt[pair.at("number").get<int>()];
    EXPECT_EQ(pair.at("messages"), drawn.front().at("messages"));
    EXPECT_EQ(pair.at("rejected_response"), drawn.back().at("messages")[1].at("content"));
  }
  ok(line("good.jsonl", {"--min_reward", "5"}));
  for (const Json& row : rows("good.jsonl")) EXPECT_GE(row.at("reward").get<double>(), 5);
  // The rows are what preference training reads.
  ok({"rlhf", "--rlhf_type", "dpo", "--model", good("model").string(), "--dataset", "pairs.jsonl",
      "--output_dir", "dpo", "--max_steps", "1", "--batch_size", "1", "--accum", "1", "--val_ratio",
      "0", "--dtype", "fp32"});
}

TEST_F(RolloutLine, StopWordsEndAnswersBehindThem) {
  write("judge.sh", "#!/bin/sh\nawk '{ print NR }'\n");
  const auto texts = [&](const std::string& name) {
    std::map<double, Json> by_number;  // answers are numbered in the order they are drawn in
    for (const Json& row : rows(name)) {
      by_number[100 * row.at("number").get<int>() + row.at("reward").get<double>()] = {
          row.at("messages")[1].at("content"), row.at("finish_reason")};
    }
    return by_number;
  };
  ok(line("whole.jsonl", {"--batch_size", "64"}));
  ok(line("ended.jsonl", {"--batch_size", "64", "--stop_words", "h", "no such, word"}));
  const auto whole = texts("whole.jsonl"), ended = texts("ended.jsonl");
  ASSERT_EQ(whole.size(), 24u);
  ASSERT_EQ(ended.size(), 24u);
  int shorter = 0;
  for (const auto& [number, pair] : whole) {
    const std::string all = pair[0], text = ended.at(number)[0];
    EXPECT_TRUE(all.starts_with(text)) << all << " | " << text;
    EXPECT_EQ(text.find('h') == text.npos, all.find('h') == all.npos);
    if (text.find('h') == text.npos) {
      EXPECT_EQ(ended.at(number), pair);
      continue;
    }
    EXPECT_EQ(ended.at(number)[1], "stop");
    shorter += text.size() < all.size() ? 1 : 0;
  }
  EXPECT_GT(shorter, 0);
  expect_error(run(line("x.jsonl", {"--stop_words", ""})), 2, {"would end every answer"});
  EXPECT_FALSE(std::filesystem::exists(*this / "x.jsonl"));
}

TEST_F(RolloutLine, BadLinesLoseNothing) {
  write("there.jsonl", "mine\n");
  expect_error(run(line("there.jsonl")), 2, {"there.jsonl", "--overwrite"});
  expect_error(run(line("x.jsonl", {"--reward_funcs", "acuracy"})), 2, {"did you mean accuracy"});
  std::vector<std::string> none = line("x.jsonl");
  none.erase(std::find(none.begin(), none.end(), "--reward_funcs"),
             std::find(none.begin(), none.end(), "--reward_funcs") + 2);
  expect_error(run(none), 2, {"--reward_funcs"});
  std::vector<std::string> unjudged = line("none.jsonl", {"--reward_column", "nothing"});
  *(std::find(unjudged.begin(), unjudged.end(), "--reward_funcs") + 1) = "gsm8k";
  const ProgramResult none_judged = run(unjudged);
  expect_error(none_judged, 3, {"none of 24 answers could be judged", "--reward_column"});
  EXPECT_THAT(none_judged.err, HasSubstr("gsm8k: 24 answers, none of which it could judge"));
  EXPECT_THAT(none_judged.err, testing::Not(HasSubstr("best of 4")));
  // As ms-swift has it in training.
  std::vector<std::string> swift = line("swift.jsonl");
  *std::find(swift.begin(), swift.end(), "--max_new_tokens") = "--max_completion_length";
  ok(swift);
  ok(line("danlu.jsonl"));
  EXPECT_EQ(rows("swift.jsonl"), rows("danlu.jsonl"));
  *(std::find(swift.begin(), swift.end(), "--max_completion_length") + 1) = "2";
  *(std::find(swift.begin(), swift.end(), "--output") + 1) = "short.jsonl";
  ok(swift);
  EXPECT_NE(rows("short.jsonl"), rows("danlu.jsonl"));
  write("other.jsonl", "{\"other\": 1}\n");
  expect_error(run(line("x.jsonl", {"--dataset", "other.jsonl"})), 3, {"no query column", "other"});
}

// ms-swift's sample, with its defaults.
TEST_F(RolloutLine, SampleKeepsTheBestFiveInItsOwnFolder) {
  write("sample.yaml", "model: " + good("model").string() +
                           "\ndataset: prompts.jsonl\nsampler_engine: vllm\n"
                           "num_return_sequences: 7\nmax_new_tokens: 6\n"
                           "orm_model: \"program:sh judge.sh\"\noutput_file: kept.jsonl\n"
                           "override_exist_file: true\nnum_sampling_batch_size: 4\n");
  ok({"sample", "sample.yaml"});
  const std::vector<Json> kept = rows("sample_output/kept.jsonl");
  EXPECT_EQ(kept.size(), 6u * 5);
  ok({"sample", "--model", good("model").string(), "--dataset", "prompts.jsonl", "--max_samples",
      "1", "--max_new_tokens", "3", "--reward_funcs", "program:sh judge.sh", "--output_dir",
      "mine"});
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(*this / "mine")) {
    if (entry.path().extension() != ".jsonl") continue;
    ++files;
    EXPECT_EQ(rows("mine/" + entry.path().filename().string()).size(), 5u) << "64 are drawn";
  }
  EXPECT_EQ(files, 1u);
}

}  // namespace
}  // namespace danlu::test
