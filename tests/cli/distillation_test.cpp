// Learning from a teacher as a user of ms-swift types it: what it comes to, going on, bad input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/preference_lines.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Distilled : public PreferenceLines {
 protected:
  void SetUp() override {
    PreferenceLines::SetUp();
    std::string rows;
    for (int i = 0; i < 12; ++i) {
      rows += Json{{"query", "question " + std::to_string(i)},
                   {"response", "answer " + std::to_string(i * 7)}}
                  .dump() +
              "\n";
    }
    write("rows.jsonl", rows);
    // Twice as wide as the model that learns.
    Json config = Json::parse(std::ifstream(good("model") / "config.json"));
    config.update({{"hidden_size", 64}, {"initializer_range", 0.2}});
    write("teacher.json", config.dump());
    ok({"init", "--config", "teacher.json", "--output", "teacher", "--tokenizer",
        good("tokenizer").string(), "--seed", "11"});
  }
  std::vector<std::string> taught(const std::string& to,
                                  const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words =
        line({"rlhf", "--rlhf_type", "gkd", "--teacher_model", "teacher"}, "rows.jsonl", to,
             {"--tuner", "full", "--max_completion_length", "6", "--lr_scheduler", "constant"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

TEST_F(Distilled, ComesNearerToItsTeacher) {
  for (const char* beta : {"0", "0.5", "1"}) {
    SCOPED_TRACE(beta);
    const std::string to = std::string("beta") + beta;
    const ProgramResult result =
        ok(taught(to, {"--beta", beta, "--lmbda", "0", "--max_steps", "20", "--lr", "5e-3"}));
    EXPECT_THAT(result.err, HasSubstr("danlu rlhf · gkd · full"));
    const auto steps = steps_of(*this / to);
    ASSERT_EQ(steps.size(), 20u);
    EXPECT_LT(steps.back().at("loss").get<double>(), 0.7 * steps.front().at("loss").get<double>());
    EXPECT_GT(evaluation_of(to).at("eval_loss").get<double>(), 0);
  }
}

TEST_F(Distilled, LearnsFromAnswersOfItsOwnToo) {
  const ProgramResult result = ok(taught(
      "run", {"--lmbda", "0.5", "--sft_alpha", "0.1", "--max_steps", "8", "--save_steps", "4"}));
  const auto steps = steps_of(*this / "run");
  ASSERT_EQ(steps.size(), 8u);
  int drawn = 0;
  for (const Json& step : steps) {
    const bool is_drawn = step.at("on_policy") == 1;
    drawn += is_drawn ? 1 : 0;
    EXPECT_EQ(step.contains("completions/mean_length"), is_drawn) << step.dump();
    EXPECT_EQ(step.contains("sft_loss"), !is_drawn) << step.dump();
    if (is_drawn) {
      EXPECT_NEAR(step.at("loss").get<double>(), step.at("divergence").get<double>(), 1e-9);
    }
  }
  EXPECT_GT(drawn, 0);
  EXPECT_LT(drawn, 8);
  // Goes on from its checkpoint as if it had not been broken off.
  ok(taught("again",
            {"--lmbda", "0.5", "--sft_alpha", "0.1", "--max_steps", "8", "--save_steps", "4"}));
  fs::remove_all(*this / "again" / "checkpoint-8");
  ok(taught("again",
            {"--lmbda", "0.5", "--sft_alpha", "0.1", "--max_steps", "8", "--save_steps", "4"}));
  const ProgramResult same = run({"diff", "run", "again"});
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
}

TEST_F(Distilled, AdaptersLearnToo) {
  ok(taught("run", {"--tuner", "lora", "--lmbda", "1", "--gkd_logits_topk", "16"}));
  EXPECT_TRUE(fs::exists(*this / "run" / "adapter_model.safetensors"));
  ok({"infer", "--model", good("model").string(), "--adapters", "run", "--prompt", "question",
      "--max_new_tokens", "2"});
}

TEST_F(Distilled, TwoProcessesDoWhatOneDoes) {
  const std::vector<std::string> more = {"--lmbda", "0.5", "--max_steps", "6"};
  ok(taught("one", more));
  for (const char* split : {"--shard=zero3", "--tp=2", "--pp=2"}) {
    SCOPED_TRACE(split);
    std::vector<std::string> words = taught("two", more);
    words.insert(words.end(), {split, "--nproc_per_node", "2", "--overwrite_output_dir"});
    ok(words);
    expect_same_losses(*this / "one", *this / "two", 6);
  }
}

TEST_F(Distilled, ATeacherOfAnotherDepthIsCutByItself) {
  Json config = Json::parse(std::ifstream(*this / "teacher.json"));
  config["num_hidden_layers"] = config["num_hidden_layers"].get<int64_t>() + 1;
  write("deeper.json", config.dump());
  ok({"init", "--config", "deeper.json", "--output", "deeper", "--tokenizer",
      good("tokenizer").string(), "--seed", "12"});
  const std::vector<std::string> more = {"--teacher_model", "deeper", "--lmbda", "0",
                                         "--max_steps",     "3"};
  const auto of = [&](const std::string& to) {
    std::vector<std::string> words = taught(to, more);
    words.erase(std::find(words.begin(), words.end(), "--teacher_model"),
                std::find(words.begin(), words.end(), "--teacher_model") + 2);
    return words;
  };
  ok(of("one"));
  std::vector<std::string> two = of("two");
  two.insert(two.end(),
             {"--pp", "2", "--decoder_first_pipeline_num_layers", "1", "--nproc_per_node", "2"});
  ok(two);
  expect_same_losses(*this / "one", *this / "two", 3);
}

TEST_F(Distilled, ARunGoesOnWithItsOwnTeacherAlone) {
  const std::vector<std::string> more = {"--lmbda", "0", "--save_steps", "2", "--max_steps"};
  const auto of = [&](const char* steps, const char* teacher) {
    std::vector<std::string> words = taught("run", more);
    words.emplace_back(steps);
    *(std::find(words.begin(), words.end(), "--teacher_model") + 1) = teacher;
    return words;
  };
  ok(of("2", "teacher"));
  ok({"init", "--config", "teacher.json", "--output", "another", "--tokenizer",
      good("tokenizer").string(), "--seed", "13"});
  EXPECT_THAT(run(of("4", "another")).err,
              AllOf(HasSubstr("objective.reference"), HasSubstr("(--teacher_model)")));
}

// Two turns: the first is part of the prompt.
TEST_F(Distilled, TheModelAnswersTheLastTurn) {
  std::string rows;
  for (int i = 0; i < 12; ++i) {
    rows += Json{{"query", std::to_string(i)},
                 {"response", std::to_string(i * 7)},
                 {"history", Json::parse(R"([["a", "b"]])")}}
                .dump() +
            "\n";
  }
  write("rows.jsonl", rows);
  ok(taught("default", {"--loss_scale", "default", "--lmbda", "1", "--max_steps", "1"}));
  ok(taught("last", {"--lmbda", "1", "--max_steps", "1"}));
  expect_same_losses(*this / "default", *this / "last", 1);
}

TEST_F(Distilled, WhatCannotBeTaughtIsSaid) {
  std::vector<std::string> none =
      line({"rlhf", "--rlhf_type", "gkd"}, "rows.jsonl", "run", {"--tuner", "full"});
  expect_error(run(none), 2, {"gkd without a teacher", "--teacher_model DIR"});
  expect_error(run(taught("run", {"--beta", "2"})), 2, {"--beta 2", "between 0"});
  expect_error(run(taught("run", {"--seq_kd", "true"})), 2, {"--seq_kd", "danlu infer"});
  expect_error(run(taught("run", {"--teacher_model_server", "http://localhost:1"})), 2,
               {"--teacher_model_server", "--teacher_model DIR"});
  expect_error(run(taught("run", {"--pack_sequences"})), 2, {"--lmbda", "packs of samples"});
  EXPECT_THAT(
      ok(line({"rlhf", "--rlhf_type", "dpo"}, "pairs.jsonl", "dpo", {"--teacher_model", "teacher"}))
          .err,
      HasSubstr("--teacher_model has no effect in dpo"));
}

// Another tokenizer gives other tokens their ids.
TEST_F(Distilled, ATeacherOfOtherTokensIsRefused) {
  write("words.txt", "zebra quagga zebra quagga okapi okapi zebra\n");
  ok({"tokenizer", "train", "--input", "words.txt", "--vocab_size", "270", "--output", "other"});
  ok({"init", "--config", "teacher.json", "--output", "stranger", "--tokenizer", "other"});
  std::vector<std::string> words = taught("run");
  *(std::find(words.begin(), words.end(), "--teacher_model") + 1) = "stranger";
  expect_error(run(words), 4, {"--teacher_model", "its tokenizer is another than the model's"});
}

}  // namespace
}  // namespace danlu::test
