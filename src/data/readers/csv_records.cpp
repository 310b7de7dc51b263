#include "data/readers/csv_records.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "data/readers/text_encoding.h"

namespace danlu::data {
CsvRecords::CsvRecords(const std::filesystem::path& path, char separator)
    : path_(path), bytes_(ByteStream::open(path)), separator_(separator) {
  if (separator_ == 0) choose_separator();
  if (!next_record(&fields_)) return;
  for (const Field& field : fields_) {
    std::string name = field.text.empty() ? fmt::format("column{}", columns_.size()) : field.text;
    if (std::find(columns_.begin(), columns_.end(), name) != columns_.end()) {
      fail(record_line_, fmt::format("two columns are called \"{}\"", name));
    }
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

bool CsvRecords::next(std::string* json) {
  do {
    if (!next_record(&fields_)) return false;
  } while (fields_.size() == 1 && fields_[0].text.empty() && !fields_[0].quoted);
  if (fields_.size() != columns_.size()) {
    fail(record_line_, fmt::format("{} {}, the header has {}", fields_.size(),
                                   fields_.size() == 1 ? "field" : "fields", columns_.size()));
  }
  Json row = Json::object();
  for (size_t i = 0; i < fields_.size(); ++i) {
    const bool is_null = fields_[i].text.empty() && !fields_[i].quoted;
    row[columns_[i]] = is_null ? Json(nullptr) : Json(std::move(fields_[i].text));
  }
  *json = row.dump();
  return true;
}

bool CsvRecords::next_record(std::vector<Field>* fields) {
  fields->clear();
  record_line_ = line_;
  if (bytes_.peek() < 0) return false;
  for (;;) {
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
      fail(line_, fmt::format("a {} must follow the closing quote, or the end of the line",
                              separator_ == '\t' ? "tab" : std::string(1, separator_)));
    }
    return;
  }
  for (int c = bytes_.peek(); c >= 0 && c != separator_ && c != '\n' && c != '\r';
       c = bytes_.peek()) {
    field->text.push_back(static_cast<char>(c));
    bytes_.take();
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
    field->text.push_back(static_cast<char>(c));
  }
  fail(opened, "a quote is opened here and never closed");
}

void CsvRecords::fail(int64_t line, const std::string& what) const {
  throw DataError(fmt::format("{}:{}: {}", path_.string(), line, what));
}

}  // namespace danlu::data
