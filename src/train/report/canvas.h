// train/report/canvas.h: a picture in memory: lines, rectangles, text, and its PNG file.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace danlu::train {

struct Color {
  uint8_t red = 0, green = 0, blue = 0;
};

enum class Align { kLeft, kCenter, kRight };

/// Pixels of 8-bit RGB, origin at the top left, white at first. Drawing outside is ignored.
class Canvas {
 public:
  Canvas(int width, int height);
  int width() const { return width_; }
  int height() const { return height_; }

  void fill_rectangle(int left, int top, int right, int bottom, Color color);
  /// Smoothed line of `thickness` pixels with round ends; coordinates are pixel centres.
  void draw_line(double x0, double y0, double x1, double y1, double thickness, Color color);
  /// Text with its top at `top`; `align` says which end lies at `x`. Each font dot is scale²
  /// pixels.
  void draw_text(int x, int top, std::string_view text, int scale, Color color,
                 Align align = Align::kLeft);
  /// The same, reading upwards, its left side at `left`, centred at `y`.
  void draw_text_upwards(int left, int y, std::string_view text, int scale, Color color);
  static int text_width(std::string_view text, int scale);

  Color pixel(int x, int y) const;
  /// PNG with the given resolution. Atomic. Errors: IoError.
  void write_png(const std::filesystem::path& path, int dots_per_inch) const;

 private:
  void blend(int x, int y, Color color, double coverage);
  std::string encode_png(int dots_per_inch) const;
  int width_, height_;
  std::vector<uint8_t> pixels_;
};

}  // namespace danlu::train
