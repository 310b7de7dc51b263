#include "data/megatron/npy.h"

#include <fmt/format.h>

#include <cstring>
#include <regex>

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
    throw DataError(fmt::format("{}: {}", path.string(), what),
                    {"delete the file; it is built again", "请删除该文件，程序会重新生成"});
  };
  if (text.size() < kPreambleBytes || text.substr(0, kMagic.size()) != kMagic) {
    damaged("not a .npy file of version 1.0");
  }
  uint16_t header_bytes;
  std::memcpy(&header_bytes, text.data() + kMagic.size(), sizeof header_bytes);
  if (text.size() < kPreambleBytes + header_bytes) damaged("ends inside its header");
  const std::string header(text.substr(kPreambleBytes, header_bytes));
  static const std::regex kForm(
      R"(^\{\s*'descr':\s*'([<|][iu][1248])',\s*'fortran_order':\s*False,\s*'shape':\s*\((\d{1,18}),\s*(\d{1,18})?\),?\s*\}\s*$)");
  std::smatch match;
  if (!std::regex_match(header, match, kForm)) {
    damaged(
        fmt::format("must be a one- or two-dimensional array of integers, header is {}", header));
  }
  descr_ = match[1];
  shape_.rows = std::stoll(match[2]);
  shape_.columns = match[3].matched ? std::stoll(match[3]) : 0;
  const uint64_t width = static_cast<uint64_t>(descr_.back() - '0');
  const uint64_t have = (text.size() - kPreambleBytes - header_bytes) / width;
  const uint64_t columns = match[3].matched ? static_cast<uint64_t>(shape_.columns) : 1;
  const bool fits = columns == 0 || static_cast<uint64_t>(shape_.rows) <= have / columns;
  if (!fits) damaged(fmt::format("has {} values, its header promises more", have));
  if (match[3].matched && shape_.columns == 0) damaged("has rows without columns");
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
