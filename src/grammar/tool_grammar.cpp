#include "grammar/tool_grammar.h"

#include <optional>
#include <vector>

#include "grammar/json_parts.h"
#include "grammar/json_schema.h"

namespace danlu::grammar {
namespace {

using text::ToolFormat;

/// What stands around calls: `all` around all of them, `one` around the name and the arguments.
struct Envelope {
  std::string all_begin = {}, one_begin = {}, before_name = {}, before_arguments = {}, one_end = {},
              between = {}, all_end = {};
  bool many = true;
  bool name_is_json = true;
};

Envelope envelope_of(ToolFormat format) {
  switch (format) {
    case ToolFormat::kHermes:
      return {.one_begin = "<tool_call>",
              .before_name = "\n{\"name\": ",
              .before_arguments = ", \"arguments\": ",
              .one_end = "}\n</tool_call>",
              .between = "\n"};
    case ToolFormat::kLlama3:
      return {.before_name = "{\"name\": ",
              .before_arguments = ", \"parameters\": ",
              .one_end = "}",
              .many = false};
    case ToolFormat::kMistral:
      return {.all_begin = "[TOOL_CALLS]",
              .one_begin = "",
              .before_name = "{\"name\": ",
              .before_arguments = ", \"arguments\": ",
              .one_end = "}",
              .between = ", "};
    case ToolFormat::kDeepSeekV3:
      return {.all_begin = "<｜tool▁calls▁begin｜>",
              .one_begin = "<｜tool▁call▁begin｜>",
              .before_name = "function",
              .before_arguments = "\n```json\n",
              .one_end = "\n```",
              .between = "\n",
              .all_end = "<｜tool▁calls▁end｜>",
              .name_is_json = false};
    case ToolFormat::kGlm45:
      return {.one_begin = "<tool_call>",
              .before_arguments = "\n",
              .between = "\n",
              .name_is_json = false};
    case ToolFormat::kQwenCoder:
      throw GrammarError(
          tr("answers cannot be held to calls in this model's form: leave tool_choice to auto"));
  }
  throw InternalError("[grammar] a form of calls without a way to write them");
}

class CallWriter {
 public:
  CallWriter(AutomatonBuilder& builder, const ToolCallRules& rules, const AddMark& add_mark)
      : builder_(builder),
        parts_(builder, /*in_tags=*/rules.format == ToolFormat::kGlm45),
        rules_(rules),
        add_mark_(add_mark),
        envelope_(envelope_of(rules.format)) {}

  void add(State from, State to) {
    const bool is_mistral = rules_.format == ToolFormat::kMistral;
    State at = mark(from, envelope_.all_begin);
    if (is_mistral) at = text(at, "[");
    const State before = builder_.add_state(), behind = builder_.add_state();
    builder_.epsilon(at, before);
    one_call(before, behind);
    if (envelope_.many && rules_.many) builder_.epsilon(text(behind, envelope_.between), before);
    at = is_mistral ? text(behind, "]") : behind;
    builder_.epsilon(mark(at, envelope_.all_end), to);
  }

 private:
  State text(State from, const std::string& what) {
    const State next = builder_.add_state();
    builder_.literal(from, next, what);
    return next;
  }
  State mark(State from, const std::string& what) {
    const State next = builder_.add_state();
    if (what.empty()) {
      builder_.epsilon(from, next);
    } else {
      add_mark_(from, next, what);
    }
    return next;
  }

  void one_call(State from, State to) {
    State at = mark(from, envelope_.one_begin);
    at = text(at, envelope_.before_name);
    const bool is_deep_seek = rules_.format == ToolFormat::kDeepSeekV3;
    if (is_deep_seek) at = mark(at, "<｜tool▁sep｜>");
    const State arguments = builder_.add_state();
    bool has_any = false;
    for (const Json& tool : rules_.tools) {
      const Json& function =
          tool.is_object() && tool.contains("function") ? tool["function"] : tool;
      if (!function.is_object() || !function.value("name", Json()).is_string())
        throw GrammarError(tr("a tool call has no function name"));
      const std::string name = function["name"];
      if (!rules_.name.empty() && name != rules_.name) continue;
      has_any = true;
      const State named =
          text(at, (envelope_.name_is_json ? dump_text(name) : name) + envelope_.before_arguments);
      add_arguments(function, name, named, arguments);
    }
    if (!has_any) throw GrammarError(tr("no tool is called '{}'", rules_.name));
    at = text(arguments, envelope_.one_end);
    if (is_deep_seek) at = mark(at, "<｜tool▁call▁end｜>");
    builder_.epsilon(is_glm() ? mark(at, "</tool_call>") : at, to);
  }

  void add_arguments(const Json& function, const std::string& name, State from, State to) {
    const auto parameters = function.find("parameters");
    const bool has_any = parameters != function.end() && !parameters->is_null();
    if (is_glm())
      return has_any ? add_tagged(*parameters, name, from, to) : builder_.epsilon(from, to);
    if (!has_any) return builder_.literal(from, to, "{}");
    if (parameters->is_object() && parameters->empty()) return parts_.any_object(from, to);
    SchemaWriter(builder_, parts_, *parameters, "tools/" + name + "/parameters").add(from, to);
  }

  bool is_glm() const { return rules_.format == ToolFormat::kGlm45; }

  void add_tagged(const Json& parameters, const std::string& name, State from, State to) {
    SchemaWriter(builder_, parts_, parameters, "tools/" + name + "/parameters")
        .add_tagged(from, to, add_mark_);
  }

  AutomatonBuilder& builder_;
  JsonParts parts_;
  const ToolCallRules& rules_;
  const AddMark& add_mark_;
  Envelope envelope_;
};

}  // namespace

void add_tool_calls(AutomatonBuilder& builder, State from, State to, const ToolCallRules& rules,
                    const AddMark& add_mark) {
  if (!rules.tools.is_array() || rules.tools.empty())
    throw GrammarError(tr("tools must be a list, got {}", rules.tools.type_name()));
  CallWriter(builder, rules, add_mark).add(from, to);
}

}  // namespace danlu::grammar
