// The help text of a command, laid out from its option table.
#include <fmt/format.h>

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

/// Columns on a terminal: UTF-8 continuation bytes take none. Help is ASCII but for "…".
size_t columns(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

/// Breaks `text` at spaces; every line after the first starts with `indent` spaces.
std::string wrap(std::string_view text, size_t start_column, size_t indent) {
  std::string out;
  size_t column = start_column;
  bool line_is_empty = true;
  while (!text.empty()) {
    const size_t space = text.find(' ');
    const std::string_view word = text.substr(0, space);
    text = space == text.npos ? std::string_view() : text.substr(space + 1);
    if (!line_is_empty && column + 1 + columns(word) > kLineWidth) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
      line_is_empty = true;
    }
    if (!line_is_empty) {
      out += ' ';
      ++column;
    }
    out += word;
    column += columns(word);
    line_is_empty = false;
  }
  return out;
}

std::string dashed(const std::string& name) { return (name.size() == 1 ? "-" : "--") + name; }

std::string describe(const OptionSpec& spec) {
  std::string out = spec.help;
  if (!spec.choices.empty()) {
    out += " (";
    for (size_t i = 0; i < spec.choices.size(); ++i) out += (i ? " | " : "") + spec.choices[i];
    out += ")";
  }
  if (const std::string range = spec.range ? spec.range->brief() : ""; !range.empty())
    out += fmt::format(" [{}]", range);
  if (spec.required) out += " [required]";
  if (!spec.default_text.empty()) out += fmt::format(" [default: {}]", spec.default_text);
  if (!spec.environment.empty()) out += fmt::format(" [env: {}]", spec.environment);
  if (!spec.aliases.empty()) {
    out += " (also";
    for (size_t i = 0; i < spec.aliases.size(); ++i) {
      out += (i ? ", " : " ") + dashed(spec.aliases[i]);
    }
    out += ")";
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
  std::string out = fmt::format("danlu {}: {}\n\nUsage: {}\n", command_, summary_, usage_);
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
    out += "\n" + group + "\n";
    for (const OptionSpec& spec : specs_) {
      const bool here = (spec.group.empty() ? "Options" : spec.group) == group;
      if (here && !option_text::is_inert(spec)) out += option_lines(spec);
    }
  }
  if (!ignored.empty()) {
    out += "\nAccepted for compatibility, without effect here\n  " + wrap(ignored, 2, 2) + "\n";
  }
  out +=
      "\nDash and underscore are the same in flags; --x, --x true, --x=true and --no-x all work.\n"
      "--print_config shows every value and where it came from.\n";
  return out;
}

}  // namespace danlu
