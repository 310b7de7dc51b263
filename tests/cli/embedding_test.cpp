// Models that give vectors of texts, as a user types them: trained, resumed, merged, asked, served.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/preference_lines.h"
#include "cli/served_program.h"
#include "support/raw_http.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;
using Vectors = std::vector<std::vector<double>>;

constexpr const char* kTopics[] = {"cats", "dogs", "trees", "boats", "music", "bread"};
/// Words of the same topics that share no token with them.
constexpr const char* kWords[] = {"purring", "bone", "leaf", "sail", "tune", "oven"};
constexpr size_t kNumTopics = 6;

class EmbeddingLines : public PreferenceLines {
 protected:
  void SetUp() override {
    PreferenceLines::SetUp();
    std::string rows, scored, questions, answers;
    for (size_t i = 0; i < 48; ++i) {
      const size_t topic = i % kNumTopics, other = (i + 1 + i / 6 % 5) % kNumTopics;
      Json row = {{"messages", asked(question(topic, i))},
                  {"positive_messages", Json::array({asked(answer(topic))})},
                  {"negative_messages", Json::array({asked(answer(other))})}};
      rows += row.dump() + "\n";
      row.erase("negative_messages");
      const bool fits = i % 2 == 0;
      row["positive_messages"] = Json::array({asked(answer(fits ? topic : other))});
      row["label"] = fits ? 1.0 : 0.0;
      scored += row.dump() + "\n";
    }
    for (size_t topic = 0; topic < kNumTopics; ++topic) {
      // No row asks these.
      questions += Json{{"query", question(topic, 90 + topic)}}.dump() + "\n";
      answers += Json{{"query", answer(topic)}}.dump() + "\n";
    }
    write("rows.jsonl", rows);
    write("scored.jsonl", scored);
    write("questions.jsonl", questions);
    write("answers.jsonl", answers);
  }
  static std::string question(size_t topic, size_t number) {
    return std::to_string(number) + " " + kTopics[topic];
  }
  static std::string answer(size_t topic) { return std::string("told of ") + kWords[topic]; }
  static Json asked(const std::string& text) {
    return Json::array({{{"role", "user"}, {"content", text}}});
  }
  std::vector<std::string> embedding(const std::string& data, const std::string& to,
                                     const std::vector<std::string>& more = {}) const {
    return line({"sft", "--task_type", "embedding"}, data, to, more);
  }
  Vectors vectors(const std::vector<std::string>& model, const std::string& data) const {
    std::vector<std::string> words = {"infer",    "--dataset",     data,
                                      "--output", "vectors.jsonl", "--overwrite",
                                      "true",     "--dtype",       "fp32"};
    words.insert(words.end(), model.begin(), model.end());
    ok(words);
    Vectors found;
    std::ifstream file(*this / "vectors.jsonl");
    for (std::string text; std::getline(file, text);)
      found.push_back(Json::parse(text).at("response").get<std::vector<double>>());
    return found;
  }
  static double cosine(const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  }
  /// How many questions are nearest to the answer of their own topic.
  size_t found_their_own(const std::vector<std::string>& model) const {
    const Vectors questions = vectors(model, "questions.jsonl"),
                  answers = vectors(model, "answers.jsonl");
    size_t right = 0;
    for (size_t q = 0; q < questions.size(); ++q) {
      EXPECT_NEAR(cosine(questions[q], questions[q]), 1, 1e-5);
      size_t nearest = 0;
      for (size_t a = 1; a < answers.size(); ++a)
        if (cosine(questions[q], answers[a]) > cosine(questions[q], answers[nearest])) nearest = a;
      right += nearest == q;
    }
    return right;
  }
  static void expect_near(const Vectors& a, const Vectors& b, double tolerance) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i)
      for (size_t j = 0; j < a[i].size(); ++j) EXPECT_NEAR(a[i][j], b[i][j], tolerance);
  }
  static RawResponse answer_of(const ServedProgram& server, const Json& body) {
    RawClient client(server.port());
    client.send(raw_request("POST", "/v1/embeddings", body.dump()));
    return client.response();
  }
  /// What a server gives for the texts of rows. more: of the body.
  Vectors served_by(const ServedProgram& server, const std::string& data,
                    const Json& more = Json::object()) const {
    Json texts = Json::array();
    std::ifstream file(*this / data);
    for (std::string text; std::getline(file, text);)
      texts.push_back(Json::parse(text).at("query"));
    Json body{{"input", texts}};
    body.update(more);
    const Json answer = Json::parse(answer_of(server, body).body);
    Vectors found;
    for (const Json& one : answer.at("data"))
      found.push_back(one.at("embedding").get<std::vector<double>>());
    return found;
  }
  Vectors served(const std::vector<std::string>& model, const std::string& data) const {
    const ServedProgram server(
        {model[0], (*this / model[1]).string(), "--dtype", "fp32", "--task_type", "embedding"});
    return served_by(server, data);
  }
  /// Texts as they stand.
  Vectors plain(const std::string& data) const {
    return vectors({"--model", good("model").string(), "--task_type", "embedding", "--raw"}, data);
  }
};

