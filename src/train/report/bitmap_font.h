// train/report/bitmap_font.h: a small fixed-width font for the pictures of a run.
#pragma once
#include <array>
#include <cstdint>

namespace danlu::train {

inline constexpr int kGlyphColumns = 5;
inline constexpr int kGlyphRows = 9;     ///< the last two hang below the base line
inline constexpr int kGlyphAdvance = 6;  ///< columns from one character to the next

/// One byte per row, bit 4 leftmost.
struct Glyph {
  std::array<uint8_t, kGlyphRows> rows;
};

/// Printable ASCII; a box for anything else.
const Glyph& glyph_of(char character);

}  // namespace danlu::train
