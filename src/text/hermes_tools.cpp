#include "text/hermes_tools.h"

#include <string>

#include "base/error.h"
#include "base/json.h"

namespace danlu::text {

bool writes_hermes_tools(const ChatEncoder& encoder) {
  const Json function = {{"name", "f"}, {"description", "d"}, {"parameters", Json::object()}};
  const Json call = {{"type", "function"},
                     {"function", {{"name", "f"}, {"arguments", {{"x", 1}}}}}};
  const Json asked = {
      {"tools", {{{"type", "function"}, {"function", function}}}},
      {"messages",
       {{{"role", "user"}, {"content", "q"}},
        {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call})}},
        {{"role", "tool"}, {"content", "r"}},
        {{"role", "assistant"}, {"content", "a"}}}}};
  std::string written;
  try {
    written = encoder.render(parse_conversation(asked, "a conversation with tools"), false);
  } catch (const Error&) {
    return false;
  }
  for (const char* part :
       {"<tools>\n{\"type\": \"function\", \"function\": {\"name\": \"f\"",
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>",
        "<tool_response>\nr\n</tool_response>"}) {
    if (written.find(part) == std::string::npos) return false;
  }
  return true;
}

}  // namespace danlu::text
