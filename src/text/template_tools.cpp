#include "text/template_tools.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/json_text.h"
#include "text/jinja/filters.h"
#include "text/tool_writing.h"

namespace danlu::text {

namespace {

/// OpenAI writes arguments as JSON in a string; brought to one spelling when it parses and a value
/// holds all of it.
std::string arguments_text(const Json& arguments) {
  if (!arguments.is_string()) return python_json(arguments);
  const std::string& text = arguments.get_ref<const std::string&>();
  const auto parsed = wide_integer_in(text).empty() ? try_parse_json(text) : std::nullopt;
  return parsed ? python_json(*parsed) : text;
}

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

const ToolWriting& writing_of(const std::string& format) {
  if (format == "none") {
    throw DataError(tr("this template has no words for tools"),
                    tr("the tokenizer's own template may write them: --template hf"));
  }
  if (const ToolWriting* found = find_tool_writing(format)) return *found;
  throw DataError(
      tr("tool format '{}' of this template is not known, so its tools cannot be written; known: "
         "{}",
         format, fmt::join(tool_writing_names(), ", ")),
      tr("the tokenizer's own template may write them: --template hf"));
}

}  // namespace

std::string tools_text(const Json& tools, const std::string& format) {
  if (tools.is_null() || tools.empty()) return "";
  if (!tools.is_array()) throw DataError(tr("tools must be a list, got {}", tools.type_name()));
  for (const Json& tool : tools) {
    if (!tool.is_object() || text_under(function_of(tool), "name").empty()) {
      throw DataError(
          tr("a tool must be an object with a name, or {{\"type\": \"function\", \"function\": "
             "{{…}}}}"));
    }
  }
  return writing_of(format).tools(tools);
}

std::string tool_calls_text(const std::vector<ToolCall>& calls, const std::string& format) {
  return writing_of(format).calls(calls);
}

std::vector<ToolCall> read_tool_calls(const Json& tool_calls) {
  std::vector<ToolCall> calls;
  for (const Json& call : tool_calls) {
    const Json& function = function_of(call);
    if (!function.is_object() || text_under(function, "name").empty())
      throw DataError(tr("a tool call has no function name"));
    ToolCall result{text_under(function, "name"), "{}"};
    if (const auto arguments = function.find("arguments"); arguments != function.end()) {
      result.arguments = arguments_text(*arguments);
    }
    calls.push_back(std::move(result));
  }
  return calls;
}

std::string python_json(const Json& json, int indent) {
  return jinja::to_json_text(jinja::Value::from_json(json), indent);
}

Json function_of(const Json& tool) {
  if (tool.is_object() && tool.contains("function") && tool["function"].is_object())
    return tool["function"];
  return tool;
}

Json wrapped_function(const Json& tool) {
  const bool is_wrapped = tool.is_object() && tool.value("type", Json()) == "function";
  return is_wrapped ? tool : Json{{"type", "function"}, {"function", tool}};
}

std::string text_under(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return "";
  return it->is_string() ? it->get<std::string>() : python_json(*it);
}

bool has_thought(const std::string& content, std::string_view begin, std::string_view end) {
  return content.find(without_blanks(begin)) != std::string::npos ||
         content.find(without_blanks(end)) != std::string::npos;
}

std::string without_thought(const std::string& content, std::string_view begin,
                            std::string_view end) {
  std::string text = content;
  for (size_t first = text.find(begin); first != std::string::npos;
       first = text.find(begin, first)) {
    const size_t last = text.find(end, first + begin.size());
    if (last == std::string::npos) break;
    text.erase(first, last + end.size() - first);
  }
  const size_t first = text.find_first_not_of('\n');
  return first == std::string::npos ? "" : text.substr(first);
}

}  // namespace danlu::text
