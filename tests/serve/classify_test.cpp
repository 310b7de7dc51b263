// Models that sort or reward texts: /classify as vLLM has it, and chats as ms-swift answers them.
#include <gmock/gmock.h>

#include <cmath>

#include "serve/protocol_test.h"

namespace danlu::serve {
namespace classify_test {

using testing::HasSubstr;

/// The scripted engine's vectors begin with the number of a prompt's tokens n, which are bytes; the
/// three numbers are 0, n - 20 and 1.
class JudgingRoutes : public ProtocolTest {
 protected:
  void SetUp() override {
    ProtocolTest::SetUp();
    model_.judging = Judging{.numbers_of =
                                 [](const std::vector<float>& hidden) {
                                   return std::vector<double>{0, double{hidden[0]} - 20, 1};
                                 },
                             .problem = arch::LabelProblem::kOneClass,
                             .names = {"bad", "good", "LABEL_2"},
                             .encoder = model_.encoder};
    model_.completes = false;
  }
  std::string asked(size_t request) {
    const std::lock_guard lock(script_.mutex);
    return model_.tokenizer->decode(script_.added.at(request).request.prompt);
  }
};

TEST_F(JudgingRoutes, TextsGetALabelAndProbabilities) {
  // "user:TEXT|assistant:" of 16 bytes and the text.
  const Json answer =
      post("/classify", {{"model", "tiny"}, {"input", {"ab", "a long text, all in all"}}});
  EXPECT_THAT(answer["id"].get<std::string>(), testing::StartsWith("classify-"));
  EXPECT_EQ(answer["object"], "list");
  EXPECT_EQ(answer["model"], "tiny");
  ASSERT_EQ(answer["data"].size(), 2);
  const double n = static_cast<double>(asked(0).size());
  const double sum = 1 + std::exp(n - 20) + std::exp(1.0);
  EXPECT_EQ(answer["data"][0]["index"], 0);
  EXPECT_EQ(answer["data"][0]["num_classes"], 3);
  EXPECT_NEAR(answer["data"][0]["probs"][0].get<double>(), 1 / sum, 1e-12);
  EXPECT_NEAR(answer["data"][0]["probs"][2].get<double>(), std::exp(1.0) / sum, 1e-12);
  EXPECT_EQ(answer["data"][0]["label"], "LABEL_2");
  EXPECT_EQ(answer["data"][1]["label"], "good");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], asked(0).size() + asked(1).size());
  EXPECT_EQ(last_request().pooling, infer::Pooling::kLast);
  EXPECT_EQ(last_request().request.max_new_tokens, 0);
}

TEST_F(JudgingRoutes, NumbersComeAsTheyAreWhereThatIsAsked) {
  const Json answer = post("/classify", {{"input", "ab"}, {"use_activation", false}});
  const double n = static_cast<double>(asked(0).size());
  EXPECT_EQ(answer["data"][0]["probs"], (Json{0.0, n - 20, 1.0}));
}

TEST_F(JudgingRoutes, EachClassForItselfWhereATextMayBeOfSeveral) {
  model_.judging->problem = arch::LabelProblem::kClasses;
  const Json answer = post("/classify", {{"input", "a long text, all in all"}});
  EXPECT_NEAR(answer["data"][0]["probs"][2].get<double>(), 1 / (1 + std::exp(-1.0)), 1e-12);
  EXPECT_EQ(chat()["choices"][0]["message"]["content"], Json::array({2}))
      << "0 is not likelier than not";
}

TEST_F(JudgingRoutes, AChatIsAnsweredByItsLabelOrNumber) {
  const Json body = {{"messages",
                      {{{"role", "user"}, {"content", "is it?"}},
                       {{"role", "assistant"}, {"content", "it is, as far as we know"}}}}};
  const Json answer = post("/v1/chat/completions", body);
  EXPECT_EQ(asked(0), "user:is it?|assistant:it is, as far as we know|")
      << "an answer is judged with its prompt";
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["choices"][0]["message"], (Json{{"role", "assistant"}, {"content", 1}}));
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], asked(0).size());
  Json streamed = body;
  streamed["stream"] = true;
  EXPECT_EQ(post("/v1/chat/completions", streamed, 400)["error"]["param"], "stream");
}

TEST_F(JudgingRoutes, ARewardIsANumber) {
  model_.judging =
      Judging{.numbers_of = [](const std::vector<float>&) { return std::vector<double>{-1.5}; },
              .names = {"LABEL_0"},
              .encoder = model_.encoder};
  EXPECT_EQ(chat()["choices"][0]["message"]["content"], -1.5);
  EXPECT_EQ(post("/classify", {{"input", "a"}})["data"][0]["probs"], Json::array({-1.5}));
}

TEST_F(JudgingRoutes, ATextWithoutATemplateStandsAsItIs) {
  model_.judging->encoder = nullptr;
  post("/classify", {{"input", "as it stands"}});
  EXPECT_EQ(asked(0), "as it stands");
  post("/classify", {{"input", {1, 2, 3}}});
  EXPECT_EQ(last_request().request.prompt, (std::vector<text::TokenId>{1, 2, 3}));
}

TEST_F(JudgingRoutes, WhatIsWrongIsNamed) {
  const auto refused = [&](const std::string& path, const Json& body, int status = 400) {
    return post(path, body, status)["error"]["param"].get<std::string>();
  };
  EXPECT_EQ(refused("/classify", Json::object()), "input");
  EXPECT_EQ(refused("/classify", {{"input", Json::array()}}), "input");
  EXPECT_EQ(refused("/classify", {{"input", "a"}, {"messages", Json::array()}}), "input");
  EXPECT_EQ(refused("/classify", {{"input", std::string(2000, 'a')}}), "input");
  EXPECT_EQ(refused("/classify", {{"input", "a"}, {"model", "other"}}, 404), "model");
  EXPECT_EQ(refused("/v1/completions", {{"prompt", "a"}}), "model");
  EXPECT_THAT(post("/v1/completions", {{"prompt", "a"}}, 400)["error"]["message"],
              HasSubstr("/classify"));
  const RawResponse card = ask(raw_request("GET", "/v1/models/tiny", ""));
  EXPECT_EQ(Json::parse(card.body)["capabilities"], Json::array({"classify"}));
}

TEST_F(ProtocolTest, AModelThatSortsNoTextsSaysWhichDoes) {
  const Json error = post("/classify", {{"input", "a"}}, 400)["error"];
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("--task_type seq_cls"));
}

}  // namespace classify_test
}  // namespace danlu::serve
