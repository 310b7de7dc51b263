// text/tokenizer/char_class.h: Unicode character classes as one byte per code point.
#pragma once
#include <cstdint>

namespace danlu::text {

enum CharClass : uint8_t {
  kLetter = 1,       ///< \p{L}
  kNumber = 2,       ///< \p{N}
  kSpace = 4,        ///< \s: White_Space
  kNewline = 8,      ///< \r or \n
  kPunctuation = 16, ///< \p{P}
  kMark = 32,        ///< \p{M}
  kWord = 64,        ///< \w as Rust's regex: Alphabetic, M, Nd, Pc, Join_Control
  kNfcUnsafe = 128,  ///< NFC may change it or join it to what stands before
};

/// Tables of the code points below kCharTableSize; the rest go through slow_char_class.
inline constexpr uint32_t kCharTableSize = 0x20000;

/// Built on first use (about a millisecond); lives for the whole process.
const uint8_t* char_class_table();
uint8_t slow_char_class(char32_t code_point);

/// The class bits of one code point.
inline uint8_t char_class(const uint8_t* table, char32_t code_point) {
  return code_point < kCharTableSize ? table[code_point] : slow_char_class(code_point);
}
inline uint8_t char_class(char32_t code_point) { return char_class(char_class_table(), code_point); }

}  // namespace danlu::text