TEST_F(EmbeddingLines, TextsThatNoRowHasFindTheirOwnAfterATraining) {
  const std::vector<std::string> plain = {"--model", good("model").string(), "--task_type",
                                          "embedding", "--raw"};
  const size_t before = found_their_own(plain);
  const ProgramResult trained =
      ok(embedding("rows.jsonl", "out",
                   {"--tuner", "full", "--use_chat_template", "false", "--max_steps", "60", "--lr",
                    "5e-3", "--global_batch_size", "12", "--batch_size", "12", "--save_steps", "60",
                    "--eval_steps", "60"}));
  EXPECT_THAT(trained.err, HasSubstr("danlu infer --model out"));
  const size_t after = found_their_own({"--model", "out"});
  EXPECT_LT(before, 4u);
  EXPECT_GE(after, 5u);
  const Json evaluation = evaluation_of("out");
  EXPECT_GT(evaluation.at("eval_mean_pos"), evaluation.at("eval_mean_neg"));
  EXPECT_TRUE(evaluation.contains("eval_margin"));
  // sentence-transformers finds what it needs, and a server gives the same vectors.
  const Json modules = Json::parse(content_of(*this / "out" / "modules.json"));
  ASSERT_EQ(modules.size(), 3u);
  EXPECT_EQ(modules[1].at("path"), "1_Pooling");
  const Json pooling = Json::parse(content_of(*this / "out" / "1_Pooling" / "config.json"));
  EXPECT_EQ(pooling.at("pooling_mode_lasttoken"), true);
  EXPECT_EQ(pooling.at("word_embedding_dimension"), 32);
  EXPECT_TRUE(fs::exists(*this / "out" / "config_sentence_transformers.json"));
  expect_near(served({"--model", "out"}, "questions.jsonl"),
              vectors({"--model", "out"}, "questions.jsonl"), 1e-5);
  // A template of the line is that of chats.
  const ServedProgram templated(
      {"--model", (*this / "out").string(), "--dtype", "fp32", "--template", "chatml"});
  expect_near(served_by(templated, "questions.jsonl"),
              vectors({"--model", "out"}, "questions.jsonl"), 1e-5);
  EXPECT_THAT(ok({"infer", "--model", "out", "--prompt", "cats"}).out,
              HasSubstr("[VECTOR] 32 numbers: "));
  expect_error(run({"infer", "--model", "out"}), 2, {"does not chat", "--task_type causal_lm"});
}

