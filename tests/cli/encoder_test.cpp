// Encoders (BERT, XLM-RoBERTa) as a user types them: trained to embed, sort and rank, asked,
// served.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "cli/preference_lines.h"
#include "cli/served_program.h"
#include "support/raw_http.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Vector = std::vector<double>;

constexpr const char* kEncoderTopics[] = {"cats", "dogs", "trees", "boats"};
constexpr const char* kEncoderWords[] = {"purring", "bone", "leaf", "sail"};

class EncoderLines : public PreferenceLines {
 protected:
  void SetUp() override {
    PreferenceLines::SetUp();
    std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ntold\nof\n";
    for (size_t i = 0; i < 4; ++i)
      vocabulary += std::string(kEncoderTopics[i]) + "\n" + kEncoderWords[i] + "\n";
    for (int digit = 0; digit < 10; ++digit)
      vocabulary += std::to_string(digit) + "\n##" + std::to_string(digit) + "\n";
    fs::create_directories(*this / "words");
    write("words/vocab.txt", vocabulary);
    write("words/tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer"})");
    const Json config = {{"model_type", "bert"},    {"architectures", {"BertForMaskedLM"}},
                         {"vocab_size", 40},        {"hidden_size", 32},
                         {"num_hidden_layers", 2},  {"num_attention_heads", 4},
                         {"intermediate_size", 64}, {"max_position_embeddings", 32},
                         {"type_vocab_size", 2},    {"hidden_act", "gelu"},
                         {"pad_token_id", 0},       {"torch_dtype", "float32"},
                         {"initializer_range", 0.1}};
    write("bert.json", config.dump());
    ok({"init", "--config", "bert.json", "--tokenizer", "words", "--output", "bert"});
    std::string pairs, labels, ranks;
    for (size_t i = 0; i < 48; ++i) {
      const size_t topic = i % 4, other = (i + 1 + i / 4 % 3) % 4;
      const std::string asked = std::to_string(i) + " " + kEncoderTopics[topic];
      pairs += Json{{"messages", said("user", asked)},
                    {"positive_messages", {said("user", told(topic))}},
                    {"negative_messages", {said("user", told(other))}}}
                   .dump() +
               "\n";
      ranks += Json{{"messages", said("user", asked)},
                    {"positive_messages", {said("assistant", told(topic))}},
                    {"negative_messages", {said("assistant", told(other))}}}
                   .dump() +
               "\n";
      labels += Json{{"messages", said("user", asked)}, {"label", topic}}.dump() + "\n";
    }
    write("pairs.jsonl", pairs);
    write("labels.jsonl", labels);
    write("ranks.jsonl", ranks);
  }
  static std::string told(size_t topic) { return std::string("told of ") + kEncoderWords[topic]; }
  static Json said(const char* role, const std::string& text) {
    return Json::array({{{"role", role}, {"content", text}}});
  }
  std::vector<std::string> training(const std::string& task, const std::string& data,
                                    const std::string& to,
                                    const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = line({"sft", "--task_type", task}, data, to, more);
    *(std::find(words.begin(), words.end(), "--model") + 1) = "bert";
    *(std::find(words.begin(), words.end(), "--max_length") + 1) = "32";
    *(std::find(words.begin(), words.end(), "--save_steps") + 1) = "60";
    *(std::find(words.begin(), words.end(), "--eval_steps") + 1) = "20";
    return words;
  }
  static void expect_near(const Vector& a, const Vector& b, double within) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], within) << i;
  }
};

TEST_F(EncoderLines, VectorsAreTrainedWrittenForSentenceTransformersAndServed) {
  fs::create_directories(*this / "bert" / "1_Pooling");
  write("bert/1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true})");
  ok(training("embedding", "pairs.jsonl", "out",
              {"--tuner", "full", "--max_steps", "40", "--lr", "3e-3", "--batch_size", "8",
               "--global_batch_size", "8"}));
  const Json pooling = Json::parse(content_of(*this / "out" / "1_Pooling" / "config.json"));
  EXPECT_EQ(pooling.at("pooling_mode_mean_tokens"), true);
  EXPECT_EQ(pooling.at("pooling_mode_lasttoken"), false);
  const Json config = Json::parse(content_of(*this / "out" / "config.json"));
  EXPECT_EQ(config.at("architectures"), Json::array({"BertModel"}));
  EXPECT_TRUE(fs::exists(*this / "out" / "vocab.txt"));
  const Json evaluation = evaluation_of("out");
  EXPECT_GT(evaluation.at("eval_mean_pos"), evaluation.at("eval_mean_neg"));

  std::string texts;
  Json inputs = Json::array();
  for (size_t i = 0; i < 4; ++i) {
    for (const std::string& text : {std::string("9 ") + kEncoderTopics[i], told(i)}) {
      texts += Json{{"query", text}}.dump() + "\n";
      inputs.push_back(text);
    }
  }
  write("texts.jsonl", texts);
  std::vector<Vector> vectors;
  for (const Json& row : rows_of_infer({"--model", "out"}, "texts.jsonl"))
    vectors.push_back(row.at("response").get<Vector>());
  size_t right = 0;
  for (size_t q = 0; q < 8; q += 2) {
    const auto cosine = [&](size_t other) {
      double sum = 0;
      for (size_t i = 0; i < 32; ++i) sum += vectors[q][i] * vectors[other][i];
      return sum;
    };
    size_t nearest = 1;
    for (size_t a = 3; a < 8; a += 2)
      if (cosine(a) > cosine(nearest)) nearest = a;
    right += nearest == q + 1;
  }
  EXPECT_EQ(right, 4u);
  const ServedProgram server({"--model", (*this / "out").string(), "--dtype", "fp32"});
  const Json answer = posted(server.port(), "/v1/embeddings", {{"input", inputs}});
  ASSERT_EQ(answer["data"].size(), 8u) << answer;
  for (size_t i = 0; i < 8; ++i)
    expect_near(answer["data"][i]["embedding"].get<Vector>(), vectors[i], 1e-5);
  EXPECT_THAT(posted(server.port(), "/v1/chat/completions",
                     {{"messages", {{{"role", "user"}, {"content", "cats"}}}}})
                  .dump(),
              HasSubstr("vectors of texts"));
}

