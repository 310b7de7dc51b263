#include "text/tool_writing.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "base/json_text.h"

namespace danlu::text {
namespace {

using Calls = std::vector<ToolCall>;

// --- descriptions of tools -----------------------------------------------------------------------

std::string parameter_line(const std::string& name, const Json& parameter, const Json& required) {
  std::string line = fmt::format("  - {} ({}", name, text_under(parameter, "type"));
  for (const Json& other : required) {
    if (other == name) line += ", required";
  }
  line += "): " + text_under(parameter, "description");
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
    line += fmt::format(", where each item should be {}", text_under(*items, "type"));
  }
  return line + "\n";
}

/// The description in ReAct's manner that LLaMA-Factory and MindSpeed-LLM call "default".
/// stop: what MindSpeed-LLM ends two of its lines with.
std::string actions_text(const Json& tools, std::string_view stop) {
  std::string list, names;
  for (const Json& tool : tools) {
    const Json& function = function_of(tool);
    const std::string name = text_under(function, "name");
    list += fmt::format("> Tool Name: {}\nTool Description: {}\nTool Args:\n", name,
                        text_under(function, "description"));
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
      "Action: tool name (one of [{}]){}\nAction Input: the input to the tool, in a JSON format "
      "representing the kwargs (e.g. ```{{\"input\": \"hello world\", \"num_beams\": 5}}```){}\n"
      "```\n",
      list, names, stop, stop);
}

std::string tools_with_stops(const Json& tools) { return actions_text(tools, "."); }
std::string tools_without_stops(const Json& tools) { return actions_text(tools, ""); }

/// Each tool, wrapped, on a line of its own.
std::string wrapped_lines(const Json& tools) {
  std::string lines;
  for (const Json& tool : tools) lines += "\n" + python_json(wrapped_function(tool));
  return lines;
}

/// Each bare function on a line of its own, between `before` and `after`.
std::string function_lines(const Json& tools, std::string_view before, std::string_view after) {
  std::string lines;
  for (const Json& tool : tools)
    lines += fmt::format("{}{}{}", before, python_json(function_of(tool)), after);
  return lines;
}

constexpr std::string_view kCallsInTags =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>";
constexpr std::string_view kJsonInTags =
    "\n</tools>\n\nFor each function call, return a json object with function name and "
    "arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": "
    "<function-name>, \"arguments\": <args-json-object>}\n</tool_call>";

std::string qwen_tools(const Json& tools) {
  return fmt::format("\n\n{}{}{}", kCallsInTags, wrapped_lines(tools), kJsonInTags);
}

std::string ling_tools(const Json& tools) {
  return fmt::format("{}{}{}\ndetailed thinking off", kCallsInTags, wrapped_lines(tools),
                     kJsonInTags);
}

std::string glm4_moe_tools(const Json& tools) {
  return fmt::format("\n\n{}{}{}", kCallsInTags, wrapped_lines(tools),
                     "\n</tools>\n\nFor each function call, output the function name and arguments "
                     "within the following XML format:\n<tool_call>{function-name}\n"
                     "<arg_key>{arg-key-1}</arg_key>\n<arg_value>{arg-value-1}</arg_value>\n"
                     "<arg_key>{arg-key-2}</arg_key>\n<arg_value>{arg-value-2}</arg_value>\n...\n"
                     "</tool_call>\n");
}

std::string glm4_tools(const Json& tools) {
  std::string text =
      "你是一个名为 ChatGLM 的人工智能助手。你是基于智谱 AI 公司训练的语言模型 GLM-4 模型开发的，"
      "你的任务是针对用户的问题和要求提供适当的答复和支持。\n\n# 可用工具";
  for (const Json& tool : tools) {
    const Json function = function_of(tool);
    text += fmt::format("\n\n## {}\n\n{}\n在调用上述函数时，请使用 Json 格式表示调用的参数。",
                        text_under(function, "name"), python_json(function, 4));
  }
  return text;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[64];
  return {text, std::strftime(text, sizeof text, "%d %b %Y", &local)};
}

std::string llama3_tools(const Json& tools) {
  std::string text = fmt::format(
      "Cutting Knowledge Date: December 2023\nToday Date: {}\n\nYou have access to the following "
      "functions. To call a function, please respond with JSON for a function call. Respond in the "
      "format {{\"name\": function name, \"parameters\": dictionary of argument name and its "
      "value}}. Do not use variables.\n\n",
      today());
  for (const Json& tool : tools) text += python_json(wrapped_function(tool), 4) + "\n\n";
  return text;
}

std::string mistral_tools(const Json& tools) {
  Json wrapped = Json::array();
  for (const Json& tool : tools) wrapped.push_back(wrapped_function(tool));
  return "[AVAILABLE_TOOLS] " + python_json(wrapped) + "[/AVAILABLE_TOOLS]";
}

std::string minimax1_tools(const Json& tools) {
  return fmt::format(
      "You are provided with these tools:\n<tools>\n{}</tools>\n\nIf you need to call tools, "
      "please "
      "respond with <tool_calls></tool_calls> XML tags, and provide tool-name and json-object of "
      "arguments, following the format below:\n<tool_calls>\n{{\"name\": <tool-name-1>, "
      "\"arguments\": <args-json-object-1>}}\n...\n</tool_calls>",
      function_lines(tools, "", "\n"));
}

std::string minimax2_tools(const Json& tools) {
  return fmt::format(
      "\n\n# Tools\n\nYou may call one or more tools to assist with the user query.\nHere are the "
      "tools available in JSONSchema format:\n\n<tools>\n{}</tools>\n\nWhen making tool calls, use "
      "XML format to invoke tools and pass parameters:\n\n<minimax:tool_call>\n<invoke "
      "name=\"tool-name-1\">\n<parameter name=\"param-key-1\">param-value-1</parameter>\n"
      "<parameter name=\"param-key-2\">param-value-2</parameter>\n...\n</invoke>\n"
      "</minimax:tool_call>",
      function_lines(tools, "<tool>", "</tool>\n"));
}

std::string qwen35_tools(const Json& tools) {
  return fmt::format(
      "\n\n# Tools\n\nYou have access to the following functions:\n\n<tools>{}\n</tools>\n\nIf you "
      "choose to call a function ONLY reply in the following format with NO suffix:\n\n"
      "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n"
      "</parameter>\n<parameter=example_parameter_2>\nThis is the value for the second parameter\n"
      "that can span\nmultiple lines\n</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\n"
      "Reminder:\n- Function calls MUST follow the specified format: an inner <function=...>"
      "</function> block must be nested within <tool_call></tool_call> XML tags\n- Required "
      "parameters MUST be specified\n- You may provide optional reasoning for your function call "
      "in natural language BEFORE the function call, but NOT after\n- If there is no function call "
      "available, answer the question like normal with your current knowledge and do not tell the "
      "user about function calls\n</IMPORTANT>",
      function_lines(tools, "\n", ""));
}

std::string seed_tools(const Json& tools) {
  return fmt::format(
      "system\nYou are Doubao, a helpful AI assistant. You may call one or more functions to "
      "assist "
      "with the user query.Tool List:\nYou are authorized to use the following tools (described in "
      "JSON Schema format). Before performing any task, you must decide how to call them based on "
      "the descriptions and parameters of these tools.\n{}\n工具调用请遵循如下格式:\n"
      "<seed:tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>value_1"
      "</parameter>\n<parameter=example_parameter_2>This is the value for the second parameter\n"
      "that can span\nmultiple lines</parameter>\n</function>\n</seed:tool_call>\n",
      python_json(tools));
}

std::string lfm2_tools(const Json& tools) {
  Json functions = Json::array();
  for (const Json& tool : tools) functions.push_back(function_of(tool));
  return fmt::format("List of tools: <|tool_list_start|>{}<|tool_list_end|>",
                     python_json(functions));
}

std::string phi4_mini_tools(const Json& tools) {
  return fmt::format("<|tool|>{}<|/tool|>", python_json(tools));
}

std::string quoted_for_gemma(std::string_view text) { return fmt::format("<|\"|>{}<|\"|>", text); }

std::string gemma_type(const Json& schema) {
  std::string type = text_under(schema, "type");
  for (char& c : type) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return type.empty() ? "" : "type:" + quoted_for_gemma(type);
}

std::string gemma_description(const Json& schema) {
  const std::string text = text_under(schema, "description");
  return text.empty() ? "" : "description:" + quoted_for_gemma(text);
}

/// The parts that are not empty, with commas between.
std::string with_commas(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) {
    if (!part.empty()) text += (text.empty() ? "" : ",") + part;
  }
  return text;
}

