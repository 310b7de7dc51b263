#include "text/tokenizer/byte_level.h"

#include "text/tokenizer/utf8.h"

namespace danlu::text {

namespace {

struct Alphabet {
  std::array<uint16_t, 256> chars{};
  std::array<std::string, 256> utf8;
  std::array<int16_t, 0x144> bytes{};

  Alphabet() {
    bytes.fill(-1);
    uint16_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable =
          (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
      chars[b] = printable ? static_cast<uint16_t>(b) : next++;
      append_utf8(chars[b], utf8[b]);
      bytes[chars[b]] = static_cast<int16_t>(b);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet kAlphabet;
  return kAlphabet;
}

}  // namespace

const std::array<uint16_t, 256>& byte_to_char() { return alphabet().chars; }
const std::array<std::string, 256>& byte_to_utf8() { return alphabet().utf8; }

int char_to_byte(char32_t c) {
  const auto& bytes = alphabet().bytes;
  return c < bytes.size() ? bytes[c] : -1;
}

void append_byte_level(std::string_view bytes, std::string& out) {
  const auto& utf8 = byte_to_utf8();
  for (const char b : bytes) out += utf8[static_cast<unsigned char>(b)];
}

bool append_bytes_of_token(std::string_view token, std::string& out) {
  const size_t start = out.size();
  for (size_t i = 0; i < token.size();) {
    const CodePoint c = decode_utf8(token, i);
    const int byte = char_to_byte(c.value);
    if (byte < 0) {
      out.resize(start);
      return false;
    }
    out += static_cast<char>(byte);
    i += c.length;
  }
  return true;
}

}  // namespace danlu::text
