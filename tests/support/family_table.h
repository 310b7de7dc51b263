// tests/support/family_table.h: the tables of model families in docs/features.md, as data.
#pragma once
#include <fstream>
#include <map>
#include <ostream>
#include <regex>
#include <string>
#include <vector>

namespace danlu::test {

/// What one table says of one family; a row may be of several.
struct FamilyRow {
  std::string family;
  std::map<std::string, std::string> cells;  ///< by the column's title, e.g. "GGUF"

  bool has_experts() const { return cells.contains("tp, cp, ep"); }
  /// Whether a cell begins with "yes": what follows says what else is so.
  bool can(const std::string& column) const { return cells.at(column).starts_with("yes"); }
  bool says(const std::string& column, const std::string& words) const {
    return cells.at(column).find(words) != std::string::npos;
  }
};
inline void PrintTo(const FamilyRow& row, std::ostream* out) { *out << row.family; }

inline std::vector<std::string> split_at(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

/// The names in a row's first cell, which stand between commas and before what is in parentheses.
inline std::vector<std::string> families_named_in(const std::string& cell) {
  static const std::regex name("\\s*([a-z0-9_]+)\\s*");
  std::vector<std::string> names;
  for (const std::string& part : split_at(cell.substr(0, cell.find('(')), ',')) {
    std::smatch found;
    if (std::regex_match(part, found, name)) names.push_back(found[1]);
  }
  return names;
}

/// Every family of both tables. Rows that refuse a family or say that it is another have no cells
/// behind the first, and are not here.
inline std::vector<FamilyRow> family_rows() {
  std::ifstream file(DANLU_SOURCE_DIR "/docs/features.md");
  std::vector<FamilyRow> rows;
  std::vector<std::string> titles;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("|")) {
      titles.clear();
      continue;
    }
    std::vector<std::string> cells = split_at(line.substr(1), '|');
    cells.pop_back();  // behind the last bar
    if (cells.front() == "family") {
      titles = cells;
      continue;
    }
    if (titles.empty() || cells.size() != titles.size() || cells.back().find("yes") != 0) continue;
    for (const std::string& family : families_named_in(cells.front())) {
      FamilyRow row{family, {}};
      for (size_t i = 1; i < cells.size(); ++i) row.cells[titles[i]] = cells[i];
      rows.push_back(row);
    }
  }
  return rows;
}

}  // namespace danlu::test
