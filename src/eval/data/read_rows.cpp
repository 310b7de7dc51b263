#include "eval/data/read_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/lfs_pointer.h"
#include "base/lower_case.h"
#include "data/readers/csv_records.h"
#include "data/readers/data_files.h"
#include "data/readers/row_json.h"
#include "data/readers/row_reader.h"

namespace danlu::eval {
namespace {
namespace {

constexpr size_t kShownColumns = 12;

std::string listed(std::vector<std::string> names) {
  const bool is_long = names.size() > kShownColumns;
  if (is_long) names.resize(kShownColumns);
  return fmt::format("{}{}", fmt::join(names, ", "), is_long ? ", …" : "");
}

/// A file that was given the header that its layout does without.
bool is_header(const std::vector<std::string>& fields, const std::vector<std::string>& columns) {
  if (fields.size() != columns.size()) return false;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (lower_case(fields[i]) != lower_case(columns[i])) return false;
  }
  return true;
}

[[noreturn]] void fail_width(const fs::path& path, int64_t line, const Layout& layout,
                             const std::vector<std::string>& fields,
                             const std::vector<std::string>& columns) {
  if (layout.columns.empty()) {
    throw DataError(tr("{}:{}: {} columns, the header has {}: {}", path.string(), line,
                       fields.size(), columns.size(), listed(columns)));
  }
  const std::string first = fields.front().substr(0, fields.front().find('\n'));
  throw DataError(
      tr("{}:{}: {} columns, the first of them '{}'; {} has {} and no header: {}", path.string(),
         line, fields.size(), first.substr(0, 60), layout.name, columns.size(), listed(columns)),
      tr("a CSV exported from elsewhere (Hugging Face's has choices in one column) is another "
         "layout: take the original's files, or the parquet files"));
}

data::CsvRecords csv_records(const fs::path& path, data::FileType type, bool has_header) {
  refuse_lfs_pointer_as_data(path);
  return data::CsvRecords(path, type == data::FileType::kTsv ? '\t' : ',',
                          has_header ? data::CsvHeader::kFirstRow : data::CsvHeader::kNone);
}

/// Where the row read_csv counts as `index` begins.
int64_t csv_line(const fs::path& path, data::FileType type, const Layout& layout, size_t index) {
  const bool has_header = layout.columns.empty();
  data::CsvRecords records = csv_records(path, type, has_header);
  std::vector<std::string> fields;
  for (bool is_first = true; records.next_fields(&fields); is_first = false) {
    if (is_first && !has_header && is_header(fields, layout.columns)) continue;
    if (index-- == 0) break;
  }
  return records.row_line();
}

void read_csv(const fs::path& path, data::FileType type, const Layout& layout,
              std::vector<Json>* rows) {
  const bool has_header = layout.columns.empty();
  data::CsvRecords records = csv_records(path, type, has_header);
  const std::vector<std::string>& columns = has_header ? records.columns() : layout.columns;
  std::vector<std::string> fields;
  for (bool is_first = true; records.next_fields(&fields); is_first = false) {
    if (is_first && !has_header && is_header(fields, columns)) continue;
    if (fields.size() != columns.size())
      fail_width(path, records.row_line(), layout, fields, columns);
    Json row = Json::object();
    for (size_t i = 0; i < fields.size(); ++i) row[columns[i]] = std::move(fields[i]);
    rows->push_back(std::move(row));
  }
}

void take_records(const std::string& place, const std::string& member, Json document,
                  std::vector<Json>* rows) {
  const auto found = document.find(member);
  if (found == document.end() || !found->is_array()) {
    std::vector<std::string> names;
    for (const auto& [name, value] : document.items()) names.push_back(name);
    throw DataError(tr("{}: the rows must be a list called '{}', found: {}", place, member,
                       listed(std::move(names))));
  }
  for (size_t i = 0; i < found->size(); ++i) {
    if (!(*found)[i].is_object())
      throw DataError(tr("{}: {}[{}] must be an object", place, member, i));
    rows->push_back(std::move((*found)[i]));
  }
}

void read_objects(const data::DataFile& file, const Layout& layout, std::vector<Json>* rows) {
  data::Dataset dataset;
  dataset.files = {file};
  data::RowReader reader(dataset);
  for (std::vector<data::RawRow> block; reader.next_block(&block); block.clear()) {
    for (data::RawRow& row : block) {
      if (!row.is_json) {
        rows->push_back({{"text", std::move(row.text)}});
        continue;
      }
      Json value = data::parse_row(dataset, row);
      if (!value.is_object()) {
        throw DataError(tr("{}: a row must be an object, got {}",
                           data::row_place(dataset, row.file, row.index), value.type_name()));
      }
      if (layout.records.empty()) {
        rows->push_back(std::move(value));
      } else {
        take_records(file.path.string(), layout.records, std::move(value), rows);
      }
    }
  }
}

/// "x-00001-of-00003.parquet" -> {"x", "3"} and 1; false for other names.
bool read_part_name(const std::string& name, std::pair<std::string, int>* set, int* part) {
  constexpr std::string_view kForm = "-ddddd-of-ddddd";
  const size_t begin = name.size() < kForm.size() ? name.npos : name.find("-of-");
  if (begin == name.npos || begin < 6 || begin + 9 > name.size()) return false;
  const std::string_view form = std::string_view(name).substr(begin - 6, kForm.size());
  if (form.size() != kForm.size()) return false;
  for (size_t i = 0; i < kForm.size(); ++i) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(form[i])) != 0;
    if (kForm[i] == 'd' ? !is_digit : form[i] != kForm[i]) return false;
  }
  *set = {name.substr(0, begin - 6), std::stoi(name.substr(begin + 4, 5))};
  *part = std::stoi(name.substr(begin - 5, 5));
  return true;
}

}  // namespace
}  // namespace

