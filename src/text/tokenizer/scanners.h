// text/tokenizer/scanners.h: the well-known pre-tokenizer regexes as hand-written scanners.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "text/tokenizer/char_class.h"
#include "text/tokenizer/utf8.h"

namespace danlu::text {

/// Which scanner stands for a regex; kNone: none does.
enum class KnownPattern { kNone, kGpt2, kQwen2, kLlama3 };

/// Recognised by the exact text of the pattern.
KnownPattern known_pattern(std::string_view regex);

/// The regex behind ByteLevel's use_regex.
inline constexpr std::string_view kGpt2Regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// Walks one text. Every pattern covers all of its text, so pieces follow one another without gaps.
class Scanner {
 public:
  /// REQUIRES: text is valid UTF-8.
  explicit Scanner(std::string_view text) : text_(text), table_(char_class_table()) {}

  /// Calls on_piece(begin, end) for every piece.
  template <typename F>
  void run(KnownPattern pattern, F&& on_piece) const {
    switch (pattern) {
      case KnownPattern::kGpt2:
        each_piece<&Scanner::gpt2_end>(on_piece);
        return;
      case KnownPattern::kQwen2:
        each_piece<&Scanner::modern_end<1>>(on_piece);
        return;
      case KnownPattern::kLlama3:
        each_piece<&Scanner::modern_end<3>>(on_piece);
        return;
      case KnownPattern::kNone:
        return;
    }
  }

 private:
  template <size_t (Scanner::*kEnd)(size_t) const, typename F>
  void each_piece(F&& on_piece) const {
    for (size_t begin = 0; begin < text_.size();) {
      const size_t end = (this->*kEnd)(begin);
      on_piece(begin, end);
      begin = end;
    }
  }

  struct Char {
    uint16_t bits;
    uint32_t length;
  };
  Char char_at(size_t at) const {
    const auto byte = static_cast<unsigned char>(text_[at]);
    if (byte < 0x80) return {table_[byte], 1};
    const CodePoint c = decode_utf8(text_, at);
    return {char_class(table_, c.value), c.length};
  }
  /// The same as run_end<true>(at, kLetter), eight letters of ASCII at a time.
  size_t letters_end(size_t at) const {
    for (uint64_t word; at + sizeof word <= text_.size();) {
      std::memcpy(&word, text_.data() + at, sizeof word);
      const uint64_t others = bytes_without_letter(word);
      if (!others) {
        at += sizeof word;
        continue;
      }
      at += static_cast<size_t>(std::countr_zero(others)) / 8;
      // Letters of other scripts come one after the other.
      for (bool is_ascii = false; !is_ascii;) {
        const Char c = char_at(at);
        is_ascii = c.length == 1;
        if (!(c.bits & kLetter)) return at;
        at += c.length;
        if (at == text_.size()) return at;
      }
    }
    return run_end<true>(at, kLetter);
  }
  /// The high bit of every byte that is no letter of ASCII.
  static uint64_t bytes_without_letter(uint64_t word) {
    constexpr uint64_t kEach = 0x0101010101010101ull;
    const uint64_t lower = (word | 0x20 * kEach) & 0x7F * kEach;
    const uint64_t from_a = lower + (0x80 - 'a') * kEach, behind_z = lower + (0x7F - 'z') * kEach;
    return (~from_a | behind_z | word) & 0x80 * kEach;
  }
  /// End of the run of characters that have (kWanted) or lack (!kWanted) every bit of `mask`.
  template <bool kWanted>
  size_t run_end(size_t at, uint16_t mask) const {
    while (at < text_.size()) {
      const Char c = char_at(at);
      if (((c.bits & mask) != 0) != kWanted) break;
      at += c.length;
    }
    return at;
  }
  /// `\s*[\r\n]+|\s+(?!\S)|\s+` (the first branch only if kNewlines).
  template <bool kNewlines>
  size_t space_end(size_t begin) const {
    size_t at = begin, last = begin, after_newline = 0;
    while (at < text_.size()) {
      const Char c = char_at(at);
      if (!(c.bits & kSpace)) break;
      last = at;
      at += c.length;
      if (c.bits & kNewline) after_newline = at;
    }
    if (kNewlines && after_newline) return after_newline;
    // The last space before a word is left to the word, unless it is the only one.
    if (at == text_.size() || last == begin) return at;
    return last;
  }

  size_t contraction_length(size_t at, bool any_case) const;
  size_t gpt2_end(size_t begin) const;
  template <size_t kMaxDigits>
  size_t modern_end(size_t begin) const;

  static constexpr uint16_t kNotSymbol = kSpace | kLetter | kNumber;
  std::string_view text_;
  const uint16_t* table_;
};

inline size_t Scanner::contraction_length(size_t at, bool any_case) const {
  const size_t left = text_.size() - at;
  if (left < 2) return 0;
  const auto letter = [&](size_t i) {
    const char c = text_[at + i];
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  const char first = letter(1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (left < 3) return 0;
  const char second = letter(2);
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
      (first == 'l' && second == 'l')) {
    return 3;
  }
  // U+017F, the long s, folds to s.
  return any_case && first == '\xC5' && second == '\xBF' ? 3 : 0;
}

inline size_t Scanner::gpt2_end(size_t begin) const {
  if (text_[begin] == '\'') {
    if (const size_t length = contraction_length(begin, false)) return begin + length;
  }
  size_t at = begin;
  Char c = char_at(at);
  if (text_[begin] == ' ' && begin + 1 < text_.size()) {
    const Char next = char_at(begin + 1);
    if (!(next.bits & kSpace)) {
      c = next;
      at = begin + 1;
    }
  }
  if (c.bits & kLetter) return letters_end(at + c.length);
  if (c.bits & kNumber) return run_end<true>(at + c.length, kNumber);
  if (!(c.bits & kSpace)) return run_end<false>(at + c.length, kNotSymbol);
  return space_end<false>(begin);
}

template <size_t kMaxDigits>
inline size_t Scanner::modern_end(size_t begin) const {
  const Char c = char_at(begin);
  if (text_[begin] == '\'') {
    if (const size_t length = contraction_length(begin, true)) return begin + length;
  }
  size_t at = begin + c.length;
  if (c.bits & kLetter) return letters_end(at);
  if (c.bits & kNumber) {
    for (size_t digits = 1; digits < kMaxDigits && at < text_.size(); ++digits) {
      const Char next = char_at(at);
      if (!(next.bits & kNumber)) break;
      at += next.length;
    }
    return at;
  }
  const Char next = at < text_.size() ? char_at(at) : Char{kSpace, 0};
  if (!(c.bits & kNewline) && (next.bits & kLetter)) {
    return letters_end(at + next.length);
  }
  const bool space_then_symbol = text_[begin] == ' ' && !(next.bits & kNotSymbol);
  if (space_then_symbol || !(c.bits & kSpace)) {
    return run_end<true>(run_end<false>(at, kNotSymbol), kNewline);
  }
  return space_end<true>(begin);
}

}  // namespace danlu::text
