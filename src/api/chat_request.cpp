#include "api/chat_request.h"

#include <fmt/format.h>

#include <algorithm>

namespace danlu::api {
namespace {

bool has_tool(const Json& tools, const std::string& name) {
  return std::any_of(tools.begin(), tools.end(),
                     [&](const Json& tool) { return tool.at("function").at("name") == name; });
}

ToolChoice named_choice(const Json& json, const Json& tools) {
  Fields fields(json, "tool_choice.");
  const std::string type = fields.text("type").value_or("");
  const Json* function = fields.find("function");
  if (type != "function" || !function) {
    throw Refusal("'tool_choice' must be none, auto, required or a function by its name",
                  "tool_choice");
  }
  Fields parts(*function, "tool_choice.function.");
  const std::string name = parts.text("name").value_or("");
  if (!tools.is_array() || !has_tool(tools, name)) {
    throw Refusal(
        fmt::format("'tool_choice' names the function '{}', which is not in 'tools'", name),
        "tool_choice.function.name");
  }
  return {ToolChoice::Kind::kNamed, name};
}

ToolChoice read_tool_choice(Fields& fields, const Json& tools) {
  using Kind = ToolChoice::Kind;
  const Json* json = fields.find("tool_choice");
  if (!json) return {tools.is_null() ? Kind::kNone : Kind::kAuto};
  if (!json->is_string()) return named_choice(*json, tools);
  const auto& word = json->get_ref<const std::string&>();
  if (word == "none") return {Kind::kNone};
  if (word != "auto" && word != "required") {
    throw Refusal(fmt::format("'tool_choice' must be none, auto, required or a function by its "
                              "name, got '{}'",
                              word),
                  "tool_choice");
  }
  if (tools.is_null())
    throw Refusal(fmt::format("'tool_choice' is {}, but there are no 'tools'", word),
                  "tool_choice");
  return {word == "auto" ? Kind::kAuto : Kind::kRequired};
}

void read_chat_logprobs(Fields& fields, const RequestLimits& limits, ChatRequest* request) {
  const bool wanted = fields.boolean_or("logprobs", false);
  const auto likeliest = fields.whole("top_logprobs", 0, limits.max_logprobs);
  if (likeliest && *likeliest > 0 && !wanted)
    throw Refusal("'top_logprobs' needs 'logprobs': true", "top_logprobs");
  if (wanted) request->num_logprobs = likeliest.value_or(0);
}

void read_lengths(Fields& fields, ChatRequest* request) {
  const auto older = fields.whole("max_tokens", 1);
  request->max_tokens = fields.whole("max_completion_tokens", 1);
  if (!request->max_tokens) request->max_tokens = older;
  if (request->max_tokens && request->min_tokens > *request->max_tokens) {
    throw Refusal(fmt::format("'min_tokens' must be at most 'max_tokens', which is {}, got {}",
                              *request->max_tokens, request->min_tokens),
                  "min_tokens");
  }
}

void read_template(Fields& fields, const RequestLimits& limits, ChatRequest* request) {
  request->template_arguments = read_template_arguments(fields);
  request->chat_template = fields.text("chat_template");
  if (request->chat_template && !limits.trusts_templates) {
    throw Refusal(
        "'chat_template' is taken only where the server runs with "
        "--trust-request-chat-template",
        "chat_template");
  }
  request->end = read_prompt_end(fields, request->conversation);
  request->echoes = fields.boolean_or("echo", false);
  // As vLLM shows what it echoes.
  if (request->echoes && !request->num_prompt_logprobs && !request->stream.is_on)
    request->num_prompt_logprobs = request->num_logprobs;
}

}  // namespace

PromptEnd read_prompt_end(Fields& fields, const text::Conversation& conversation) {
  const auto opens = fields.boolean("add_generation_prompt");
  if (!fields.boolean_or("continue_final_message", false))
    return opens.value_or(true) ? PromptEnd::kNewAnswer : PromptEnd::kMessages;
  if (opens.value_or(false)) {
    throw Refusal("'continue_final_message' and 'add_generation_prompt' cannot both be true",
                  "continue_final_message");
  }
  if (conversation.messages.back().role != "assistant") {
    throw Refusal("'continue_final_message' needs a last message of the assistant",
                  "continue_final_message");
  }
  return PromptEnd::kLastMessage;
}

ChatRequest read_chat_request(const Json& body, const RequestLimits& limits) {
  Fields fields(body);
  ChatRequest request;
  static_cast<GenerationWish&>(request) = read_generation(fields, limits);
  read_messages(fields, limits, &request.conversation);
  request.tool_choice = read_tool_choice(fields, request.conversation.tools);
  request.calls_in_parallel = fields.boolean_or("parallel_tool_calls", true);
  if (request.tool_choice.kind != ToolChoice::Kind::kNone &&
      request.tool_choice.kind != ToolChoice::Kind::kAuto &&
      request.form.kind != OutputForm::Kind::kFree) {
    throw Refusal(
        fmt::format("'tool_choice' and '{}' both say what form the answer has", request.form.param),
        "tool_choice");
  }
  read_chat_logprobs(fields, limits, &request);
  read_lengths(fields, &request);
  read_template(fields, limits, &request);
  request.shows_reasoning = fields.boolean_or("include_reasoning", true);
  fields.refuse("documents",
                "give what an answer is to know in a message, or in "
                "'chat_template_kwargs' where the template asks for it");
  fields.refuse("functions", "give 'tools' in its place");
  fields.refuse("function_call", "give 'tool_choice' in its place");
  fields.refuse("audio", "answers are text");
  fields.refuse("web_search_options", "nothing is searched");
  fields.pass({"prediction"});
  if (const auto kinds = fields.texts("modalities")) {
    if (*kinds != std::vector<std::string>{"text"})
      throw Refusal("'modalities' may only be text", "modalities");
  }
  request.unread = fields.unread();
  return request;
}

}  // namespace danlu::api
