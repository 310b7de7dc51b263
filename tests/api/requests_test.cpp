// What requests may say, and what each of them is told when it says something else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/chat_request.h"
#include "api/completion_request.h"

namespace danlu::api {
namespace requests_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;
using testing::Pair;

const char* const kMessage = R"("messages": [{"role": "user", "content": "hi"}])";

ChatRequest chat(const std::string& fields, const RequestLimits& limits = {}) {
  return read_chat_request(
      parse_body("{" + std::string(kMessage) + (fields.empty() ? "" : ", ") + fields + "}"),
      limits);
}

ChatRequest chat_of_messages(const std::string& messages) {
  return read_chat_request(parse_body(R"({"messages": )" + messages + "}"), {});
}

/// The field that is refused; "accepted" if none is.
template <typename Read>
std::string refused(const Read& read) {
  try {
    read();
  } catch (const Refusal& refusal) {
    EXPECT_EQ(refusal.status(), 400);
    EXPECT_NE(std::string(refusal.what()), "");
    return refusal.param();
  }
  return "accepted";
}

TEST(ChatRequest, WithoutMoreItIsOpenAisDefaults) {
  const ChatRequest request = chat("");
  EXPECT_EQ(request.model, "");
  EXPECT_EQ(request.num_choices, 1);
  EXPECT_FALSE(request.sampling.temperature);
  EXPECT_FALSE(request.max_tokens);
  EXPECT_FALSE(request.num_logprobs);
  EXPECT_FALSE(request.stream.is_on);
  EXPECT_TRUE(request.skips_special);
  EXPECT_EQ(request.end, PromptEnd::kNewAnswer);
  EXPECT_EQ(request.tool_choice.kind, ToolChoice::Kind::kNone);
  EXPECT_EQ(request.form.kind, OutputForm::Kind::kFree);
  EXPECT_THAT(request.unread, IsEmpty());
}

TEST(ChatRequest, NullIsAsIfItWereNotThere) {
  EXPECT_EQ(
      refused([] {
        chat(R"("temperature": null, "stop": null, "tools": null, "tool_choice": null, "n": null,
                   "response_format": null, "stream_options": null, "logit_bias": null, "seed": null)");
      }),
      "accepted");
}

TEST(ChatRequest, FieldsThatAreWrongAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("temperature": 2.1)", "temperature"},
      {R"("temperature": -0.1)", "temperature"},
      {R"("temperature": "1")", "temperature"},
      {R"("top_p": 1.5)", "top_p"},
      {R"("top_k": -2)", "top_k"},
      {R"("min_p": 2)", "min_p"},
      {R"("n": 0)", "n"},
      {R"("n": 129)", "n"},
      {R"("n": 1.5)", "n"},
      {R"("presence_penalty": 3)", "presence_penalty"},
      {R"("frequency_penalty": -3)", "frequency_penalty"},
      {R"("repetition_penalty": 0)", "repetition_penalty"},
      {R"("max_tokens": 0)", "max_tokens"},
      {R"("max_completion_tokens": -5)", "max_completion_tokens"},
      {R"("max_tokens": 99999999999999999999)", "max_tokens"},
      {R"("max_tokens": 4, "min_tokens": 5)", "min_tokens"},
      {R"("stop": "")", "stop"},
      {R"("stop": ["a", ""])", "stop"},
      {R"("stop": [1])", "stop"},
      {R"("stop": 7)", "stop"},
      {R"("stop_token_ids": [-1])", "stop_token_ids"},
      {R"("stop_token_ids": ["1"])", "stop_token_ids"},
      {R"("logit_bias": {"a": 1})", "logit_bias"},
      {R"("logit_bias": {"1": 101})", "logit_bias"},
      {R"("logit_bias": [1])", "logit_bias"},
      {R"("top_logprobs": 3)", "top_logprobs"},
      {R"("logprobs": true, "top_logprobs": 21)", "top_logprobs"},
      {R"("logprobs": 3)", "logprobs"},
      {R"("stream": "yes")", "stream"},
      {R"("stream_options": {"include_usage": true})", "stream_options"},
      {R"("stream": true, "stream_options": {"include_usage": 1})", "stream_options.include_usage"},
      {R"("stream": true, "prompt_logprobs": 1)", "prompt_logprobs"},
      {R"("truncate_prompt_tokens": 0)", "truncate_prompt_tokens"},
      {R"("tools": [])", "tools"},
      {R"("tools": {})", "tools"},
      {R"("tools": [{"type": "function"}])", "tools[0].function"},
      {R"("tools": [{"type": "code", "function": {"name": "f"}}])", "tools[0].type"},
      {R"("tools": [{"type": "function", "function": {}}])", "tools[0].function.name"},
      {R"("tools": [{"function": {"name": "f", "parameters": 1}}])",
       "tools[0].function.parameters"},
      {R"("tool_choice": "required")", "tool_choice"},
      {R"("tool_choice": "auto")", "tool_choice"},
      {R"("tool_choice": "always", "tools": [{"function": {"name": "f"}}])", "tool_choice"},
      {R"("tool_choice": {"type": "function", "function": {"name": "g"}}, "tools": [{"function":
          {"name": "f"}}])",
       "tool_choice.function.name"},
      {R"("response_format": {"type": "xml"})", "response_format.type"},
      {R"("response_format": {"type": "json_schema"})", "response_format.json_schema"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "x"}})",
       "response_format.json_schema.schema"},
      {R"("structured_outputs": {})", "structured_outputs"},
      {R"("structured_outputs": {"regex": "a", "choice": ["b"]})", "structured_outputs"},
      {R"("structured_outputs": {"choice": []})", "structured_outputs.choice"},
      {R"("structured_outputs": {"grammar": "root ::= x"})", "structured_outputs.grammar"},
      {R"("guided_regex": "a", "response_format": {"type": "json_object"})", "response_format"},
      {R"("allowed_token_ids": [1], "guided_regex": "a")", "allowed_token_ids"},
      {R"("chat_template": "x")", "chat_template"},
      {R"("chat_template_kwargs": [])", "chat_template_kwargs"},
      {R"("continue_final_message": true)", "continue_final_message"},
      {R"("functions": [{"name": "f"}])", "functions"},
      {R"("modalities": ["text", "audio"])", "modalities"},
      {R"("bad_words": ["x"])", "bad_words"},
      {R"("grammar": "root ::= \"yes\"")", "grammar"},
      {R"("n_predict": 3)", "n_predict"},
      {R"("typical_p": 0.5)", "typical_p"},
      {R"("mirostat": 2)", "mirostat"},
      {R"("documents": [{"text": "x"}])", "documents"},
      {R"("use_beam_search": true)", "use_beam_search"},
      {R"("num_beams": 2)", "num_beams"},
      {R"("images": ["data:image/png;base64,AA"])", "images"},
      {R"("videos": ["a.mp4"])", "videos"},
      {R"("audios": ["a.wav"])", "audios"},
      {R"("do_sample": 1)", "do_sample"},
      {R"("truncation_side": "both")", "truncation_side"},
      {R"("logprob_token_ids": [1])", "logprob_token_ids"},
      {R"("repetition_detection": {"max": 3})", "repetition_detection"},
      {R"("max_new_tokens": 4)", "max_new_tokens"},
      {R"("repeat_penalty": 1.1)", "repeat_penalty"},
      {R"("json_schema": {"type": "object"})", "json_schema"},
      {R"("thinking_token_budget": 9)", "thinking_token_budget"},
      {R"("guided_json": {}, "guided_whitespace_pattern": " ")", "guided_whitespace_pattern"},
      {R"("structured_outputs": {"json": {}, "disable_any_whitespace": true})",
       "structured_outputs.disable_any_whitespace"},
      {R"("structured_outputs": {"json": {}, "whitespace_pattern": "x"})",
       "structured_outputs.whitespace_pattern"},
      {R"("structured_outputs": {"json": {}, "disable_additional_properties": true})",
       "structured_outputs.disable_additional_properties"},
      {R"("structured_outputs_regex": "a", "guided_regex": "b")", "structured_outputs_regex"}};
  for (const auto& [fields, param] : cases)
    EXPECT_EQ(refused([&] { chat(fields); }), param) << fields;
}

