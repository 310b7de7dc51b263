#include "data/readers/row_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "data/readers/byte_stream.h"
#include "data/readers/csv_records.h"
#include "data/readers/duckdb_api.h"
#include "data/readers/json_records.h"
#include "data/readers/record_limits.h"
#include "data/readers/record_locator.h"
#include "data/readers/text_encoding.h"

namespace danlu::data {
namespace {

constexpr size_t kTextBlockBytes = 1 << 18;
// DuckDB sets aside twice this for each thread: files with longer records are read here.
constexpr int64_t kMaxDuckDbObject = 16 << 20;

/// The rows of one file.
class FileRows {
 public:
  virtual ~FileRows() = default;
  virtual bool next_block(std::vector<std::string>* texts) = 0;
  virtual uint64_t bytes_read() const = 0;
};

class TextLines : public FileRows {
 public:
  explicit TextLines(const DataFile& file) : path_(file.path), lines_(path_) {}
  bool next_block(std::vector<std::string>* texts) override {
    std::string line;
    for (size_t bytes = 0; bytes < kTextBlockBytes && lines_.next(&line);
         bytes += line.size() + 1) {
      require_utf8_line(path_, lines_.line_number(), line);
      texts->push_back(line);
    }
    return !texts->empty();
  }
  uint64_t bytes_read() const override { return lines_.file_bytes_read(); }

 private:
  fs::path path_;
  LineReader lines_;
};

class TextDocument : public FileRows {
 public:
  explicit TextDocument(const DataFile& file) : file_(file), stream_(ByteStream::open(file.path)) {}
  bool next_block(std::vector<std::string>* texts) override {
    if (done_) return false;
    done_ = true;
    std::string content;
    for (size_t got = 1; got > 0;) {
      const size_t old_size = content.size();
      if (old_size > kMaxRecordBytes) refuse_long_record(file_.path.string());
      content.resize(old_size + kTextBlockBytes);
      got = stream_->read(content.data() + old_size, kTextBlockBytes);
      content.resize(old_size + got);
    }
    if (find_invalid_utf8(content) != std::string::npos) require_utf8_file(file_.path);
    texts->push_back(std::move(content));
    return true;
  }
  uint64_t bytes_read() const override { return stream_->file_bytes_read(); }

 private:
  const DataFile& file_;
  std::unique_ptr<ByteStream> stream_;
  bool done_ = false;
};

[[noreturn]] void fail_to_read(const DataFile& file, const std::string& message) {
  if (file.type != FileType::kParquet) require_utf8_file(file.path);
  if (file.type == FileType::kJson || file.type == FileType::kJsonLines) {
    const std::string fault = find_json_fault(file.path, file.type == FileType::kJsonLines);
    if (!fault.empty()) throw DataError(fault);
  }
  throw DataError(tr("{}: cannot read the rows: {}", file.path.string(),
                     message.substr(0, message.find('\n'))));
}

/// JSON that DuckDB does not take for JSON (behind a byte order mark), whose packing it does not
/// check to the end (.gz, .zst), whose file name it does not take (not UTF-8), or whose records are
/// too long for its buffers.
class JsonTexts : public FileRows {
 public:
  explicit JsonTexts(const DataFile& file) : file_(file), records_(ByteStream::open(file.path)) {}
  bool next_block(std::vector<std::string>* texts) override {
    std::string record;
    for (size_t bytes = 0; bytes < kTextBlockBytes && records_.next(&record); ++num_records_) {
      const bool is_good = find_invalid_utf8(record) == std::string::npos && is_json(record);
      if (!is_good) fail_to_read(file_, "not valid JSON");
      bytes += record.size();
      texts->push_back(std::move(record));
    }
    if (records_.too_long()) {
      refuse_long_record(json_record_place(file_.path, num_records_));
    }
    if (records_.malformed()) fail_to_read(file_, "not valid JSON");
    return !texts->empty();
  }
  uint64_t bytes_read() const override { return records_.file_bytes_read(); }

 private:
  const DataFile& file_;
  JsonRecords records_;
  int64_t num_records_ = 0;
};

/// 0: the file says.
char csv_separator(FileType type) { return type == FileType::kTsv ? '\t' : '\0'; }

class CsvTexts : public FileRows {
 public:
  explicit CsvTexts(const DataFile& file) : records_(file.path, csv_separator(file.type)) {}
  bool next_block(std::vector<std::string>* texts) override {
    std::string row;
    for (size_t bytes = 0; bytes < kTextBlockBytes && records_.next(&row); bytes += row.size()) {
      texts->push_back(row);
    }
    return !texts->empty();
  }
  uint64_t bytes_read() const override { return records_.file_bytes_read(); }