TEST_F(EmbeddingLines, AdaptersBesideAModelMakeVectorsAsTheyWereTrained) {
  ok(embedding("rows.jsonl", "out",
               {"--lora_rank", "4", "--lr", "1e-2", "--mrl_dims", R"({"8": 1, "16": 0.5})"}));
  const Vectors adapted = vectors({"--adapters", "out"}, "questions.jsonl");
  const std::string named = "vec=" + (*this / "out").string();
  for (const bool names_base : {true, false}) {
    SCOPED_TRACE(names_base);
    std::vector<std::string> words = {"--adapters", named, "--dtype", "fp32"};
    if (names_base) words.insert(words.end(), {"--model", good("model").string()});
    const ServedProgram server(words);
    expect_near(served_by(server, "questions.jsonl", {{"model", "vec"}}), adapted, 1e-4);
    expect_near(served_by(server, "questions.jsonl"), plain("questions.jsonl"), 1e-4);
    if (!names_base) continue;
    // What was learnt of a cut vector is asked for.
    const Vectors cut = served_by(server, "questions.jsonl", {{"model", "vec"}, {"dimensions", 8}});
    for (size_t i = 0; i < cut.size(); ++i) {
      ASSERT_EQ(cut[i].size(), 8u);
      const std::vector<double> head(adapted[i].begin(), adapted[i].begin() + 8);
      EXPECT_NEAR(cosine(cut[i], cut[i]), 1, 1e-5);
      EXPECT_NEAR(cosine(cut[i], head), std::sqrt(cosine(head, head)), 1e-4);
    }
    const RawResponse other =
        answer_of(server, {{"model", "vec"}, {"input", "a"}, {"dimensions", 9}});
    EXPECT_EQ(other.status, 400);
    EXPECT_THAT(other.body, HasSubstr("8, 16 numbers"));
    EXPECT_EQ(answer_of(server, {{"input", "a"}, {"dimensions", 8}}).status, 400);
  }
}

TEST_F(EmbeddingLines, WhatMakesVectorsIsReadAlikeByInferAndServe) {
  const std::string model = good("model").string();
  // Called one that embeds: by its template.
  const Vectors written =
      vectors({"--model", model, "--task_type", "embedding"}, "questions.jsonl");
  EXPECT_LT(cosine(written[0], plain("questions.jsonl")[0]), 0.999);
  const std::vector<std::string> words = {"--model",   model,     "--task_type",
                                          "embedding", "--dtype", "fp32"};
  expect_near(served_by(ServedProgram(words), "questions.jsonl"), written, 1e-4);
  // A run of ms-swift, whose template of vectors writes no conversation.
  copy_model("swift");
  write("swift/args.json", R"({"task_type": "embedding", "template": "qwen3_emb",)"
                           R"( "use_chat_template": true, "model_type": "qwen2"})");
  expect_near(vectors({"--model", "swift"}, "questions.jsonl"), plain("questions.jsonl"), 1e-5);
  expect_near(served({"--model", "swift"}, "questions.jsonl"), plain("questions.jsonl"), 1e-4);
  expect_near(vectors({"--model", model, "--task_type", "embedding", "--template", "qwen3_emb"},
                      "questions.jsonl"),
              plain("questions.jsonl"), 1e-5);
  std::vector<std::string> plainly = words;
  plainly.insert(plainly.end(), {"--template", "qwen3_emb"});
  expect_near(served_by(ServedProgram(plainly), "questions.jsonl"), plain("questions.jsonl"), 1e-4);
}

TEST_F(EmbeddingLines, SamplesThatNoEpochHasAreNotReported) {
  ok(embedding("rows.jsonl", "out",
               {"--val_ratio", "0", "--eval_steps", "100", "--batch_size", "5",
                "--global_batch_size", "5", "--max_steps", "9", "--dataloader_drop_last", "true"}));
  EXPECT_EQ(Json::parse(content_of(*this / "out" / "all_results.json")).at("train_samples"), 45)
      << "of 48";
}

