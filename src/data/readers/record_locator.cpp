#include "data/readers/record_locator.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <iterator>
#include <vector>

#include "base/error.h"
#include "base/json_text.h"
#include "data/readers/byte_stream.h"
#include "data/readers/json_events.h"
#include "data/readers/record_limits.h"
#include "data/readers/text_encoding.h"

namespace danlu::data {
namespace {

/// Follows JSON text far enough to see where records begin and end.
class RecordScanner {
 public:
  /// True if `c` is the first byte of a record.
  bool starts_record(char c) {
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
      }
      return false;
    }
    const bool is_space = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (!seen_any_ && !is_space) {
      seen_any_ = true;
      if (c == '[') {
        base_depth_ = depth_ = 1;
        return false;
      }
    }
    const bool starts = depth_ == base_depth_ && !in_scalar_ && !is_space && c != ',' && c != ']';
    if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      --depth_;
    } else if (depth_ == base_depth_) {
      in_scalar_ = !is_space && c != ',';
    }
    return starts;
  }

 private:
  int base_depth_ = 0, depth_ = 0;
  bool seen_any_ = false, in_string_ = false, escaped_ = false, in_scalar_ = false;
};

/// Input iterator over a stream that counts lines and columns, for the parser.
class CountingInput {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  struct Source {
    std::unique_ptr<ByteStream> stream;
    std::vector<char> buffer = std::vector<char>(1 << 18);
    size_t at = 0, size = 0;
    int64_t line = 1, column = 1;
    bool ended = false;
    std::filesystem::path path = {};
    uint64_t unparsed = 0;  ///< bytes loaded since the parser last said something

    void load() {
      // The parser keeps a string until its end.
      if (unparsed > kMaxRecordBytes) refuse_long_record(fmt::format("{}:{}", path.string(), line));
      size = stream->read(buffer.data(), buffer.size());
      unparsed += size;
      at = 0;
      ended = size == 0;
    }
    void advance() {
      if (buffer[at] == '\n') {
        ++line;
        column = 1;
      } else {
        ++column;
      }
      if (++at == size) load();
    }
  };

  explicit CountingInput(Source* source) : source_(source) {}
  const char& operator*() const { return source_->buffer[source_->at]; }
  CountingInput& operator++() {
    source_->advance();
    return *this;
  }
  CountingInput operator++(int) {
    CountingInput old = *this;
    source_->advance();
    return old;
  }
  bool operator==(const CountingInput& other) const { return is_end() == other.is_end(); }
  bool operator!=(const CountingInput& other) const { return !(*this == other); }

 private:
  bool is_end() const { return !source_ || source_->ended; }
  Source* source_;
};

/// Only the position of the first fault matters.
struct FaultFinder : AcceptEvents<nlohmann::json> {
  explicit FaultFinder(CountingInput::Source* source) : source(source) {}
  CountingInput::Source* source;
  std::string what;
  /// A file of one array holds rows one level below itself.
  size_t depth = 0;
  bool went_on() {
    source->unparsed = 0;
    return true;
  }
  bool open() {
    if (++depth <= kMaxJsonDepth + 1) return went_on();
    what = tr("nested more than {} deep", kMaxJsonDepth);
    return false;
  }
  bool null() override { return went_on(); }
  bool boolean(bool) override { return went_on(); }
  bool number_integer(number_integer_t) override { return went_on(); }
  bool number_unsigned(number_unsigned_t) override { return went_on(); }
  bool number_float(number_float_t, const string_t&) override { return went_on(); }
  bool string(string_t&) override { return went_on(); }
  bool key(string_t&) override { return went_on(); }
  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }
  bool end_object() override { return depth-- > 0; }
  bool end_array() override { return depth-- > 0; }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& e) override {
    what = e.what();
    // The library repeats its own id and position first; they count records, not lines.
    if (const size_t at = what.find(": ", what.find("column")); at != std::string::npos) {
      what = what.substr(at + 2);
    }
    what = shortened_fault(std::move(what));
    return false;
  }
};

