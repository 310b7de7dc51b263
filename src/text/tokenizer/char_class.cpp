#include "text/tokenizer/char_class.h"

#include <utf8proc.h>

#include <memory>

#include "text/tokenizer/unicode_version.h"

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

bool is_letter(int category) {
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}
bool is_mark(int category) {
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}
bool is_number(int category) {
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}
bool is_punctuation_category(int category) {
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

/// Bits that follow from the general category. change: nullptr if it has been the same since
/// Unicode 8.
uint16_t bits_of_category(int category, const CategoryChange* change) {
  const auto as_of = [&](int version) {
    return !change ? category : version >= change->since ? int{change->after} : int{change->before};
  };
  uint16_t bits = 0;
  const int in_regex = as_of(kRegexUnicode);
  if (is_letter(in_regex)) bits |= kLetter;
  if (is_number(in_regex)) bits |= kNumber;
  if (is_letter(in_regex) || is_mark(in_regex) || in_regex == UTF8PROC_CATEGORY_ND ||
      in_regex == UTF8PROC_CATEGORY_NL || in_regex == UTF8PROC_CATEGORY_PC) {
    bits |= kWord;
  }
  if (is_punctuation_category(as_of(kCategoriesUnicode))) bits |= kPunctuation;
  if (is_mark(as_of(kNormalizerUnicode))) bits |= kMark;
  if (change && change->since > 14) bits |= kRecent;
  if (change && change->since > kNormalizerUnicode && change->before == UTF8PROC_CATEGORY_CN) {
    bits |= kPostNine;
  }
  return bits;
}

uint16_t classify(char32_t c, const CategoryChange* change) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  uint16_t bits = bits_of_category(category, change);
  if (is_white_space(c)) bits |= kSpace;
  if (c == '\r' || c == '\n') bits |= kNewline;
  if (c == 0x200C || c == 0x200D || is_other_alphabetic_symbol(c)) bits |= kWord;
  const auto* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  if (property->combining_class != 0 || is_hangul_joiner(c)) bits |= kNfcUnsafe;
  return bits;
}

/// A character that NFC rewrites, or that NFC may join to the one before it.
void mark_compositions(uint16_t* table) {
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

std::unique_ptr<uint16_t[]> build_table() {
  auto table = std::make_unique<uint16_t[]>(kCharTableSize);
  auto change = category_changes().begin();
  for (char32_t c = 0; c < kCharTableSize; ++c) {
    while (change != category_changes().end() && change->last < c) ++change;
    const bool inside = change != category_changes().end() && change->first <= c;
    table[c] = classify(c, inside ? &*change : nullptr);
  }
  mark_compositions(table.get());
  return table;
}

}  // namespace

const uint16_t* char_class_table() {
  static const std::unique_ptr<uint16_t[]> table = build_table();
  return table.get();
}

uint16_t slow_char_class(char32_t c) {
  if (c > 0x10FFFF) return 0;
  const CategoryChange* found = nullptr;
  for (const CategoryChange& change : category_changes()) {
    if (change.last < kCharTableSize) continue;
    if (c >= change.first && c <= change.last) found = &change;
  }
  // Beyond the table live CJK compatibility ideographs that NFC replaces, and no joiners.
  const uint16_t bits = classify(c, found);
  return c >= 0x2F800 && c < 0x2FA20 ? bits | kNfcUnsafe : bits;
}

}  // namespace danlu::text
