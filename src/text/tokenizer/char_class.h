// text/tokenizer/char_class.h: Unicode character classes as one bit set per code point.
#pragma once
#include <cstdint>

namespace danlu::text {

/// Classes as the part of HF's library that asks for them knows them (see unicode_version.h).
enum CharClass : uint16_t {
  kLetter = 1,        ///< \p{L} of regular expressions
  kNumber = 2,        ///< \p{N} of regular expressions
  kSpace = 4,         ///< \s: White_Space
  kNewline = 8,       ///< \r or \n
  kPunctuation = 16,  ///< \p{P} of the Punctuation and BERT pre-tokenizers
  kMark = 32,         ///< \p{M} of StripAccents
  kWord = 64,         ///< \w as Rust's regex: Alphabetic, M, Nd, Pc, Join_Control
  kNfcUnsafe = 128,   ///< NFC may change it or join it to what stands before
  kRecent = 256,      ///< category changed after Unicode 14: PCRE2 may know it or not
  kPostNine = 512,    ///< assigned after Unicode 9: unknown to the normalization forms
};

/// Tables of the code points below kCharTableSize; the rest go through slow_char_class.
inline constexpr uint32_t kCharTableSize = 0x20000;

/// Built on first use (about a millisecond); lives for the whole process.
const uint16_t* char_class_table();
uint16_t slow_char_class(char32_t code_point);

/// The class bits of one code point.
inline uint16_t char_class(const uint16_t* table, char32_t code_point) {
  return code_point < kCharTableSize ? table[code_point] : slow_char_class(code_point);
}
inline uint16_t char_class(char32_t code_point) {
  return char_class(char_class_table(), code_point);
}

}  // namespace danlu::text
