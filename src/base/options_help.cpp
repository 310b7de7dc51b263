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

HelpPage::Entry entry_of(const OptionSpec& spec) {
  std::string flag = dashed(spec.name);
  const std::string_view value = placeholder(spec.type);
  if (!value.empty())
    flag += spec.may_be_alone ? fmt::format(" [{}]", value) : fmt::format(" {}", value);
  return {flag, describe(spec)};
}

std::string lines_of(const HelpPage::Entry& entry) {
  const std::string left = "  " + entry.flag;
  const std::string right = wrap(entry.text, kHelpColumn, kHelpColumn);
  if (columns(left) + 2 > kHelpColumn)
    return left + "\n" + std::string(kHelpColumn, ' ') + right + "\n";
  return left + std::string(kHelpColumn - columns(left), ' ') + right + "\n";
}

HelpPage::Section& section_named(std::string_view title, HelpPage& page) {
  for (HelpPage::Section& section : page.sections)
    if (section.title == title) return section;
  return page.sections.emplace_back(HelpPage::Section{std::string(title), {}});
}

}  // namespace

HelpPage OptionTable::help_page() const {
  HelpPage page{.command = command_,
                .summary = std::string(translated(summary_)),
                .usage = usage_,
                .sections = {},
                .ignored = {},
                .notes = tr("\nDash and underscore are the same in flags; --x, --x true, --x=true "
                            "and --no-x all work.\n"
                            "--print_config shows every value and where it came from; -v shows "
                            "every notice.\n")};
  for (const OptionSpec& spec : specs_) {
    if (spec.is_hidden) continue;
    if (!spec.ignored_because.empty()) {
      page.ignored += (page.ignored.empty() ? "" : " ") + dashed(spec.name);
    } else if (!option_text::is_inert(spec)) {
      const std::string title(translated(spec.group.empty() ? "Options" : spec.group));
      section_named(title, page).entries.push_back(entry_of(spec));
    }
  }
  return page;
}

std::string OptionTable::help() const {
  const HelpPage page = help_page();
  std::string out = tr("danlu {}: {}\n\nUsage: {}\n", page.command, page.summary, page.usage);
  for (const HelpPage::Section& section : page.sections) {
    out += fmt::format("\n{}\n", section.title);
    for (const HelpPage::Entry& entry : section.entries) out += lines_of(entry);
  }
  if (!page.ignored.empty()) {
    out +=
        fmt::format("\n{}\n  {}\n", translated("Accepted for compatibility, without effect here"),
                    wrap(page.ignored, 2, 2));
  }
  return out + page.notes;
}

}  // namespace danlu
