// serve/side_by_side.h: texts next to each other in a terminal.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace danlu::serve {

/// A text and the name that stands above it.
struct NamedText {
  std::string name, text;
};

/// As many columns as there are texts, in `width` columns of a terminal, where an East Asian
/// character takes two. Lines break between words where they can. REQUIRES: width leaves each
/// column at least one character.
std::string side_by_side(const std::vector<NamedText>& texts, size_t width);

/// Whether that many columns are wide enough to be read.
bool fits_side_by_side(size_t columns, size_t width);

}  // namespace danlu::serve
