#include "data/formats/first_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/lower_case.h"
#include "base/nearest_name.h"
#include "data/formats/unread_columns.h"
#include "data/sample_kind.h"

namespace danlu::data {

Json FirstRows::present(const std::vector<Json>& rows, const Json& renames) {
  Json kept = renames;
  if (rows.empty()) return kept;
  for (const std::string& column : ColumnNames(renames).absent_from(rows)) kept.erase(column);
  return kept;
}

FirstRows::FirstRows(const std::vector<Json>& rows, const Json& renames)
    : rows(rows), names(present(rows, renames)) {
  for (const Json& row : rows) columns.merge(names.standard_names(row));
  take_other_cases();
}

bool FirstRows::has_actual(const std::string& column) const {
  return std::any_of(rows.begin(), rows.end(),
                     [&](const Json& row) { return row.is_object() && row.contains(column); });
}

const Json* FirstRows::first_value(const std::string& column) const {
  for (const Json& row : rows) {
    const Json* value = row.is_object() ? find_value(row, column) : nullptr;
    if (value) return value;
  }
  return nullptr;
}

/// "Instruction" where no row has "instruction".
void FirstRows::take_other_cases() {
  for (const RowFormat format : {RowFormat::kAlpaca, RowFormat::kMessages}) {
    for (const std::string& standard : standard_columns(format)) {
      const auto same = [&](const std::string& name) { return lower_case(name) == standard; };
      if (has(standard) || std::count_if(columns.begin(), columns.end(), same) != 1) continue;
      const auto found = std::find_if(columns.begin(), columns.end(), same);
      names.rename(*found, standard);
      columns.erase(found);
      columns.insert(standard);
    }
  }
}

std::string FirstRows::listed() const {
  constexpr size_t kShown = 40;
  if (columns.size() <= kShown) return fmt::format("{}", fmt::join(columns, ", "));
  return fmt::format("{} and {} more",
                     fmt::join(columns.begin(), std::next(columns.begin(), kShown), ", "),
                     columns.size() - kShown);
}

std::string mapped(const Json& map_keys, const std::string& role, const std::string& fallback) {
  const auto found = map_keys.find(role);
  if (found == map_keys.end()) return fallback;
  if (found->is_null()) return "";
  if (!found->is_string()) {
    throw UsageError(tr("[map_keys] \"{}\" must name a column, got {}", role, kind_of(*found)));
  }
  return found->get<std::string>();
}

std::string unmapped(const FormatOptions& options, const std::string& role,
                     const std::string& standard) {
  bool names_texts = false;
  for (const auto& [other, column] : options.map_keys.items()) {
    if (other == "images" || other == "videos" || other == "tags") continue;
    names_texts = true;
    if (other != role && column == standard) return "";
  }
  const bool is_extra = role == "system" || role == "history" || role == "tools";
  return names_texts && (options.map_is_whole || is_extra) ? "" : standard;
}

void check_map_keys(const Json& map_keys, const std::vector<std::string>& roles,
                    const std::string& what) {
  if (!map_keys.is_object()) {
    throw UsageError(tr("[{}] must be an object, got {}", what, kind_of(map_keys)));
  }
  for (const auto& [role, column] : map_keys.items()) {
    if (role == "chosen" || role == "rejected" || role == "kto_tag") {
      throw UsageError(
          tr("[{}] \"{}\" belongs to preference training", what, role),
          hint_for_kind(role == "kto_tag" ? SampleKind::kUnpaired : SampleKind::kPairs));
    }
    if (role == "audios") throw UsageError(tr("[{}] \"{}\": sound is not read", what, role));
    if (std::find(roles.begin(), roles.end(), role) != roles.end()) continue;
    std::string hint = tr("known: {}", fmt::join(roles, ", "));
    if (const auto near = nearest_name(role, roles)) {
      hint = tr("did you mean \"{}\"?", *near);
    }
    throw UsageError(tr("[{}] unknown role \"{}\"", what, role), hint);
  }
}

std::string column_among(const FirstRows& first, const std::vector<std::string>& names,
                         const char* role) {
  std::vector<std::string> found;
  for (const std::string& column : first.columns) {
    if (std::find(names.begin(), names.end(), lower_case(column)) != names.end()) {
      found.push_back(column);
    }
  }
  if (found.size() > 1) {
    throw DataError(tr("[columns] {} could all be the {}", fmt::join(found, ", "), role),
                    tr("choose with --columns '{{\"{}\":\"{}\"}}'", found[0], role));
  }
  return found.empty() ? "" : found[0];
}

ValueShape shape_of(const Json* value) {
  if (!value) return ValueShape::kNone;
  if (value->is_object()) return ValueShape::kObject;
  if (value->is_array()) return ValueShape::kList;
  if (!value->is_string()) return ValueShape::kOther;
  const auto parsed = parse_if_text(*value);
  const bool holds_messages =
      parsed && parsed->is_array() && !parsed->empty() && parsed->front().is_object() &&
      (parsed->front().contains("role") || parsed->front().contains("from"));
  return holds_messages ? ValueShape::kList : ValueShape::kText;
}

}  // namespace danlu::data
