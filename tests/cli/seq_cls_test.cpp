// Models that sort texts, as a user types them: trained, resumed, merged, asked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "cli/preference_lines.h"
#include "cli/served_program.h"
#include "support/raw_http.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class SeqCls : public PreferenceLines {
 protected:
  void SetUp() override {
    PreferenceLines::SetUp();
    std::string one, several, numbers;
    for (int i = 0; i < 24; ++i) {
      const std::string text = std::string(i % 3 == 0   ? "cats"
                                           : i % 3 == 1 ? "dogs"
                                                        : "trees") +
                               " " + std::to_string(i);
      const Json messages = Json::array({{{"role", "user"}, {"content", text}}});
      one += Json{{"messages", messages}, {"label", i % 3}}.dump() + "\n";
      several += Json{{"query", text}, {"label", Json::array({i % 3, 3})}}.dump() + "\n";
      numbers += Json{{"text", text}, {"label", i % 3 - 1.0}}.dump() + "\n";
    }
    write("one.jsonl", one);
    write("several.jsonl", several);
    write("numbers.jsonl", numbers);
  }
  std::vector<std::string> sorting(const std::string& data, const std::string& to,
                                   const std::vector<std::string>& more = {}) const {
    return line({"sft", "--task_type", "seq_cls"}, data, to, more);
  }
  /// The server says of texts what `danlu infer` says of them.
  static void expect_served(const ServedProgram& server, const std::vector<Json>& rows) {
    Json texts = Json::array();
    for (const Json& row : rows) texts.push_back(row.at("query"));
    const Json answer = posted(server.port(), "/classify", {{"input", texts}});
    ASSERT_EQ(answer["data"].size(), rows.size()) << answer;
    for (size_t i = 0; i < rows.size(); ++i) {
      const Json& numbers =
          rows[i].contains("numbers") ? rows[i].at("numbers") : rows[i].at("probabilities");
      for (size_t c = 0; c < numbers.size(); ++c)
        EXPECT_NEAR(answer["data"][i]["probs"][c].get<double>(), numbers[c].get<double>(), 1e-5);
    }
    const Json said = posted(server.port(), "/v1/chat/completions",
                             {{"messages", {{{"role", "user"}, {"content", texts[1]}}}}});
    const Json& content = said.at("choices")[0].at("message").at("content");
    if (content.is_number_float()) {
      EXPECT_NEAR(content.get<double>(), rows[1].at("response").get<double>(), 1e-5);
    } else {
      EXPECT_EQ(content, rows[1].at("response"));
    }
  }
  static double share_right(const std::vector<Json>& rows) {
    double right = 0;
    for (const Json& row : rows) right += row.at("response") == row.at("labels");
    return right / static_cast<double>(rows.size());
  }
};

TEST_F(SeqCls, OneClassOfSeveralIsLearntAndWrittenAsTransformersDoes) {
  const ProgramResult trained =
      ok(sorting("one.jsonl", "out",
                 {"--tuner", "full", "--num_labels", "3", "--max_steps", "40", "--lr", "3e-3"}));
  EXPECT_THAT(trained.err, HasSubstr("a new head: score is drawn"));
  EXPECT_THAT(trained.err, HasSubstr("danlu infer --model out"));
  const Json config = Json::parse(content_of(*this / "out" / "config.json"));
  EXPECT_EQ(config.at("architectures"), Json::array({"Qwen2ForSequenceClassification"}));
  EXPECT_EQ(config.at("problem_type"), "single_label_classification");
  EXPECT_EQ(config.at("id2label"), (Json{{"0", "LABEL_0"}, {"1", "LABEL_1"}, {"2", "LABEL_2"}}));
  EXPECT_THAT(content_of(*this / "out" / "model.safetensors"), HasSubstr("score.weight"));
  EXPECT_TRUE(evaluation_of("out").contains("eval_accuracy"));
  const std::vector<Json> rows = rows_of_infer({"--model", "out"}, "one.jsonl");
  ASSERT_EQ(rows.size(), 24u);
  EXPECT_EQ(rows[1].at("query"), "dogs 1");
  EXPECT_GT(share_right(rows), 0.9);
  for (const Json& row : rows) {
    double sum = 0;
    for (const Json& p : row.at("probabilities")) sum += p.get<double>();
    EXPECT_NEAR(sum, 1, 1e-9);
  }
  const ProgramResult one = ok({"infer", "--model", "out", "--prompt", "dogs 1"});
  EXPECT_THAT(one.out, HasSubstr("[LABEL] 1 ("));
  expect_served(ServedProgram({"--model", (*this / "out").string(), "--dtype", "fp32"}), rows);
  // What is wrong with a line is said before a step.
  expect_error(run(sorting("one.jsonl", "x", {"--tuner", "full"})), 2, {"--num_labels"});
  std::vector<std::string> further = sorting("one.jsonl", "more", {"--num_labels", "4"});
  *(std::find(further.begin(), further.end(), "--model") + 1) = "out";
  expect_error(run(further), 2, {"--num_labels 4", "has 3"});
  // It is trained further, and its head is its own.
  further.back() = "3";
  EXPECT_THAT(ok(further).err, Not(HasSubstr("a new head")));
  expect_error(run({"infer", "--model", "out"}), 2, {"does not chat"});
  expect_error(
      run(line({"rlhf", "--rlhf_type", "dpo", "--task_type", "seq_cls"}, "pairs.jsonl", "x")), 2,
      {"--task_type seq_cls", "--rlhf_type dpo"});
}