 private:
  CsvRecords records_;
};

/// DuckDB takes the end of a file for the end of an array, so that half a file would pass as whole.
void require_end_of_array(const DataFile& file) {
  std::ifstream in(file.path, std::ios::binary);
  char first = ' ', last = ' ';
  while (std::isspace(static_cast<unsigned char>(first)) && in.get(first)) {
  }
  if (first != '[') return;
  for (int64_t back = 1; back <= static_cast<int64_t>(file.size_bytes); ++back) {
    in.clear();
    in.seekg(-back, std::ios::end);
    if (!in.get(last) || !std::isspace(static_cast<unsigned char>(last))) break;
  }
  if (last == ']') return;
  // Lines of which the first is a list are good.
  const std::string fault = find_json_fault(file.path, file.type == FileType::kJsonLines);
  if (!fault.empty()) throw DataError(fault);
}

/// Every row as one JSON text. JSON files keep the text of the record itself: no schema is
/// inferred, so that rows may differ in keys and types.
std::string query_for(const DataFile& file) {
  const std::string path = sql_path(file.path.string());
  if (file.type == FileType::kParquet)
    return fmt::format("SELECT to_json(t) FROM read_parquet({}) t", path);
  return fmt::format("SELECT json FROM read_json_objects({}, maximum_object_size={})", path,
                     kMaxDuckDbObject);
}

class DuckDbRows : public FileRows {
 public:
  explicit DuckDbRows(const DataFile& file) : file_(file) {
    if (file.type == FileType::kParquet) run([&] { look_at_parquet(); });
  }

  bool next_block(std::vector<std::string>* texts) override {
    if (!large_) {
      run([&] {
        if (!stream_) stream_ = database_->stream(query_for(file_));
        take_rows(texts);
      });
    }
    if (large_ && texts->empty()) take_large_rows(texts);
    return !texts->empty();
  }

  uint64_t bytes_read() const override {
    if (large_) return large_->bytes_read();
    if (total_rows_ > 0) {
      return static_cast<uint64_t>(static_cast<double>(file_.size_bytes) *
                                   static_cast<double>(rows_) / static_cast<double>(total_rows_));
    }
    return std::min(text_bytes_, file_.size_bytes);
  }

 private:
  void look_at_parquet() {
    const std::string path = sql_path(file_.path.string());
    total_rows_ = database_->query_int(
        fmt::format("SELECT sum(num_rows)::BIGINT FROM parquet_file_metadata({})", path));
    // The first entry is the table itself.
    const int64_t columns = database_->query_int(
        fmt::format("SELECT num_children FROM parquet_schema({}) LIMIT 1", path));
    if (columns > static_cast<int64_t>(kMaxColumns))
      refuse_wide_record(file_.path.string(), "the table");
  }

  void take_rows(std::vector<std::string>* texts) {
    std::string_view text;
    for (size_t bytes = 0; bytes < kTextBlockBytes && stream_->next(&text); bytes += text.size()) {
      if (text.size() > kMaxRecordBytes)
        refuse_long_record(fmt::format("{}:row {}", file_.path.string(), rows_ + 1));
      texts->emplace_back(text.data() ? text : "null");
      text_bytes_ += text.size() + 1;
      ++rows_;
    }
  }

  /// What take_rows had given before it met a long record is passed by.
  void take_large_rows(std::vector<std::string>* texts) {
    while (large_->next_block(texts)) {
      const auto known = std::min<int64_t>(to_skip_, std::ssize(*texts));
      texts->erase(texts->begin(), texts->begin() + known);
      to_skip_ -= known;
      if (!texts->empty()) return;
    }
  }

  template <typename Body>
  void run(Body body) {
    try {
      body();
    } catch (const DuckDb::QueryError& error) {
      if (error.message.find("maximum_object_size") == std::string::npos)
        fail_to_read(file_, error.message);
      large_.emplace(file_);
      to_skip_ = rows_;
      stream_.reset();
      database_.reset();
    }
  }