const Json* object_at(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_object() && !it->empty() ? &*it : nullptr;
}

std::string gemma_parameters(const Json& parameters) {
  std::vector<std::string> parts;
  if (const Json* properties = object_at(parameters, "properties")) {
    std::vector<std::string> all;
    for (const auto& [name, schema] : properties->items()) {
      all.push_back(fmt::format("{}:{{{}}}", name,
                                with_commas({gemma_description(schema), gemma_type(schema)})));
    }
    parts.push_back(fmt::format("properties:{{{}}}", with_commas(all)));
  }
  if (const auto required = parameters.find("required");
      required != parameters.end() && required->is_array() && !required->empty()) {
    std::vector<std::string> names;
    for (const Json& name : *required)
      names.push_back(quoted_for_gemma(name.is_string() ? name.get<std::string>() : name.dump()));
    parts.push_back(fmt::format("required:[{}]", with_commas(names)));
  }
  parts.push_back(gemma_type(parameters));
  return with_commas(parts);
}

std::string gemma4_tools(const Json& tools) {
  std::string text;
  for (const Json& tool : tools) {
    const Json function = function_of(tool);
    text += fmt::format("{}declaration:{}{{description:{}", text.empty() ? "" : "\n",
                        text_under(function, "name"),
                        quoted_for_gemma(text_under(function, "description")));
    if (const Json* parameters = object_at(function, "parameters"))
      text += fmt::format(",parameters:{{{}}}", gemma_parameters(*parameters));
    if (const Json* response = object_at(function, "response")) {
      const std::string type = gemma_type(*response);
      text += fmt::format(",response:{{{}}}",
                          with_commas({gemma_description(*response),
                                       type == "type:" + quoted_for_gemma("OBJECT") ? type : ""}));
    }
    text += "}";
  }
  return text;
}

