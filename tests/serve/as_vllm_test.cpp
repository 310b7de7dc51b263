// What clients of vLLM, OpenAI, ms-swift and LLaMA-Factory send and get, where it once differed.
#include <gmock/gmock.h>

#include <set>
#include <tuple>

#include "base/error.h"
#include "serve/protocol_test.h"

namespace danlu::serve {
namespace as_vllm_test {

using testing::HasSubstr;

const Json kTools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
const Json kNamed = {{"type", "function"}, {"function", {{"name", "f"}}}};

class AsVllm : public ProtocolTest {
 protected:
  std::string asked() { return test::ByteTokenizer().decode(last_request().request.prompt, false); }
  void answers(const std::string& text) {
    script_.answer = [text](const infer::Request&) { return text; };
  }
  static Json going_on(const std::string& said, const Json& more = Json::object()) {
    Json body = {
        {"messages",
         {{{"role", "user"}, {"content", "hi"}}, {{"role", "assistant"}, {"content", said}}}},
        {"continue_final_message", true}};
    body.update(more);
    return body;
  }
  Json chat_of(const Json& body) { return post("/v1/chat/completions", body)["choices"][0]; }
};

TEST_F(AsVllm, EqualPromptsOfAListAreDrawnApart) {
  post("/v1/completions", {{"prompt", {"a", "a", "a"}}, {"n", 2}});
  std::set<std::pair<uint64_t, uint64_t>> draws;
  for (const infer::EngineRequest& one : script_.added)
    draws.emplace(one.request.sampling.seed, one.request.stream);
  EXPECT_EQ(draws.size(), 6u);
  script_.added.clear();
  post("/v1/completions", {{"prompt", {"a", "b"}}, {"seed", 5}});
  for (const infer::EngineRequest& one : script_.added) EXPECT_EQ(one.request.sampling.seed, 5u);
}

/// lm-eval sums the log-probabilities of all but the last token, which it takes for the answer's.
TEST_F(AsVllm, TheTokenThatEndsAnAnswerHasItsLogprobAndId) {
  answers("|");
  const Json body = {{"prompt", {'a', 'b', 'c', 'd'}},
                     {"echo", true},
                     {"logprobs", 1},
                     {"max_tokens", 1},
                     {"temperature", 0},
                     {"stop_token_ids", {'|'}}};
  const Json choice = post("/v1/completions", body)["choices"][0];
  EXPECT_EQ(choice["text"], "abcd");
  EXPECT_EQ(choice["logprobs"]["token_logprobs"].size(), 5);
  EXPECT_EQ(choice["logprobs"]["tokens"].back(), "|");
  EXPECT_EQ(choice["logprobs"]["text_offset"].back(), 4);
  const Json chatted = chat({{"return_token_ids", true}, {"logprobs", true}})["choices"][0];
  EXPECT_EQ(chatted["token_ids"], (Json{'|'}));
  EXPECT_EQ(chatted["logprobs"]["content"].size(), 1);
  EXPECT_EQ(chatted["message"]["content"], "");
  // A string that ends it is no token of its own.
  answers("one two|");
  EXPECT_EQ(chat({{"return_token_ids", true}, {"stop", " "}})["choices"][0]["token_ids"].size(), 4);
}

TEST_F(AsVllm, IdsOfThePromptComeWithThoseOfTheAnswer) {
  const Json whole = chat({{"return_token_ids", true}});
  EXPECT_EQ(whole["prompt_token_ids"].size(), 18);
  const auto events = stream(chat_body({{"return_token_ids", true}}));
  EXPECT_EQ(events[0]["prompt_token_ids"].size(), 18);
  EXPECT_FALSE(events[1].contains("prompt_token_ids"));
  EXPECT_FALSE(chat().contains("prompt_token_ids"));
  const Json body = {{"prompt", {"ab", "c"}}, {"return_token_ids", true}};
  const Json choices = post("/v1/completions", body)["choices"];
  EXPECT_EQ(choices[0]["prompt_token_ids"], (Json{'a', 'b'}));
  EXPECT_EQ(choices[1]["prompt_token_ids"], (Json{'c'}));
  int told = 0;
  for (const Json& event : stream(body, "/v1/completions"))
    told += event["choices"][0].contains("prompt_token_ids");
  EXPECT_EQ(told, 2);
}

TEST_F(AsVllm, AStopTokenIsShownWhereStopsAre) {
  answers("abc|");
  const Json body = {{"prompt", "x"}, {"stop_token_ids", {'b'}}, {"logprobs", 0}};
  EXPECT_EQ(post("/v1/completions", body)["choices"][0]["text"], "a");
  Json shown = body;
  shown["include_stop_str_in_output"] = true;
  EXPECT_EQ(post("/v1/completions", shown)["choices"][0]["text"], "ab");
  EXPECT_EQ(post("/v1/completions", shown)["choices"][0]["stop_reason"], 'b');
}

/// Trims messages, as Llama's do.
class TrimmingEncoder : public test::PlainEncoder {
 public:
  std::string render(const text::Conversation& conversation,
                     bool add_generation_prompt) const override {
    text::Conversation trimmed = conversation;
    for (text::Message& message : trimmed.messages)
      message.content.erase(message.content.find_last_not_of(" \n") + 1);
    return PlainEncoder::render(trimmed, add_generation_prompt);
  }
};

TEST_F(AsVllm, AMessageThatGoesOnKeepsTheSpaceAtItsEnd) {
  for (const std::string said : {"```json\n", "Answer: ", "Step 1:\n\n"}) {
    chat_of(going_on(said));
    EXPECT_EQ(asked(), "user:hi|assistant:" + said);
  }
}

TEST_F(AsVllm, ATemplateThatTrimsMessagesTrimsTheOneThatGoesOn) {
  model_.encoder = std::make_shared<TrimmingEncoder>();
  chat_of(going_on("Answer: "));
  EXPECT_EQ(asked(), "user:hi|assistant:Answer:");
}

TEST_F(AsVllm, TokenizeGoesOnWithTheLastMessageToo) {
  const Json body = going_on("Answer:\n", {{"add_generation_prompt", false}});
  EXPECT_EQ(post("/tokenize", body)["count"], std::string("user:hi|assistant:Answer:\n").size());
  Json both = body;
  both["add_generation_prompt"] = true;
  EXPECT_EQ(post("/tokenize", both, 400)["error"]["param"], "continue_final_message");
}

TEST_F(AsVllm, AMessageThatGoesOnAmidAThoughtIsThought) {
  answers(" more</think>\n\nyes|");
  const Json message = chat_of(going_on("<think>\nso"))["message"];
  EXPECT_EQ(message["reasoning"], " more");
  EXPECT_EQ(message["content"], "yes");
  EXPECT_EQ(chat_of(going_on("<think>\nso</think>\n\nwell"))["message"]["content"],
            " more</think>\n\nyes");
}

/// Asks for a prompt that ends with no answer, as encoders of templates do.
class AskingEncoder : public test::PlainEncoder {
 public:
  std::vector<text::TokenId> encode_prompt(const text::Conversation& conversation) const override {
    if (conversation.messages.back().role == "assistant") throw DataError("ends with an answer");
    return PlainEncoder::encode_prompt(conversation);
  }
};

TEST_F(AsVllm, AnAnswerMayFollowAnAnswer) {
  model_.encoder = std::make_shared<AskingEncoder>();
  Json body = going_on("so");
  body.erase("continue_final_message");
  chat_of(body);
  EXPECT_EQ(asked(), "user:hi|assistant:so|assistant:");
}

TEST_F(AsVllm, ParallelCallsMayBeSwitchedOff) {
  answers(
      "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>"
      "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 2}}</tool_call>|");
  const Json choice = chat({{"tools", kTools}, {"parallel_tool_calls", false}})["choices"][0];
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1);
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"a\": 1}");
  EXPECT_EQ(choice["message"]["content"], nullptr);
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  for (const Json& event : stream(chat_body({{"tools", kTools}, {"parallel_tool_calls", false}}))) {
    for (const Json& call : event["choices"][0]["delta"].value("tool_calls", Json::array()))
      EXPECT_EQ(call["index"], 0);
  }
}

