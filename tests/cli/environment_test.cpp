// Runs that learn from conversations with a program, as a user types them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <sstream>

#include "cli/bad_input.h"
#include "cli/logged_steps.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

using Words = std::vector<std::string>;

class EnvironmentLine : public BadInput {
 protected:
  void SetUp() override {
    BadInput::SetUp();
    std::string prompts;
    for (int i = 0; i < 12; ++i) {
      prompts += Json{{"messages", {{{"role", "user"}, {"content", "q" + std::to_string(i)}}}},
                      {"solution", i}}
                     .dump() +
                 "\n";
    }
    write("prompts.jsonl", prompts);
    write("config.json", R"({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"],
 "vocab_size": 280, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
 "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
 "hidden_act": "silu", "torch_dtype": "float32"})");
    ok({"init", "--config", "config.json", "--tokenizer", good("tokenizer").string(), "--output",
        "model", "--seed", "1"});
    // Counts what it was asked; waits where the file `wait` says, until that is gone. The first
    // answer gets a hint, the second one its length modulo 7. It refuses what it does not expect.
    write(
        "env.sh",
        "#!/bin/sh\necho x >> asked\n"
        "is_asked() { [ \"$(cat wait 2>/dev/null)\" = \"$(wc -l < asked | tr -d ' ')\" ]; }\n"
        "if is_asked; then echo > waiting; fi\nwhile is_asked; do sleep 0.02; done\n"
        "awk "
        "'/"
        "\"turn\":1,.*\"messages\":\\[{\"role\":\"user\",\"content\":\"q.*\"row\":{\"solution\":.*"
        "\"state\":null/ "
        "{ print \"{\\\"messages\\\": [{\\\"role\\\": \\\"user\\\", \\\"content\\\": \\\"h\\\"}], "
        "\\\"state\\\": {\\\"n\\\": \" length($0) \"}}\"; next } "
        "/\"turn\":2,.*\"state\":[{]\"n\":[0-9]+}/ { print \"{\\\"done\\\": true, \\\"reward\\\": "
        "\" "
        "length($0) % 7 \", \\\"info\\\": {\\\"n\\\": \" length($0) \"}}\"; next } "
        "{ print \"unexpected\" }'\n");
    // An untrained model ends no answer by itself.
    words_ = Json::array();
    for (char letter = 'a'; letter <= 'z'; ++letter) words_.push_back(std::string(1, letter));
  }
  Words grpo(const std::string& to, const Words& more = {}) const {
    Words words = {"rlhf",
                   "--rlhf_type",
                   "grpo",
                   "--model",
                   "model",
                   "--dataset",
                   "prompts.jsonl",
                   "--environment",
                   "program:sh env.sh",
                   "--max_turns",
                   "2",
                   "--num_generations",
                   "2",
                   "--max_completion_length",
                   "20",
                   "--stop_words",
                   words_.dump(),
                   "--output_dir",
                   to,
                   "--tuner",
                   "full",
                   "--dtype",
                   "fp32",
                   "--max_steps",
                   "4",
                   "--lr",
                   "1e-2",
                   "--lr_scheduler",
                   "constant",
                   "--global_batch_size",
                   "4",
                   "--batch_size",
                   "2",
                   "--logging_steps",
                   "1",
                   "--save_steps",
                   "2",
                   "--val_ratio",
                   "0",
                   "--version_dir",
                   "false",
                   "--log_completions",
                   "true",
                   "--plot_loss",
                   "false",
                   "--max_length",
                   "64",
                   "--seed",
                   "5"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Words with(Words words, const std::string& flag, const std::string& value) const {
    *(std::find(words.begin(), words.end(), flag) + 1) = value;
    return words;
  }
  std::vector<Json> lines_in(const std::string& name) const {
    std::ifstream file(*this / name);
    std::vector<Json> found;
    for (std::string text; std::getline(file, text);) found.push_back(Json::parse(text));
    return found;
  }
  size_t asked() const { return lines_of(content_of(*this / "asked")); }
  static size_t lines_of(const std::string& text) {
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  void ask_anew() const {
    for (const char* name : {"asked", "wait", "waiting"}) fs::remove(*this / name);
  }
  Json words_;
};

TEST_F(EnvironmentLine, LearnsFromConversationsAndGoesOnAsIfNothingHadBeen) {
  ok(grpo("whole"));
  const std::vector<Json> steps = steps_of(*this / "whole");
  ASSERT_EQ(steps.size(), 4u);
  for (const Json& step : steps) {
    EXPECT_GT(step.at("num_turns/mean"), 1);
    EXPECT_TRUE(step.contains("rewards/environment/mean")) << step;
  }
  size_t talked = 0;
  for (const Json& sample : lines_in("whole/samples.jsonl")) {
    if (sample.at("num_turns") != 2) continue;
    ++talked;
    const Json& messages = sample.at("messages");
    ASSERT_EQ(messages.size(), 4u) << sample;
    EXPECT_EQ(messages[2], Json({{"role", "user"}, {"content", "h"}}));
    EXPECT_THAT(sample.at("prompt").get<std::string>(), HasSubstr("<|im_start|>user\nq"));
    // The program's own figures: the reward is that of the last answer.
    EXPECT_EQ(sample.at("reward"), sample.at("info").at("n").get<int>() % 7);
  }
  EXPECT_GT(talked, 4u);
  // Killed while the second turn of the third rollout is asked about, one behind the checkpoint.
  ask_anew();
  write("wait", "6");
  ProgramSettings settings;
  settings.environment = {{"OMP_NUM_THREADS", "1"}};
  settings.directory = (*this / "").string();
  for (const int signal : {SIGKILL, SIGTERM}) {
    SCOPED_TRACE(signal);
    ask_anew();
    write("wait", "6");
    const std::string to = "killed" + std::to_string(signal);
    settings.signal = signal;
    settings.signal_when = [&] { return fs::exists(*this / "waiting"); };
    EXPECT_EQ(run_danlu(grpo(to), settings).exit_code, 128 + signal);
    ask_anew();
    ok(grpo(to));
    EXPECT_EQ(asked(), 3u) << "the second turn of the third rollout, and the fourth";
    EXPECT_EQ(content_of(*this / to / "samples.jsonl"),
              content_of(*this / "whole" / "samples.jsonl"));
    EXPECT_EQ(content_of(*this / to / "model.safetensors"),
              content_of(*this / "whole" / "model.safetensors"));
  }
  expect_error(run(with(grpo("killed15"), "--max_turns", "3")), 2, {"--max_turns"});
}

TEST_F(EnvironmentLine, AProgramThatIsOfNoUseEndsTheRunAndLosesNothing) {
  ok(grpo("whole"));
  write("env2.sh",
        "[ \"$(cat n 2>/dev/null)\" = xx ] && { echo oops >&2; exit 9; }\n"
        "printf x >> n\nexec sh env.sh\n");
  const auto one_that_dies = with(grpo("died"), "--environment", "program:sh env2.sh");
  // Its third question is in the second rollout.
  const ProgramResult died = run(one_that_dies);
  expect_error(died, 3, {"[environment] sh env2.sh: exit code 9", "the same command goes on"});
  write("env2.sh", "exec sh env.sh\n");
  ok(one_that_dies);
  EXPECT_EQ(content_of(*this / "died" / "model.safetensors"),
            content_of(*this / "whole" / "model.safetensors"));
  write("env3.sh", "cat > /dev/null; echo '{\"messages\": []}'\n");
  expect_error(run(with(grpo("x"), "--environment", "program:sh env3.sh")), 3,
               {"1 lines for 4 conversations"});
}

TEST_F(EnvironmentLine, WhatHasNoPlaceIsSaidBeforeAModelIsRead) {
  expect_error(run(with(grpo("x", {"--reward_funcs", "format"}), "--environment", "gym_scheduler")),
               2, {"gym_scheduler", "program:COMMAND"});
  expect_error(run(with(grpo("x"), "--environment", "math_tip_trick")), 2,
               {"nothing judges the answers"});
  expect_error(run(grpo("x", {"--partial_rollout_max_split", "2"})), 2,
               {"--environment and --partial_rollout_max_split"});
  expect_error(run(with(grpo("x"), "--rlhf_type", "ppo")), 2, {"--environment", "grpo"});
  Words alone = grpo("x", {"--reward_funcs", "format"});
  const auto flag = std::find(alone.begin(), alone.end(), "--environment");
  alone.erase(flag, flag + 2);
  expect_error(run(alone), 2, {"--max_turns 2", "--environment"});
  expect_error(run(with(grpo("x", {"--reward_funcs", "environment"}), "--environment",
                        "thinking_tips_scheduler")),
               2, {"environment: no program gives one"});
  expect_error(run(grpo("x", {"--use_gym_env", "true"})), 2,
               {"--use_gym_env", "--environment program:COMMAND"});
  EXPECT_FALSE(fs::exists(*this / "x"));
}

TEST_F(EnvironmentLine, TipsOfMsSwiftNeedNoProgram) {
  for (const std::string name : {"math_tip_trick", "thinking_tips_scheduler"}) {
    Words words = grpo(name, {"--reward_funcs", "accuracy", "repetition"});
    const auto flag = std::find(words.begin(), words.end(), "--environment");
    *flag = "--multi_turn_scheduler";
    ok(with(with(words, "--multi_turn_scheduler", name), "--max_completion_length", "70"));
    size_t told = 0;
    for (const Json& sample : lines_in(name + "/samples.jsonl")) {
      const bool has_tip = sample.at("completion")
                               .get<std::string>()
                               .find(name == "math_tip_trick" ? "But wait" : "The answer is not") !=
                           std::string::npos;
      EXPECT_EQ(has_tip, sample.at("num_turns") == 2) << sample;
      told += has_tip ? 1 : 0;
      EXPECT_EQ(sample.at("messages").size(), has_tip && name != "math_tip_trick" ? 4u : 2u);
    }
    if (name == "math_tip_trick") {
      EXPECT_GT(told, 0u);
    }
  }
}

TEST_F(EnvironmentLine, EachProcessAsksAboutItsOwnConversations) {
  const Words alone = with(grpo("one", {"--scale_rewards", "none"}), "--max_steps", "2");
  ok(alone);
  ask_anew();
  Words both = with(alone, "--output_dir", "two");
  both.insert(both.begin(), {"launch", "--nproc_per_node=2"});
  ok(both);
  EXPECT_GT(asked(), 4u) << "more than one process asks of two rollouts and turns";
  const std::vector<Json> one = steps_of(*this / "one"), two = steps_of(*this / "two");
  ASSERT_EQ(two.size(), 2u);
  for (size_t step = 0; step < 2; ++step) {
    for (const char* name : {"reward", "num_turns/mean", "completions/mean_length"})
      EXPECT_EQ(one[step].at(name), two[step].at(name)) << name;
    EXPECT_NEAR(one[step].at("grad_norm").get<double>(), two[step].at("grad_norm").get<double>(),
                1e-3);
  }
}

TEST_F(EnvironmentLine, RowsOfConversationsAreThereToTrainOn) {
  const Words line = {"rollout",
                      "--model",
                      "model",
                      "--dataset",
                      "prompts.jsonl",
                      "--num_generations",
                      "2",
                      "--max_new_tokens",
                      "20",
                      "--batch_size",
                      "5",
                      "--environment",
                      "program:sh env.sh",
                      "--max_turns",
                      "2",
                      "--stop_words",
                      words_.dump(),
                      "--reward_funcs",
                      "environment",
                      "repetition",
                      "--reward_weights",
                      "2",
                      "0",
                      "--output",
                      "rows.jsonl"};
  ok(line);
  size_t talked = 0;
  for (const Json& row : lines_in("rows.jsonl")) {
    EXPECT_TRUE(row.contains("solution"));
    const Json& messages = row.at("messages");
    EXPECT_EQ(messages.size(), row.at("num_turns") == 2 ? 4u : 2u);
    EXPECT_EQ(messages.back().at("role"), "assistant");
    const Json& given = row.at("rewards").at("environment");
    EXPECT_EQ(row.at("reward"), given.is_null() ? 0 : 2 * given.get<double>());
    EXPECT_EQ(given.is_null(), row.at("num_turns") == 1);
    talked += row.at("num_turns") == 2 ? 1 : 0;
  }
  EXPECT_GT(talked, 2u);
  ok({"sft", "--model", "model", "--dataset", "rows.jsonl", "--output_dir", "tuned", "--max_steps",
      "1", "--plot_loss", "false", "--max_length", "256"});
}

}  // namespace
}  // namespace danlu::test