TEST_F(EmbeddingLines, AdaptersAreMergedAndReadTextsAsTheyWereTrained) {
  ok(embedding("scored.jsonl", "out",
               {"--loss_type", "cosine_similarity", "--lora_rank", "4", "--max_steps", "8", "--lr",
                "1e-2", "--packing", "true"}));
  EXPECT_TRUE(evaluation_of("out").contains("eval_mae"));
  EXPECT_TRUE(evaluation_of("out").contains("eval_pearson_cosine"));
  EXPECT_TRUE(evaluation_of("out").contains("eval_spearman_cosine"));
  const Vectors adapted = vectors({"--adapters", "out"}, "questions.jsonl");
  EXPECT_THAT(ok({"merge", "--adapters", "out", "--output", "whole"}).err,
              HasSubstr("danlu infer --model whole"));
  expect_near(vectors({"--model", "whole"}, "questions.jsonl"), adapted, 1e-5);
  expect_near(served({"--model", "whole"}, "questions.jsonl"), adapted, 1e-5);
  expect_near(served({"--adapters", "out"}, "questions.jsonl"), adapted, 1e-4);
  // The answer of older rows is what a text is compared with.
  write("older.jsonl",
        Json{{"query", question(0, 90)}, {"response", "told"}, {"label", 1}}.dump() + "\n");
  expect_near(vectors({"--adapters", "out"}, "older.jsonl"), {adapted[0]}, 1e-5);
  // With a template sentence-transformers would read other texts.
  EXPECT_FALSE(fs::exists(*this / "whole" / "modules.json"));
  EXPECT_GT(cosine(adapted[0], adapted[0]), 0.999);
}

TEST_F(EmbeddingLines, EveryLossGoesOnBitForBit) {
  for (const std::string loss : {"infonce", "contrastive", "online_contrastive"}) {
    SCOPED_TRACE(loss);
    const auto lossy = [&](const std::string& to) {
      return embedding(
          loss == "infonce" ? "rows.jsonl" : "scored.jsonl", to,
          {"--loss_type", loss, "--tuner", "full", "--mrl_dims", R"({"8": 1, "32": 0.5})"});
    };
    const std::string whole = loss + "-whole", parts = loss + "-parts";
    ok(lossy(whole));
    ok(lossy(parts));
    fs::remove_all(*this / parts / "checkpoint-4");
    fs::remove(*this / parts / "DONE");
    ok(lossy(parts));
    EXPECT_EQ(content_of(*this / parts / "model.safetensors"),
              content_of(*this / whole / "model.safetensors"));
  }
}

TEST_F(EmbeddingLines, WhatIsWrongWithALineIsSaidBeforeAStep) {
  expect_error(run(embedding("rows.jsonl", "x", {"--loss_type", "sigmoid"})), 2,
               {"--loss_type sigmoid", "infonce"});
  expect_error(run(embedding("rows.jsonl", "x", {"--mrl_dims", R"({"64": 1})"})), 2,
               {"--mrl_dims", "32"});
  expect_error(run(embedding("rows.jsonl", "x", {"--mrl_dims", R"({"a": 1})"})), 2,
               {"--mrl_dims", "\"a\" is no size"});
  expect_error(
      run(line({"rlhf", "--rlhf_type", "dpo", "--task_type", "embedding"}, "pairs.jsonl", "x")), 2,
      {"--task_type embedding", "--rlhf_type dpo"});
  expect_error(run(embedding("pairs.jsonl", "x")), 3, {"positive_messages"});
  EXPECT_THAT(ok({"plan", "sft", "--model", good("model").string(), "--dataset", "rows.jsonl",
                  "--task_type", "embedding", "--output_dir", "x", "--max_length", "64"})
                  .err,
              HasSubstr("each negative text has up to 64 tokens more"));
  // A run that began with another temperature names its flag.
  ok(embedding("rows.jsonl", "out", {"--tuner", "full"}));
  fs::remove(*this / "out" / "DONE");
  expect_error(
      run(embedding("rows.jsonl", "out", {"--tuner", "full", "--infonce_temperature", "0.05"})), 2,
      {"--infonce_temperature"});
}

}  // namespace
}  // namespace danlu::test
