#include "data/readers/text_encoding.h"

#include <fmt/format.h>

#include <cstring>

#include "base/error.h"
#include "data/readers/byte_stream.h"

namespace danlu::data {
namespace {

constexpr size_t kHeadBytes = 4096;

/// `iconv` on the file, unpacked first where it is compressed.
std::string conversion_hint(const std::filesystem::path& path, std::string_view encoding,
                            bool sure) {
  const std::string name = path.string();
  const std::string extension = path.extension().string();
  const std::string from = extension == ".gz"    ? fmt::format("gzip -dc {} | ", name)
                           : extension == ".zst" ? fmt::format("zstd -dc {} | ", name)
                                                 : "";
  const std::filesystem::path bare = from.empty() ? path : path.parent_path() / path.stem();
  const std::string to =
      (bare.parent_path() / (bare.stem().string() + ".utf8" + bare.extension().string())).string();
  const std::string command = fmt::format("{}iconv -f {} -t UTF-8{} > {}", from, encoding,
                                          from.empty() ? " " + name : "", to);
  if (sure) {
    return tr("convert it: {}", command);
  }
  return tr("convert it; if it is {}: {}", encoding, command);
}

/// "UTF-16", "UTF-32" or "": by the byte order mark, or by the zero bytes of its ASCII letters.
std::string_view wide_encoding(std::string_view head) {
  using namespace std::string_view_literals;
  if (head.starts_with("\xFF\xFE\0\0"sv) || head.starts_with("\0\0\xFE\xFF"sv)) return "UTF-32";
  if (head.starts_with("\xFF\xFE"sv) || head.starts_with("\xFE\xFF"sv)) return "UTF-16";
  size_t zeros_at[4] = {};
  for (size_t i = 0; i < head.size(); ++i) zeros_at[i % 4] += head[i] == '\0';
  const size_t even = zeros_at[0] + zeros_at[2], odd = zeros_at[1] + zeros_at[3];
  const size_t quarter = head.size() / 4;
  // One stray zero byte makes no wide text.
  if (even + odd < std::max<size_t>(2, head.size() / 8)) return {};
  if (even > quarter && odd > quarter) return "UTF-32";
  // Big endian text has its zeros on even bytes; iconv takes text without a mark for the machine's.
  return odd > even ? "UTF-16LE" : "UTF-16BE";
}

}  // namespace

void refuse_wide_text(const std::filesystem::path& path) {
  const auto stream = ByteStream::open(path, ByteOrderMark::kKept);
  std::string head(kHeadBytes, '\0');
  size_t size = 0;
  for (size_t got = 1; got > 0 && size < kHeadBytes; size += got) {
    got = stream->read(head.data() + size, kHeadBytes - size);
  }
  head.resize(size);
  if (const std::string_view wide = wide_encoding(head); !wide.empty()) {
    throw DataError(tr("{}: byte 0: this is {} text; UTF-8 is read", path.string(), wide),
                    conversion_hint(path, wide, /*sure=*/true));
  }
}

size_t utf8_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  const auto follows = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return follows(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    if (!follows(1) || !follows(2)) return 0;
    const bool overlong = lead == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = lead == 0xED && byte(1) >= 0xA0;
    return overlong || surrogate ? 0 : 3;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    if (!follows(1) || !follows(2) || !follows(3)) return 0;
    const bool overlong = lead == 0xF0 && byte(1) < 0x90;
    const bool beyond = lead == 0xF4 && byte(1) >= 0x90;
    return overlong || beyond ? 0 : 4;
  }
  return 0;
}

size_t find_invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    // Eight ASCII bytes at once.
    uint64_t word = 0;
    if (at + 8 <= text.size()) {
      std::memcpy(&word, text.data() + at, 8);
      if ((word & 0x8080808080808080ull) == 0) {
        at += 8;
        continue;
      }
    }
    const size_t length = utf8_length(text, at);
    if (length == 0) return at;
    at += length;
  }
  return std::string_view::npos;
}

void require_utf8_line(const std::filesystem::path& path, int64_t line, std::string_view text) {
  const size_t at = find_invalid_utf8(text);
  if (at == std::string_view::npos) return;
  throw DataError(tr("{}:{}:{}: not UTF-8: byte 0x{:02X}", path.string(), line, at + 1,
                     static_cast<unsigned char>(text[at])),
                  conversion_hint(path, "GBK", /*sure=*/false));
}

void require_utf8_argument(const std::string& argument, std::string_view text) {
  const size_t at = find_invalid_utf8(text);
  if (at == std::string_view::npos) return;
  throw UsageError(tr("[{}] not UTF-8: byte 0x{:02X} at {}", argument,
                      static_cast<unsigned char>(text[at]), at + 1),
                   tr("set the terminal to UTF-8, or convert the text with iconv"));
}

void require_utf8_file(const std::filesystem::path& path) {
  LineReader lines(path);
  std::string text;
  while (lines.next(&text)) require_utf8_line(path, lines.line_number(), text);
}

}  // namespace danlu::data
