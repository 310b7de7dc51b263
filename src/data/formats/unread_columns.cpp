#include "data/formats/unread_columns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/log.h"
#include "base/nearest_name.h"
#include "data/formats/columns.h"

namespace danlu::data {
namespace {

std::set<std::string> columns_with_values(const std::vector<Json>& rows) {
  const ColumnNames as_they_are(Json::object());
  std::set<std::string> columns;
  for (const Json& row : rows) columns.merge(as_they_are.standard_names(row));
  return columns;
}

/// What `--columns` may make of a column.
std::vector<std::string> standard_columns(RowFormat format) {
  switch (format) {
    case RowFormat::kAlpaca:
    case RowFormat::kQueryResponse:
      return {"instruction", "input", "output", "system", "history", "tools"};
    case RowFormat::kShareGpt:
    case RowFormat::kMessages:
      return {"system", "tools"};
    case RowFormat::kTokens:
      return {"labels", "attention_mask"};
    case RowFormat::kText:
      return {};
  }
  return {};
}

}  // namespace

std::vector<std::string> unread_columns(const RowHandler& handler, const std::vector<Json>& rows) {
  std::set<std::string> columns = columns_with_values(rows);
  for (const std::string& column : handler.columns()) columns.erase(column);
  return {columns.begin(), columns.end()};
}

void report_unread_columns(const std::string& dataset, const RowHandler& handler,
                           const std::vector<Json>& rows) {
  std::vector<std::string> unread = unread_columns(handler, rows);
  const std::set<std::string> present = columns_with_values(rows);
  std::vector<std::string> absent = standard_columns(handler.format());
  std::erase_if(absent, [&](const std::string& column) { return present.contains(column); });
  std::erase_if(unread, [&](const std::string& column) {
    const auto near = nearest_name(column, absent);
    if (near) {
      log::warning(
          "{}: column \"{}\" is not read; if it holds the {}: --columns '{{\"{}\":\"{}\"}}'",
          dataset, column, *near, column, *near);
    }
    return near.has_value();
  });
  constexpr size_t kShown = 8;
  if (unread.empty()) return;
  if (unread.size() <= kShown) {
    log::notice("{}: columns that are not read: {}", dataset, fmt::join(unread, ", "));
  } else {
    log::notice("{}: columns that are not read: {} and {} more", dataset,
                fmt::join(unread.begin(), unread.begin() + kShown, ", "), unread.size() - kShown);
  }
}

}  // namespace danlu::data
