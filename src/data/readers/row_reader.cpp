#include "data/readers/row_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/lfs_pointer.h"
#include "base/rng.h"
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

/// The text of a record as it stands in the file: no schema is inferred, so that rows may differ in
/// keys and types.
class JsonTexts : public FileRows {
 public:
  explicit JsonTexts(const DataFile& file) : file_(file), records_(ByteStream::open(file.path)) {}
  bool next_block(std::vector<std::string>* texts) override {
    std::string_view record;
    for (size_t bytes = 0; bytes < kTextBlockBytes && records_.next(&record); ++num_records_) {
      bytes += record.size();
      texts->emplace_back(record);
    }
    if (records_.too_long()) refuse_long_record(json_record_place(file_.path, num_records_));
    if (records_.malformed()) refuse_text();
    return !texts->empty();
  }
  uint64_t bytes_read() const override { return records_.file_bytes_read(); }

 private:
  [[noreturn]] void refuse_text() const {
    require_utf8_file(file_.path);
    const bool in_lines =
        num_records_ > 0 ? records_.one_a_line() : file_.type == FileType::kJsonLines;
    const std::string fault = find_json_fault(file_.path, in_lines);
    if (!fault.empty()) throw DataError(fault);
    throw DataError(tr("{}: cannot read the rows: {}", json_record_place(file_.path, num_records_),
                       "not valid JSON"));
  }

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

/// Every row as one JSON text.
class ParquetTexts : public FileRows {
 public:
  explicit ParquetTexts(const DataFile& file) : file_(file) {
    run([&] { look_at_file(); });
  }

  bool next_block(std::vector<std::string>* texts) override {
    run([&] {
      if (!stream_)
        stream_ = database_.stream(fmt::format("SELECT to_json(t) FROM read_parquet({}) t", path_));
      take_rows(texts);
    });
    return !texts->empty();
  }

  uint64_t bytes_read() const override {
    if (total_rows_ == 0) return 0;
    return static_cast<uint64_t>(static_cast<double>(file_.size_bytes) *
                                 static_cast<double>(rows_) / static_cast<double>(total_rows_));
  }

 private:
  void look_at_file() {
    total_rows_ = database_.query_int(
        fmt::format("SELECT sum(num_rows)::BIGINT FROM parquet_file_metadata({})", path_));
    // The first entry is the table itself.
    const int64_t columns = database_.query_int(
        fmt::format("SELECT num_children FROM parquet_schema({}) LIMIT 1", path_));
    if (columns > static_cast<int64_t>(kMaxColumns))
      refuse_wide_record(file_.path.string(), "the table");
  }

  void take_rows(std::vector<std::string>* texts) {
    std::string_view text;
    for (size_t bytes = 0; bytes < kTextBlockBytes && stream_->next(&text); bytes += text.size()) {
      if (text.size() > kMaxRecordBytes)
        refuse_long_record(fmt::format("{}:row {}", file_.path.string(), rows_ + 1));
      texts->emplace_back(text.data() ? text : "null");
      ++rows_;
    }
  }

  template <typename Body>
  void run(Body body) {
    try {
      body();
    } catch (const DuckDb::QueryError& error) {
      throw DataError(tr("{}: cannot read the rows: {}", file_.path.string(),
                         error.message.substr(0, error.message.find('\n'))));
    }
  }

