// text/template_file.h: named prompt templates as data (text/templates.json of MindSpeed-LLM,
// text/llamafactory_templates.json, and users' files). The format is MindSpeed-LLM's;
// docs/formats/templates.md describes it.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace danlu::text {

/// One element of a format: text with placeholders, or a token.
struct TemplateSlot {
  enum class Kind { kText, kToken, kBos, kEos } kind = Kind::kText;
  std::string text;  ///< the text, or the token as the vocabulary writes it
};
using TemplateSlots = std::vector<TemplateSlot>;

enum class TemplateStyle {
  kPlain,
  kLlama2,          ///< the system text goes inside the first user message
  kReasoning,       ///< <think> blocks: an empty one is added where an answer has none
  kStanfordAlpaca,  ///< one turn; prompt chosen by whether there is an input
};

struct NamedTemplate {
  std::string name;
  TemplateStyle style = TemplateStyle::kPlain;
  TemplateSlots prefix, system, user, assistant, function, observation, separator;
  /// A name that find_tool_writing knows; others are refused when tools are used.
  std::string tool_format = "default";
  std::string default_system;
  /// What becomes of a query and a document that are judged: a user's message, with
  /// {{instruction}}, {{query}} and {{document}}; "": they are a question and its answer.
  std::string pair;
  std::string default_instruction;
  std::vector<std::string> stop_words;
  bool efficient_eos = false;  ///< EOS between turns instead of after each answer
  bool replace_eos = false;    ///< the first stop word is the tokenizer's EOS
  // Words of kReasoning. What stands between the two marks can be removed; an answer that has
  // neither, blanks around them aside, has no thought.
  std::string thought_begin = "<think>", thought_end = "</think>";
  std::string empty_thought = "<think>\n\n</think>\n\n";
  /// LLaMA-Factory's rules where MindSpeed-LLM's are others: thoughts are on unless switched off,
  /// and answers before the last that are not learnt have none; what is said before a tool call
  /// stands right before it; enable_thinking may be given where there are no thoughts.
  bool as_in_llamafactory = false;
};

/// Templates of one JSON text. The key force_system is accepted and has no effect, as in
/// MindSpeed-LLM. Errors: ModelError "<origin>: template 'x': …".
std::vector<NamedTemplate> parse_templates(const Json& json, const std::string& origin);
/// The built-in ones, parsed once.
const std::vector<NamedTemplate>& builtin_templates();
/// src/text/templates.json as built in (generated source).
extern const char* const kBuiltinTemplatesJson;

/// What the names of LLaMA-Factory's templates begin with here: llamafactory:qwen is its text,
/// qwen MindSpeed-LLM's.
inline constexpr std::string_view kOfLlamaFactory = "llamafactory:";
/// LLaMA-Factory's templates, parsed once; their names without the prefix.
/// Source: LLaMA-Factory ff6d4d12, data/template.py.
const std::vector<NamedTemplate>& llamafactory_templates();
/// src/text/llamafactory_templates.json as built in (generated source).
extern const char* const kLlamaFactoryTemplatesJson;
/// What `name` means in a line of LLaMA-Factory's: llamafactory:NAME where it has that name, else
/// the name as it is.
std::string name_in_llamafactory(const std::string& name);

/// By name, the file's first (an empty path means none; what is after llamafactory: is looked up
/// there too), then the built-in ones. Errors: as parse_templates, IoError.
std::optional<NamedTemplate> find_template(const std::string& name,
                                           const std::filesystem::path& templates_file);

}  // namespace danlu::text
