// pictures/painter.h: lines, dots and text on a picture that becomes an SVG or a PNG.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

typedef struct _cairo cairo_t;

namespace danlu::pictures {

/// Parts of one.
struct Color {
  double red = 0, green = 0, blue = 0;
};

struct Point {
  double x = 0, y = 0;
};

enum class Align { kLeft, kCenter, kRight };

struct TextStyle {
  double size = 12;
  Color color = {};
  Align align = Align::kLeft;  ///< which end lies at the point
  bool bold = false;
  bool upwards = false;  ///< reads from below to above
  double max_width = 0;  ///< a longer text is cut, with an ellipsis; 0: none is
};

/// Units are those of the picture, y grows downwards.
class Painter {
 public:
  Painter(cairo_t* surface, bool chinese) : to_(surface), chinese_(chinese) {}

  /// Through the points, with round ends; broken where a coordinate is not finite.
  void line(std::span<const Point> points, double width, Color color);
  void dot(Point center, double radius, Color color);
  /// A rectangle; `corner` is its upper left one.
  void fill(Point corner, double width, double height, Color color);
  /// `at` is the middle of the text's height. Without fonts nothing is drawn. Characters that no
  /// font has become '?'.
  void text(Point at, std::string_view text, const TextStyle& style);
  double text_width(std::string_view text, const TextStyle& style) const;

  bool chinese() const { return chinese_; }
  /// What text() was given, in order.
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  void use(Color color);
  cairo_t* to_;
  bool chinese_;
  std::vector<std::string> texts_;
};

enum class PictureFormat { kPng, kSvg };

/// A file's content: `draw` on a white page of width x height units; PNG has 2 x 2 pixels a unit,
/// SVG a title and a description of all texts (the letters themselves are outlines, so that they
/// look the same everywhere). `chinese`: labels are, which decides between a glyph's regional
/// forms. Not for two threads at once. Errors: MemoryError.
std::string paint(PictureFormat format, int width, int height, bool chinese,
                  const std::function<void(Painter&)>& draw);

}  // namespace danlu::pictures
