// api/chat_request.h: the body of POST /v1/chat/completions.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "api/generation.h"
#include "text/conversation.h"

namespace danlu::api {

/// What a client says of tools in this request.
struct ToolChoice {
  enum class Kind { kNone, kAuto, kRequired, kNamed };
  Kind kind = Kind::kNone;  ///< without tools, too
  std::string name = {};    ///< of kNamed
};

/// How the prompt of a conversation ends.
enum class PromptEnd {
  kNewAnswer,    ///< where an answer of the assistant begins
  kMessages,     ///< behind the last message
  kLastMessage,  ///< inside the last message, which the answer goes on with
};

struct ChatRequest : GenerationWish {
  /// Roles as written, but "developer", which is "system". Pictures are in `media` of messages, as
  /// bytes. tools: null without any.
  text::Conversation conversation = {};
  ToolChoice tool_choice = {};
  bool calls_in_parallel = true;
  Json template_arguments = Json::object();  ///< chat_template_kwargs and enable_thinking
  std::optional<std::string> chat_template = {};
  PromptEnd end = PromptEnd::kNewAnswer;
  bool echoes = false;  ///< the last message stands before an answer that goes on with it

  bool continues_last() const { return end == PromptEnd::kLastMessage; }
  bool shows_reasoning = true;
};

/// Errors: Refusal.
ChatRequest read_chat_request(const Json& body, const RequestLimits& limits);

/// messages and tools alone, for /tokenize too. Errors: Refusal.
void read_messages(Fields& fields, const RequestLimits& limits, text::Conversation* conversation);
/// add_generation_prompt and continue_final_message. Errors: Refusal.
PromptEnd read_prompt_end(Fields& fields, const text::Conversation& conversation);
/// Variables of the template. Errors: Refusal.
Json read_template_arguments(Fields& fields);

}  // namespace danlu::api