TEST(ChatRequest, WhatIsOffInAnotherProgramIsPassedOver) {
  chat(R"("grammar": "", "typical_p": 1.0, "mirostat": 0, "documents": [], "n_predict": null,
          "images": [], "num_beams": 1, "guided_json": {}, "guided_whitespace_pattern": "", "repeat_penalty": 1.0, "thinking_token_budget": -1)");
}

TEST(Refusals, AreNoLongerThanWhatAPersonReads) {
  const std::string shown =
      error_json(400, "é" + std::string(1000000, 'x'), std::string(5000, 'p')).dump();
  EXPECT_LT(shown.size(), 2500u);
  EXPECT_THAT(error_json(400, std::string(999, 'x') + "é" + std::string(9, 'y')).dump(),
              testing::HasSubstr(std::string(999, 'x') + "…\""));
}

TEST(ChatRequest, FieldsThatAreRightAreRead) {
  const ChatRequest request = chat(R"("model": "m", "temperature": 0, "top_p": 0.5, "top_k": -1,
      "seed": -1, "n": 3, "max_tokens": 9, "max_completion_tokens": 7, "stop": "x",
      "logit_bias": {"5": -100, "7": 1.5}, "logprobs": true, "top_logprobs": 2, "stream": true,
      "stream_options": {"include_usage": true, "continuous_usage_stats": true}, "user": "u",
      "chat_template_kwargs": {"a": 1}, "enable_thinking": false, "something": 1)");
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.sampling.temperature, 0);
  EXPECT_EQ(request.sampling.top_k, 0) << "-1 is all of them";
  EXPECT_FALSE(request.sampling.seed) << "-1 is none";
  EXPECT_EQ(request.max_tokens, 7) << "the newer name counts";
  EXPECT_THAT(request.stop, Optional(ElementsAre("x")));
  EXPECT_THAT(chat(R"("stop": [])").stop, Optional(IsEmpty()));
  EXPECT_EQ(chat(R"("stop": null)").stop, std::nullopt);
  EXPECT_THAT(request.sampling.logit_bias, ElementsAre(Pair(5, -100.f), Pair(7, 1.5f)));
  EXPECT_EQ(request.num_logprobs, 2);
  EXPECT_TRUE(request.stream.with_usage);
  EXPECT_TRUE(request.stream.with_running_usage);
  EXPECT_EQ(request.template_arguments, (Json{{"a", 1}, {"enable_thinking", false}}));
  EXPECT_THAT(request.unread, ElementsAre(testing::Pair("something", "")));
}

