#include "data/readers/csv_records.h"

#include <fmt/format.h>

#include <unordered_set>

#include "base/error.h"
#include "base/json.h"
#include "data/readers/record_limits.h"
#include "data/readers/text_encoding.h"

namespace danlu::data {

CsvRecords::CsvRecords(const std::filesystem::path& path, char separator, CsvHeader header)
    : path_(path), bytes_(ByteStream::open(path)), separator_(separator) {
  if (separator_ == 0) choose_separator();
  if (header == CsvHeader::kNone || !next_record(&fields_)) return;
  std::unordered_set<std::string> names;
  for (const Field& field : fields_) {
    std::string name = field.text.empty() ? fmt::format("column{}", columns_.size()) : field.text;
    if (!names.insert(name).second) {
      fail(record_line_, tr("two columns are called \"{}\"", name));
    }
    keys_.push_back(Json(name).dump());
    columns_.push_back(std::move(name));
  }
}

void CsvRecords::choose_separator() {
  const std::string_view head = bytes_.ahead();
  const std::string_view line = head.substr(0, head.find('\n'));
  const auto has = [&](char c) { return line.find(c) != std::string_view::npos; };
  separator_ = ',';
  for (const char c : {'|', '\t', ';', ','}) {
    if (has(c)) separator_ = c;
  }
}

bool CsvRecords::next_row() {
  do {
    if (!next_record(&fields_)) return false;
  } while (fields_.size() == 1 && fields_[0].text.empty() && !fields_[0].quoted);
  return true;
}

bool CsvRecords::next_fields(std::vector<std::string>* fields) {
  fields->clear();
  if (!next_row()) return false;
  for (Field& field : fields_) fields->push_back(std::move(field.text));
  return true;
}

bool CsvRecords::next(std::string* json) {
  if (!next_row()) return false;
  if (fields_.size() != columns_.size()) {
    fail(record_line_, tr("{} {}, the header has {}", fields_.size(),
                          fields_.size() == 1 ? "field" : "fields", columns_.size()));
  }
  json->clear();
  for (size_t i = 0; i < fields_.size(); ++i) {
    const bool is_null = fields_[i].text.empty() && !fields_[i].quoted;
    *json += i == 0 ? '{' : ',';
    *json += keys_[i];
    *json += ':';
    *json += is_null ? "null" : Json(std::move(fields_[i].text)).dump();
  }
  *json += '}';
  return true;
}

bool CsvRecords::next_record(std::vector<Field>* fields) {
  fields->clear();
  record_bytes_ = 0;
  record_line_ = line_;
  if (bytes_.peek() < 0) return false;
  for (;;) {
    if (fields->size() == kMaxColumns) {
      refuse_wide_record(fmt::format("{}:{}", path_.string(), record_line_), "the line");
    }
    Field& field = fields->emplace_back();
    take_field(&field);
    if (find_invalid_utf8(field.text) != std::string::npos) {
      require_utf8_file(path_);
      fail(record_line_, "not UTF-8");
    }
    const int c = bytes_.peek();
    if (c >= 0) bytes_.take();
    if (c == separator_) continue;
    // A line ends with \n, \r\n or, as on old Macs, with \r.
    if (c == '\r' && bytes_.peek() == '\n') bytes_.take();
    if (c >= 0) ++line_;
    return true;
  }
}

void CsvRecords::take_field(Field* field) {
  if (bytes_.peek() == '"') {
    take_quoted(field);
    const int c = bytes_.peek();
    if (c >= 0 && c != separator_ && c != '\n' && c != '\r') {
      fail(line_, tr("a {} must follow the closing quote, or the end of the line",
                     separator_ == '\t' ? "tab" : std::string(1, separator_)));
    }
    return;
  }
  for (int c = bytes_.peek(); c >= 0 && c != separator_ && c != '\n' && c != '\r';
       c = bytes_.peek()) {
    add_byte(field, bytes_.take());
  }
}

void CsvRecords::take_quoted(Field* field) {
  const int64_t opened = line_;
  field->quoted = true;
  bytes_.take();
  for (int c = bytes_.peek(); c >= 0; c = bytes_.peek()) {
    bytes_.take();
    if (c == '"') {
      if (bytes_.peek() != '"') return;
      bytes_.take();
    }
    if (c == '\n') ++line_;
    add_byte(field, static_cast<char>(c));
  }
  fail(opened, "a quote is opened here and never closed");
}

void CsvRecords::add_byte(Field* field, char c) {
  // This happens where a quote was opened and not closed.
  if (record_bytes_++ == kMaxRecordBytes)
    refuse_long_record(fmt::format("{}:{}", path_.string(), record_line_));
  field->text.push_back(c);
}

void CsvRecords::fail(int64_t line, const std::string& what) const {
  throw DataError(tr("{}:{}: {}", path_.string(), line, what));
}

}  // namespace danlu::data
