#include "text/tokenizer/char_class.h"

#include <utf8proc.h>

#include <memory>

namespace danlu::text {

namespace {

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

/// Hangul vowels and tails join the syllable before them, though their combining class is 0.
bool is_hangul_joiner(char32_t c) { return c >= 0x1160 && c <= 0x11FF; }

bool is_other_alphabetic_symbol(char32_t c) {
  // Alphabetic characters of category So: the circled, squared and regional Latin letters.
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

uint8_t classify(char32_t c) {
  uint8_t bits = 0;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  switch (category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      bits |= kLetter | kWord;
      break;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
      bits |= kNumber | kWord;
      break;
    case UTF8PROC_CATEGORY_NO:
      bits |= kNumber;
      break;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      bits |= kMark | kWord;
      break;
    case UTF8PROC_CATEGORY_PC:
      bits |= kPunctuation | kWord;
      break;
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      bits |= kPunctuation;
      break;
    default:
      break;
  }
  if (is_white_space(c)) bits |= kSpace;
  if (c == '\r' || c == '\n') bits |= kNewline;
  if (c == 0x200C || c == 0x200D || is_other_alphabetic_symbol(c)) bits |= kWord;
  const auto* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  if (property->combining_class != 0 || is_hangul_joiner(c)) bits |= kNfcUnsafe;
  return bits;
}

/// A character that NFC rewrites, or that NFC may join to the one before it.
void mark_compositions(uint8_t* table) {
  for (char32_t c = 0; c < kCharTableSize; ++c) {
    const auto* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
    if (property->decomp_seqindex == UINT16_MAX || property->decomp_type != 0) continue;
    utf8proc_int32_t parts[32];
    int boundary = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 32,
                                               UTF8PROC_DECOMPOSE, &boundary);
    for (utf8proc_ssize_t i = 1; i < count; ++i) {
      if (static_cast<uint32_t>(parts[i]) < kCharTableSize) table[parts[i]] |= kNfcUnsafe;
    }
    const auto composed = utf8proc_normalize_utf32(
        parts, count, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (composed != 1 || static_cast<char32_t>(parts[0]) != c) table[c] |= kNfcUnsafe;
  }
}

std::unique_ptr<uint8_t[]> build_table() {
  auto table = std::make_unique<uint8_t[]>(kCharTableSize);
  for (char32_t c = 0; c < kCharTableSize; ++c) table[c] = classify(c);
  mark_compositions(table.get());
  return table;
}

}  // namespace

const uint8_t* char_class_table() {
  static const std::unique_ptr<uint8_t[]> table = build_table();
  return table.get();
}

uint8_t slow_char_class(char32_t c) {
  if (c > 0x10FFFF) return 0;
  // Beyond the table live CJK compatibility ideographs that NFC replaces, and no joiners.
  const uint8_t bits = classify(c);
  return c >= 0x2F800 && c < 0x2FA20 ? bits | kNfcUnsafe : bits;
}

}  // namespace danlu::text