  const DataFile& file_;
  const std::string path_ = sql_path(file_.path.string());
  DuckDb database_;
  std::unique_ptr<DuckDb::RowStream> stream_;
  int64_t rows_ = 0, total_rows_ = 0;
};

std::unique_ptr<FileRows> open_file(const DataFile& file, bool document_per_file) {
  if (file.size_bytes == 0) throw DataError(tr("{}: the file is empty", file.path.string()));
  refuse_lfs_pointer_as_data(file.path);
  if (file.type == FileType::kParquet) {
    if (find_invalid_utf8(file.path.string()) != std::string::npos) {
      throw DataError(tr("{}: DuckDB opens no file whose name is not UTF-8", file.path.string()),
                      tr("give it another name; a link will do"));
    }
    return std::make_unique<ParquetTexts>(file);
  }
  refuse_wide_text(file.path);
  switch (file.type) {
    case FileType::kText:
      if (document_per_file) return std::make_unique<TextDocument>(file);
      return std::make_unique<TextLines>(file);
    case FileType::kCsv:
    case FileType::kTsv:
      return std::make_unique<CsvTexts>(file);
    default:
      return std::make_unique<JsonTexts>(file);
  }
}

int64_t count_rows(const Dataset& dataset) {
  int64_t rows = 0;
  for (const DataFile& file : dataset.files) {
    const auto reader = open_file(file, dataset.document_per_file);
    for (std::vector<std::string> texts; reader->next_block(&texts); texts.clear())
      rows += std::ssize(texts);
  }
  return rows;
}

/// How often each row of a data set is taken.
class ChosenRows {
 public:
  explicit ChosenRows(const Dataset& dataset) {
    const int64_t rows = count_rows(dataset);
    if (rows == 0) return;
    int64_t wanted = dataset.max_rows < 0 ? rows : dataset.max_rows;
    times_.resize(static_cast<size_t>(rows));
    std::vector<int64_t> pool(static_cast<size_t>(rows));
    std::iota(pool.begin(), pool.end(), 0);
    if (dataset.part != RowPart::kAll) {
      const int64_t held_out = number_held_out(dataset, rows, wanted);
      shuffle_if_drawn(dataset, /*purpose=*/1, pool);
      const auto border = pool.end() - held_out;
      if (dataset.part == RowPart::kHeldOut) {
        for (auto row = border; row != pool.end(); ++row) ++times_[static_cast<size_t>(*row)];
        return;
      }
      pool.erase(border, pool.end());
      std::sort(pool.begin(), pool.end());
      wanted -= held_out;
      if (dataset.choice == RowChoice::kFirst) wanted = std::min(wanted, std::ssize(pool));
    }
    const int64_t each = wanted / std::ssize(pool);
    for (const int64_t row : pool) times_[static_cast<size_t>(row)] = each;
    shuffle_if_drawn(dataset, /*purpose=*/2, pool);
    for (int64_t i = 0; i < wanted % std::ssize(pool); ++i)
      ++times_[static_cast<size_t>(pool[static_cast<size_t>(i)])];
  }
  int64_t times(int64_t row) const {
    return row < std::ssize(times_) ? times_[static_cast<size_t>(row)] : 0;
  }

 private:
  /// Errors: DataError where none is left for training.
  static int64_t number_held_out(const Dataset& dataset, int64_t rows, int64_t wanted) {
    const int64_t least = std::min(rows, wanted);
    const auto share = static_cast<int64_t>(dataset.held_out_share * static_cast<double>(least));
    const int64_t held_out = std::max<int64_t>(share, 1);
    if (held_out < least) return held_out;
    throw DataError(tr("{}: of {} rows {} are to be held out: none is left for training",
                       dataset.name, least, held_out),
                    tr("a row of each data set is held out at least; give more rows of this one, "
                       "or --val_dataset FILE in place of a part"));
  }
  static void shuffle_if_drawn(const Dataset& dataset, uint64_t purpose,
                               std::vector<int64_t>& rows) {
    if (dataset.choice != RowChoice::kDrawn) return;
    NumpyRandomState random(static_cast<uint32_t>(mix64(dataset.draw_seed, purpose)));
    random.shuffle(std::span(rows));
  }

  std::vector<int64_t> times_;
};

}  // namespace

struct RowReader::State {
  explicit State(const Dataset& dataset) : dataset(dataset) {}
  /// How often the next row is taken.
  int64_t times() {
    const bool is_whole = dataset.part == RowPart::kAll;
    if (is_whole && dataset.max_rows < 0) return 1;
    if (is_whole && dataset.choice == RowChoice::kFirst) return rows < dataset.max_rows ? 1 : 0;
    if (!chosen) chosen.emplace(dataset);
    return chosen->times(rows);
  }
  bool has_enough() const {
    return dataset.part == RowPart::kAll && dataset.max_rows >= 0 &&
           dataset.choice == RowChoice::kFirst && rows >= dataset.max_rows;
  }
  const Dataset& dataset;
  std::unique_ptr<FileRows> current;
  uint32_t file = 0;
  int64_t index = 0, rows = 0;  ///< of the file, of the data set
  uint64_t bytes_before = 0;
  std::optional<ChosenRows> chosen;
};

RowReader::RowReader(const Dataset& dataset) : state_(std::make_unique<State>(dataset)) {}
RowReader::~RowReader() = default;

bool RowReader::next_block(std::vector<RawRow>* rows) {
  State& s = *state_;
  while (s.file < s.dataset.files.size()) {
    if (s.has_enough()) return false;
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
    const size_t before = rows->size();
    for (std::string& text : texts) {
      const int64_t times = s.times(), index = s.index++;
      ++s.rows;
      if (times == 0) continue;
      const bool is_json = file.type != FileType::kText;
      if (is_json && nests_too_deep(text)) {
        throw DataError(tr("{}: nested deeper than {} levels", row_place(s.dataset, s.file, index),
                           kMaxJsonDepth),
                        tr("remove this row, or write the nested value as text"));
      }
      for (int64_t i = 1; i < times; ++i) rows->push_back({text, is_json, s.file, index});
      rows->push_back({std::move(text), is_json, s.file, index});
    }
    if (rows->size() > before) return true;
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
