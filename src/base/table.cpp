#include "base/table.h"

#include <algorithm>

#include "base/message.h"

namespace danlu {
namespace {

/// The width on a terminal, where an East Asian character takes two places.
size_t width_of(const std::string& text) {
  size_t width = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0) == 0x80) continue;
    width += byte >= 0xE3 && byte <= 0xEF ? 2 : 1;
  }
  return width;
}

std::string padded(const std::string& text, size_t width) {
  return text + std::string(width - std::min(width, width_of(text)), ' ');
}

}  // namespace

Table::Table(const std::vector<std::string>& heads) {
  for (const std::string& head : heads) heads_.emplace_back(translated(head));
}

void Table::add_row(std::vector<std::string> cells) {
  cells.resize(heads_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::drawn() const {
  std::vector<size_t> widths(heads_.size(), 0);
  for (size_t column = 0; column < heads_.size(); ++column) {
    const bool is_said = std::any_of(rows_.begin(), rows_.end(), [&](const auto& row) {
      return !row[column].empty() && row[column] != "-";
    });
    if (!is_said) continue;
    widths[column] = width_of(heads_[column]);
    for (const auto& row : rows_) widths[column] = std::max(widths[column], width_of(row[column]));
  }
  std::string out;
  const auto draw = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t column = 0; column < cells.size(); ++column) {
      if (widths[column] == 0 && !(column == 0 && heads_[0].empty())) continue;
      line += (line.empty() ? "" : "  ") + padded(cells[column], widths[column]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  draw(heads_);
  for (const auto& row : rows_) draw(row);
  return out;
}

}  // namespace danlu
