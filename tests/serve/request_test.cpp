// What requests ask for in odd ways, and what they are billed.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>

#include "serve/protocol_test.h"

namespace danlu::serve {
namespace request_test {

using testing::HasSubstr;

/// The template's own marks hold the message, too: "|" ends each, and "user" is a role.
TEST_F(ProtocolTest, AMessageThatReadsAsAMarkIsGoneOnWithWhereItStands) {
  for (const std::string last : {"|", "s", "ant:|", "assistant", "so it|"}) {
    const Json body = {
        {"messages",
         {{{"role", "user"}, {"content", "hi"}}, {{"role", "assistant"}, {"content", last}}}},
        {"continue_final_message", true}};
    post("/v1/chat/completions", body);
    EXPECT_EQ(test::ByteTokenizer().decode(last_request().request.prompt, false),
              "user:hi|assistant:" + last);
  }
  const Json empty = {
      {"messages",
       {{{"role", "user"}, {"content", "hi"}}, {{"role", "assistant"}, {"content", " "}}}},
      {"continue_final_message", true}};
  EXPECT_EQ(post("/v1/chat/completions", empty, 400)["error"]["param"], "continue_final_message");
}

/// Counts the texts that are encoded.
class CountingTokenizer : public test::ByteTokenizer {
 public:
  void encode_append(std::string_view text, bool add_special,
                     std::vector<text::TokenId>& ids) const override {
    ++num_encoded;
    ByteTokenizer::encode_append(text, add_special, ids);
  }
  mutable std::atomic<int> num_encoded = 0;
};

TEST_F(ProtocolTest, MoreAnswersThanMayWaitAreRefusedBeforeTheyAreMade) {
  const auto tokenizer = std::make_shared<CountingTokenizer>();
  model_.tokenizer = tokenizer;
  const Json body = {{"prompt", Json(std::vector<std::string>(1024, "x"))}, {"n", 128}};
  const Json error = post("/v1/completions", body, 400)["error"];
  EXPECT_EQ(error["param"], "n");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("1024 answers at most"));
  EXPECT_EQ(tokenizer->num_encoded, 0);
}

TEST_F(ProtocolTest, AFieldThatNothingReadsIsToldOfOnce) {
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) chat({{"temprature", 0}, {"max_token", 5}});
  post("/v1/completions", {{"prompt", "a"}, {"wholly_unknown", 1}});
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("temprature (did you mean temperature?)"));
  EXPECT_THAT(said, HasSubstr("max_token (did you mean max_tokens?)"));
  EXPECT_THAT(said, HasSubstr("wholly_unknown\n"));
  EXPECT_EQ(said.find("temprature"), said.rfind("temprature"));
}

/// Names its tokens, as byte-level vocabularies do.
class NamedBytes : public test::ByteTokenizer {
 public:
  std::optional<std::string> id_to_token(text::TokenId id) const override {
    return id < 0x80 ? ByteTokenizer::id_to_token(id) : fmt::format("<0x{:02X}>", id);
  }
};

TEST_F(ProtocolTest, LogprobsOfHalfACharacterHaveItsBytes) {
  model_.tokenizer = std::make_shared<NamedBytes>();
  script_.answer = [](const infer::Request&) { return std::string("a\xE4\xBD\xA0|"); };
  const Json choice = chat({{"logprobs", true}, {"top_logprobs", 2}})["choices"][0];
  std::string together;
  for (const Json& token : choice["logprobs"]["content"])
    for (const Json& byte : token["bytes"]) together += static_cast<char>(byte.get<int>());
  EXPECT_EQ(together, "a\xE4\xBD\xA0|");
  const Json placed =
      post("/v1/completions", {{"prompt", "x"}, {"logprobs", 2}, {"max_tokens", 4}})["choices"][0];
  EXPECT_EQ(placed["logprobs"]["tokens"], (Json{"a", "bytes:\\xe4", "bytes:\\xbd", "bytes:\\xa0"}));
  EXPECT_EQ(placed["logprobs"]["top_logprobs"][1].size(), 2) << "unlike halves are told apart";
}

TEST_F(ProtocolTest, AnEchoTakesNothingFromThePromptsLogprobs) {
  const Json body = {{"prompt", "ab"}, {"echo", true}, {"logprobs", 1}, {"prompt_logprobs", 3}};
  const Json choice = post("/v1/completions", body)["choices"][0];
  EXPECT_EQ(choice["prompt_logprobs"][1].size(), 3);
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][1].size(), 1);
  Json other = body;
  other["logprobs"] = 3;
  other["prompt_logprobs"] = 1;
  const Json more = post("/v1/completions", other)["choices"][0];
  EXPECT_EQ(more["prompt_logprobs"][1].size(), 1);
  EXPECT_EQ(more["logprobs"]["top_logprobs"][1].size(), 3);
}

/// What answers are billed by is what the server counts, however they end.
TEST_F(ProtocolTest, UsagesAddUpToTheMetrics) {
  int64_t used = 0;
  for (const Json& more : {Json::object(), Json{{"max_tokens", 2}}, Json{{"n", 3}},
                           Json{{"stop_token_ids", {'h'}}}, Json{{"stop", "llo"}}})
    used += chat(more)["usage"]["completion_tokens"].get<int64_t>();
  EXPECT_EQ(used, 6 + 2 + 18 + 1 + 5);
  const std::string name = "{model_name=\"tiny\",engine=\"0\"} ";
  for (const char* metric :
       {"vllm:generation_tokens_total", "vllm:request_generation_tokens_sum"}) {
    EXPECT_TRUE(comes([&] {
      const std::string text = ask(raw_request("GET", "/metrics")).body;
      return text.find(metric + name + std::to_string(used)) != text.npos;
    })) << metric;
  }
}

}  // namespace request_test
}  // namespace danlu::serve