TEST_F(EncoderLines, AdaptersSortTextsAndAreMergedWithTheirHead) {
  const ProgramResult trained =
      ok(training("seq_cls", "labels.jsonl", "out",
                  {"--num_labels", "4", "--max_steps", "60", "--lr", "1e-2", "--lora_rank", "4",
                   "--batch_size", "8", "--global_batch_size", "8"}));
  EXPECT_THAT(trained.err, HasSubstr("a new head: classifier is drawn"));
  const Json peft = Json::parse(content_of(*this / "out" / "adapter_config.json"));
  EXPECT_EQ(peft.at("modules_to_save"), Json::array({"bert.pooler.dense", "classifier"}));
  const std::vector<Json> rows = rows_of_infer({"--adapters", "out"}, "labels.jsonl");
  size_t right = 0;
  for (const Json& row : rows) right += row.at("response") == row.at("labels");
  EXPECT_GT(right, 44u);
  ok({"merge", "--adapters", "out", "--output", "whole"});
  EXPECT_EQ(Json::parse(content_of(*this / "whole" / "config.json")).at("architectures"),
            Json::array({"BertForSequenceClassification"}));
  const std::vector<Json> again = rows_of_infer({"--model", "whole"}, "labels.jsonl");
  Json texts = Json::array();
  for (size_t i = 0; i < 5; ++i) {
    expect_near(again[i].at("probabilities").get<Vector>(),
                rows[i].at("probabilities").get<Vector>(), 1e-5);
    texts.push_back(rows[i].at("query"));
  }
  for (const char* flag : {"--model", "--adapters"}) {
    const ServedProgram server(
        {flag, (*this / (flag[2] == 'm' ? "whole" : "out")).string(), "--dtype", "fp32"});
    const Json answer = posted(server.port(), "/classify", {{"input", texts}});
    ASSERT_EQ(answer["data"].size(), 5u) << answer;
    for (size_t i = 0; i < 5; ++i)
      expect_near(answer["data"][i]["probs"].get<Vector>(),
                  rows[i].at("probabilities").get<Vector>(), 1e-5);
  }
}

TEST_F(EncoderLines, PairsAreRankedByTheHeadOfTheFirstToken) {
  ok(training("reranker", "ranks.jsonl", "out",
              {"--tuner", "full", "--max_steps", "150", "--lr", "3e-3", "--batch_size", "8",
               "--global_batch_size", "8"}));
  const std::vector<Json> rows = rows_of_infer({"--model", "out"}, "ranks.jsonl");
  size_t right = 0;
  for (const Json& row : rows)
    right += row.at("scores")[0].get<double>() > row.at("scores")[1].get<double>();
  EXPECT_GT(right, 40u);
  const ServedProgram server({"--model", (*this / "out").string(), "--dtype", "fp32"});
  const Json answer = posted(server.port(), "/v1/rerank",
                             {{"query", "0 cats"}, {"documents", rows[0].at("documents")}});
  ASSERT_EQ(answer["results"].size(), 2u) << answer;
  EXPECT_EQ(answer["results"][0]["index"], 0);
  EXPECT_NEAR(answer["results"][0]["relevance_score"].get<double>(),
              rows[0].at("scores")[0].get<double>(), 1e-5);
}

TEST_F(EncoderLines, WhatAnEncoderCannotDoIsSaidBeforeAStep) {
  std::vector<std::string> answering = training("causal_lm", "labels.jsonl", "x");
  expect_error(run(answering), 2, {"an encoder is trained to give vectors"});
  expect_error(run(training("embedding", "pairs.jsonl", "x", {"--use_chat_template", "true"})), 2,
               {"--use_chat_template", "tokenizer's template"});
  expect_error(run({"infer", "--model", "bert", "--prompt", "cats"}), 4, {"an encoder gives"});
  expect_error(run({"convert", "bert", "x", "--to", "mcore"}), 4, {"is an encoder"});
  expect_error(run({"convert", "bert", "x", "--to", "gguf"}), 4, {"[gguf] bert"});
}

}  // namespace
}  // namespace danlu::test