std::string find_fault_in_lines(const std::filesystem::path& path) {
  LineReader lines(path);
  std::string text;
  while (lines.next(&text)) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (is_json(text)) continue;
    try {
      (void)parse_json(text, "");
    } catch (const DataError& error) {
      // parse_json says ":1:column: what".
      return fmt::format("{}:{}{}", path.string(), lines.line_number(),
                         shortened_fault(std::string(error.what()).substr(2)));
    }
  }
  return "";
}

}  // namespace

struct JsonRecordLines::State {
  std::unique_ptr<ByteStream> stream;
  std::vector<char> buffer = std::vector<char>(1 << 18);
  size_t at = 0, size = 0;
  RecordScanner scanner;
  int64_t line = 1;                   ///< of the next byte
  int64_t records = 0;                ///< begun so far
  std::array<int64_t, 3> lines = {};  ///< of the last three of them, the newest first

  /// False at the end of the file.
  bool step() {
    if (at == size) {
      size = stream->read(buffer.data(), buffer.size());
      at = 0;
      if (size == 0) return false;
    }
    const char c = buffer[at++];
    if (scanner.starts_record(c)) {
      ++records;
      lines = {line, lines[0], lines[1]};
    }
    if (c == '\n') ++line;
    return true;
  }
  /// 0: it is not among the last three.
  int64_t known_line(int64_t index) const {
    const int64_t back = records - 1 - index;
    return back < 0 || back > 2 ? 0 : lines[static_cast<size_t>(back)];
  }
};

JsonRecordLines::JsonRecordLines(const std::filesystem::path& path)
    : state_(std::make_unique<State>()) {
  state_->stream = ByteStream::open(path);
}
JsonRecordLines::~JsonRecordLines() = default;
JsonRecordLines::JsonRecordLines(JsonRecordLines&&) noexcept = default;

int64_t JsonRecordLines::line_of(int64_t index) {
  while (state_->records <= index) {
    if (!state_->step()) return 0;
  }
  return state_->known_line(index);
}

std::string JsonRecordLines::place_of(int64_t index) {
  State& s = *state_;
  const int64_t line = line_of(index);
  while (s.records == index + 1 && s.line == line && s.step()) {
  }
  const bool is_alone = s.known_line(index - 1) != line && s.known_line(index + 1) != line;
  return is_alone ? std::to_string(line) : fmt::format("record {}", index + 1);
}

std::string json_record_place(const std::filesystem::path& path, int64_t index) {
  return fmt::format("{}:{}", path.string(), JsonRecordLines(path).place_of(index));
}

std::string shortened_fault(std::string what) {
  constexpr size_t kShownBytes = 300;
  if (what.size() <= kShownBytes) return what;
  what.resize(kShownBytes);
  while (!what.empty() && find_invalid_utf8(what) != std::string::npos) what.pop_back();
  return what + "…";
}

std::string find_json_fault(const std::filesystem::path& path, bool one_record_a_line) {
  if (one_record_a_line) return find_fault_in_lines(path);
  CountingInput::Source source;
  source.stream = ByteStream::open(path);
  source.path = path;
  source.load();
  const auto skip_space = [&] {
    while (!source.ended && std::isspace(static_cast<unsigned char>(source.buffer[source.at]))) {
      source.advance();
    }
  };
  for (skip_space(); !source.ended; skip_space()) {
    FaultFinder finder(&source);
    const bool good = nlohmann::json::sax_parse(CountingInput(&source), CountingInput(nullptr),
                                                &finder, nlohmann::json::input_format_t::json,
                                                /*strict=*/false);
    if (!good) {
      // The parser has taken the offending byte already.
      const int64_t column = source.column > 1 ? source.column - 1 : 1;
      return tr("{}:{}:{}: not valid JSON: {}", path.string(), source.line, column,
                translated_filled(finder.what));
    }
  }
  return "";
}

}  // namespace danlu::data
