#include "eval/results/wide_text.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/jinja/python_text.h"

namespace danlu::eval {
namespace {

size_t width_at(std::string_view text, size_t& at) {
  const char32_t c = text::jinja::next_code_point(text, at);
  return static_cast<size_t>(std::max(0, utf8proc_charwidth(static_cast<int32_t>(c))));
}

std::string in_middle(const std::string& text, size_t width) {
  const size_t space = width - display_width(text);
  return std::string(space / 2, ' ') + text + std::string(space - space / 2, ' ');
}

}  // namespace

size_t display_width(std::string_view text) {
  size_t width = 0;
  for (size_t at = 0; at < text.size();) width += width_at(text, at);
  return width;
}

std::string cut_to_width(std::string_view text, size_t width) {
  if (display_width(text) <= width) return std::string(text);
  size_t end = 0, taken = 1;  // the ellipsis
  for (size_t at = 0; at < text.size(); end = at) {
    taken += width_at(text, at);
    if (taken > width) break;
  }
  return std::string(text.substr(0, end)) + "…";
}

std::string markdown_table(const std::vector<std::vector<std::string>>& rows,
                           const std::vector<bool>& is_right) {
  constexpr size_t kNarrowest = 3;
  std::vector<size_t> widths(is_right.size(), kNarrowest);
  for (const auto& row : rows) {
    for (size_t i = 0; i < widths.size(); ++i)
      widths[i] = std::max(widths[i], display_width(row.at(i)));
  }
  std::string out;
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t i = 0; i < widths.size(); ++i) {
      const std::string& cell = rows[r][i];
      const std::string space(widths[i] - display_width(cell), ' ');
      out += '|';
      out += r == 0 ? in_middle(cell, widths[i]) : (is_right[i] ? space + cell : cell + space);
    }
    out += "|\n";
    if (r > 0) continue;
    for (size_t i = 0; i < widths.size(); ++i)
      out += '|' + std::string(widths[i] - 1, '-') + (is_right[i] ? ':' : '-');
    out += "|\n";
  }
  return out;
}

}  // namespace danlu::eval
