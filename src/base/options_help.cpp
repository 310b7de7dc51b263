// The help text of a command, laid out from its option table.
#include <fmt/format.h>

#include <algorithm>

#include "base/message.h"
#include "base/option_text.h"
#include "base/options.h"

namespace danlu {
namespace {

constexpr size_t kLineWidth = 100;
constexpr size_t kHelpColumn = 34;

const char* placeholder(OptionType type) {
  switch (type) {
    case OptionType::kString:
      return "TEXT";
    case OptionType::kInt:
      return "INT";
    case OptionType::kFloat:
      return "NUMBER";
    case OptionType::kBool:
      return "";
    case OptionType::kList:
      return "ITEM…";
    case OptionType::kJson:
      return "JSON";
  }
  return "";
}

/// The first character of a text: its bytes, and the columns it takes on a terminal.
struct Character {
  size_t bytes = 1, columns = 1;
};

/// Help is ASCII, "…" and Chinese: three-byte characters from U+2E80 on are two columns wide.
Character first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t bytes = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const bool wide =
      bytes > 3 || lead > 0xE2 ||
      (lead == 0xE2 && text.size() > 1 && static_cast<unsigned char>(text[1]) >= 0xBA);
  return {std::min(bytes, text.size()), wide ? size_t{2} : size_t{1}};
}

size_t columns(std::string_view text) {
  size_t count = 0;
  while (!text.empty()) {
    const Character character = first_character(text);
    count += character.columns;
    text.remove_prefix(character.bytes);
  }
  return count;
}

/// What may not be parted: up to a space, or one Chinese character and the marks that follow it.
std::string_view first_word(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && text[end] != ' ') {
    const Character character = first_character(text.substr(end));
    if (character.columns == 2 && end > 0) break;
    end += character.bytes;
    if (character.columns == 1) continue;
    for (const std::string_view mark : {"，", "。", "；", "：", "）", "、"}) {
      while (text.substr(end).starts_with(mark)) end += mark.size();
    }
    if (end == text.size() || first_character(text.substr(end)).columns == 2) break;
  }
  return text.substr(0, end);
}

/// Breaks `text` at spaces and between Chinese characters; every line after the first starts with
/// `indent` spaces.
std::string wrap(std::string_view text, size_t start_column, size_t indent) {
  std::string out;
  size_t column = start_column;
  bool line_is_empty = true, space = false;
  while (!text.empty()) {
    const std::string_view word = first_word(text);
    text.remove_prefix(word.size());
    if (!line_is_empty && column + space + columns(word) > kLineWidth) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (space && !line_is_empty) {
      out += ' ';
      ++column;
    }
    out += word;
    column += columns(word);
    line_is_empty = false;
    space = text.starts_with(' ');
    if (space) text.remove_prefix(1);
  }
  return out;
}

std::string dashed(const std::string& name) { return (name.size() == 1 ? "-" : "--") + name; }

std::string describe(const OptionSpec& spec) {
  std::string out(translated(spec.help));
  if (!spec.choices.empty()) {
    out += " (";
    for (size_t i = 0; i < spec.choices.size(); ++i) out += (i ? " | " : "") + spec.choices[i];
    out += ")";
  }
  if (const std::string range = spec.range ? spec.range->brief() : ""; !range.empty())
    out += fmt::format(" [{}]", range);
  if (spec.required) out += tr(" [required]");
  if (!spec.default_text.empty()) out += tr(" [default: {}]", spec.default_text);
  if (!spec.environment.empty()) out += tr(" [env: {}]", spec.environment);
  if (!spec.aliases.empty()) {
    std::string aliases;
    for (const std::string& alias : spec.aliases)
      aliases += (aliases.empty() ? "" : ", ") + dashed(alias);
    out += tr(" (also {})", aliases);
  }
  return out;
}

std::string option_lines(const OptionSpec& spec) {
  std::string left = "  " + dashed(spec.name);
  if (const std::string_view value = placeholder(spec.type); !value.empty()) {
    left += fmt::format(" {}", value);
  }
  const std::string right = wrap(describe(spec), kHelpColumn, kHelpColumn);
  if (columns(left) + 2 > kHelpColumn)
    return left + "\n" + std::string(kHelpColumn, ' ') + right + "\n";
  return left + std::string(kHelpColumn - columns(left), ' ') + right + "\n";
}

}  // namespace

std::string OptionTable::help() const {
  std::string out = tr("danlu {}: {}\n\nUsage: {}\n", command_, translated(summary_), usage_);
  std::vector<std::string> groups;
  std::string ignored;
  for (const OptionSpec& spec : specs_) {
    if (!spec.ignored_because.empty()) {
      ignored += (ignored.empty() ? "" : " ") + dashed(spec.name);
      continue;
    }
    if (!spec.unavailable_because.empty()) continue;
    const std::string group = spec.group.empty() ? "Options" : spec.group;
    bool known = false;
    for (const std::string& seen : groups) known = known || seen == group;
    if (!known) groups.push_back(group);
  }
  for (const std::string& group : groups) {
    out += fmt::format("\n{}\n", translated(group));
    for (const OptionSpec& spec : specs_) {
      const bool here = (spec.group.empty() ? "Options" : spec.group) == group;
      if (here && !option_text::is_inert(spec)) out += option_lines(spec);
    }
  }
  if (!profiles_.empty()) {
    std::string names;
    for (const auto& [name, values] : profiles_) names += (names.empty() ? "" : " | ") + name;
    out +=
        fmt::format("\n{}\n", translated("Profiles")) +
        option_lines({.name = "profile", .help = tr("defaults as in another system ({})", names)});
  }
  if (!ignored.empty()) {
    out +=
        fmt::format("\n{}\n  {}\n", translated("Accepted for compatibility, without effect here"),
                    wrap(ignored, 2, 2));
  }
  out += tr(
      "\nDash and underscore are the same in flags; --x, --x true, --x=true and --no-x all work.\n"
      "--print_config shows every value and where it came from; -v shows every notice.\n");
  return out;
}

}  // namespace danlu
