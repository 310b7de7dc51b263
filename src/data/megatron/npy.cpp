#include "data/megatron/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "base/error.h"

namespace danlu::data {
namespace {

constexpr std::string_view kMagic{"\x93NUMPY\x01\x00", 8};
constexpr size_t kPreambleBytes = 10;  // magic, version, u16 header length

template <typename T>
int64_t widened(const std::byte* data, int64_t index) {
  T value;
  std::memcpy(&value, data + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return static_cast<int64_t>(value);
}

/// What a header says, before the file's size is held against it.
struct NpyHeader {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<NpyShape> shape;
};

/// numpy's header: a Python dictionary of three known keys, in any order. One pass, no recursion:
/// a header has up to 65,535 bytes and may be anything.
class NpyHeaderParser {
 public:
  NpyHeaderParser(std::string_view text, const fs::path& file) : text_(text), file_(file) {}

  /// Errors: DataError naming the file and the place.
  NpyHeader parse() {
    if (!take('{')) fail("must begin with '{'");
    while (!take('}')) {
      entry();
      if (take(',')) continue;
      if (!take('}')) fail("',' or '}' must follow a value");
      break;
    }
    skip_space();
    if (at_ != text_.size()) fail("text after the final '}'");
    require(header_.descr.has_value(), "descr");
    require(header_.fortran_order.has_value(), "fortran_order");
    require(header_.shape.has_value(), "shape");
    return header_;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(tr("{}: bad header at byte {}: {}", file_.string(), at_, what),
                    tr("delete the file; it is built again"));
  }
  void require(bool has, const char* key) const {
    if (!has) fail(tr("has no {}", key));
  }
  void require_first(bool has, const char* key) const {
    if (has) fail(fmt::format("has {} twice", key));
  }

  void skip_space() {
    const size_t next = text_.find_first_not_of(" \t\r\n", at_);
    at_ = next == std::string_view::npos ? text_.size() : next;
  }
  bool take(char wanted) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) {
    skip_space();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  /// A string in either quote; numpy writes no escapes. `what` begins the error.
  std::string_view quoted(const char* what) {
    skip_space();
    if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"'))
      fail(tr("{} must be a string in quotes", what));
    const size_t end = text_.find(text_[at_], at_ + 1);
    // No key and no type is longer: a quote that is closed far away was never one.
    constexpr size_t kLongest = 64;
    if (end == std::string_view::npos || end - at_ > kLongest)
      fail(tr("{} has no closing quote", what));
    const std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return inside;
  }

  void entry() {
    const std::string_view key = quoted("a key");
    if (!take(':')) fail(tr("':' must follow '{}'", key));
    if (key == "descr") {
      require_first(header_.descr.has_value(), "descr");
      header_.descr = integer_type();
    } else if (key == "fortran_order") {
      require_first(header_.fortran_order.has_value(), "fortran_order");
      if (!take_word("False")) fail("fortran_order must be False: rows follow one another");
      header_.fortran_order = false;
    } else if (key == "shape") {
      require_first(header_.shape.has_value(), "shape");
      header_.shape = extents();
    } else {
      fail(tr("unknown key '{}'", key));
    }
  }

  std::string integer_type() {
    const std::string_view type = quoted("descr");
    const bool known = type.size() == 3 && (type[0] == '<' || type[0] == '|') &&
                       (type[1] == 'i' || type[1] == 'u') &&
                       std::string_view("1248").find(type[2]) != std::string_view::npos;
    if (!known) {
      fail(tr("descr must be little-endian integers (<i8, <u4, …), got '{}'", type));
    }
    return std::string(type);
  }

  NpyShape extents() {
    constexpr const char* kRule = "shape must be (rows,) or (rows, columns) of whole numbers";
    NpyShape shape;
    const auto rows = take('(') ? number() : std::nullopt;
    if (!rows || !take(',')) fail(kRule);
    shape.rows = *rows;
    if (const auto columns = number()) {
      if (*columns == 0) fail("has rows without columns");
      shape.columns = *columns;
      take(',');
    }
    if (!take(')')) fail(kRule);
    return shape;
  }

  std::optional<int64_t> number() {
    skip_space();
    const char* begin = text_.data() + at_;
    int64_t value = 0;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc() || *begin == '-') return std::nullopt;
    at_ += static_cast<size_t>(end - begin);
    return value;
  }

  std::string_view text_;
  const fs::path& file_;
  size_t at_ = 0;
  NpyHeader header_;
};

}  // namespace

std::string npy_header(char kind, size_t width, NpyShape shape) {
  const std::string extent = shape.columns == 0
                                 ? fmt::format("({},)", shape.rows)
                                 : fmt::format("({}, {})", shape.rows, shape.columns);
  // One-byte numbers have no byte order: numpy marks them with '|'.
  std::string text = fmt::format("{{'descr': '{}{}{}', 'fortran_order': False, 'shape': {}, }}",
                                 width == 1 ? '|' : '<', kind, width, extent);
  while ((kPreambleBytes + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  const auto text_bytes = static_cast<uint16_t>(text.size());
  std::string header(kMagic);
  header.append(reinterpret_cast<const char*>(&text_bytes), sizeof text_bytes);
  return header + text;
}

NpyFile::NpyFile(const fs::path& path) : file_(path) {
  const std::string_view text = file_.text();
  const auto damaged = [&](const std::string& what) {
    throw DataError(tr("{}: {}", path.string(), what), tr("delete the file; it is built again"));
  };
  if (text.size() < kPreambleBytes || text.substr(0, kMagic.size()) != kMagic) {
    damaged("not a .npy file of version 1.0");
  }
  uint16_t header_bytes;
  std::memcpy(&header_bytes, text.data() + kMagic.size(), sizeof header_bytes);
  if (text.size() < kPreambleBytes + header_bytes) damaged("ends inside its header");
  const NpyHeader header = NpyHeaderParser(text.substr(kPreambleBytes, header_bytes), path).parse();
  descr_ = *header.descr;
  shape_ = *header.shape;
  const auto width = static_cast<uint64_t>(descr_.back() - '0');
  const uint64_t have = (text.size() - kPreambleBytes - header_bytes) / width;
  const auto columns = static_cast<uint64_t>(std::max<int64_t>(1, shape_.columns));
  if (static_cast<uint64_t>(shape_.rows) > have / columns)
    damaged(tr("has {} values, its header promises more", have));
  data_ = file_.bytes().data() + kPreambleBytes + header_bytes;
}

int64_t NpyFile::at(int64_t index) const {
  const bool is_signed = descr_[1] == 'i';
  switch (descr_[2]) {
    case '1':
      return is_signed ? widened<int8_t>(data_, index) : widened<uint8_t>(data_, index);
    case '2':
      return is_signed ? widened<int16_t>(data_, index) : widened<uint16_t>(data_, index);
    case '4':
      return is_signed ? widened<int32_t>(data_, index) : widened<uint32_t>(data_, index);
    default:
      return is_signed ? widened<int64_t>(data_, index) : widened<uint64_t>(data_, index);
  }
}

}  // namespace danlu::data
