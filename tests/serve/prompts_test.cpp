// What prompts are made of beside what a request says, which are refused before they become tokens,
// and by what name a request goes.
#include <gmock/gmock.h>

#include <tuple>

#include "base/error.h"
#include "serve/protocol_test.h"

namespace danlu::serve {
namespace prompts_test {

using testing::HasSubstr;

TEST_F(ProtocolTest, ACallThatItsLengthEndsIsTheBeginningOfOne) {
  const Json tools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  const std::string begun = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1";
  script_.answer = [&](const infer::Request&) { return begun; };
  const auto asked = [&](const Json& choice) {
    return chat(
        {{"tools", tools}, {"tool_choice", choice}, {"max_tokens", begun.size()}})["choices"][0];
  };
  const Json named = {{"type", "function"}, {"function", {{"name", "f"}}}};
  for (const Json& choice : {Json("required"), named}) {
    const Json answer = asked(choice);
    EXPECT_EQ(answer["finish_reason"], "length");
    EXPECT_EQ(answer["message"]["content"], nullptr) << answer;
    ASSERT_TRUE(answer["message"].contains("tool_calls"));
    EXPECT_EQ(answer["message"]["tool_calls"][0]["function"]["arguments"], "{\"a\": 1");
  }
  // Where it need not call, it is a text.
  EXPECT_EQ(asked("auto")["message"]["content"], begun);
}

/// Wants a question and an answer by turns.
class OrderedEncoder : public test::PlainEncoder {
 public:
  std::string render(const text::Conversation& conversation,
                     bool add_generation_prompt) const override {
    if (conversation.messages.size() > 1) throw DataError("message 2 is out of order", "try hf");
    return PlainEncoder::render(conversation, add_generation_prompt);
  }
};

TEST_F(ProtocolTest, ConversationsThatATemplateRefusesAreNamedAndWhatHelps) {
  model_.encoder = std::make_shared<OrderedEncoder>();
  const Json twice = {{{"role", "user"}, {"content", "hi"}}, {{"role", "user"}, {"content", "ho"}}};
  for (const char* path : {"/v1/chat/completions", "/tokenize"}) {
    const Json error = post(path, {{"messages", twice}}, 400)["error"];
    EXPECT_EQ(error["param"], "messages") << path;
    EXPECT_EQ(error["message"], "message 2 is out of order (try hf)") << path;
  }
}

TEST_F(ProtocolTest, ATextThatNoWindowHoldsIsRefusedBeforeItBecomesTokens) {
  const std::string text(size_t{1200} << 10, 'a');
  for (const auto& [path, body, param] :
       {std::tuple{"/v1/completions", Json{{"prompt", text}}, "prompt"},
        std::tuple{"/v1/chat/completions",
                   Json{{"messages", {{{"role", "user"}, {"content", text}}}}}, "messages"},
        std::tuple{"/v1/embeddings", Json{{"input", text}}, "input"}}) {
    const Json error = post(path, body, 400)["error"];
    EXPECT_EQ(error["param"], param);
    EXPECT_EQ(error["code"], "context_length_exceeded");
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("1000 tokens"));
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("1228800 bytes"));
  }
}

TEST_F(ProtocolTest, TheClientsIdIsTheRequests) {
  const auto asked = [&](const std::string& id, const Json& more = Json::object()) {
    std::string request = raw_request("POST", "/v1/chat/completions", chat_body(more).dump());
    request.insert(request.find("\r\n") + 2, "X-Request-Id: " + id + "\r\n");
    return ask(request);
  };
  const RawResponse answer = asked("my-id-7");
  EXPECT_EQ(answer.headers.at("x-request-id"), "my-id-7");
  EXPECT_EQ(Json::parse(answer.body)["id"], "chatcmpl-my-id-7");
  EXPECT_EQ(Json::parse(asked("my-id-7", {{"request_id", "body"}}).body)["id"], "chatcmpl-body");
  for (const std::string& no_word : {std::string("a b"), std::string(300, 'x')}) {
    const RawResponse other = asked(no_word);
    EXPECT_EQ(other.headers.at("x-request-id"), Json::parse(other.body)["id"].get<std::string>());
  }
}

TEST_F(ProtocolTest, LogprobsOfVeryManyTokensAreRefused) {
  Json prompts = Json::array();
  for (int i = 0; i < 200; ++i) prompts.push_back(std::string(900, 'a'));
  const Json error =
      post("/v1/completions", {{"prompt", prompts}, {"prompt_logprobs", 20}, {"max_tokens", 1}},
           400)["error"];
  EXPECT_EQ(error["param"], "prompt");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("3780000 entries"));
}

TEST_F(ProtocolTest, PathsThatAreNotHereNameThoseThatAre) {
  const Json error = post("/v1/responses", {{"input", "hi"}}, 404)["error"];
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("/v1/chat/completions"));
}

TEST_F(ProtocolTest, AnAdaptersPromptsAreItsOwn) {
  model_.system = "base";
  model_.adapters = {{.name = "law", .adapter = nullptr, .prompt = {.system = "law"}},
                     {.name = "free",
                      .adapter = nullptr,
                      .prompt = {.template_arguments = {{"enable_thinking", false}}}}};
  const auto prompt_of = [&](const std::string& name, const Json& more = Json::object()) {
    Json body = {{"model", name}};
    body.update(more);
    chat(body);
    return test::ByteTokenizer().decode(last_request().request.prompt, false);
  };
  EXPECT_EQ(prompt_of("tiny"), "system:base|user:hi|assistant:");
  EXPECT_EQ(prompt_of(""), "system:base|user:hi|assistant:");
  EXPECT_EQ(prompt_of("law"), "system:law|user:hi|assistant:");
  EXPECT_EQ(prompt_of("free"), "user:hi|assistant:{\"enable_thinking\":false}");
  EXPECT_EQ(prompt_of("free", {{"enable_thinking", true}}),
            "user:hi|assistant:{\"enable_thinking\":true}");
  const Json own = {{{"role", "system"}, {"content", "own"}},
                    {{"role", "user"}, {"content", "hi"}}};
  EXPECT_EQ(prompt_of("law", {{"messages", own}}), "system:own|user:hi|assistant:");
}

// OpenAI's field, which clients send to every model.
TEST_F(ProtocolTest, TemplatesThatKnowNoEffortAreAskedWithoutIt) {
  model_.make_encoder = [plain = model_.encoder](const Json& arguments, const std::string*) {
    if (!arguments.empty()) throw UsageError("knows no argument " + arguments.dump());
    return plain;
  };
  chat({{"reasoning_effort", "low"}});
  const Json refusal = chat({{"enable_thinking", true}}, 400);
  EXPECT_THAT(refusal["error"]["message"].get<std::string>(), HasSubstr("knows no argument"));
}

}  // namespace prompts_test
}  // namespace danlu::serve