TEST(ChatRequest, ToolsAndTheirChoice) {
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "f"}}])";
  EXPECT_EQ(chat(tools).tool_choice.kind, ToolChoice::Kind::kAuto);
  EXPECT_EQ(chat(tools + R"(, "tool_choice": "none")").tool_choice.kind, ToolChoice::Kind::kNone);
  const ToolChoice named =
      chat(tools + R"(, "tool_choice": {"type": "function", "function": {"name": "f"}})")
          .tool_choice;
  EXPECT_EQ(named.kind, ToolChoice::Kind::kNamed);
  EXPECT_EQ(named.name, "f");
}

TEST(Messages, PartsOfTextAreLines) {
  const auto request = chat_of_messages(R"([{"role": "developer", "content": [
      {"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]}])");
  EXPECT_EQ(request.conversation.messages[0].role, "system");
  EXPECT_EQ(request.conversation.messages[0].content, "a\nb");
}

TEST(Messages, PicturesComeAsBytesAndFromNowhereElse) {
  const auto request = chat_of_messages(R"([{"role": "user", "content": [
      {"type": "text", "text": "see "}, {"type": "image_url", "image_url":
      {"url": "data:image/png;base64,aGVsbG8="}}, {"type": "text", "text": "?"}]}])");
  const text::Message& message = request.conversation.messages[0];
  EXPECT_EQ(message.content, "see ?");
  ASSERT_EQ(message.media.size(), 1);
  EXPECT_EQ(message.media[0].offset, 4);
  EXPECT_EQ(*message.media[0].media.pieces[0].bytes, "hello");
  for (const char* url :
       {"/etc/passwd", "file:///etc/passwd", "http://localhost/a.png", "https://x/a.png",
        "data:image/png,hello", "data:image/png;base64,", "data:image/png;base64,*", ""}) {
    EXPECT_THAT(
        refused([&] {
          chat_of_messages(
              Json::array({{{"role", "user"},
                            {"content", {{{"type", "image_url"}, {"image_url", {{"url", url}}}}}}}})
                  .dump());
        }),
        HasSubstr("messages[0].content[0].image_url"))
        << url;
  }
}

TEST(Messages, CallsOfEarlierAnswersAreObjectsForTemplates) {
  const auto request = chat_of_messages(R"([{"role": "user", "content": "a"},
      {"role": "assistant", "content": null, "reasoning": "hm", "tool_calls": [{"id": "1",
        "type": "function", "function": {"name": "f", "arguments": "{\"x\": [1]}"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "r"}])");
  const text::Message& call = request.conversation.messages[1];
  EXPECT_EQ(call.extra["tool_calls"][0]["function"]["arguments"], (Json{{"x", {1}}}));
  EXPECT_EQ(call.extra["reasoning_content"], "hm");
  EXPECT_EQ(request.conversation.messages[2].extra["tool_call_id"], "1");
}

TEST(Messages, ThoseThatAreWrongAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[]", "messages"},
      {"{}", "messages"},
      {"[1]", "messages[0]"},
      {R"([{"content": "a"}])", "messages[0].role"},
      {R"([{"role": "root", "content": "a"}])", "messages[0].role"},
      {R"([{"role": "user"}])", "messages[0].content"},
      {R"([{"role": "user", "content": 1}])", "messages[0].content"},
      {R"([{"role": "user", "content": [{"type": "input_audio"}]}])",
       "messages[0].content[0].type"},
      {R"([{"role": "user", "content": [{"type": "text"}]}])", "messages[0].content[0].text"},
      {R"([{"role": "tool", "content": "a"}])", "messages[0].tool_call_id"},
      {R"([{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{}]}])",
       "messages[1].tool_calls[0].function"},
      {R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}])",
       "messages[0].tool_calls[0].function.arguments"}};
  for (const auto& [messages, param] : cases)
    EXPECT_EQ(refused([&] { chat_of_messages(messages); }), param) << messages;
}

