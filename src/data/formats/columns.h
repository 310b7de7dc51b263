// data/formats/columns.h: looking up values of a row under the names a data set really uses.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "data/formats/format_options.h"
#include "data/formats/row.h"

namespace danlu::data {

/// ms-swift's `--columns {"actual":"standard"}`: where a standard column lies.
class ColumnNames {
 public:
  /// Errors: UsageError unless `renames` is an object of strings.
  explicit ColumnNames(const Json& renames);
  void rename(const std::string& actual, const std::string& standard) {
    actual_to_standard_.emplace_back(actual, standard);
  }
  /// The columns to be renamed that none of `rows` has.
  std::set<std::string> absent_from(const std::vector<Json>& rows) const;
  /// The name the files use for `standard`.
  std::string actual(const std::string& standard) const;
  /// Names of `row`'s columns after renaming.
  std::set<std::string> standard_names(const Json& row) const;

 private:
  std::vector<std::pair<std::string, std::string>> actual_to_standard_;
};

/// `row[column]`, or nullptr if absent or null.
const Json* find_value(const Json& row, const std::string& column);
/// "a string", "a number", "a list", …
std::string kind_of(const Json& value);
/// Some tables keep lists as text: a string is parsed as JSON; nullopt if that fails.
std::optional<Json> parse_if_text(const Json& value);

RowProblem wrong_type(const std::string& column, const std::string& expected, const Json& value);
RowProblem missing_column(const std::string& column);

/// Tools as a row gives them (a list, or a list as text): null if there are none.
/// Result false: not a list, and *problem is set.
bool read_tools(const Json& row, const std::string& column, Json* tools, RowProblem* problem);

}  // namespace danlu::data