TEST_F(AsVllm, ACallByNameIsNoReasonToEnd) {
  answers("<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>|");
  const auto reason = [&](const Json& choice) {
    return chat({{"tools", kTools}, {"tool_choice", choice}})["choices"][0]["finish_reason"];
  };
  EXPECT_EQ(reason(kNamed), "stop");
  EXPECT_EQ(reason("required"), "tool_calls");
  EXPECT_EQ(reason("auto"), "tool_calls");
}

TEST_F(AsVllm, ToolsOfAModelWhoseCallsNobodyReadsAreRefused) {
  model_.tool_format = std::nullopt;
  const Json error = chat({{"tools", kTools}}, 400)["error"];
  EXPECT_EQ(error["param"], "tools");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("--tool_call_parser"));
  chat({{"tools", kTools}, {"tool_choice", "none"}});
}

TEST_F(AsVllm, CallsStayInTheTextWhereTheServerSaysSo) {
  model_.tool_format = std::nullopt;
  model_.leaves_calls = true;
  answers("<tool_call>f|");
  EXPECT_EQ(chat({{"tools", kTools}})["choices"][0]["message"]["content"], "<tool_call>f");
}

TEST_F(AsVllm, TextsOfVectorsLoseTheirEndAndPromptsTheirBeginning) {
  const auto cut = [&](const char* path, Json body) {
    body["truncate_prompt_tokens"] = 3;
    post(path, body);
    return asked();
  };
  EXPECT_EQ(cut("/v1/embeddings", {{"input", "abcdefgh"}}), "abc");
  EXPECT_EQ(cut("/v1/embeddings", {{"input", "abcdefgh"}, {"truncation_side", "left"}}), "fgh");
  EXPECT_EQ(cut("/v1/embeddings", {{"input", {'a', 'b', 'c', 'd'}}}), "abc");
  EXPECT_EQ(cut("/v1/completions", {{"prompt", "abcdefgh"}}), "fgh");
  EXPECT_EQ(cut("/v1/completions", {{"prompt", "abcdefgh"}, {"truncation_side", "right"}}), "abc");
  EXPECT_EQ(cut("/v1/chat/completions", chat_body({{"truncation_side", "right"}})), "use");
}