TEST(Body, WhatIsNoObjectIsRefused) {
  for (const std::string text : {"", "x", "[1]", "{\"a\": 1", "\xff\xfe", "{\"a\": \"\xff\"}"})
    EXPECT_EQ(refused([&] { parse_body(text); }), "") << text;
  std::string deep(100000, '[');
  EXPECT_EQ(refused([&] { parse_body("{\"a\": " + deep); }), "");
}

TEST(TokenizeRequest, ATemplateOfItsOwnIsRefused) {
  EXPECT_EQ(refused([&] {
              read_tokenize_request(parse_body(R"({"messages": [{"role": "user", "content": "x"}],
                                 "chat_template": "{{ 1 }}"})"),
                                    {});
            }),
            "chat_template");
}

TEST(Body, AnObjectWithVeryManyMembersIsRefusedBeforeItIsBuilt) {
  const auto wide = [](size_t members) {
    std::string text = R"({"logit_bias": {)";
    for (size_t i = 0; i < members; ++i) text += (i ? ",\"" : "\"") + std::to_string(i) + "\":1";
    return text + "}}";
  };
  EXPECT_EQ(parse_body(wide(kMostMembers))["logit_bias"].size(), kMostMembers);
  EXPECT_EQ(refused([&] { parse_body(wide(kMostMembers + 1)); }), "");
  // A value takes a hundred times the memory of its text.
  const auto listed = [](size_t values) {
    std::string text = R"({"prompt": "a,\",", "x": [0)";
    for (size_t i = 1; i < values; ++i) text += ",0";
    return text + "]}";
  };
  constexpr size_t kMostValues = size_t{1} << 21;
  EXPECT_EQ(parse_body(listed(kMostValues))["x"].size(), kMostValues);
  EXPECT_EQ(refused([&] { parse_body(listed(kMostValues + 1)); }), "");
  EXPECT_EQ(refused([&] { parse_body(wide(3'000'000)); }), "");
}

CompletionRequest completion(const std::string& fields) {
  return read_completion_request(parse_body("{" + fields + "}"), {});
}

TEST(CompletionRequest, PromptsInEveryForm) {
  EXPECT_EQ(std::get<std::string>(completion(R"("prompt": "a")").prompts[0]), "a");
  EXPECT_EQ(completion(R"("prompt": ["a", "b"])").prompts.size(), 2);
  EXPECT_THAT(std::get<1>(completion(R"("prompt": [1, 2])").prompts[0]), ElementsAre(1, 2));
  EXPECT_EQ(completion(R"("prompt": [[1], [2, 3]])").prompts.size(), 2);
  EXPECT_EQ(completion(R"("prompt": "a")").max_tokens, 16);
  for (const char* fields :
       {"", R"("prompt": [])", R"("prompt": 1)", R"("prompt": [1.5])", R"("prompt": [-1])",
        R"("prompt": [[1], 2])", R"("prompt": [99999999999])", R"("prompt": {"a": 1})"})
    EXPECT_EQ(refused([&] { completion(fields); }), "prompt") << fields;
}

TEST(CompletionRequest, AnEmptyAnswerIsForEchoesAlone) {
  EXPECT_EQ(completion(R"("prompt": "a", "echo": true, "max_tokens": 0)").max_tokens, 0);
  EXPECT_EQ(refused([] { completion(R"("prompt": "a", "max_tokens": 0)"); }), "max_tokens");
  EXPECT_EQ(refused([] { completion(R"("prompt": "a", "best_of": 2)"); }), "best_of");
  EXPECT_EQ(refused([] { completion(R"("prompt": "a", "suffix": "b")"); }), "suffix");
}

TEST(TokenizeRequest, ATextOrAConversation) {
  EXPECT_EQ(read_tokenize_request(parse_body(R"({"prompt": "a"})"), {}).text, "a");
  EXPECT_EQ(refused([] { read_tokenize_request(parse_body("{}"), {}); }), "prompt");
  EXPECT_EQ(refused([] { read_detokenize_request(parse_body(R"({"tokens": [-1]})")); }), "tokens");
}

}  // namespace requests_test
}  // namespace danlu::api
