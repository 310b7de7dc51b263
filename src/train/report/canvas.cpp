#include "train/report/canvas.h"

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "train/report/bitmap_font.h"

namespace danlu::train {
namespace canvas_detail {

constexpr double kDotsPerMeterOfInch = 39.3701;

void append_to_string(png_structp png, png_bytep data, png_size_t size) {
  static_cast<std::string*>(png_get_io_ptr(png))->append(reinterpret_cast<char*>(data), size);
}
void flush_nothing(png_structp) {}
[[noreturn]] void throw_error(png_structp, png_const_charp message) {
  throw IoError(tr("[canvas] libpng: {}", message));
}
void ignore_warning(png_structp, png_const_charp) {}

/// Distance of a point from a line segment.
double distance_to(double x, double y, double x0, double y0, double x1, double y1) {
  const double dx = x1 - x0, dy = y1 - y0, squared = dx * dx + dy * dy;
  const double along =
      squared > 0 ? std::clamp(((x - x0) * dx + (y - y0) * dy) / squared, 0.0, 1.0) : 0;
  return std::hypot(x - x0 - along * dx, y - y0 - along * dy);
}

}  // namespace canvas_detail

Canvas::Canvas(int width, int height)
    : width_(width),
      height_(height),
      pixels_(static_cast<size_t>(width) * static_cast<size_t>(height) * 3, 255) {}

void Canvas::blend(int x, int y, Color color, double coverage) {
  if (x < 0 || y < 0 || x >= width_ || y >= height_ || coverage <= 0) return;
  uint8_t* pixel =
      &pixels_[(static_cast<size_t>(y) * static_cast<size_t>(width_) + static_cast<size_t>(x)) * 3];
  const uint8_t parts[] = {color.red, color.green, color.blue};
  for (int c = 0; c < 3; ++c) {
    pixel[c] = static_cast<uint8_t>(
        std::lround(pixel[c] + (parts[c] - pixel[c]) * std::min(coverage, 1.0)));
  }
}

Color Canvas::pixel(int x, int y) const {
  const uint8_t* at =
      &pixels_[(static_cast<size_t>(y) * static_cast<size_t>(width_) + static_cast<size_t>(x)) * 3];
  return {at[0], at[1], at[2]};
}

void Canvas::fill_rectangle(int left, int top, int right, int bottom, Color color) {
  for (int y = top; y < bottom; ++y) {
    for (int x = left; x < right; ++x) blend(x, y, color, 1);
  }
}

void Canvas::draw_line(double x0, double y0, double x1, double y1, double thickness, Color color) {
  const double reach = thickness / 2 + 1;
  const int left = std::max(0, static_cast<int>(std::floor(std::min(x0, x1) - reach)));
  const int right = std::min(width_ - 1, static_cast<int>(std::ceil(std::max(x0, x1) + reach)));
  const int top = std::max(0, static_cast<int>(std::floor(std::min(y0, y1) - reach)));
  const int bottom = std::min(height_ - 1, static_cast<int>(std::ceil(std::max(y0, y1) + reach)));
  for (int y = top; y <= bottom; ++y) {
    for (int x = left; x <= right; ++x) {
      blend(x, y, color, thickness / 2 + 0.5 - canvas_detail::distance_to(x, y, x0, y0, x1, y1));
    }
  }
}

int Canvas::text_width(std::string_view text, int scale) {
  if (text.empty()) return 0;
  return (static_cast<int>(text.size()) * kGlyphAdvance - (kGlyphAdvance - kGlyphColumns)) * scale;
}

void Canvas::draw_text(int x, int top, std::string_view text, int scale, Color color, Align align) {
  if (align == Align::kCenter) x -= text_width(text, scale) / 2;
  if (align == Align::kRight) x -= text_width(text, scale);
  for (const char character : text) {
    const Glyph& glyph = glyph_of(character);
    for (int row = 0; row < kGlyphRows; ++row) {
      for (int column = 0; column < kGlyphColumns; ++column) {
        if (!(glyph.rows[static_cast<size_t>(row)] >> (kGlyphColumns - 1 - column) & 1)) continue;
        fill_rectangle(x + column * scale, top + row * scale, x + (column + 1) * scale,
                       top + (row + 1) * scale, color);
      }
    }
    x += kGlyphAdvance * scale;
  }
}

void Canvas::draw_text_upwards(int left, int y, std::string_view text, int scale, Color color) {
  int bottom = y + text_width(text, scale) / 2;
  for (const char character : text) {
    const Glyph& glyph = glyph_of(character);
    for (int row = 0; row < kGlyphRows; ++row) {
      for (int column = 0; column < kGlyphColumns; ++column) {
        if (!(glyph.rows[static_cast<size_t>(row)] >> (kGlyphColumns - 1 - column) & 1)) continue;
        fill_rectangle(left + row * scale, bottom - (column + 1) * scale, left + (row + 1) * scale,
                       bottom - column * scale, color);
      }
    }
    bottom -= kGlyphAdvance * scale;
  }
}

std::string Canvas::encode_png(int dots_per_inch) const {
  std::string out;
  png_structp png = png_create_write_struct(
      PNG_LIBPNG_VER_STRING, nullptr, canvas_detail::throw_error, canvas_detail::ignore_warning);
  png_infop info = png ? png_create_info_struct(png) : nullptr;
  if (!info) {
    png_destroy_write_struct(&png, nullptr);
    throw MemoryError(tr("[canvas] libpng cannot start"));
  }
  try {
    png_set_write_fn(png, &out, canvas_detail::append_to_string, canvas_detail::flush_nothing);
    png_set_IHDR(png, info, static_cast<png_uint_32>(width_), static_cast<png_uint_32>(height_), 8,
                 PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    const auto per_meter =
        static_cast<png_uint_32>(std::lround(dots_per_inch * canvas_detail::kDotsPerMeterOfInch));
    png_set_pHYs(png, info, per_meter, per_meter, PNG_RESOLUTION_METER);
    png_write_info(png, info);
    for (int y = 0; y < height_; ++y) {
      png_write_row(png, &pixels_[static_cast<size_t>(y) * static_cast<size_t>(width_) * 3]);
    }
    png_write_end(png, info);
  } catch (...) {
    png_destroy_write_struct(&png, &info);
    throw;
  }
  png_destroy_write_struct(&png, &info);
  return out;
}

void Canvas::write_png(const fs::path& path, int dots_per_inch) const {
  write_file_atomic(path, encode_png(dots_per_inch));
}

}  // namespace danlu::train
