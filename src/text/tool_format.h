// text/tool_format.h: how models write tool calls into their answers.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace danlu::text {

enum class ToolFormat {
  kHermes,      ///< <tool_call>{"name", "arguments"}</tool_call>: Qwen, Hermes
  kLlama3,      ///< {"name", "parameters"}, that <|python_tag|> may precede: Llama 3.1 to 3.3
  kMistral,     ///< [TOOL_CALLS][{"name", "arguments"}, …] or [TOOL_CALLS]name{…}
  kDeepSeekV3,  ///< <｜tool▁call▁begin｜>function<｜tool▁sep｜>name + ```json, or V3.1's without
  kGlm45,       ///< <tool_call>name <arg_key>…</arg_key><arg_value>…</arg_value></tool_call>
  kQwenCoder,   ///< <tool_call><function=name><parameter=key>…</parameter></function></tool_call>
};

/// vLLM's names of parsers: hermes, llama3_json, mistral, deepseek_v3 (deepseek_v31), glm45,
/// qwen3_coder (qwen3_xml).
/// Errors: UsageError for another, with those that are known.
ToolFormat tool_format_of_name(const std::string& name);
/// The first of them that means `format`.
std::string_view tool_format_name(ToolFormat format);
std::vector<std::string> tool_format_names();

/// What a Jinja chat template tells models to write, by the marks that it prints itself; none where
/// it prints no tool calls, or in a form that is not known.
std::optional<ToolFormat> tool_format_of_template(std::string_view jinja);

/// The format that a named template's tool_format names (text/template_file.h); none for those that
/// are written and not read, such as "default".
std::optional<ToolFormat> tool_format_of_named(std::string_view tool_format);

}  // namespace danlu::text
