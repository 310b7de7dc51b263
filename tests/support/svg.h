// tests/support/svg.h: what an SVG of cairo's shows.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "pictures/painter.h"

namespace danlu::test {

using Polyline = std::vector<pictures::Point>;

/// Percents of red, green and blue.
struct Stroke {
  double red, green, blue;
};

/// Read by glib's XML parser; a document that is not well-formed is a failure of the test.
class Svg {
 public:
  explicit Svg(const std::string& text);

  const std::string& title() const { return title_; }
  std::vector<std::string> words() const;  ///< lines of <desc>
  /// Lines of at least two points, in the order in which they are painted.
  std::vector<Polyline> polylines(Stroke stroke) const;
  Polyline longest(Stroke stroke) const;
  size_t place_of_longest(Stroke stroke) const;  ///< in the order of painting
  size_t dots(Stroke fill) const;
  /// Every filled shape with its colour, in the order in which they are painted.
  std::vector<std::pair<Stroke, Polyline>> filled() const;
  size_t glyphs() const { return glyphs_.size(); }
  /// The points of lines, dots and letters.
  std::vector<pictures::Point> all_points() const;
  /// Pairs of texts, as their left and top, that come closer than 3 units.
  std::vector<std::string> words_that_touch() const;

 private:
  friend struct SvgReader;
  struct Path {
    bool stroked = false;
    Stroke color{};
    std::vector<Polyline> parts;
  };
  std::string title_, words_;
  std::vector<Path> paths_;
  std::vector<std::vector<pictures::Point>> texts_;
  std::vector<pictures::Point> glyphs_;
};

}  // namespace danlu::test