/// Ends each text with a token of its own, as Qwen3-Embedding's does.
class ClosingTokenizer : public test::ByteTokenizer {
 public:
  void encode_append(std::string_view text, bool add_special,
                     std::vector<text::TokenId>& ids) const override {
    if (add_special) ids.push_back('<');
    ByteTokenizer::encode_append(text, false, ids);
    if (add_special) ids.push_back('>');
  }
};

TEST_F(AsVllm, WhatATokenizerAddsAroundATextStays) {
  model_.tokenizer = std::make_shared<ClosingTokenizer>();
  const auto cut = [&](int64_t most) {
    post("/v1/embeddings", {{"input", "abcdefgh"}, {"truncate_prompt_tokens", most}});
    return asked();
  };
  EXPECT_EQ(cut(5), "<abc>");
  EXPECT_EQ(cut(10), "<abcdefgh>");
  EXPECT_EQ(cut(2), "<>");
}

TEST_F(AsVllm, WhatATemplateWritesAroundATextStays) {
  model_.vectors.by_template = true;
  const auto cut = [&](int64_t most) {
    post("/v1/embeddings", {{"input", "abcdé"}, {"truncate_prompt_tokens", most}});
    return asked();
  };
  EXPECT_EQ(cut(22), "user:abcdé|assistant:");
  EXPECT_EQ(cut(21), "user:abcd|assistant:") << "no half a character";
  EXPECT_EQ(cut(19), "user:abc|assistant:");
}

TEST_F(AsVllm, VectorsThatAreNotNormalisedAreRefused) {
  for (const char* field : {"use_activation", "normalize"}) {
    EXPECT_EQ(post("/v1/embeddings", {{"input", "a"}, {field, false}}, 400)["error"]["param"],
              field);
    post("/v1/embeddings", {{"input", "a"}, {field, true}});
  }
}

