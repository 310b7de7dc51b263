#include "pictures/painter.h"

#include <cairo-svg.h>
#include <fmt/format.h>
#include <pango/pangocairo.h>
#include <png.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <new>
#include <numbers>

#include "base/error.h"
#include "pictures/picture_fonts.h"

namespace danlu::pictures {
namespace {

constexpr int kPixelsPerUnit = 2;

struct Destroy {
  void operator()(cairo_t* surface) const { cairo_destroy(surface); }
  void operator()(cairo_surface_t* surface) const { cairo_surface_destroy(surface); }
};
using Surface = std::unique_ptr<cairo_surface_t, Destroy>;

void check(cairo_status_t status) {
  if (status == CAIRO_STATUS_SUCCESS) return;
  const std::string message = fmt::format("[picture] cairo: {}", cairo_status_to_string(status));
  if (status == CAIRO_STATUS_NO_MEMORY) throw MemoryError(message);
  throw InternalError(message);
}

cairo_status_t append_to_string(void* to, const unsigned char* data, unsigned int size) {
  try {
    static_cast<std::string*>(to)->append(reinterpret_cast<const char*>(data), size);
  } catch (const std::bad_alloc&) {
    return CAIRO_STATUS_NO_MEMORY;
  }
  return CAIRO_STATUS_SUCCESS;
}

/// Cairo's own writer takes four times as long for a third less, at the end of every run.
std::string encode_png(cairo_surface_t* surface) {
  cairo_surface_flush(surface);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(cairo_image_surface_get_width(surface));
  image.height = static_cast<png_uint_32>(cairo_image_surface_get_height(surface));
  image.format = PNG_FORMAT_RGB;
  image.flags = PNG_IMAGE_FLAG_FAST;
  std::vector<uint8_t> rgb(PNG_IMAGE_SIZE(image));
  uint8_t* to = rgb.data();
  for (png_uint_32 y = 0; y < image.height; ++y) {
    const auto* row = reinterpret_cast<const uint32_t*>(
        cairo_image_surface_get_data(surface) +
        static_cast<ptrdiff_t>(y) * cairo_image_surface_get_stride(surface));
    for (png_uint_32 x = 0; x < image.width; ++x) {
      for (const int shift : {16, 8, 0}) *to++ = static_cast<uint8_t>(row[x] >> shift);
    }
  }
  std::string content(PNG_IMAGE_PNG_SIZE_MAX(image), '\0');
  png_alloc_size_t size = content.size();
  if (!png_image_write_to_memory(&image, content.data(), &size, 0, rgb.data(), 0, nullptr))
    throw InternalError(fmt::format("[picture] libpng: {}", image.message));
  content.resize(size);
  return content;
}

std::string xml_text(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '<') {
      escaped += "&lt;";
    } else if (c == '>') {
      escaped += "&gt;";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

/// Letters are outlines, which no search and no screen reader finds.
void describe(std::string& svg, const std::vector<std::string>& texts) {
  if (texts.empty()) return;
  std::string words = "\n<title>" + xml_text(texts[0]) + "</title>\n<desc>";
  for (size_t i = 1; i < texts.size(); ++i) words += (i > 1 ? "\n" : "") + xml_text(texts[i]);
  svg.insert(svg.find('>', svg.find("<svg")) + 1, words + "</desc>");
}

/// The painter's words after it drew on `surface`.
std::vector<std::string> paint_on(const Surface& surface, double scale, bool chinese,
                                  const std::function<void(Painter&)>& draw) {
  const std::unique_ptr<cairo_t, Destroy> to(cairo_create(surface.get()));
  cairo_set_source_rgb(to.get(), 1, 1, 1);
  cairo_paint(to.get());
  cairo_scale(to.get(), scale, scale);
  Painter painter(to.get(), chinese);
  draw(painter);
  check(cairo_status(to.get()));
  return painter.texts();
}

}  // namespace

void Painter::use(Color color) { cairo_set_source_rgb(to_, color.red, color.green, color.blue); }

void Painter::line(std::span<const Point> points, double width, Color color) {
  use(color);
  cairo_set_line_width(to_, width);
  cairo_set_line_cap(to_, CAIRO_LINE_CAP_ROUND);
  cairo_set_line_join(to_, CAIRO_LINE_JOIN_ROUND);
  for (const Point& point : points) {
    if (!std::isfinite(point.x) || !std::isfinite(point.y)) {
      cairo_new_sub_path(to_);
    } else {
      cairo_line_to(to_, point.x, point.y);  // begins a path that has no point yet
    }
  }
  cairo_stroke(to_);
}

void Painter::dot(Point center, double radius, Color color) {
  use(color);
  cairo_arc(to_, center.x, center.y, radius, 0, 2 * std::numbers::pi);
  cairo_fill(to_);
}

void Painter::fill(Point corner, double width, double height, Color color) {
  use(color);
  cairo_rectangle(to_, corner.x, corner.y, width, height);
  cairo_fill(to_);
}

void Painter::text(Point at, std::string_view text, const TextStyle& style) {
  texts_.push_back(showable(text));
  const PangoLayoutPtr layout = layout_text(texts_.back(), style.size, style.bold, chinese_);
  if (!layout) return;
  if (style.max_width > 0) {
    pango_layout_set_width(layout.get(), static_cast<int>(style.max_width * PANGO_SCALE));
    pango_layout_set_ellipsize(layout.get(), PANGO_ELLIPSIZE_END);
  }
  int width = 0, height = 0;
  cairo_save(to_);
  cairo_translate(to_, at.x, at.y);
  if (style.upwards) cairo_rotate(to_, -std::numbers::pi / 2);
  pango_cairo_update_layout(to_, layout.get());
  pango_layout_get_size(layout.get(), &width, &height);
  const double part = style.align == Align::kLeft ? 0 : style.align == Align::kCenter ? 0.5 : 1;
  cairo_move_to(to_, -part * width / PANGO_SCALE, -0.5 * height / PANGO_SCALE);
  use(style.color);
  pango_cairo_show_layout(to_, layout.get());
  cairo_restore(to_);
  cairo_new_path(to_);
}

double Painter::text_width(std::string_view text, const TextStyle& style) const {
  const PangoLayoutPtr layout = layout_text(showable(text), style.size, style.bold, chinese_);
  if (!layout) return 0;
  int width = 0;
  pango_layout_get_size(layout.get(), &width, nullptr);
  return static_cast<double>(width) / PANGO_SCALE;
}

std::string paint(PictureFormat format, int width, int height, bool chinese,
                  const std::function<void(Painter&)>& draw) {
  if (format == PictureFormat::kPng) {
    const Surface surface(cairo_image_surface_create(CAIRO_FORMAT_RGB24, width * kPixelsPerUnit,
                                                     height * kPixelsPerUnit));
    paint_on(surface, kPixelsPerUnit, chinese, draw);
    return encode_png(surface.get());
  }
  std::string content;
  const Surface surface(
      cairo_svg_surface_create_for_stream(append_to_string, &content, width, height));
  cairo_svg_surface_set_document_unit(surface.get(), CAIRO_SVG_UNIT_PX);
  const std::vector<std::string> texts = paint_on(surface, 1, chinese, draw);
  cairo_surface_finish(surface.get());
  check(cairo_surface_status(surface.get()));
  describe(content, texts);
  return content;
}

}  // namespace danlu::pictures
