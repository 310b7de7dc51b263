// grammar/char_set.h: sets of Unicode characters.
#pragma once
#include <cstdint>
#include <vector>

namespace danlu::grammar {

/// Ranges of code points, sorted and apart from one another. Surrogates are never in it.
class CharSet {
 public:
  struct Range {
    char32_t first, last;
  };
  static constexpr char32_t kLast = 0x10FFFF;

  CharSet() = default;
  CharSet(std::initializer_list<Range> ranges);
  static CharSet all() { return {{0, kLast}}; }

  void add(char32_t first, char32_t last);
  void add(const CharSet& other);
  CharSet complement() const;
  CharSet without(const CharSet& other) const;
  CharSet common(const CharSet& other) const;
  bool contains(char32_t c) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  std::vector<Range> ranges_;
};

}  // namespace danlu::grammar
