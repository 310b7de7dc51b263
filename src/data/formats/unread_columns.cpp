#include "data/formats/unread_columns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/nearest_name.h"

namespace danlu::data {
namespace {

/// Whether rows with `column` called `standard` are read as before, and that column too.
bool would_be_read(const std::string& column, const std::string& standard,
                   const RowHandler& handler, FormatOptions options,
                   const std::vector<Json>& first_rows) {
  options.columns[column] = standard;
  std::vector<std::string> read;
  try {
    read = make_row_handler(options, first_rows, /*plain_text=*/false)->columns();
  } catch (const Error&) {
    return false;
  }
  const auto reads = [&](const std::string& name) {
    return std::find(read.begin(), read.end(), name) != read.end();
  };
  const auto is_there = [&](const std::string& name) {
    return std::any_of(first_rows.begin(), first_rows.end(),
                       [&](const Json& row) { return row.is_object() && row.contains(name); });
  };
  const std::vector<std::string> before = handler.columns();
  return reads(column) && std::all_of(before.begin(), before.end(), [&](const std::string& name) {
           return reads(name) || !is_there(name);
         });
}

}  // namespace

const std::vector<std::string>& standard_columns(RowFormat format) {
  static const std::vector<std::string> kPairs{"instruction", "input",  "output",  "query",
                                               "response",    "system", "history", "tools"},
      kMessages{"messages", "conversations", "system", "tools"},
      kTokens{"input_ids", "labels", "attention_mask"}, kText{"text"},
      kSteps{"input", "value", "prompt", "completions", "labels"};
  switch (format) {
    case RowFormat::kAlpaca:
    case RowFormat::kQueryResponse:
      return kPairs;
    case RowFormat::kShareGpt:
    case RowFormat::kMessages:
      return kMessages;
    case RowFormat::kTokens:
      return kTokens;
    case RowFormat::kSteps:
      return kSteps;
    case RowFormat::kText:
      break;
  }
  return kText;
}

void count_unread_columns(const RowHandler& handler, const Json& row, ColumnCounts* counts) {
  // What is no part of a prompt is kept beside it.
  if (!row.is_object() || handler.kind() == SampleKind::kPrompts) return;
  const std::vector<std::string>& read = handler.columns();
  for (const auto& [column, value] : row.items()) {
    if (!value.is_null() && std::find(read.begin(), read.end(), column) == read.end())
      ++(*counts)[column];
  }
}

void report_unread_columns(const std::string& dataset, const RowHandler& handler,
                           const ColumnCounts& counts, const FormatOptions& options,
                           const std::vector<Json>& first_rows) {
  std::vector<std::string> others;
  for (const auto& [column, rows] : counts) {
    const auto near = nearest_name(column, standard_columns(handler.format()));
    if (near && would_be_read(column, *near, handler, options, first_rows)) {
      log::warning(
          "{}: column \"{}\" is not read; if it holds the {}: --columns '{{\"{}\":\"{}\"}}'",
          dataset, column, *near, column, *near);
    } else {
      others.push_back(fmt::format("{} ({})", column, rows));
    }
  }
  constexpr size_t kShown = 8;
  if (others.empty()) return;
  const size_t more = others.size() > kShown ? others.size() - kShown : 0;
  others.resize(others.size() - more);
  if (more == 0) {
    log::info("{}: columns that are not read (rows): {}", dataset, fmt::join(others, ", "));
  } else {
    log::info("{}: columns that are not read (rows): {} and {} more", dataset,
              fmt::join(others, ", "), more);
  }
}

}  // namespace danlu::data
