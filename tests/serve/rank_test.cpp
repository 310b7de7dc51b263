// Routes that rank: bodies as Jina, Cohere and vLLM have them, and what each answer says.
#include <gmock/gmock.h>

#include <cmath>

#include "serve/protocol_test.h"

namespace danlu::serve {
namespace rank_test {

using testing::ElementsAre;
using testing::HasSubstr;

/// The scripted engine's vectors begin with the number of a prompt's tokens, which are bytes.
class RankRoutes : public ProtocolTest {
 protected:
  void SetUp() override {
    ProtocolTest::SetUp();
    model_.ranking = Ranking{
        .score_of = [](const std::vector<float>& hidden) { return (double{hidden[0]} - 30) / 4; },
        .encoder = model_.encoder};
  }
  /// "user:q|assistant:…|"
  static double score(const std::string& query, const std::string& document,
                      const std::string& before = "") {
    return (static_cast<double>(
                (before + "user:" + query + "|assistant:" + document + "|").size()) -
            30) /
           4;
  }
  static double activated(double score) { return 1 / (1 + std::exp(-score)); }
  std::string asked(size_t request) {
    const std::lock_guard lock(script_.mutex);
    return model_.tokenizer->decode(script_.added.at(request).request.prompt);
  }
};

TEST_F(RankRoutes, DocumentsComeBestFirstWithTheirPlacesAndTexts) {
  const Json body = {{"model", "tiny"},
                     {"query", "q"},
                     {"documents", {"short", "by far the longest", {{"text", "a middle one"}}}}};
  for (const char* path : {"/v1/rerank", "/rerank", "/v2/rerank"}) {
    const Json answer = post(path, body);
    EXPECT_THAT(answer["id"].get<std::string>(), testing::StartsWith("rerank-"));
    EXPECT_EQ(answer["model"], "tiny");
    ASSERT_EQ(answer["results"].size(), 3);
    const std::vector<std::string> texts = {"by far the longest", "a middle one", "short"};
    const std::vector<int> places = {1, 2, 0};
    for (size_t i = 0; i < 3; ++i) {
      const Json& one = answer["results"][i];
      EXPECT_EQ(one["index"], places[i]);
      EXPECT_EQ(one["document"], (Json{{"text", texts[i]}}));
      EXPECT_NEAR(one["relevance_score"].get<double>(), activated(score("q", texts[i])), 1e-12);
    }
    // Each pair is "user:q|assistant:" and its document, with "|".
    EXPECT_EQ(answer["usage"]["prompt_tokens"], 3 * 18 + 18 + 12 + 5);
    EXPECT_EQ(answer["usage"]["total_tokens"], answer["usage"]["prompt_tokens"]);
  }
  EXPECT_EQ(last_request().pooling, infer::Pooling::kLast);
  EXPECT_EQ(last_request().request.max_new_tokens, 0);
}

TEST_F(RankRoutes, TheBestAloneWithoutTextsAndRaw) {
  const Json answer = post("/v1/rerank", {{"query", "q"},
                                          {"documents", {"a", "aaa", "aa", "aa"}},
                                          {"top_n", 3},
                                          {"return_documents", false},
                                          {"use_activation", false}});
  ASSERT_EQ(answer["results"].size(), 3);
  EXPECT_EQ(answer["results"][0], (Json{{"index", 1}, {"relevance_score", score("q", "aaa")}}));
  EXPECT_EQ(answer["results"][1]["index"], 2) << "of equal ones the first";
  EXPECT_EQ(answer["results"][2]["index"], 3);
}

TEST_F(RankRoutes, ScoresOfOneTextAndOthersOrOfAsMany) {
  const Json one =
      post("/v1/score", {{"model", "alias"}, {"text_1", "q"}, {"text_2", {"a", "bb"}}});
  EXPECT_EQ(one["object"], "list");
  EXPECT_EQ(one["model"], "alias");
  ASSERT_EQ(one["data"].size(), 2);
  EXPECT_EQ(one["data"][1]["index"], 1);
  EXPECT_EQ(one["data"][1]["object"], "score");
  EXPECT_NEAR(one["data"][1]["score"].get<double>(), activated(score("q", "bb")), 1e-12);
  const Json both = post("/score", {{"queries", {"q", "rrr"}}, {"documents", {"a", "b"}}});
  EXPECT_NEAR(both["data"][1]["score"].get<double>(), activated(score("rrr", "b")), 1e-12);
  EXPECT_EQ(post("/score", {{"text_1", "q"}, {"text_2", "a"}})["data"].size(), 1);
}

TEST_F(RankRoutes, AnInstructionIsTheSystems) {
  post("/v1/rerank", {{"query", "q"}, {"documents", {"a"}}, {"instruction", "judge"}});
  EXPECT_EQ(asked(0), "system:judge|user:q|assistant:a|");
}

TEST_F(RankRoutes, TheEndOfALongDocumentIsLeftOut) {
  const std::string document(2000, 'd');
  const Json body = {{"query", "q"}, {"documents", {document}}};
  Json refused = post("/v1/rerank", body, 400)["error"];
  EXPECT_EQ(refused["code"], "context_length_exceeded");
  EXPECT_EQ(refused["param"], "documents");
  Json cut = body;
  cut["truncate_prompt_tokens"] = 30;
  post("/v1/rerank", cut);
  EXPECT_EQ(asked(0), "user:q|assistant:" + std::string(12, 'd') + "|");
  cut["truncate_prompt_tokens"] = -1;
  post("/v1/rerank", cut);
  EXPECT_EQ(asked(1).size(), 1000u);
  cut["truncate_prompt_tokens"] = 5;
  EXPECT_THAT(post("/v1/rerank", cut, 400)["error"]["message"].get<std::string>(),
              HasSubstr("no room"));
}

TEST_F(RankRoutes, AScoreThatIsNoNumberIsAnErrorAndNoPlace) {
  model_.ranking->score_of = [](const std::vector<float>& hidden) {
    return hidden[0] > 20 ? std::nan("") : double{hidden[0]};
  };
  const Json body = {{"query", "q"}, {"documents", {"a", "one that is longer"}}};
  for (const char* path : {"/v1/rerank", "/v1/score"}) {
    Json asked = body;
    if (std::string(path) == "/v1/score") asked = {{"text_1", "q"}, {"text_2", body["documents"]}};
    EXPECT_THAT(post(path, asked, 500)["error"]["message"].get<std::string>(),
                HasSubstr("no number"));
  }
  post("/v1/rerank", {{"query", "q"}, {"documents", {"a"}}});
}

TEST_F(RankRoutes, WhatIsWrongIsNamed) {
  const auto refused = [&](const std::string& path, const Json& body, int status = 400) {
    const Json error = post(path, body, status)["error"];
    EXPECT_NE(error["message"], "");
    return error["param"].get<std::string>();
  };
  EXPECT_EQ(refused("/v1/rerank", {{"documents", {"a"}}}), "query");
  EXPECT_EQ(refused("/v1/rerank", {{"query", "q"}}), "documents");
  EXPECT_EQ(refused("/v1/rerank", {{"query", "q"}, {"documents", Json::array()}}), "documents");
  EXPECT_EQ(refused("/v1/rerank", {{"query", "q"}, {"documents", {1}}}), "documents");
  EXPECT_EQ(refused("/v1/rerank", {{"query", "q"}, {"documents", {{{"title", "a"}}}}}),
            "documents");
  EXPECT_EQ(refused("/v1/rerank", {{"query", "q"}, {"documents", {"a"}}, {"top_n", -1}}), "top_n");
  EXPECT_EQ(refused("/v1/rerank", {{"query", "q"}, {"documents", {"a"}}, {"rank_fields", {"t"}}}),
            "rank_fields");
  EXPECT_EQ(refused("/v1/score", {{"text_1", {"a", "b"}}, {"text_2", {"a", "b", "c"}}}), "text_1");
  EXPECT_EQ(refused("/v1/score", {{"text_1", "a"}}), "text_2");
  EXPECT_EQ(refused("/v1/rerank", {{"model", "other"}, {"query", "q"}, {"documents", {"a"}}}, 404),
            "model");
}

TEST_F(RankRoutes, CardsSayWhatAModelCan) {
  const auto capabilities = [&] {
    const RawResponse response = ask(raw_request("GET", "/v1/models/tiny", ""));
    return Json::parse(response.body)["capabilities"];
  };
  EXPECT_EQ(capabilities(), (Json{"completion", "rerank"}));
  chat();
}

TEST_F(RankRoutes, AModelOfScoresAloneDoesNotTalk) {
  model_.completes = false;
  EXPECT_THAT(chat(Json::object(), 400)["error"]["message"].get<std::string>(),
              HasSubstr("/v1/rerank"));
  EXPECT_EQ(post("/v1/completions", {{"prompt", "a"}}, 400)["error"]["param"], "model");
}

TEST_F(ProtocolTest, AModelThatDoesNotRankSaysHowOneDoes) {
  const Json error = post("/v1/rerank", {{"query", "q"}, {"documents", {"a"}}}, 400)["error"];
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("--task_type generative_reranker"));
}

}  // namespace rank_test
}  // namespace danlu::serve