void require_whole_set(const std::vector<fs::path>& files) {
  std::map<std::pair<std::string, int>, std::set<int>> sets;
  for (const fs::path& file : files) {
    std::pair<std::string, int> set;
    int part = 0;
    if (!read_part_name(file.filename().string(), &set, &part)) continue;
    set.first = (file.parent_path() / set.first).string();
    sets[set].insert(part);
  }
  for (const auto& [set, parts] : sets) {
    for (int part = 0; part < set.second; ++part) {
      if (parts.contains(part)) continue;
      throw DataError(
          tr("{}: part {} of {} is missing (they count from 0)", set.first, part, set.second),
          tr("fetch the data again: --include '{}*'", fs::path(set.first).filename().string()));
    }
  }
}

std::string row_place_in(const fs::path& path, const Layout& layout, size_t index) {
  const auto type = data::file_type_of(path);
  if (type == data::FileType::kCsv || type == data::FileType::kTsv)
    return fmt::format("{}:{}", path.string(), csv_line(path, *type, layout, index));
  if (!layout.records.empty())
    return fmt::format("{}: {}[{}]", path.string(), layout.records, index);
  data::Dataset dataset;
  dataset.files = {{path, type.value_or(data::FileType::kJson), 0}};
  return data::row_place(dataset, 0, static_cast<int64_t>(index));
}

void read_rows(const fs::path& path, const Layout& layout, std::vector<Json>* rows) {
  const auto type = data::file_type_of(path);
  if (!type) throw DataError(tr("{}: not a type of file that holds rows", path.string()));
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  if (error) throw IoError(tr("{}: cannot be read: {}", path.string(), error.message()));
  if (size == 0) throw DataError(tr("{}: the file is empty", path.string()));
  const size_t before = rows->size();
  if (*type == data::FileType::kCsv || *type == data::FileType::kTsv) {
    read_csv(path, *type, layout, rows);
  } else {
    read_objects({path, *type, size}, layout, rows);
  }
  if (rows->size() == before) throw DataError(tr("{}: the file holds no rows", path.string()));
}

}  // namespace danlu::eval