// --- calls ---------------------------------------------------------------------------------------

/// What `one` makes of each call, with `between` between them.
template <typename One>
std::string joined_calls(const Calls& calls, std::string_view between, const One& one) {
  std::string text;
  for (size_t i = 0; i < calls.size(); ++i)
    text += (i > 0 ? std::string(between) : "") + one(calls[i]);
  return text;
}

std::string call_as_json(const ToolCall& call, std::string_view key) {
  return fmt::format("{{\"name\": {}, \"{}\": {}}}", python_json(Json(call.name)), key,
                     call.arguments);
}

/// What is written one by one. Errors: DataError for what is no object, or holds a number that no
/// value does.
Json arguments_of(const ToolCall& call) {
  auto parsed = wide_integer_in(call.arguments).empty() ? try_parse_json(call.arguments)
                                                        : std::optional<Json>();
  if (parsed && parsed->is_object()) return std::move(*parsed);
  throw DataError(
      tr("the arguments of the call of {} cannot be written one by one: expected a JSON "
         "object whose numbers have at most 64 bits, got {}",
         call.name, call.arguments));
}

/// Each argument by `format`, which has its name and its value; a text stands as it is.
std::string argument_texts(const ToolCall& call,
                           fmt::format_string<std::string, std::string> format) {
  std::string text;
  const Json arguments = arguments_of(call);
  for (const auto& [name, value] : arguments.items()) {
    text += fmt::format(format, std::string(name),
                        value.is_string() ? value.get<std::string>() : python_json(value));
  }
  return text;
}

std::string action_calls(const Calls& calls) {
  return joined_calls(calls, "\n", [](const ToolCall& call) {
    return fmt::format("Action: {}\nAction Input: {}", call.name, call.arguments);
  });
}

std::string tagged_json_calls(const Calls& calls) {
  return joined_calls(calls, "\n", [](const ToolCall& call) {
    return "<tool_call>\n" + call_as_json(call, "arguments") + "\n</tool_call>";
  });
}

std::string glm4_calls(const Calls& calls) {
  if (calls.size() != 1) {
    throw DataError(
        tr("tool format '{}' can write one call per message, got {}", "glm4", calls.size()));
  }
  return calls[0].name + "\n" + calls[0].arguments;
}

std::string glm4_moe_calls(const Calls& calls) {
  return joined_calls(calls, "\n", [](const ToolCall& call) {
    return "\n<tool_call>" + call.name +
           argument_texts(call, "\n<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>");
  });
}

std::string llama3_calls(const Calls& calls) {
  const auto one = [](const ToolCall& call) { return call_as_json(call, "parameters"); };
  return calls.size() == 1 ? one(calls[0]) : "[" + joined_calls(calls, ", ", one) + "]";
}

std::string mistral_calls(const Calls& calls) {
  return "[" +
         joined_calls(calls, ", ",
                      [](const ToolCall& call) { return call_as_json(call, "arguments"); }) +
         "]";
}

