// text/hermes_tools.h: whether a template writes tools in the form of the Hermes models.
#pragma once
#include "text/conversation.h"

namespace danlu::text {

/// Whether `encoder` writes tools, calls and results as Hermes, Qwen2.5 and Qwen3 do: JSON lines
/// within <tools>, <tool_call> and <tool_response>. A template that cannot write such a
/// conversation does not.
bool writes_hermes_tools(const ChatEncoder& encoder);

}  // namespace danlu::text
