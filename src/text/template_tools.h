// text/template_tools.h: how named templates write tools and tool calls, and what is a thought.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace danlu::text {

/// One tool call of an assistant message: its name and its arguments as JSON text.
struct ToolCall {
  std::string name;
  std::string arguments;
};
/// Errors: DataError if a call has no function name.
std::vector<ToolCall> read_tool_calls(const Json& tool_calls);

/// Text that describes `tools` (OpenAI's form or bare functions), appended to the system text.
/// format: a name that find_tool_writing knows. Errors: DataError for another format or a tool
/// without a name.
std::string tools_text(const Json& tools, const std::string& format);
/// The calls as `format` writes them, without what the template puts around.
/// Errors: DataError for another format, or calls that it cannot write.
std::string tool_calls_text(const std::vector<ToolCall>& calls, const std::string& format);

// For those that write formats.

/// json.dumps(value, ensure_ascii=False), with indent=… where it is not negative.
std::string python_json(const Json& json, int indent = -1);
/// {"type": "function", "function": {…}} and {…} alike.
Json function_of(const Json& tool);
/// {"type": "function", "function": {…}} of both.
Json wrapped_function(const Json& tool);
/// What stands under `key` as text; "" where nothing does.
std::string text_under(const Json& object, const char* key);

/// Content without its thoughts and the line breaks before what is left.
std::string without_thought(const std::string& content, std::string_view begin = "<think>",
                            std::string_view end = "</think>");
/// Whether it has one of the marks, blanks around them aside.
bool has_thought(const std::string& content, std::string_view begin, std::string_view end);

}  // namespace danlu::text