TEST_F(AsVllm, FieldsThatNothingReadsAreToldOfOnEveryPath) {
  testing::internal::CaptureStderr();
  post("/v1/embeddings", {{"input", "a"}, {"odd_embedding", 1}});
  post("/tokenize", {{"prompt", "a"}, {"odd_text", 1}});
  post("/detokenize", {{"tokens", {'a'}}, {"odd_ids", 1}});
  chat({{"tools", {{{"function", {{"name", "f"}, {"strict", true}}}}}},
        {"response_format",
         {{"type", "json_schema"},
          {"json_schema", {{"name", "x"}, {"schema", Json::object()}, {"odd_form", 1}}}}}});
  const std::string said = testing::internal::GetCapturedStderr();
  for (const char* field : {"odd_embedding", "odd_text", "odd_ids", "tools[].function.strict",
                            "response_format.json_schema.odd_form"})
    EXPECT_THAT(said, HasSubstr(field));
}

TEST_F(AsVllm, DoSampleIsWhatLlamaFactoryMakesOfIt) {
  chat({{"do_sample", false}, {"temperature", 0.9}});
  EXPECT_FALSE(last_request().request.sampling.do_sample);
  chat({{"do_sample", true}, {"temperature", 0}});
  EXPECT_FALSE(last_request().request.sampling.do_sample);
  chat({{"do_sample", true}});
  EXPECT_TRUE(last_request().request.sampling.do_sample);
}

TEST_F(AsVllm, AGreedyServerDrawsWhereARequestAsksForIt) {
  model_.sampling.do_sample = false;
  chat();
  EXPECT_FALSE(last_request().request.sampling.do_sample);
  chat({{"do_sample", true}});
  EXPECT_TRUE(last_request().request.sampling.do_sample);
}

TEST_F(AsVllm, MsSwiftsPatternHoldsAnAnswer) {
  chat({{"structured_outputs_regex", "[ab]+"}});
  EXPECT_TRUE(last_request().request.rules.constraint);
}

TEST_F(AsVllm, AnEffortSaysWhetherAModelThinks) {
  const auto suffix = [&](const Json& more) {
    chat(more);
    return asked().substr(std::string("user:hi|assistant:").size());
  };
  EXPECT_EQ(suffix({{"reasoning_effort", "none"}}),
            "{\"enable_thinking\":false,\"reasoning_effort\":\"none\"}");
  EXPECT_EQ(suffix({{"reasoning_effort", "low"}}),
            "{\"enable_thinking\":true,\"reasoning_effort\":\"low\"}");
  EXPECT_EQ(suffix({{"reasoning_effort", "none"}, {"enable_thinking", true}}),
            "{\"enable_thinking\":true,\"reasoning_effort\":\"none\"}");
}

