// LLaMA-Factory's do_predict and ms-swift's --metric: answers beside the rows' own.
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/bad_input.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class Predict : public BadInput {
 protected:
  std::vector<json> rows_of(const fs::path& file) const {
    std::istringstream lines(content_of(file));
    std::vector<json> rows;
    for (std::string line; std::getline(lines, line);) rows.push_back(json::parse(line));
    return rows;
  }
  fs::path config(const std::string& more = "") const {
    return write("predict.yaml", "model_name_or_path: " + good("model").string() +
                                     "\nstage: sft\ndo_predict: true\nfinetuning_type: lora\n"
                                     "eval_dataset: held.jsonl\ncutoff_len: 64\nmax_samples: 2\n"
                                     "output_dir: out\noverwrite_output_dir: true\n"
                                     "per_device_eval_batch_size: 1\nmax_new_tokens: 4\n"
                                     "do_sample: false\npredict_with_generate: true\n" +
                                     more);
  }
  const std::string held_ =
      "{\"instruction\": \"hi\", \"input\": \"\", \"output\": \"there you are\"}\n"
      "{\"instruction\": \"one\", \"input\": \"two\", \"output\": \"three\"}\n"
      "{\"instruction\": \"no more\", \"input\": \"\", \"output\": \"left out\"}\n";
};

TEST_F(Predict, WritesLlamaFactorysFiles) {
  write("held.jsonl", held_);
  fs::create_directories((*this) / "out");
  write("out/all_results.json", "{\"train_loss\": 1.5, \"predict_runtime\": 9}");
  const ProgramResult result = run({"train", config()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<json> rows = rows_of((*this) / "out" / "generated_predictions.jsonl"),
                          answers = rows_of((*this) / "out" / "answers.jsonl");
  ASSERT_EQ(rows.size(), 2u);
  ASSERT_EQ(answers.size(), 2u);
  const std::vector<std::string> labels = {"there you are", "three"};
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].size(), 3u);
    EXPECT_EQ(rows[i].at("label"), labels[i]);
    EXPECT_EQ(rows[i].at("predict"), answers[i].at("response"));
    EXPECT_THAT(rows[i].at("prompt").get<std::string>(), HasSubstr(i == 0 ? "hi" : "two"));
  }
  const json figures = json::parse(content_of((*this) / "out" / "predict_results.json")),
             all = json::parse(content_of((*this) / "out" / "all_results.json"));
  for (const char* name :
       {"predict_bleu-4", "predict_rouge-1", "predict_rouge-2", "predict_rouge-l",
        "predict_runtime", "predict_samples_per_second", "predict_steps_per_second"}) {
    EXPECT_TRUE(figures.at(name).is_number()) << name;
    EXPECT_EQ(all.at(name), figures.at(name)) << name;
  }
  EXPECT_EQ(all.at("train_loss"), 1.5);
  // Once more over the same files, whose answers stand for the labels: then all is right.
  std::string right;
  for (const json& row : answers) {
    json one = {{"messages", row.at("messages")}};
    one["messages"].push_back({{"role", "assistant"}, {"content", row.at("response")}});
    right += one.dump() + "\n";
  }
  write("held.jsonl", right);
  const ProgramResult again = run({"infer", config(), "--metric", "acc"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("acc 1.000000 (2 of 2)"));
  EXPECT_EQ(rows_of((*this) / "out" / "generated_predictions.jsonl")[0].at("label"),
            answers[0].at("response"));
}

TEST_F(Predict, AsksForATrainingOrForAnswers) {
  write("held.jsonl", held_);
  expect_error(run({"train", config("do_train: true\n")}), 2,
               {"do_predict", "training measures the loss", "do_train false"});
  expect_error(run({"sft", "--predict_with_generate", "true", "--model", good("model"), "--dataset",
                    "held.jsonl"}),
               2, {"[sft] --predict_with_generate"});
  EXPECT_FALSE(fs::exists((*this) / "out"));
}

TEST_F(Predict, MetricsAreOfRowsThatHaveLabels) {
  write("some.jsonl",
        "{\"query\": \"hi\", \"response\": \"there\"}\n{\"query\": \"hi\", \"response\": \"\"}\n");
  const ProgramResult rouge =
      run({"infer", "--model", good("model"), "--max_new_tokens", "3", "--dataset", "some.jsonl",
           "--output", "a.jsonl", "--metric", "rouge"});
  EXPECT_EQ(rouge.exit_code, 0) << rouge.err;
  EXPECT_THAT(rouge.err, HasSubstr("rouge-1 "));
  EXPECT_THAT(rouge.err, HasSubstr("bleu-4 "));
  write("none.txt", "hi\n");
  expect_error(run({"infer", "--model", good("model"), "--max_new_tokens", "3", "--dataset",
                    "none.txt", "--output", "b.jsonl", "--metric", "rouge"}),
               3, {"[--metric] no row has an answer"});
  EXPECT_FALSE(fs::exists((*this) / "b.jsonl"));
}

TEST_F(Predict, WithoutAChatTemplateTextsAreCompleted) {
  write("q.txt", "hello\n");
  const std::vector<std::string> line = {"infer",     "--model",     good("model"),
                                         "--dataset", "q.txt",       "--max_new_tokens",
                                         "4",         "--do_sample", "false"};
  const auto answer = [&](const std::vector<std::string>& more, const char* file) {
    std::vector<std::string> words = line;
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"--output", file});
    const ProgramResult result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return rows_of((*this) / file)[0].at("response").get<std::string>();
  };
  EXPECT_EQ(answer({"--use_chat_template", "false"}, "plain.jsonl"),
            answer({"--raw"}, "raw.jsonl"));
}

// LLaMA-Factory's stage pt with packing false.
TEST_F(Predict, TextsThatAreNotPackedAreLearntOneByOne) {
  write("texts.jsonl",
        "{\"text\": \"one two three four five six seven eight\"}\n"
        "{\"text\": \"nine\"}\n");
  write("pt.yaml", "model_name_or_path: " + good("model").string() +
                       "\nstage: pt\ndo_train: true\nfinetuning_type: full\npacking: false\n"
                       "dataset: texts.jsonl\ncutoff_len: 8\nwrite_samples: tokens\n");
  const ProgramResult result = run({"train", "pt.yaml"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<json> rows = rows_of((*this) / "tokens" / "train" / "rows.jsonl");
  ASSERT_EQ(rows.size(), 2u);
  for (const json& row : rows) EXPECT_EQ(row.at("labels"), row.at("input_ids"));
  EXPECT_EQ(rows[0].at("input_ids").size(), 8u);
  EXPECT_LT(rows[1].at("input_ids").size(), 8u);
  write("chats.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
        "{\"role\": \"assistant\", \"content\": \"b\"}]}\n");
  replace_in_file((*this) / "pt.yaml", "texts.jsonl", "chats.jsonl");
  EXPECT_NE(run({"train", "pt.yaml"}).exit_code, 0) << "no template is asked for";
}

}  // namespace
}  // namespace danlu::test
