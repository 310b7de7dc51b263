// text/tokenizer/unicode_version.h: character properties as of a given version of Unicode.
//
// HF's tokenizers is built of parts that each carry their own version: Oniguruma (regular
// expressions) 16, Rust's standard library 17, unicode_categories (punctuation, BERT's control
// characters) 8, its normalizer 9. A character assigned later is unassigned to that part.
#pragma once
#include <cstdint>
#include <span>

namespace danlu::text {

inline constexpr int kRegexUnicode = 16, kStdUnicode = 17, kCategoriesUnicode = 8,
                     kNormalizerUnicode = 9;

/// A stretch of code points whose category is `before` until version `since` and `after` from then.
/// `since` is 9, 14, 16 or 17: a change made between two of these counts for the later one.
struct CategoryChange {
  uint32_t first, last;
  uint8_t since, before, after;
};
/// All changes after Unicode 8, by code point.
std::span<const CategoryChange> category_changes();

/// The general category (utf8proc's numbering) as of `version`, one of 8, 9, 14, 16, 17.
int category_as_of(char32_t code_point, int version);

/// \p{N} of Rust's char::is_numeric.
bool is_numeric(char32_t code_point);
/// Rust's char::to_lowercase where it is one character.
char32_t to_lower(char32_t code_point);

}  // namespace danlu::text
