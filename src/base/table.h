// base/table.h: columns for the terminal.
#pragma once
#include <string>
#include <vector>

namespace danlu {

/// Heads are names or texts of the catalogue; cells are shown as they are. Columns that have "-" or
/// nothing in every row are left out.
class Table {
 public:
  explicit Table(const std::vector<std::string>& heads);
  /// Short rows are filled up.
  void add_row(std::vector<std::string> cells);
  std::string drawn() const;

 private:
  std::vector<std::string> heads_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace danlu
