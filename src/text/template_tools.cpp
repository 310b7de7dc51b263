#include "text/template_tools.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/json_text.h"
#include "text/jinja/filters.h"

namespace danlu::text {

namespace {

/// json.dumps(value, ensure_ascii=False).
std::string python_json(const Json& json) {
  return jinja::to_json_text(jinja::Value::from_json(json), -1);
}

/// {"type": "function", "function": {…}} and {…} alike.
Json function_of(const Json& tool) {
  if (tool.is_object() && tool.contains("function") && tool["function"].is_object())
    return tool["function"];
  return tool;
}

std::string text_at(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return "";
  return it->is_string() ? it->get<std::string>() : python_json(*it);
}

std::string parameter_line(const std::string& name, const Json& parameter, const Json& required) {
  std::string line = fmt::format("  - {} ({}", name, text_at(parameter, "type"));
  for (const Json& other : required) {
    if (other == name) line += ", required";
  }
  line += "): " + text_at(parameter, "description");
  if (const auto choices = parameter.find("enum");
      choices != parameter.end() && choices->is_array() && !choices->empty()) {
    std::string joined;
    for (const Json& choice : *choices) {
      joined += (joined.empty() ? "" : ", ") +
                (choice.is_string() ? choice.get<std::string>() : python_json(choice));
    }
    line += fmt::format(", should be one of [{}]", joined);
  }
  if (const auto items = parameter.find("items");
      items != parameter.end() && items->is_object() && !items->empty()) {
    line += fmt::format(", where each item should be {}", text_at(*items, "type"));
  }
  return line + "\n";
}

/// The ReAct-like description LLaMA-Factory and MindSpeed-LLM call "default".
std::string default_tools_text(const Json& tools) {
  std::string list, names;
  for (const Json& tool : tools) {
    const Json& function = function_of(tool);
    const std::string name = text_at(function, "name");
    list += fmt::format("> Tool Name: {}\nTool Description: {}\nTool Args:\n", name,
                        text_at(function, "description"));
    const Json parameters = function.value("parameters", Json::object());
    const Json required =
        parameters.is_object() ? parameters.value("required", Json::array()) : Json::array();
    const Json properties =
        parameters.is_object() ? parameters.value("properties", Json::object()) : Json::object();
    for (const auto& [parameter, description] : properties.items())
      list += parameter_line(parameter, description, required);
    list += "\n";
    names += (names.empty() ? "" : ", ") + name;
  }
  return fmt::format(
      "You have access to the following tools:\n{}Use the following format if using a tool:\n```\n"
      "Action: tool name (one of [{}]).\nAction Input: the input to the tool, in a JSON format "
      "representing the kwargs (e.g. ```{{\"input\": \"hello world\", \"num_beams\": "
      "5}}```).\n```\n",
      list, names);
}

std::string qwen_tools_text(const Json& tools) {
  std::string text =
      "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
      "You are provided with function signatures within <tools></tools> XML tags:\n<tools>";
  for (const Json& tool : tools) {
    const bool wrapped = tool.is_object() && tool.value("type", Json()) == "function";
    text += "\n" + python_json(wrapped ? tool : Json{{"type", "function"}, {"function", tool}});
  }
  return text +
         "\n</tools>\n\nFor each function call, return a json object with function name and "
         "arguments within "
         "<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, "
         "\"arguments\": "
         "<args-json-object>}\n</tool_call>";
}

/// OpenAI writes arguments as JSON in a string; brought to one spelling when it parses and a value
/// holds all of it.
std::string arguments_text(const Json& arguments) {
  if (!arguments.is_string()) return python_json(arguments);
  const std::string& text = arguments.get_ref<const std::string&>();
  const auto parsed = wide_integer_in(text).empty() ? try_parse_json(text) : std::nullopt;
  return parsed ? python_json(*parsed) : text;
}

}  // namespace

std::string tools_text(const Json& tools, const std::string& format) {
  if (tools.is_null() || tools.empty()) return "";
  if (!tools.is_array()) throw DataError(tr("tools must be a list, got {}", tools.type_name()));
  for (const Json& tool : tools) {
    if (!tool.is_object() || text_at(function_of(tool), "name").empty()) {
      throw DataError(
          tr("a tool must be an object with a name, or {{\"type\": \"function\", \"function\": "
             "{{…}}}}"));
    }
  }
  if (format == "default") return default_tools_text(tools);
  if (format == "qwen") return qwen_tools_text(tools);
  throw DataError(
      tr("tool format '{}' of this template is not known, so its tools cannot be written; "
         "known: default, qwen",
         format));
}

std::vector<ToolCall> read_tool_calls(const Json& tool_calls) {
  std::vector<ToolCall> calls;
  for (const Json& call : tool_calls) {
    const Json& function = function_of(call);
    if (!function.is_object() || text_at(function, "name").empty())
      throw DataError(tr("a tool call has no function name"));
    ToolCall result{text_at(function, "name"), "{}"};
    if (const auto arguments = function.find("arguments"); arguments != function.end()) {
      result.arguments = arguments_text(*arguments);
    }
    calls.push_back(std::move(result));
  }
  return calls;
}

std::string qwen_tool_calls_text(const std::vector<ToolCall>& calls) {
  std::string text;
  for (const ToolCall& call : calls) {
    text += fmt::format("{}<tool_call>\n{{\"name\": {}, \"arguments\": {}}}\n</tool_call>",
                        text.empty() ? "" : "\n", python_json(Json(call.name)), call.arguments);
  }
  return text;
}

bool has_thought(const std::string& content) {
  return content.find("<think>") != std::string::npos ||
         content.find("</think>") != std::string::npos;
}

std::string without_thought(const std::string& content) {
  std::string text = content;
  for (size_t begin = text.find("<think>"); begin != std::string::npos;
       begin = text.find("<think>", begin)) {
    const size_t end = text.find("</think>", begin);
    if (end == std::string::npos) break;
    text.erase(begin, end + 8 - begin);
  }
  const size_t first = text.find_first_not_of('\n');
  return first == std::string::npos ? "" : text.substr(first);
}

}  // namespace danlu::text