std::string minimax1_calls(const Calls& calls) {
  return "<tool_calls>\n" +
         joined_calls(calls, "\n",
                      [](const ToolCall& call) { return call_as_json(call, "arguments"); }) +
         "\n</tool_calls>";
}

std::string minimax2_calls(const Calls& calls) {
  return joined_calls(calls, "\n", [](const ToolCall& call) {
    return fmt::format("<invoke name=\"{}\">{}\n</invoke>", call.name,
                       argument_texts(call, "\n<parameter name=\"{}\">{}</parameter>"));
  });
}

std::string qwen35_calls(const Calls& calls) {
  return joined_calls(calls, "\n", [](const ToolCall& call) {
    return fmt::format("<tool_call>\n<function={}>{}\n</function>\n</tool_call>", call.name,
                       argument_texts(call, "\n<parameter={}>\n{}\n</parameter>"));
  });
}

/// The bracket behind the function's name is not there in LLaMA-Factory either.
std::string seed_calls(const Calls& calls) {
  return joined_calls(calls, "\n", [](const ToolCall& call) {
    return fmt::format("\n<seed:tool_call>\n<function={}{}\n</function>\n</seed:tool_call>",
                       call.name, argument_texts(call, "\n<parameter={}>{}</parameter>"));
  });
}

std::string lfm2_calls(const Calls& calls) {
  const auto one = [](const ToolCall& call) {
    std::string text;
    const Json arguments = arguments_of(call);
    for (const auto& [name, value] : arguments.items()) {
      text += fmt::format(
          "{}{}={}", text.empty() ? "" : ", ", std::string(name),
          value.is_string() ? "\"" + value.get<std::string>() + "\"" : python_json(value));
    }
    return fmt::format("{}({})", call.name, text);
  };
  return fmt::format("<|tool_call_start|>[{}]<|tool_call_end|>", joined_calls(calls, ", ", one));
}

/// Keys in the order of their bytes, as Python sorts them.
std::string gemma_members(const Json& object);

std::string gemma_value(const Json& value) {
  if (value.is_string()) return quoted_for_gemma(value.get<std::string>());
  if (value.is_object()) return "{" + gemma_members(value) + "}";
  if (!value.is_array()) return python_json(value);
  std::string text;
  for (const Json& item : value) text += (text.empty() ? "" : ",") + gemma_value(item);
  return "[" + text + "]";
}

std::string gemma_members(const Json& object) {
  std::vector<std::string> names;
  for (const auto& entry : object.items()) names.push_back(entry.key());
  std::sort(names.begin(), names.end());
  std::string text;
  for (const std::string& name : names)
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", name, gemma_value(object.at(name)));
  return text;
}

std::string gemma4_calls(const Calls& calls) {
  return joined_calls(calls, "", [](const ToolCall& call) {
    return fmt::format("<|tool_call>call:{}{{{}}}<tool_call|>", call.name,
                       gemma_members(arguments_of(call)));
  });
}

constexpr ToolWriting kWritings[] = {
    {"default", tools_with_stops, action_calls},
    {"actions", tools_without_stops, action_calls},
    {"qwen", qwen_tools, tagged_json_calls},
    {"qwen3_5", qwen35_tools, qwen35_calls},
    {"llama3", llama3_tools, llama3_calls},
    {"mistral", mistral_tools, mistral_calls},
    {"glm4", glm4_tools, glm4_calls},
    {"glm4_moe", glm4_moe_tools, glm4_moe_calls},
    {"ling", ling_tools, tagged_json_calls},
    {"minimax1", minimax1_tools, minimax1_calls},
    {"minimax2", minimax2_tools, minimax2_calls},
    {"seed_oss", seed_tools, seed_calls},
    {"lfm2", lfm2_tools, lfm2_calls},
    {"gemma4", gemma4_tools, gemma4_calls},
    {"phi4_mini", phi4_mini_tools, action_calls},
};

}  // namespace

const ToolWriting* find_tool_writing(std::string_view name) {
  const auto found = std::find_if(std::begin(kWritings), std::end(kWritings),
                                  [&](const ToolWriting& one) { return one.name == name; });
  return found == std::end(kWritings) ? nullptr : found;
}

std::vector<std::string_view> tool_writing_names() {
  std::vector<std::string_view> names;
  for (const ToolWriting& one : kWritings) names.push_back(one.name);
  return names;
}

}  // namespace danlu::text
