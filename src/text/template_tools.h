// text/template_tools.h: how named templates write tools, tool calls and empty thoughts.
#pragma once
#include <string>
#include <string_view>

#include "base/json.h"
#include "text/template_file.h"

namespace danlu::text {

/// Text that describes `tools` (OpenAI's form or bare functions), appended to the system text.
/// format: "default" or "qwen". Errors: DataError for another format or a tool without a name.
std::string tools_text(const Json& tools, const std::string& format);

/// One tool call of an assistant message: its name and its arguments as JSON text.
struct ToolCall {
  std::string name;
  std::string arguments;
};
/// Errors: DataError if a call has no function name.
std::vector<ToolCall> read_tool_calls(const Json& tool_calls);

/// <tool_call> blocks as Qwen writes them, one per call.
std::string qwen_tool_calls_text(const std::vector<ToolCall>& calls);

/// Content without its <think>…</think> block and the line breaks after it.
std::string without_thought(const std::string& content);
bool has_thought(const std::string& content);
inline constexpr std::string_view kEmptyThought = "<think>\n\n</think>\n\n";

}  // namespace danlu::text
