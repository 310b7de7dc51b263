#include "data/readers/row_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "data/readers/byte_stream.h"
#include "data/readers/duckdb_api.h"
#include "data/readers/record_locator.h"

namespace danlu::data {
namespace {

constexpr size_t kTextBlockBytes = 1 << 18;
// DuckDB sets aside twice this for each thread, so the large sizes are for the files that need
// them.
constexpr int64_t kObjectSizes[] = {16 << 20, 256 << 20, 1900 << 20};

/// The rows of one file.
class FileRows {
 public:
  virtual ~FileRows() = default;
  virtual bool next_block(std::vector<std::string>* texts) = 0;
  virtual uint64_t bytes_read() const = 0;
};

class TextLines : public FileRows {
 public:
  explicit TextLines(const DataFile& file) : lines_(ByteStream::open(file.path)) {}
  bool next_block(std::vector<std::string>* texts) override {
    std::string line;
    for (size_t bytes = 0; bytes < kTextBlockBytes && lines_.next(&line);
         bytes += line.size() + 1) {
      texts->push_back(line);
    }
    return !texts->empty();
  }
  uint64_t bytes_read() const override { return lines_.file_bytes_read(); }

 private:
  LineReader lines_;
};

class TextDocument : public FileRows {
 public:
  explicit TextDocument(const DataFile& file) : stream_(ByteStream::open(file.path)) {}
  bool next_block(std::vector<std::string>* texts) override {
    if (done_) return false;
    done_ = true;
    std::string content;
    for (size_t got = 1; got > 0;) {
      const size_t old_size = content.size();
      content.resize(old_size + kTextBlockBytes);
      got = stream_->read(content.data() + old_size, kTextBlockBytes);
      content.resize(old_size + got);
    }
    if (content.starts_with("\xEF\xBB\xBF")) content.erase(0, 3);
    texts->push_back(std::move(content));
    return true;
  }
  uint64_t bytes_read() const override { return stream_->file_bytes_read(); }

 private:
  std::unique_ptr<ByteStream> stream_;
  bool done_ = false;
};

/// Every row as one JSON text. JSON files keep the text of the record itself: no schema is
/// inferred, so that rows may differ in keys and types.
std::string query_for(const DataFile& file, int64_t max_object_size) {
  const std::string path = sql_path(file.path.string());
  switch (file.type) {
    case FileType::kJson:
    case FileType::kJsonLines:
      return fmt::format("SELECT json FROM read_json_objects({}, maximum_object_size={})", path,
                         max_object_size);
    case FileType::kParquet:
      return fmt::format("SELECT to_json(t) FROM read_parquet({}) t", path);
    case FileType::kCsv:
    case FileType::kTsv:
      return fmt::format(
          "SELECT to_json(t) FROM read_csv({}, header=true, all_varchar=true{}, "
          "max_line_size=16777216) t",
          path, file.type == FileType::kTsv ? ", delim='\\t'" : "");
    case FileType::kText:
      break;
  }
  throw InternalError("text files are not read through DuckDB");
}

class DuckDbRows : public FileRows {
 public:
  explicit DuckDbRows(const DataFile& file) : file_(file) {
    if (file.type != FileType::kParquet) return;
    run([&] {
      total_rows_ = database_.query_int(
          fmt::format("SELECT sum(num_rows)::BIGINT FROM parquet_file_metadata({})",
                      sql_path(file.path.string())));
    });
  }

  bool next_block(std::vector<std::string>* texts) override {
    bool more = false;
    run([&] {
      if (!stream_) open_stream();
      more = stream_->next_block([&](std::string_view text) {
        texts->emplace_back(text.data() ? text : "null");
        text_bytes_ += text.size() + 1;
      });
    });
    rows_ += static_cast<int64_t>(texts->size());
    return more;
  }

  uint64_t bytes_read() const override {
    if (total_rows_ > 0) {
      return static_cast<uint64_t>(static_cast<double>(file_.size_bytes) *
                                   static_cast<double>(rows_) / static_cast<double>(total_rows_));
    }
    return std::min(text_bytes_, file_.size_bytes);
  }

 private:
  void open_stream() {
    stream_ = database_.stream(query_for(file_, kObjectSizes[object_size_]));
    // After a restart with a larger buffer: pass by what was delivered already.
    for (int64_t skipped = 0; skipped < rows_;) {
      if (!stream_->next_block([&](std::string_view) { ++skipped; })) break;
    }
  }

  template <typename Body>
  void run(Body body) {
    try {
      try {
        body();
      } catch (const DuckDb::QueryError& error) {
        const bool too_large = error.message.find("maximum_object_size") != std::string::npos;
        if (!too_large || object_size_ + 1 == std::size(kObjectSizes)) throw;
        ++object_size_;
        stream_.reset();
        run(body);
      }
    } catch (const DuckDb::QueryError& error) {
      fail(error.message);
    }
  }

  [[noreturn]] void fail(const std::string& message) const {
    if (file_.type == FileType::kJson || file_.type == FileType::kJsonLines) {
      const bool is_lines = file_.type == FileType::kJsonLines;
      const std::string fault = find_json_fault(file_.path, is_lines);
      if (!fault.empty()) throw DataError(fault);
    }
    std::string first_line = message.substr(0, message.find('\n'));
    throw DataError(fmt::format("{}: cannot read the rows: {}", file_.path.string(), first_line));
  }

  DuckDb database_;
  const DataFile& file_;
  std::unique_ptr<DuckDb::RowStream> stream_;
  int64_t rows_ = 0, total_rows_ = 0;
  uint64_t text_bytes_ = 0;
  size_t object_size_ = 0;
};

std::unique_ptr<FileRows> open_file(const DataFile& file, bool document_per_file) {
  std::error_code ignored;
  if (file.size_bytes == 0) throw DataError(file.path.string() + ": the file is empty");
  if (file.type == FileType::kText) {
    if (document_per_file) return std::make_unique<TextDocument>(file);
    return std::make_unique<TextLines>(file);
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
      rows->push_back({std::move(text), file.type != FileType::kText, s.file, s.index++});
      ++s.rows;
    }
    return true;
  }
  return false;
}

uint64_t RowReader::bytes_read() const {
  return state_->bytes_before + (state_->current ? state_->current->bytes_read() : 0);
}

std::string row_place(const Dataset& dataset, uint32_t file, int64_t index) {
  const DataFile& source = dataset.files.at(file);
  switch (source.type) {
    case FileType::kJson:
    case FileType::kJsonLines:
      return fmt::format("{}:{}", source.path.string(), line_of_json_record(source.path, index));
    case FileType::kText:
      return fmt::format("{}:{}", source.path.string(), index + 1);
    default:
      return fmt::format("{}:row {}", source.path.string(), index + 1);
  }
}

}  // namespace danlu::data
