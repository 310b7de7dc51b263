#include "serve/side_by_side.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/jinja/python_text.h"

namespace danlu::serve {
namespace {

constexpr const char* kBorder = " │ ";
constexpr size_t kBorderWidth = 3, kNarrowest = 24;

size_t width_of(char32_t c) {
  return static_cast<size_t>(std::max(0, utf8proc_charwidth(static_cast<int32_t>(c))));
}

size_t width_of(const std::string& text) {
  size_t width = 0;
  for (size_t at = 0; at < text.size();) width += width_of(text::jinja::next_code_point(text, at));
  return width;
}

/// One line of a text as lines of at most `width`.
void break_line(const std::string& line, size_t width, std::vector<std::string>& lines) {
  size_t begin = 0, taken = 0, space = 0;  // space: after the last blank of the present line
  for (size_t at = 0; at < line.size();) {
    const size_t here = at;
    const char32_t c = text::jinja::next_code_point(line, at);
    if (taken + width_of(c) > width && here > begin) {
      const size_t end = c == ' ' ? here : space > begin ? space : here;
      lines.push_back(line.substr(begin, end - begin));
      while (!lines.back().empty() && lines.back().back() == ' ') lines.back().pop_back();
      begin = end;
      taken = width_of(line.substr(begin, here - begin));
      if (c == ' ') {
        begin = at;
        taken = 0;
        continue;
      }
    }
    taken += width_of(c);
    if (c == ' ') space = at;
  }
  lines.push_back(line.substr(begin));
}

std::vector<std::string> lines_of(const NamedText& told, size_t width) {
  std::vector<std::string> lines;
  break_line(told.name, width, lines);
  std::string rule;
  for (size_t i = 0; i < width; ++i) rule += "─";
  lines.push_back(rule);
  for (size_t begin = 0; begin <= told.text.size();) {
    const size_t end = std::min(told.text.find('\n', begin), told.text.size());
    std::string line;
    for (const char c : told.text.substr(begin, end - begin)) {
      // What would move the cursor is shown as a blank.
      if (c == '\t')
        line += "    ";
      else
        line += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    break_line(line, width, lines);
    begin = end + 1;
  }
  return lines;
}

}  // namespace

bool fits_side_by_side(size_t columns, size_t width) {
  return width >= columns * kNarrowest + (columns - 1) * kBorderWidth;
}

std::string side_by_side(const std::vector<NamedText>& texts, size_t width) {
  const size_t column = (width - (texts.size() - 1) * kBorderWidth) / texts.size();
  std::vector<std::vector<std::string>> columns;
  size_t height = 0;
  for (const NamedText& told : texts) {
    columns.push_back(lines_of(told, column));
    height = std::max(height, columns.back().size());
  }
  std::string out;
  for (size_t row = 0; row < height; ++row) {
    std::string line;
    for (size_t i = 0; i < columns.size(); ++i) {
      const std::string cell = row < columns[i].size() ? columns[i][row] : "";
      line += i == 0 ? "" : kBorder;
      line += cell;
      if (i + 1 < columns.size())
        line += std::string(column - std::min(column, width_of(cell)), ' ');
    }
    while (line.ends_with(' ')) line.pop_back();
    out += line + "\n";
  }
  return out;
}

}  // namespace danlu::serve