  std::optional<DuckDb> database_{std::in_place};
  const DataFile& file_;
  std::unique_ptr<DuckDb::RowStream> stream_;
  std::optional<JsonTexts> large_;  ///< once a record is too long for DuckDB
  int64_t rows_ = 0, total_rows_ = 0;
  int64_t to_skip_ = 0;  ///< rows that `large_` gives again
  uint64_t text_bytes_ = 0;
};

std::unique_ptr<FileRows> open_file(const DataFile& file, bool document_per_file) {
  if (file.size_bytes == 0) throw DataError(tr("{}: the file is empty", file.path.string()));
  const bool has_mark = file.type != FileType::kParquet && begins_with_utf8_mark(file.path);
  if (file.type == FileType::kText) {
    if (document_per_file) return std::make_unique<TextDocument>(file);
    return std::make_unique<TextLines>(file);
  }
  if (file.type == FileType::kCsv || file.type == FileType::kTsv) {
    return std::make_unique<CsvTexts>(file);
  }
  const std::string extension = file.path.extension().string();
  const bool is_packed = extension == ".gz" || extension == ".zst";
  const bool has_utf8_name = find_invalid_utf8(file.path.string()) == std::string::npos;
  if (file.type != FileType::kParquet) {
    if (has_mark || is_packed || !has_utf8_name) return std::make_unique<JsonTexts>(file);
    require_end_of_array(file);
  } else if (!has_utf8_name) {
    throw DataError(tr("{}: DuckDB opens no file whose name is not UTF-8", file.path.string()),
                    tr("give it another name; a link will do"));
  }
  return std::make_unique<DuckDbRows>(file);
}

}  // namespace

struct RowReader::State {
  explicit State(const Dataset& dataset) : dataset(dataset) {}
  const Dataset& dataset;
  std::unique_ptr<FileRows> current;
  uint32_t file = 0;
  int64_t index = 0, rows = 0;
  uint64_t bytes_before = 0;
};

RowReader::RowReader(const Dataset& dataset) : state_(std::make_unique<State>(dataset)) {}
RowReader::~RowReader() = default;

bool RowReader::next_block(std::vector<RawRow>* rows) {
  State& s = *state_;
  while (s.file < s.dataset.files.size()) {
    if (s.dataset.max_rows >= 0 && s.rows >= s.dataset.max_rows) return false;
    const DataFile& file = s.dataset.files[s.file];
    if (!s.current) s.current = open_file(file, s.dataset.document_per_file);
    std::vector<std::string> texts;
    if (!s.current->next_block(&texts)) {
      s.current.reset();
      s.bytes_before += file.size_bytes;
      s.index = 0;
      ++s.file;
      continue;
    }
    for (std::string& text : texts) {
      if (s.dataset.max_rows >= 0 && s.rows >= s.dataset.max_rows) break;
      const bool is_json = file.type != FileType::kText;
      if (is_json && nests_too_deep(text)) {
        throw DataError(tr("{}: nested deeper than {} levels",
                           row_place(s.dataset, s.file, s.index), kMaxJsonDepth),
                        tr("remove this row, or write the nested value as text"));
      }
      rows->push_back({std::move(text), is_json, s.file, s.index++});
      ++s.rows;
    }
    return true;
  }
  return false;
}

uint64_t RowReader::bytes_read() const {
  return state_->bytes_before + (state_->current ? state_->current->bytes_read() : 0);
}

struct RowPlaces::State {
  explicit State(const Dataset& dataset) : dataset(dataset) {}
  const Dataset& dataset;
  std::optional<JsonRecordLines> json;
  std::optional<CsvRecords> csv;
  uint32_t file = 0;
  int64_t index = -1;  ///< of the row last asked for: where `json` or `csv` stands

  std::string place_in(const DataFile& source, int64_t wanted) {
    if (source.type != FileType::kCsv && source.type != FileType::kTsv) {
      if (!json) json.emplace(source.path);
      return json->place_of(wanted);
    }
    if (!csv) csv.emplace(source.path, csv_separator(source.type));
    std::string row;
    for (int64_t at = index; at < wanted && csv->next(&row); ++at) {
    }
    return std::to_string(csv->row_line());
  }
};

RowPlaces::RowPlaces(const Dataset& dataset) : state_(std::make_unique<State>(dataset)) {}
RowPlaces::~RowPlaces() = default;

std::string RowPlaces::of(uint32_t file, int64_t index) {
  State& s = *state_;
  const DataFile& source = s.dataset.files.at(file);
  const std::string path = source.path.string();
  if (source.type == FileType::kText) return fmt::format("{}:{}", path, index + 1);
  if (source.type == FileType::kParquet) return fmt::format("{}:row {}", path, index + 1);
  if (file != s.file || index < s.index) {
    s.json.reset();
    s.csv.reset();
    s.index = -1;
  }
  const std::string place = s.place_in(source, index);
  s.file = file;
  s.index = index;
  return fmt::format("{}:{}", path, place);
}

std::string row_place(const Dataset& dataset, uint32_t file, int64_t index) {
  return RowPlaces(dataset).of(file, index);
}

void refuse_malformed_row(const Dataset& dataset, const RawRow& row) {
  std::string what(translated("not valid JSON"));
  try {
    (void)parse_json(row.text, "");
  } catch (const DataError& error) {
    // The line and column inside the row's text would be taken for the file's.
    what = error.what();
    what.erase(0, what.find(translated("not valid JSON")));
  }
  throw DataError(
      tr("{}: {}", row_place(dataset, row.file, row.index), shortened_fault(std::move(what))));
}

}  // namespace danlu::data
