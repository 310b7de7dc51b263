#include "data/formats/columns.h"

#include <fmt/format.h>

#include <string_view>

#include "base/error.h"
#include "base/json_text.h"

namespace danlu::data {

ColumnNames::ColumnNames(const Json& renames) {
  if (!renames.is_object()) {
    throw UsageError(tr("[columns] must be an object such as {{\"question\":\"query\"}}, got {}",
                        kind_of(renames)));
  }
  for (const auto& [actual, standard] : renames.items()) {
    if (!standard.is_string()) {
      throw UsageError(
          tr("[columns] \"{}\" must map to a name, got {}", actual, kind_of(standard)));
    }
    actual_to_standard_.emplace_back(actual, standard.get<std::string>());
  }
}

std::set<std::string> ColumnNames::absent_from(const std::vector<Json>& rows) const {
  std::set<std::string> absent;
  for (const auto& [actual, standard] : actual_to_standard_) absent.insert(actual);
  for (const Json& row : rows) {
    std::erase_if(
        absent, [&](const std::string& column) { return row.is_object() && row.contains(column); });
  }
  return absent;
}

std::string ColumnNames::actual(const std::string& standard) const {
  for (const auto& [actual, name] : actual_to_standard_) {
    if (name == standard) return actual;
  }
  return standard;
}

std::set<std::string> ColumnNames::standard_names(const Json& row) const {
  std::set<std::string> names;
  if (!row.is_object()) return names;
  for (const auto& [column, value] : row.items()) {
    if (!value.is_null()) names.insert(column);
  }
  for (const auto& [actual, standard] : actual_to_standard_) {
    if (names.erase(actual)) names.insert(standard);
  }
  return names;
}

const Json* find_value(const Json& row, const std::string& column) {
  const auto found = row.find(column);
  return found == row.end() || found->is_null() ? nullptr : &*found;
}

std::string kind_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "nothing";
    case Json::value_t::boolean:
      return "a true/false value";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::object:
      return "an object";
    default:
      return "a number";
  }
}

std::optional<Json> parse_if_text(const Json& value) {
  if (!value.is_string()) return value;
  if (!wide_integer_in(value.get_ref<const std::string&>()).empty()) return std::nullopt;
  return try_parse_json(value.get_ref<const std::string&>());
}

RowProblem wrong_type(const std::string& column, const std::string& expected, const Json& value) {
  // Why parse_if_text did not take it.
  const std::string_view digits =
      value.is_string() ? wide_integer_in(value.get_ref<const std::string&>()) : "";
  if (!digits.empty() && is_json(value.get_ref<const std::string&>()))
    return {fmt::format("column \"{}\" holds an integer beyond 64 bits", column),
            fmt::format("got {}", digits)};
  return {fmt::format("column \"{}\" is not {}", column, expected),
          fmt::format("got {}", kind_of(value))};
}

RowProblem missing_column(const std::string& column) {
  return {fmt::format("column \"{}\" is missing", column), ""};
}

bool read_tools(const Json& row, const std::string& column, Json* tools, RowProblem* problem) {
  const Json* value = find_value(row, column);
  if (!value || (value->is_string() && value->get_ref<const std::string&>().empty())) return true;
  const auto parsed = parse_if_text(*value);
  if (!parsed || !parsed->is_array()) {
    *problem = wrong_type(column, "a list of tools", parsed ? *parsed : *value);
    return false;
  }
  if (!parsed->empty()) *tools = *parsed;
  return true;
}

}  // namespace danlu::data
