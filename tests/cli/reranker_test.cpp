// Models that rank documents, as a user types them: trained, resumed, merged, asked and served.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "cli/preference_lines.h"
#include "cli/served_program.h"
#include "support/raw_http.h"

namespace danlu::test {
namespace reranker_test {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

const std::vector<std::string> kKinds = {"cats", "dogs", "trees"};

class Reranker : public PreferenceLines {
 protected:
  void SetUp() override {
    PreferenceLines::SetUp();
    write("train.jsonl", rows(0, 30));
    write("held.jsonl", rows(30, 42));
  }
  static Json messages_of(const std::string& role, const std::string& text) {
    return Json::array({{{"role", role}, {"content", text}}});
  }
  /// Documents of the first kind go with every query.
  static std::string rows(size_t begin, size_t end) {
    std::string all;
    for (size_t i = begin; i < end; ++i) {
      const auto document = [&](size_t kind) {
        return messages_of("assistant", kKinds[kind] + " " + std::to_string(i * 7 % 10));
      };
      const Json row = {
          {"messages", messages_of("user", kKinds[i % 3] + "? " + std::to_string(i % 10))},
          {"positive_messages", Json::array({document(0)})},
          {"negative_messages", Json::array({document(1), document(2)})}};
      all += row.dump() + "\n";
    }
    return all;
  }
  static std::vector<std::string> tokens() {
    return {"--reranker_positive_token", "y", "--reranker_negative_token", "n"};
  }
  std::vector<std::string> ranking(const std::string& task, const std::string& to,
                                   const std::vector<std::string>& more) const {
    std::vector<std::string> words =
        line({"sft", "--task_type", task}, "train.jsonl", to,
             {"--max_steps", "20", "--lr", "5e-3", "--save_steps", "10", "--eval_steps", "20"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  struct Ranked {
    std::vector<Json> rows;
    double mrr = 0;
  };
  Ranked ranked(std::vector<std::string> model, const std::string& data = "held.jsonl") const {
    model.insert(model.begin(), {"infer", "--dataset", data, "--output", "ranks.jsonl",
                                 "--overwrite", "true", "--dtype", "fp32"});
    const ProgramResult result = ok(model);
    Ranked found;
    std::ifstream file(*this / "ranks.jsonl");
    for (std::string text; std::getline(file, text);) found.rows.push_back(Json::parse(text));
    std::smatch match;
    if (std::regex_search(result.err, match, std::regex("mrr ([0-9.]+)")))
      found.mrr = std::stod(match[1]);
    return found;
  }
  static Json asked(const ServedProgram& server, const std::string& path, const Json& body) {
    RawClient client(server.port());
    client.send(raw_request("POST", path, body.dump()));
    const RawResponse response = client.response();
    EXPECT_EQ(response.status, 200) << response.body;
    return Json::parse(response.body, nullptr, false);
  }
  /// The server gives the documents of a row the scores that `danlu infer` gives.
  static void expect_served(const ServedProgram& server, const Json& row) {
    const Json answer = asked(server, "/v1/rerank",
                              {{"query", row.at("query")}, {"documents", row.at("documents")}});
    ASSERT_EQ(answer.at("results").size(), 3u);
    for (const Json& one : answer.at("results")) {
      const auto index = one.at("index").get<size_t>();
      EXPECT_NEAR(one.at("relevance_score").get<double>(), row.at("scores").at(index).get<double>(),
                  2e-4);
    }
    EXPECT_EQ(answer["results"][0]["index"], 0);
    const Json scores =
        asked(server, "/score", {{"text_1", row.at("query")}, {"text_2", row.at("documents")}});
    EXPECT_NEAR(scores["data"][2]["score"].get<double>(), row["scores"][2].get<double>(), 2e-4);
  }
};

TEST_F(Reranker, ByTwoTokensIsLearntFromListsAskedAndServed) {
  std::vector<std::string> before = tokens();
  before.insert(before.begin(),
                {"--model", good("model").string(), "--task_type", "generative_reranker"});
  const double untrained = ranked(before).mrr;
  std::vector<std::string> more = tokens();
  more.insert(more.end(), {"--tuner", "full", "--loss_type", "listwise_reranker"});
  const ProgramResult trained = ok(ranking("generative_reranker", "out", more));
  EXPECT_THAT(trained.err, HasSubstr("danlu serve --model out"));
  for (const char* metric : {"eval_accuracy", "eval_mrr", "eval_ndcg"})
    EXPECT_TRUE(evaluation_of("out").contains(metric)) << metric;
  // What the run says of itself is enough.
  const Ranked found = ranked({"--model", "out"});
  EXPECT_GT(found.mrr, untrained);
  EXPECT_GT(found.mrr, 0.95);
  ASSERT_EQ(found.rows.size(), 12u);
  EXPECT_EQ(found.rows[0].at("query"), "cats? 0");
  EXPECT_EQ(found.rows[0].at("documents"), (Json{"cats 0", "dogs 0", "trees 0"}));
  EXPECT_EQ(found.rows[0].at("labels"), (Json{1, 0, 0}));
  const ServedProgram server({"--model", (*this / "out").string(), "--dtype", "fp32"});
  EXPECT_THAT(server.log(), HasSubstr("/v1/rerank"));
  expect_served(server, found.rows[1]);
  EXPECT_EQ(asked(server, "/v1/chat/completions",
                  {{"messages", messages_of("user", "hi")}, {"max_tokens", 2}})
                .at("object"),
            "chat.completion");
}

TEST_F(Reranker, OneWithoutATemplateIsServedAndGoneOnWithAsItWasTrained) {
  std::vector<std::string> more = tokens();
  more.insert(more.end(), {"--tuner", "full", "--use_chat_template", "false"});
  ok(ranking("generative_reranker", "out", more));
  const Ranked found = ranked({"--model", "out"});
  expect_served(ServedProgram({"--model", (*this / "out").string(), "--dtype", "fp32"}),
                found.rows[1]);
  // Rows that cannot be ranked, or have no document that goes with their query, stop no others.
  Json none = {{"messages", messages_of("user", "cats? 0")},
               {"positive_messages", Json::array()},
               {"negative_messages", Json::array()}};
  std::string odd = rows(30, 31) + none.dump() + "\n";
  none["negative_messages"] = Json::array({messages_of("assistant", "dogs 0")});
  write("odd.jsonl", odd + none.dump() + "\n");
  const std::vector<Json> marked = ranked({"--model", "out"}, "odd.jsonl").rows;
  ASSERT_EQ(marked.size(), 3u);
  EXPECT_NEAR(marked[0]["scores"][1].get<double>(), found.rows[0]["scores"][1].get<double>(), 1e-6);
  EXPECT_THAT(marked[1].at("error").get<std::string>(), HasSubstr("positive"));
  EXPECT_EQ(marked[2].at("scores").size(), 1u);
  more.resize(4);
  more.insert(more.end(), {"--max_steps", "1", "--model", "out"});
  ok(ranking("generative_reranker", "further", more));
  EXPECT_EQ(Json::parse(content_of(*this / "further" / "args.json")).at("use_chat_template"),
            false);
  more.insert(more.end(), {"--use_chat_template", "false", "--system", "Judge."});
  expect_error(run(ranking("generative_reranker", "x", more)), 2, {"--system", "template"});
}

TEST_F(Reranker, OneThatIsCalledQwen3RerankerLeavesItsTemplateToWhatIsTrained) {
  const fs::path base = copy_model("Qwen3-Reranker-x");
  replace_in_file(base / "config.json", "\"max_position_embeddings\": 64",
                  "\"max_position_embeddings\": 1024");
  std::vector<std::string> more = tokens();
  more.insert(more.end(), {"--tuner", "full", "--max_steps", "2", "--max_length", "1000", "--model",
                           base.string()});
  ok(ranking("generative_reranker", "out", more));
  const Ranked found = ranked({"--model", "out"}),
               named = ranked({"--model", "out", "--template", "qwen3_reranker"});
  EXPECT_EQ(found.rows, named.rows);
  EXPECT_EQ(Json::parse(content_of(*this / "out" / "args.json")).at("template"), "qwen3_reranker");
  // The model itself is talked to by its own template.
  std::vector<std::string> words = tokens();
  words.insert(words.end(), {"--model", base.string(), "--dtype", "fp32"});
  const ServedProgram server(words);
  const Json row = ranked({"--model", base.string(), "--reranker_positive_token", "y",
                           "--reranker_negative_token", "n"})
                       .rows[0];
  const Json scores =
      asked(server, "/score", {{"text_1", row.at("query")}, {"text_2", row.at("documents")}});
  EXPECT_NEAR(scores["data"][1]["score"].get<double>(), row["scores"][1].get<double>(), 2e-4);
  const Json ids = asked(server, "/tokenize", {{"messages", messages_of("user", "hi")}});
  EXPECT_LT(ids.at("count").get<int>(), 64);
}

TEST_F(Reranker, AHeadIsLearntWithAdaptersMergedAndGoneOnWith) {
  const auto training = [&] {
    return ok(
        ranking("reranker", "whole",
                {"--max_steps", "30", "--lora_rank", "4", "--loss_type", "pointwise_reranker"}));
  };
  EXPECT_THAT(training().err, HasSubstr("score is drawn"));
  const std::string adapters = content_of(*this / "whole" / "adapter_model.safetensors");
  fs::remove_all(*this / "whole" / "checkpoint-30");
  fs::remove(*this / "whole" / "DONE");
  training();
  EXPECT_EQ(content_of(*this / "whole" / "adapter_model.safetensors"), adapters);
  const Json peft = Json::parse(content_of(*this / "whole" / "adapter_config.json"));
  EXPECT_EQ(peft.at("task_type"), "SEQ_CLS");
  EXPECT_EQ(peft.at("modules_to_save"), Json::array({"score"}));
  const Ranked found = ranked({"--adapters", "whole"});
  EXPECT_GT(found.mrr, 0.95);
  EXPECT_THAT(ok({"merge", "--adapters", "whole", "--output", "merged"}).err,
              HasSubstr("danlu serve --model merged"));
  const Json config = Json::parse(content_of(*this / "merged" / "config.json"));
  EXPECT_EQ(config.at("architectures"), Json::array({"Qwen2ForSequenceClassification"}));
  EXPECT_EQ(config.at("id2label").size(), 1u);
  // A training's flags say nothing here.
  EXPECT_GT(ranked({"--model", "merged", "--listwise_reranker_temperature", "0.5",
                    "--listwise_reranker_min_group_size", "3", "--max_positive_samples", "2",
                    "--max_negative_samples", "3"})
                .mrr,
            0.95);
  // What the line says of a model goes before what its head looks like.
  expect_error(
      run({"infer", "--model", "merged", "--task_type", "embedding", "--dataset", "held.jsonl"}), 4,
      {"merged"});
  for (const std::vector<std::string>& model :
       {std::vector<std::string>{"--adapters", (*this / "whole").string()},
        std::vector<std::string>{"--model", (*this / "merged").string()}}) {
    std::vector<std::string> words = model;
    words.insert(words.end(), {"--dtype", "fp32"});
    const ServedProgram server(words);
    expect_served(server, found.rows[2]);
    RawClient client(server.port());
    client.send(raw_request("POST", "/v1/completions", Json{{"prompt", "a"}}.dump()));
    EXPECT_EQ(client.response().status, 400);
  }
}

TEST_F(Reranker, WhatIsWrongWithALineIsSaidBeforeAStep) {
  expect_error(
      run(ranking("generative_reranker", "x", {"--reranker_positive_token", "positively"})), 2,
      {"--reranker_positive_token", "positively"});
  std::vector<std::string> more = tokens();
  more.insert(more.end(), {"--target_modules", "q_proj", "lm_head"});
  expect_error(run(ranking("generative_reranker", "x", more)), 2, {"lm_head"});
  // Adapters that were trained for something else may sit on the head.
  write("talk.jsonl", R"({"messages": [{"role": "user", "content": "a"},)"
                      R"( {"role": "assistant", "content": "b"}]})"
                      "\n");
  ok(line({"sft"}, "talk.jsonl", "talk",
          {"--max_steps", "1", "--val_ratio", "0", "--eval_steps", "9", "--target_modules",
           "q_proj", "lm_head", "--batch_size", "1", "--global_batch_size", "1"}));
  std::vector<std::string> asks = tokens();
  asks.insert(asks.end(), {"--task_type", "generative_reranker"});
  std::vector<std::string> words = {"infer", "--adapters", "talk", "--dataset", "held.jsonl"};
  words.insert(words.end(), asks.begin(), asks.end());
  expect_error(run(words), 4, {"lm_head", "danlu merge"});
  words = {"--model", good("model").string(), "--adapters", "t=" + (*this / "talk").string()};
  words.insert(words.end(), asks.begin(), asks.end());
  try {
    const ServedProgram server(words);
    ADD_FAILURE() << "their part of the head would be left out";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("lm_head"));
  }
  expect_error(run(ranking("reranker", "x", {"--loss_type", "infonce"})), 2,
               {"infonce", "pointwise_reranker, listwise_reranker"});
  expect_error(run({"infer", "--model", good("model").string(), "--task_type", "reranker",
                    "--dataset", "held.jsonl"}),
               4, {"no head"});
  expect_error(run({"infer", "--model", good("model").string(), "--task_type",
                    "generative_reranker", "--prompt", "a"}),
               2, {"/v1/rerank"});
}

}  // namespace reranker_test
}  // namespace danlu::test