TEST_F(SeqCls, AdaptersCarryTheHeadAndAreMergedWithIt) {
  ok(sorting("several.jsonl", "out",
             {"--num_labels", "4", "--problem_type", "multi_label_classification", "--max_steps",
              "30", "--lr", "5e-3", "--lora_rank", "4"}));
  const Json peft = Json::parse(content_of(*this / "out" / "adapter_config.json"));
  EXPECT_EQ(peft.at("task_type"), "SEQ_CLS");
  EXPECT_EQ(peft.at("modules_to_save"), Json::array({"score"}));
  const std::vector<Json> rows = rows_of_infer({"--adapters", "out"}, "several.jsonl");
  // Class 3 is in every row.
  for (const Json& row : rows) EXPECT_GT(row.at("probabilities")[3].get<double>(), 0.5);
  EXPECT_THAT(ok({"merge", "--adapters", "out", "--output", "whole"}).err,
              HasSubstr("danlu infer --model whole"));
  const Json config = Json::parse(content_of(*this / "whole" / "config.json"));
  EXPECT_EQ(config.at("problem_type"), "multi_label_classification");
  EXPECT_EQ(config.at("id2label").size(), 4u);
  expect_served(ServedProgram({"--adapters", (*this / "out").string(), "--dtype", "fp32"}), rows);
  const std::vector<Json> again = rows_of_infer({"--model", "whole"}, "several.jsonl");
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(again[i].at("response"), rows[i].at("response"));
    for (size_t c = 0; c < 4; ++c)
      EXPECT_NEAR(again[i].at("probabilities")[c].get<double>(),
                  rows[i].at("probabilities")[c].get<double>(), 1e-4);
  }
  EXPECT_THAT(ok({"inspect", "whole"}).out,
              HasSubstr("a classifier's head of 4 labels (multi_label_classification)"));
}

TEST_F(SeqCls, ANumberIsLearntFromPlainTextsAndGoneOnWith) {
  const auto numbers = [&](const std::string& to) {
    return sorting("numbers.jsonl", to,
                   {"--tuner", "full", "--num_labels", "1", "--use_chat_template", "false",
                    "--neftune_noise_alpha", "5"});
  };
  ok(numbers("whole"));
  ok(numbers("parts"));
  fs::remove_all(*this / "parts" / "checkpoint-4");
  fs::remove(*this / "parts" / "DONE");
  ok(numbers("parts"));
  EXPECT_EQ(content_of(*this / "parts" / "model.safetensors"),
            content_of(*this / "whole" / "model.safetensors"));
  const Json config = Json::parse(content_of(*this / "whole" / "config.json"));
  EXPECT_EQ(config.at("problem_type"), "regression");
  const std::vector<Json> rows = rows_of_infer({"--model", "whole"}, "numbers.jsonl");
  EXPECT_TRUE(rows[0].at("response").is_number_float());
  EXPECT_EQ(rows[0].at("numbers").size(), 1u);
  expect_served(ServedProgram({"--model", (*this / "whole").string(), "--dtype", "fp32"}), rows);
  expect_error(run(line({"sft", "--use_chat_template", "false"}, good("good.jsonl").string(), "x")),
               2, {"--use_chat_template false", "--template empty"});
}

}  // namespace
}  // namespace danlu::test
