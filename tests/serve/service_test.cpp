// The protocol over real sockets, with an engine whose answers are written here.
#include <gmock/gmock.h>

#include <atomic>
#include <random>

#include "base/error.h"
#include "serve/protocol_test.h"

namespace danlu::serve {
namespace service_test {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(ProtocolTest, AChatIsAnsweredInOpenAisWords) {
  const Json answer = chat();
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["model"], "tiny");
  EXPECT_THAT(answer["id"].get<std::string>(), testing::StartsWith("chatcmpl-"));
  const Json& choice = answer["choices"][0];
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["message"]["content"], "hello");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["index"], 0);
  // "user:hi|assistant:" has 18 bytes, the answer 5.
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 18);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 6) << "with the one that ends it";
  EXPECT_EQ(answer["usage"]["total_tokens"], 24);
  EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
}

TEST_F(ProtocolTest, AStreamBeginsWithTheRoleAndEndsWithTheReason) {
  const std::vector<Json> events = stream(chat_body());
  EXPECT_EQ(events.front()["choices"][0]["delta"], (Json{{"role", "assistant"}, {"content", ""}}));
  std::string text;
  for (const Json& event : events) {
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    EXPECT_EQ(event["id"], events.front()["id"]);
    EXPECT_EQ(event["created"], events.front()["created"]);
    text += event["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(text, "hello");
  EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(events.back()["choices"][0]["delta"], Json::object());
  for (size_t i = 0; i + 1 < events.size(); ++i)
    EXPECT_EQ(events[i]["choices"][0]["finish_reason"], nullptr);
}

TEST_F(ProtocolTest, UsageComesInAChunkOfItsOwn) {
  const std::vector<Json> events =
      stream(chat_body({{"stream_options", {{"include_usage", true}}}}));
  EXPECT_EQ(events.back()["choices"], Json::array());
  EXPECT_EQ(events.back()["usage"]["total_tokens"], 24);
  EXPECT_EQ(events.front()["usage"], nullptr);
  EXPECT_TRUE(events.front().contains("usage"));
  const std::vector<Json> running = stream(
      chat_body({{"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}}}));
  EXPECT_EQ(running[1]["usage"]["completion_tokens"], 1);
}

TEST_F(ProtocolTest, ChoicesHaveDrawsOfTheirOwn) {
  const Json answer = chat({{"n", 3}, {"seed", 5}});
  ASSERT_EQ(answer["choices"].size(), 3);
  EXPECT_EQ(answer["choices"][2]["index"], 2);
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 18) << "a prompt counts once";
  EXPECT_EQ(answer["usage"]["completion_tokens"], 18);
  const std::lock_guard lock(script_.mutex);
  std::vector<uint64_t> streams;
  for (const infer::EngineRequest& request : script_.added) {
    streams.push_back(request.request.stream);
    EXPECT_EQ(request.request.sampling.seed, 5);
  }
  EXPECT_THAT(streams, ElementsAre(0, 1, 2));
}

TEST_F(ProtocolTest, StreamsOfSeveralChoicesAreToldApart) {
  script_.answer = [n = 0](const infer::Request&) mutable {
    return "answer " + std::to_string(n++);
  };
  std::vector<std::string> texts(3);
  int ends = 0;
  for (const Json& event : stream(chat_body({{"n", 3}}))) {
    const Json& choice = event["choices"][0];
    texts[choice["index"].get<size_t>()] += choice["delta"].value("content", "");
    ends += !choice["finish_reason"].is_null();
  }
  EXPECT_THAT(texts, ElementsAre("answer 0", "answer 1", "answer 2"));
  EXPECT_EQ(ends, 3);
}

TEST_F(ProtocolTest, WhatARequestSaysReachesTheEngine) {
  limits_.follows_priority = true;
  chat({{"temperature", 0.5},
        {"top_p", 0.9},
        {"top_k", 7},
        {"min_p", 0.1},
        {"seed", 42},
        {"presence_penalty", 0.5},
        {"frequency_penalty", 0.25},
        {"repetition_penalty", 1.5},
        {"min_tokens", 2},
        {"max_tokens", 30},
        {"logit_bias", {{"65", -100}}},
        {"stop_token_ids", {33}},
        {"cache_salt", "s"},
        {"priority", 3}});
  const infer::EngineRequest request = last_request();
  EXPECT_TRUE(request.request.sampling.do_sample);
  EXPECT_EQ(request.request.sampling.temperature, 0.5);
  EXPECT_EQ(request.request.sampling.top_p, 0.9);
  EXPECT_EQ(request.request.sampling.top_k, 7);
  EXPECT_EQ(request.request.sampling.min_p, 0.1);
  EXPECT_EQ(request.request.sampling.repetition_penalty, 1.5);
  EXPECT_EQ(request.request.sampling.seed, 42);
  EXPECT_EQ(request.request.max_new_tokens, 30);
  EXPECT_THAT(request.request.stop_ids, ElementsAre('|', 33));
  EXPECT_EQ(request.request.rules.presence_penalty, 0.5);
  EXPECT_EQ(request.request.rules.frequency_penalty, 0.25);
  EXPECT_EQ(request.request.rules.min_new_tokens, 2);
  EXPECT_THAT(request.request.rules.bias, ElementsAre(testing::Pair(65, -100.f)));
  EXPECT_EQ(request.salt, "s");
  EXPECT_EQ(request.priority, 3);
  chat({{"temperature", 0}, {"ignore_eos", true}, {"max_tokens", 3}});
  EXPECT_FALSE(last_request().request.sampling.do_sample);
  EXPECT_THAT(last_request().request.stop_ids, testing::IsEmpty());
}

TEST_F(ProtocolTest, WithoutALengthAnAnswerMayFillTheWindow) {
  chat();
  EXPECT_EQ(last_request().request.max_new_tokens, 1000 - 18);
}

TEST_F(ProtocolTest, AContextThatIsTooLongNamesBothNumbers) {
  const Json error = chat({{"max_tokens", 983}}, 400)["error"];
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_EQ(error["type"], "invalid_request_error");
  EXPECT_THAT(error["message"].get<std::string>(),
              testing::AllOf(HasSubstr("1000"), HasSubstr("1001"), HasSubstr("18")));
  chat({{"max_tokens", 982}});
}

TEST_F(ProtocolTest, ThePromptsEndIsKeptWhereItIsCut) {
  chat({{"truncate_prompt_tokens", 4}});
  EXPECT_EQ(test::ByteTokenizer().decode(last_request().request.prompt, false), "ant:");
}

TEST_F(ProtocolTest, StopStringsEndAnAnswerInTheMidstOfTokens) {
  script_.answer = [](const infer::Request&) { return std::string("one two STOP three"); };
  const Json choice = chat({{"stop", {"STOP", "never"}}})["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "one two ");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["stop_reason"], "STOP");
  EXPECT_TRUE(comes([&] { return script_.num_cancelled == 1; })) << "no more is computed";
}

TEST_F(ProtocolTest, AnEmptyListTurnsTheServersStopStringsOff) {
  model_.stop = {"STOP"};
  script_.answer = [](const infer::Request&) { return std::string("one STOP two|"); };
  const auto text = [&](const Json& more) {
    return chat(more)["choices"][0]["message"]["content"].get<std::string>();
  };
  EXPECT_EQ(text(Json::object()), "one ");
  EXPECT_EQ(text({{"stop", nullptr}}), "one ");
  EXPECT_EQ(text({{"stop", "two"}}), "one STOP ");
  EXPECT_EQ(text({{"stop", Json::array()}}), "one STOP two");
}

TEST_F(ProtocolTest, TheReasonsOfAnEnd) {
  EXPECT_EQ(chat({{"max_tokens", 3}})["choices"][0]["finish_reason"], "length");
  const Json choice = chat({{"stop_token_ids", {'l'}}})["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["stop_reason"], 'l');
  EXPECT_EQ(choice["message"]["content"], "he");
}

TEST_F(ProtocolTest, LogprobsOfAChat) {
  const Json content =
      chat({{"logprobs", true}, {"top_logprobs", 2}})["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 6) << "with the one that ends it";
  EXPECT_EQ(content[0]["token"], "h");
  EXPECT_EQ(content[0]["logprob"], -0.5);
  EXPECT_EQ(content[0]["bytes"], Json({'h'}));
  EXPECT_EQ(content[0]["top_logprobs"].size(), 2);
  EXPECT_EQ(content[0]["top_logprobs"][1]["token"], "i");
  size_t streamed = 0;
  for (const Json& event : stream(chat_body({{"logprobs", true}}))) {
    const Json& logprobs = event["choices"][0]["logprobs"];
    if (!logprobs.is_null()) streamed += logprobs["content"].size();
  }
  EXPECT_EQ(streamed, 6);
}

TEST_F(ProtocolTest, LogprobsOfAPrompt) {
  const Json answer = chat({{"prompt_logprobs", 1}});
  ASSERT_EQ(answer["prompt_logprobs"].size(), 18);
  EXPECT_EQ(answer["prompt_logprobs"][0], nullptr);
  // "us…": the second token is 's', 115.
  EXPECT_EQ(answer["prompt_logprobs"][1],
            (Json{{"115", {{"logprob", -0.5}, {"rank", 1}, {"decoded_token", "s"}}}}));
  const Json completion = post("/v1/completions", {{"prompt", "ab"}, {"prompt_logprobs", 0}});
  EXPECT_EQ(completion["choices"][0]["prompt_logprobs"].size(), 2);
}

TEST_F(ProtocolTest, FormsAreGrammars) {
  chat({{"response_format", {{"type", "json_object"}}}});
  ASSERT_TRUE(last_request().request.rules.constraint);
  const auto constraint = last_request().request.rules.constraint;
  const auto words = constraint->allowed();
  const auto allowed = [&](char c) {
    const auto id = static_cast<size_t>(static_cast<unsigned char>(c));
    return id / 64 < words.size() && (words[id / 64] >> (id % 64) & 1) != 0;
  };
  EXPECT_TRUE(allowed('{'));
  EXPECT_FALSE(allowed('x'));
  EXPECT_THAT(last_request().request.stop_ids, ElementsAre('|'));
  EXPECT_EQ(chat({{"structured_outputs", {{"regex", "("}}}}, 400)["error"]["param"],
            "structured_outputs.regex");
  const Json tools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  chat({{"tools", tools}, {"tool_choice", "required"}});
  EXPECT_TRUE(last_request().request.rules.constraint);
  chat({{"tools", tools}});
  EXPECT_FALSE(last_request().request.rules.constraint);
}

/// A name asks for one call, so that nothing but the end may follow it, also where `min_tokens`
/// keeps the end away.
TEST_F(ProtocolTest, ANamedChoiceIsOneCall) {
  const Json tools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  const auto may_go_on = [&](const Json& choice) {
    chat({{"tools", tools}, {"tool_choice", choice}, {"min_tokens", 100}});
    const auto constraint = last_request().request.rules.constraint;
    for (const text::TokenId id : test::ByteTokenizer().encode(call)) constraint->accept(id);
    const auto words = constraint->allowed();
    const auto allowed = [&](char c) {
      return (words[static_cast<size_t>(c) / 64] >> (static_cast<size_t>(c) % 64) & 1) != 0;
    };
    EXPECT_TRUE(allowed('|')) << choice;
    return allowed('\n') || allowed('<');
  };
  EXPECT_FALSE(may_go_on({{"type", "function"}, {"function", {{"name", "f"}}}}));
  EXPECT_TRUE(may_go_on("required"));
}

TEST_F(ProtocolTest, ThoughtsAreParted) {
  script_.answer = [](const infer::Request&) { return std::string("<think>hm</think>yes|"); };
  const Json message = chat()["choices"][0]["message"];
  EXPECT_EQ(message["content"], "yes");
  EXPECT_EQ(message["reasoning"], "hm");
  EXPECT_EQ(message["reasoning_content"], "hm");
  std::string reasoning;
  for (const Json& event : stream(chat_body()))
    reasoning += event["choices"][0]["delta"].value("reasoning", "");
  EXPECT_EQ(reasoning, "hm");
  EXPECT_FALSE(chat({{"include_reasoning", false}})["choices"][0]["message"].contains("reasoning"));
}

TEST_F(ProtocolTest, ToolCallsWholeAndStreamed) {
  const Json tools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  script_.answer = [](const infer::Request&) {
    return std::string(
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"
        "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>|");
  };
  const Json choice = chat({{"tools", tools}})["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], nullptr);
  const Json& calls = choice["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2);
  EXPECT_EQ(calls[0]["function"]["name"], "f");
  EXPECT_EQ(Json::parse(calls[0]["function"]["arguments"].get<std::string>()), (Json{{"a", 1}}));
  EXPECT_NE(calls[0]["id"], calls[1]["id"]);

  std::vector<std::string> arguments(2), names(2);
  std::string reason;
  for (const Json& event : stream(chat_body({{"tools", tools}}))) {
    const Json& one = event["choices"][0];
    for (const Json& call : one["delta"].value("tool_calls", Json::array())) {
      const auto index = call["index"].get<size_t>();
      if (call.contains("id")) {
        EXPECT_EQ(names[index], "");
        EXPECT_EQ(call["type"], "function");
        names[index] = call["function"]["name"];
      }
      arguments[index] += call["function"].value("arguments", "");
    }
    if (!one["finish_reason"].is_null()) reason = one["finish_reason"];
  }
  EXPECT_THAT(names, ElementsAre("f", "f"));
  EXPECT_EQ(Json::parse(arguments[0]), (Json{{"a", 1}}));
  EXPECT_EQ(Json::parse(arguments[1]), Json::object());
  EXPECT_EQ(reason, "tool_calls");
  EXPECT_THAT(chat({{"tools", tools}, {"tool_choice", "none"}})["choices"][0]["message"]["content"]
                  .get<std::string>(),
              HasSubstr("<tool_call>"));
}

TEST_F(ProtocolTest, VariablesOfTheTemplate) {
  chat({{"chat_template_kwargs", {{"enable_thinking", false}}}});
  EXPECT_THAT(test::ByteTokenizer().decode(last_request().request.prompt, false),
              testing::EndsWith("assistant:{\"enable_thinking\":false}"));
}

TEST_F(ProtocolTest, AnAnswerMayGoOnWithTheLastMessage) {
  const Json body = {
      {"messages",
       {{{"role", "user"}, {"content", "hi"}}, {{"role", "assistant"}, {"content", "so it "}}}},
      {"continue_final_message", true},
      {"echo", true}};
  const Json answer = post("/v1/chat/completions", body);
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "so it hello");
  EXPECT_EQ(test::ByteTokenizer().decode(last_request().request.prompt, false),
            "user:hi|assistant:so it ");
}

TEST_F(ProtocolTest, CompletionsOfSeveralPrompts) {
  script_.answer = [](const infer::Request& request) {
    return test::ByteTokenizer().decode(request.prompt, false) + "!";
  };
  const Json answer =
      post("/v1/completions", {{"prompt", {"ab", "c"}}, {"n", 2}, {"max_tokens", 2}});
  EXPECT_EQ(answer["object"], "text_completion");
  std::vector<std::string> texts;
  for (const Json& choice : answer["choices"]) texts.push_back(choice["text"]);
  EXPECT_THAT(texts, ElementsAre("ab", "ab", "c!", "c!"));
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 3);
}

TEST_F(ProtocolTest, ACompletionThatEchoesShowsThePromptsLogprobs) {
  const Json body = {{"prompt", "ab"}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 1}};
  const Json choice = post("/v1/completions", body)["choices"][0];
  EXPECT_EQ(choice["text"], "abh");
  EXPECT_EQ(choice["logprobs"]["tokens"], (Json{"a", "b", "h"}));
  EXPECT_EQ(choice["logprobs"]["token_logprobs"], (Json{nullptr, -0.5, -0.5}));
  EXPECT_EQ(choice["logprobs"]["text_offset"], (Json{0, 1, 2}));
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][1], (Json{{"b", -0.5}}));
  Json alone = body;
  alone["max_tokens"] = 0;
  const Json scored = post("/v1/completions", alone);
  EXPECT_EQ(scored["choices"][0]["text"], "ab");
  EXPECT_EQ(scored["choices"][0]["logprobs"]["tokens"], (Json{"a", "b"}));
  EXPECT_EQ(scored["usage"]["completion_tokens"], 0);
  std::string streamed;
  for (const Json& event : stream(body, "/v1/completions"))
    streamed += event["choices"][0]["text"].get<std::string>();
  EXPECT_EQ(streamed, "abh");
}

TEST_F(ProtocolTest, IdsOfAPromptMustBeInTheVocabulary) {
  EXPECT_EQ(post("/v1/completions", {{"prompt", {1, 256}}}, 400)["error"]["param"], "prompt");
  EXPECT_EQ(post("/v1/completions", {{"prompt", ""}}, 400)["error"]["param"], "prompt");
}

TEST_F(ProtocolTest, ModelsAndUnknownOnes) {
  Json list = Json::parse(ask(raw_request("GET", "/v1/models")).body);
  EXPECT_EQ(list["data"].size(), 2);
  EXPECT_EQ(list["data"][0]["id"], "tiny");
  EXPECT_EQ(list["data"][0]["max_model_len"], 1000);
  EXPECT_EQ(list["data"][0]["capabilities"], Json::array({"completion"}));
  EXPECT_EQ(Json::parse(ask(raw_request("GET", "/v1/models/alias")).body)["id"], "alias");
  EXPECT_EQ(ask(raw_request("GET", "/v1/models/other")).status, 404);
  const Json error = chat({{"model", "other"}}, 404)["error"];
  EXPECT_EQ(error["code"], "model_not_found");
  EXPECT_EQ(chat({{"model", "alias"}})["model"], "alias");
}

TEST_F(ProtocolTest, AModelThatSeesSaysSo) {
  model_.encode_media = [](const text::ChatEncoder&, const text::Conversation&, int64_t,
                           infer::Request*) {};
  EXPECT_EQ(Json::parse(ask(raw_request("GET", "/v1/models/alias")).body)["capabilities"],
            (Json{"completion", "multimodal"}));
}

TEST_F(ProtocolTest, TokensOfTextsAndBack) {
  const Json tokens = post("/tokenize", {{"prompt", "ab"}, {"return_token_strs", true}});
  EXPECT_EQ(tokens["tokens"], (Json{97, 98}));
  EXPECT_EQ(tokens["count"], 2);
  EXPECT_EQ(tokens["token_strs"], (Json{"a", "b"}));
  Json body = chat_body();
  EXPECT_EQ(post("/tokenize", body)["count"], 18);
  EXPECT_EQ(post("/detokenize", {{"tokens", {104, 105}}})["prompt"], "hi");
}

TEST_F(ProtocolTest, ErrorsHaveOpenAisShape) {
  for (const auto& [request, status] :
       {std::pair{raw_request("POST", "/v1/chat/completions", "{"), 400},
        std::pair{raw_request("POST", "/v1/nothing", "{}"), 404},
        std::pair{raw_request("GET", "/v1/chat/completions"), 405},
        std::pair{std::string("BROKEN\r\n\r\n"), 400}}) {
    const RawResponse response = ask(request);
    EXPECT_EQ(response.status, status);
    const Json error = Json::parse(response.body)["error"];
    EXPECT_TRUE(error["message"].is_string());
    EXPECT_EQ(error["type"], "invalid_request_error");
  }
}

TEST_F(ProtocolTest, AnErrorOfTheEngineReachesItsRequestAlone) {
  Json body = chat_body({{"messages", {{{"role", "user"}, {"content", std::string(5100, 'x')}}}}});
  model_.max_model_len = 0;
  EXPECT_EQ(post("/v1/chat/completions", body, 400)["error"]["message"], "the prompt does not fit");
  body["stream"] = true;
  EXPECT_EQ(post("/v1/chat/completions", body, 400)["error"]["message"], "the prompt does not fit")
      << "a stream that has not begun is an answer like any other";
  chat();
}

TEST_F(ProtocolTest, AnEngineThatFailsIsReplaced) {
  script_.is_held = true;
  start();
  RawClient whole(server_->port()), streamed(server_->port());
  whole.send(raw_request("POST", "/v1/chat/completions", chat_body().dump()));
  streamed.send(raw_request("POST", "/v1/chat/completions", chat_body({{"stream", true}}).dump()));
  ASSERT_TRUE(comes([&] { return script_.num_running == 2; }));
  script_.fails_next_step = true;
  const RawResponse failed = whole.response();
  EXPECT_EQ(failed.status, 500);
  EXPECT_EQ(Json::parse(failed.body)["error"]["type"], "server_error");
  const RawResponse in_stream = streamed.response();
  EXPECT_EQ(in_stream.status, 200);
  const std::vector<Json> events = events_of(in_stream.body);
  EXPECT_EQ(events.back()["error"]["message"], "no memory is left");
  script_.is_held = false;
  EXPECT_EQ(chat()["choices"][0]["message"]["content"], "hello");
  EXPECT_EQ(script_.num_engines, 2);
}

TEST_F(ProtocolTest, AClientThatGoesEndsItsRequests) {
  script_.answer = [](const infer::Request&) { return std::string(900, 'x'); };
  script_.is_held = true;
  start();
  {
    RawClient client(server_->port());
    client.send(raw_request("POST", "/v1/chat/completions",
                            chat_body({{"n", 4}, {"stream", true}}).dump()));
    ASSERT_TRUE(comes([&] { return script_.num_running == 4; }));
  }
  EXPECT_TRUE(comes([&] { return script_.num_running == 0; }));
  EXPECT_EQ(script_.num_cancelled, 4);
}

TEST_F(ProtocolTest, APriorityIsFollowedWhereTheServerSaysSo) {
  EXPECT_EQ(chat({{"priority", -1}}, 400)["error"]["param"], "priority");
  EXPECT_EQ(post("/v1/completions", {{"prompt", "a"}, {"priority", 1}}, 400)["error"]["param"],
            "priority");
  const Json error = post("/v1/embeddings", {{"input", "a"}, {"priority", 1}}, 400)["error"];
  EXPECT_EQ(error["message"],
            "'priority' must be 0, got 1: requests are answered in the order in which they come "
            "(--scheduling-policy priority follows it)");
  chat({{"priority", 0}});
}

TEST_F(ProtocolTest, FieldsThatSayNothingUsefulAreRefused) {
  EXPECT_EQ(chat({{"cache_salt", ""}}, 400)["error"]["param"], "cache_salt");
  EXPECT_EQ(chat({{"allowed_token_ids", Json::array()}}, 400)["error"]["param"],
            "allowed_token_ids");
  EXPECT_EQ(chat({{"mm_processor_kwargs", {{"max_pixels", 100}}}}, 400)["error"]["param"],
            "mm_processor_kwargs");
  chat({{"mm_processor_kwargs", Json::object()}, {"cache_salt", nullptr}});
  EXPECT_EQ(chat({{"request_id", std::string(257, 'x')}}, 400)["error"]["param"], "request_id");
  EXPECT_EQ(chat({{"request_id", std::string(256, 'x')}})["id"],
            "chatcmpl-" + std::string(256, 'x'));
}

TEST_F(ProtocolTest, NumbersThatNoDoubleHoldsAreNamed) {
  const RawResponse response =
      ask(raw_request("POST", "/v1/completions", R"({"prompt": "a", "temperature": 1e400})"));
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(Json::parse(response.body)["error"]["message"].get<std::string>(),
              testing::EndsWith("body:1:32: not valid JSON: the number 1e400 is too large"));
}

TEST_F(ProtocolTest, AnswersThatTheEndOfTheServerMeetsEndWithAnError) {
  script_.answer = [](const infer::Request&) { return std::string(900, 'x'); };
  start();
  RawClient whole(server_->port()), streamed(server_->port());
  script_.is_held = true;
  whole.send(raw_request("POST", "/v1/completions", R"({"prompt": "a"})"));
  streamed.send(raw_request("POST", "/v1/chat/completions", chat_body({{"stream", true}}).dump()));
  ASSERT_TRUE(comes([&] { return script_.num_running == 2; }));
  EXPECT_FALSE(server_->drain(0));
  loop_->end();
  loop_->await_end();
  const RawResponse failed = whole.response(), in_stream = streamed.response();
  EXPECT_EQ(failed.status, 503);
  EXPECT_EQ(Json::parse(failed.body)["error"]["type"], "service_unavailable_error");
  EXPECT_EQ(in_stream.status, 200);
  EXPECT_EQ(events_of(in_stream.body).back()["error"]["message"],
            "the server ends, and the answer is not complete");
  EXPECT_TRUE(server_->stop(5)) << "nothing had to be cut";
}

TEST_F(ProtocolTest, MoreTextsThanTheQueueHoldsBecomeVectors) {
  loop_settings_.max_queue = 3;
  const Json texts = Json::array({"a", "b", "c", "d", "e"});
  EXPECT_EQ(post("/v1/embeddings", {{"input", texts}})["data"].size(), 5);
  EXPECT_EQ(post("/v1/completions", {{"prompt", texts}}, 400)["error"]["param"], "n");
}

TEST_F(ProtocolTest, MoreThanTheQueueHoldsIsTurnedAway) {
  loop_settings_.max_queue = 3;
  script_.is_held = true;
  script_.most_running = 1;
  start();
  EXPECT_EQ(chat({{"n", 4}}, 400)["error"]["param"], "n") << "it would never fit";
  std::vector<std::unique_ptr<RawClient>> clients;
  const std::string request = raw_request("POST", "/v1/chat/completions", chat_body().dump());
  for (int i = 0; i < 4; ++i) {  // one is answered, three wait
    clients.push_back(std::make_unique<RawClient>(server_->port()));
    clients.back()->send(request);
    ASSERT_TRUE(comes([&] { return loop_->counts().running + loop_->counts().waiting == i + 1; }));
  }
  const RawResponse turned_away = ask(request);
  EXPECT_EQ(turned_away.status, 429);
  EXPECT_EQ(turned_away.headers.at("retry-after"), "1");
  EXPECT_EQ(Json::parse(turned_away.body)["error"]["type"], "rate_limit_error");
  script_.is_held = false;
  for (const auto& client : clients) EXPECT_EQ(client->response().status, 200);
}

TEST_F(ProtocolTest, TheHealthIsToldWhileSlowRequestsTakeEveryHandler) {
  std::atomic<int> num_waiting = 0;
  std::atomic<bool> may_go_on = false;
  model_.encode_media = [&](const text::ChatEncoder& encoder,
                            const text::Conversation& conversation, int64_t,
                            infer::Request* request) {
    ++num_waiting;
    EXPECT_TRUE(comes([&] { return may_go_on.load(); }));
    request->prompt = encoder.encode_prompt(conversation);
  };
  start();
  const std::string body = chat_body().dump();
  std::vector<std::unique_ptr<RawClient>> slow;
  const int handlers = http::Settings().handler_threads;
  for (int i = 0; i < handlers + 4; ++i) {
    slow.push_back(std::make_unique<RawClient>(server_->port()));
    slow.back()->send(raw_request("POST", "/v1/chat/completions", body));
  }
  ASSERT_TRUE(comes([&] { return num_waiting == handlers; }));
  for (const char* path : {"/health", "/ping", "/version", "/metrics"})
    EXPECT_EQ(ask(raw_request("GET", path)).status, 200) << path;
  EXPECT_EQ(num_waiting, handlers) << "they waited all the time";
  may_go_on = true;
  for (const auto& client : slow) EXPECT_EQ(client->response().status, 200);
}

TEST_F(ProtocolTest, MetricsHaveVllmsNames) {
  chat();
  // An answer is told before it is counted.
  std::string text;
  ASSERT_TRUE(comes([&] {
    text = ask(raw_request("GET", "/metrics")).body;
    return text.find("num_requests_running{model_name=\"tiny\",engine=\"0\"} 0") != text.npos;
  }));
  for (const char* line :
       {"vllm:num_requests_running{model_name=\"tiny\",engine=\"0\"} 0",
        "vllm:generation_tokens_total{model_name=\"tiny\",engine=\"0\"} 6",
        "vllm:prompt_tokens_total{model_name=\"tiny\",engine=\"0\"} 18",
        "vllm:request_success_total{model_name=\"tiny\",engine=\"0\",finished_reason=\"stop\"} 1",
        "vllm:time_to_first_token_seconds_count{model_name=\"tiny\",engine=\"0\"} 1",
        "vllm:inter_token_latency_seconds_count{model_name=\"tiny\",engine=\"0\"} 5",
        "vllm:request_queue_time_seconds_count{model_name=\"tiny\",engine=\"0\"} 1",
        "vllm:request_prefill_time_seconds_count{model_name=\"tiny\",engine=\"0\"} 1",
        "vllm:request_inference_time_seconds_count{model_name=\"tiny\",engine=\"0\"} 1",
        "vllm:e2e_request_latency_seconds_bucket{model_name=\"tiny\",engine=\"0\",le=\"+Inf\"} 1"})
    EXPECT_THAT(text, HasSubstr(line));
}

TEST_F(ProtocolTest, StreamedTextsAreTheWholeOnes) {
  const std::vector<std::string> parts = {"a",  " ",   "<think>", "</think>", "你", "\n",
                                          "EN", "END", "é",       "{\"x\":",  "\"", "<tool_call>"};
  std::mt19937 random(11);
  for (int i = 0; i < 60; ++i) {
    std::string text;
    for (int k = 0; k < 10; ++k) text += parts[random() % parts.size()];
    script_.answer = [text](const infer::Request&) { return text + "|"; };
    const Json more = {{"stop", {"END"}}, {"n", 2}};
    const Json whole = chat(more);
    std::vector<std::string> content(2), reasoning(2);
    for (const Json& event : stream(chat_body(more))) {
      const Json& choice = event["choices"][0];
      content[choice["index"].get<size_t>()] += choice["delta"].value("content", "");
      reasoning[choice["index"].get<size_t>()] += choice["delta"].value("reasoning", "");
    }
    for (size_t k = 0; k < 2; ++k) {
      const Json& message = whole["choices"][k]["message"];
      EXPECT_EQ(content[k], message["content"].get<std::string>()) << text;
      EXPECT_EQ(reasoning[k], message.value("reasoning", "")) << text;
    }
  }
}

}  // namespace service_test
}  // namespace danlu::serve
