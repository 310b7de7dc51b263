#include "text/tool_format.h"

#include <array>
#include <utility>

#include "base/error.h"

namespace danlu::text {
namespace {

constexpr std::array<std::pair<std::string_view, ToolFormat>, 8> kToolFormats{{
    {"hermes", ToolFormat::kHermes},
    {"llama3_json", ToolFormat::kLlama3},
    {"mistral", ToolFormat::kMistral},
    {"deepseek_v3", ToolFormat::kDeepSeekV3},
    {"deepseek_v31", ToolFormat::kDeepSeekV3},
    {"glm45", ToolFormat::kGlm45},
    {"qwen3_coder", ToolFormat::kQwenCoder},
    {"qwen3_xml", ToolFormat::kQwenCoder},
}};

}  // namespace

ToolFormat tool_format_of_name(const std::string& name) {
  for (const auto& [known, format] : kToolFormats) {
    if (name == known) return format;
  }
  std::string names;
  for (const std::string& known : tool_format_names()) names += (names.empty() ? "" : ", ") + known;
  throw UsageError(tr("form of tool calls '{}' is not known; known: {}", name, names));
}

std::string_view tool_format_name(ToolFormat format) {
  for (const auto& [name, known] : kToolFormats) {
    if (known == format) return name;
  }
  throw InternalError("a form of tool calls without a name");
}

std::vector<std::string> tool_format_names() {
  std::vector<std::string> names;
  for (const auto& entry : kToolFormats) names.emplace_back(entry.first);
  return names;
}

std::optional<ToolFormat> tool_format_of_template(std::string_view jinja) {
  const auto has = [&](std::string_view mark) {
    return jinja.find(mark) != std::string_view::npos;
  };
  if (has("<｜tool▁call▁begin｜>")) return ToolFormat::kDeepSeekV3;
  if (has("<arg_key>")) return ToolFormat::kGlm45;
  // Qwen3-Coder writes XML inside the same tag.
  if (has("<tool_call>") && has("<function=")) {
    return has("<parameter=") ? std::optional(ToolFormat::kQwenCoder) : std::nullopt;
  }
  if (has("<tool_call>")) return ToolFormat::kHermes;
  if (has("[TOOL_CALLS]")) return ToolFormat::kMistral;
  if (has("<|python_tag|>") || (has("\"parameters\": ") && has("<|start_header_id|>")))
    return ToolFormat::kLlama3;
  return std::nullopt;
}

std::optional<ToolFormat> tool_format_of_named(std::string_view tool_format) {
  if (tool_format == "qwen" || tool_format == "ling") return ToolFormat::kHermes;
  if (tool_format == "llama3") return ToolFormat::kLlama3;
  if (tool_format == "mistral") return ToolFormat::kMistral;
  if (tool_format == "glm4_moe") return ToolFormat::kGlm45;
  if (tool_format == "qwen3_5") return ToolFormat::kQwenCoder;
  return std::nullopt;
}

}  // namespace danlu::text
