// text/tokenizer/byte_level.h: the printable alphabet byte-level BPE writes bytes in.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace danlu::text {

/// The code point that stands for each byte: printable Latin-1 for itself, the other 68 bytes
/// U+0100 onwards in order (space is U+0120 'Ġ').
const std::array<uint16_t, 256>& byte_to_char();
/// The UTF-8 text of byte_to_char.
const std::array<std::string, 256>& byte_to_utf8();
/// The byte a code point stands for, or -1.
int char_to_byte(char32_t code_point);

/// Appends the alphabet's spelling of `bytes`.
void append_byte_level(std::string_view bytes, std::string& out);
/// Appends the bytes `token` spells; false (nothing appended) if a character is not of the
/// alphabet.
bool append_bytes_of_token(std::string_view token, std::string& out);

}  // namespace danlu::text