TEST_F(AsVllm, AThoughtThatIsNotShownHasNoLogprobsAndIds) {
  answers("<think>hm</think>yes|");
  const Json asks = {{"include_reasoning", false}, {"logprobs", true}, {"return_token_ids", true}};
  const Json choice = chat(asks)["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "yes");
  EXPECT_EQ(choice["logprobs"], nullptr);
  EXPECT_EQ(choice["token_ids"], nullptr);
  for (const Json& event : stream(chat_body(asks))) {
    EXPECT_EQ(event["choices"][0]["logprobs"], nullptr);
    EXPECT_EQ(event["choices"][0].value("token_ids", Json()), nullptr);
  }
  // Nothing was thought: nothing is hidden.
  answers("yes|");
  EXPECT_EQ(chat(asks)["choices"][0]["logprobs"]["content"].size(), 4);
}

TEST_F(AsVllm, WhatAChatEchoesHasLogprobs) {
  const Json body = going_on("so", {{"echo", true}, {"logprobs", true}, {"top_logprobs", 1}});
  const Json answer = post("/v1/chat/completions", body);
  EXPECT_EQ(answer["prompt_logprobs"].size(), std::string("user:hi|assistant:so").size());
}

TEST_F(AsVllm, ACompletionWithoutALengthIsAsLongAsTheServerSays) {
  post("/v1/completions", {{"prompt", "ab"}});
  EXPECT_EQ(last_request().request.max_new_tokens, 16);
}

TEST_F(AsVllm, ACompletionMayFillTheWindowAsMsSwifts) {
  limits_.completion_tokens = std::nullopt;
  post("/v1/completions", {{"prompt", "ab"}, {"min_tokens", 3}});
  EXPECT_EQ(last_request().request.max_new_tokens, 998);
}

/// Bytes, and tokens for the tags of thoughts.
class ThinkingTokenizer : public test::ByteTokenizer {
 public:
  static constexpr text::TokenId kOpen = 256, kClose = 257;
  std::string decode(std::span<const text::TokenId> ids, bool skip_special) const override {
    std::string text;
    for (const text::TokenId id : ids) {
      if (id < 256) {
        text += ByteTokenizer::decode(std::vector{id}, skip_special);
      } else {
        text += id == kOpen ? "<think>" : "</think>";
      }
    }
    return text;
  }
  size_t size() const override { return 258; }
  std::optional<text::TokenId> token_to_id(std::string_view token) const override {
    if (token == "<think>") return kOpen;
    return token == "</think>" ? std::optional(kClose) : std::nullopt;
  }
  std::optional<std::string> id_to_token(text::TokenId id) const override {
    return id < 256 ? ByteTokenizer::id_to_token(id) : decode(std::vector{id}, false);
  }
};

class FormsOfThinkers : public AsVllm {
 protected:
  void SetUp() override {
    AsVllm::SetUp();
    model_.tokenizer = std::make_shared<ThinkingTokenizer>();
  }
  std::shared_ptr<text::TokenConstraint> constraint_of(const Json& more) {
    Json asks = {{"structured_outputs", {{"choice", {"yes"}}}}};
    asks.update(more);
    chat(asks);
    return last_request().request.rules.constraint;
  }
  static std::string allowed(text::TokenConstraint& constraint) {
    const auto words = constraint.allowed();
    std::string found;
    for (const text::TokenId id : std::vector<text::TokenId>{'y', 'e', 'x', 256, 257, '|'}) {
      const auto at = static_cast<size_t>(id);
      if (at / 64 < words.size() && (words[at / 64] >> (at % 64) & 1) != 0)
        found += id < 256 ? std::string(1, static_cast<char>(id)) : id == 256 ? "<" : ">";
    }
    return found;
  }
};

TEST_F(FormsOfThinkers, AFormHoldsBehindTheThoughtThatThePromptOpens) {
  model_.encoder = std::make_shared<test::PlainEncoder>("<think>\n");
  const auto constraint = constraint_of(Json::object());
  ASSERT_TRUE(constraint);
  EXPECT_EQ(allowed(*constraint), "yex<>|");
  constraint->accept('x');
  const auto other = constraint->clone();
  for (const char c : std::string("</think>")) constraint->accept(c);
  EXPECT_EQ(allowed(*constraint), "y");
  constraint->accept('y');
  EXPECT_EQ(allowed(*constraint), "e");
  EXPECT_EQ(allowed(*other), "yex<>|");
  other->accept(ThinkingTokenizer::kClose);
  EXPECT_EQ(allowed(*other), "y");
}

TEST_F(FormsOfThinkers, AThoughtMayOpenBeforeAForm) {
  const auto constraint = constraint_of(Json::object());
  EXPECT_EQ(allowed(*constraint), "y<");
  const auto other = constraint->clone();
  constraint->accept(ThinkingTokenizer::kOpen);
  EXPECT_EQ(allowed(*constraint), "yex<>|");
  other->accept('y');
  EXPECT_EQ(allowed(*other), "e");
}

TEST_F(FormsOfThinkers, AThoughtThatNobodySeesIsNotThoughtBeforeAForm) {
  model_.encoder = std::make_shared<test::PlainEncoder>("<think>\n");
  EXPECT_EQ(allowed(*constraint_of({{"include_reasoning", false}})), "y");
  model_.splits_reasoning = false;
}

TEST_F(FormsOfThinkers, WhatIsThoughtBeforeAFormIsParted) {
  model_.encoder = std::make_shared<test::PlainEncoder>("<think>\n");
  answers("hm</think>yes|");
  const Json message =
      chat({{"structured_outputs", {{"choice", {"yes"}}}}})["choices"][0]["message"];
  EXPECT_EQ(message["reasoning"], "hm");
  EXPECT_EQ(message["content"], "yes");
}

}  // namespace as_vllm_test
}  // namespace danlu::serve
