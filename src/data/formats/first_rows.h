// data/formats/first_rows.h: what the layout of rows is told from: the columns of the first rows.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "data/formats/columns.h"
#include "data/formats/format_options.h"

namespace danlu::data {

/// The columns that occur in the first rows, by their standard names.
struct FirstRows {
  /// --columns speaks for all data sets at once: here counts what this one has.
  static Json present(const std::vector<Json>& rows, const Json& renames);

  const std::vector<Json>& rows;
  ColumnNames names;
  std::set<std::string> columns;

  /// REQUIRES: `rows` outlive it.
  FirstRows(const std::vector<Json>& rows, const Json& renames);
  bool has(const std::string& column) const { return columns.contains(column); }
  /// Whether some row has a column of this very name.
  bool has_actual(const std::string& column) const;
  /// The first value of the column that the files call `column`; null if none has one.
  const Json* first_value(const std::string& column) const;
  /// Names the columns; if there are many, only the first ones.
  std::string listed() const;

 private:
  void take_other_cases();
};

/// The column that `map_keys` names for `role`: "" for null, `fallback` if it names none. Errors:
/// UsageError if it is no name.
std::string mapped(const Json& map_keys, const std::string& role, const std::string& fallback);

/// The column of a role that is not mapped: `standard`, unless the map leaves it out (see
/// FormatOptions::map_is_whole) or gives that column to another role; then "".
std::string unmapped(const FormatOptions& options, const std::string& role,
                     const std::string& standard);

/// Errors: UsageError if `map_keys` is no object, or has a role that is none of `roles`.
void check_map_keys(const Json& map_keys, const std::vector<std::string>& roles,
                    const std::string& what);

/// The single column of `names` (any case) that rows have; "" if none. Errors: DataError if there
/// are several.
std::string column_among(const FirstRows& first, const std::vector<std::string>& names,
                         const char* role);

/// A string, a list, an object, … parsed where a list was written as text.
enum class ValueShape { kNone, kText, kList, kObject, kOther };
ValueShape shape_of(const Json* value);

}  // namespace danlu::data
