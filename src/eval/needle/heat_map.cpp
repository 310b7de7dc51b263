#include "eval/needle/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "pictures/picture_fonts.h"

namespace danlu::eval {
namespace {

using pictures::Align;
using pictures::Color;
using pictures::Painter;
using pictures::Point;
using pictures::TextStyle;

constexpr Color kMapInk{0.13, 0.13, 0.13}, kMapGrey{0.36, 0.36, 0.36}, kWhite{1, 1, 1};
constexpr Color kNoValue{0.93, 0.93, 0.93}, kHatch{0.72, 0.72, 0.72};
constexpr double kMapTop = 64, kBelow = 84, kGap = 7, kScaleWidth = 14, kScaleRoom = 84;
constexpr double kMeanWidth = 56, kCellWidth = 64, kCellHeight = 24;
constexpr std::string_view kMeanWord = "mean";

struct Field {
  double left, top, cell_width, cell_height;
  size_t columns, rows;
  double right() const { return left + cell_width * static_cast<double>(columns); }
  double bottom() const { return top + cell_height * static_cast<double>(rows); }
  double mean_left() const { return right() + kGap; }
  double mean_top() const { return bottom() + kGap; }
};

/// The mean of the values that are there; NaN without one.
class Mean {
 public:
  void add(double value) {
    if (std::isfinite(value)) sum_ += value, ++count_;
  }
  double value() const {
    return count_ ? sum_ / static_cast<double>(count_) : std::numeric_limits<double>::quiet_NaN();
  }

 private:
  double sum_ = 0;
  int64_t count_ = 0;
};

struct Means {
  std::vector<double> rows, columns;
  double all = 0;
};

Means means_of(const HeatMap& map) {
  std::vector<Mean> rows(map.rows.size()), columns(map.columns.size());
  Mean all;
  for (size_t row = 0; row < map.rows.size(); ++row) {
    for (size_t column = 0; column < map.columns.size(); ++column) {
      const double value = map.values[row][column];
      rows[row].add(value), columns[column].add(value), all.add(value);
    }
  }
  Means means;
  for (const Mean& mean : rows) means.rows.push_back(mean.value());
  for (const Mean& mean : columns) means.columns.push_back(mean.value());
  means.all = all.value();
  return means;
}

double linear_light(double part) {
  return part <= 0.04045 ? part / 12.92 : std::pow((part + 0.055) / 1.055, 2.4);
}

double luminance(Color color) {
  return 0.2126 * linear_light(color.red) + 0.7152 * linear_light(color.green) +
         0.0722 * linear_light(color.blue);
}

/// Lines from lower left to upper right, all within the cell.
void hatch(Painter& painter, Point corner, double width, double height) {
  painter.fill(corner, width, height, kNoValue);
  for (double offset = 6; offset < width + height; offset += 6) {
    const double from = std::min(offset, height), to = std::min(offset, width);
    const Point ends[] = {{corner.x + offset - from, corner.y + from},
                          {corner.x + to, corner.y + offset - to}};
    painter.line(ends, 0.7, kHatch);
  }
}

void draw_cell(Painter& painter, const HeatMap& map, double value, Point corner, double width,
               double height) {
  // A hair of white between cells.
  const Point inner{corner.x + 0.5, corner.y + 0.5};
  if (!std::isfinite(value)) return hatch(painter, inner, width - 1, height - 1);
  const Color color = heat_color((value - map.low) / (map.high - map.low));
  painter.fill(inner, width - 1, height - 1, color);
  TextStyle style{.size = 11.5, .align = Align::kCenter};
  // The larger of the two contrasts (WCAG's): they are the same at this luminance.
  style.color = luminance(color) > 0.211 ? kMapInk : kWhite;
  const std::string text =
      std::abs(value) < 99.95 ? fmt::format("{:.1f}", value + 0.0) : fmt::format("{:.0f}", value);
  if (height < style.size + 2 || painter.text_width(text, style) > width - 4) return;
  painter.text({corner.x + width / 2, corner.y + height / 2}, text, style);
}

void draw_cells(Painter& painter, const HeatMap& map, const Field& field, const Means& means) {
  const double mean_width = kMeanWidth, height = field.cell_height;
  for (size_t row = 0; row < field.rows; ++row) {
    const double y = field.top + height * static_cast<double>(row);
    for (size_t column = 0; column < field.columns; ++column)
      draw_cell(painter, map, map.values[row][column],
                {field.left + field.cell_width * static_cast<double>(column), y}, field.cell_width,
                height);
    draw_cell(painter, map, means.rows[row], {field.mean_left(), y}, mean_width, height);
  }
  for (size_t column = 0; column < field.columns; ++column)
    draw_cell(painter, map, means.columns[column],
              {field.left + field.cell_width * static_cast<double>(column), field.mean_top()},
              field.cell_width, height);
  draw_cell(painter, map, means.all, {field.mean_left(), field.mean_top()}, mean_width, height);
}

/// Every so many that their texts do not touch.
size_t label_step(const std::vector<std::string>& texts, double apart, const Painter& painter,
                  const TextStyle& style, bool by_height) {
  double room = by_height ? style.size * 1.2 : 0;
  if (!by_height) {
    for (const std::string& text : texts)
      room = std::max(room, painter.text_width(text, style) + 8);
  }
  return std::max<size_t>(1, static_cast<size_t>(std::ceil(room / apart)));
}

void draw_axes(Painter& painter, const HeatMap& map, const Field& field) {
  const std::string mean = picture_word(kMeanWord, painter.chinese());
  const TextStyle bold{.size = 12, .color = kMapInk, .align = Align::kCenter, .bold = true};
  TextStyle tick{.size = 12, .color = kMapGrey, .align = Align::kRight};
  const size_t row_step = label_step(map.rows, field.cell_height, painter, tick, true);
  for (size_t row = 0; row < field.rows; row += row_step)
    painter.text({field.left - 8, field.top + field.cell_height * (static_cast<double>(row) + 0.5)},
                 map.rows[row], tick);
  TextStyle mean_row = bold;
  mean_row.align = Align::kRight;
  painter.text({field.left - 8, field.mean_top() + field.cell_height / 2}, mean, mean_row);
  tick.align = Align::kCenter;
  const double below = field.mean_top() + field.cell_height + 13;
  const size_t column_step = label_step(map.columns, field.cell_width, painter, tick, false);
  for (size_t column = 0; column < field.columns; column += column_step)
    painter.text({field.left + field.cell_width * (static_cast<double>(column) + 0.5), below},
                 map.columns[column], tick);
  painter.text({field.mean_left() + kMeanWidth / 2, below}, mean, bold);
  const TextStyle axis{.size = 13, .color = kMapInk, .align = Align::kCenter};
  painter.text({(field.left + field.right()) / 2, below + 27}, map.column_title, axis);
  TextStyle upwards = axis;
  upwards.upwards = true;
  const double end = field.mean_top() + field.cell_height;
  upwards.max_width = end - field.top;
  painter.text({22, (field.top + end) / 2}, map.row_title, upwards);
}

void draw_scale(Painter& painter, const HeatMap& map, const Field& field) {
  const double left = field.mean_left() + kMeanWidth + 26, top = field.top;
  const double height = field.mean_top() + field.cell_height - top;
  // Steps overlap: what lies between two edges that meet is not filled twice by half.
  constexpr int kSteps = 128;
  for (int step = kSteps; step-- > 0;) {
    const double part = (step + 0.5) / kSteps, from = height * (1 - (step + 1.0) / kSteps);
    painter.fill({left, top + from}, kScaleWidth, height - from, heat_color(part));
  }
  const TextStyle tick{.size = 12, .color = kMapGrey};
  for (int i = 0; i <= 4; ++i) {
    const double part = i / 4.0;
    const double y = top + height * (1 - part);
    painter.text({left + kScaleWidth + 6, y},
                 fmt::format("{:g}", map.low + part * (map.high - map.low)), tick);
  }
  const TextStyle upwards{.size = 13, .color = kMapInk, .align = Align::kCenter, .upwards = true};
  painter.text({left + kScaleWidth + 44, top + height / 2}, map.value_title, upwards);
}

void check_shape(const HeatMap& map) {
  bool fits = map.values.size() == map.rows.size() && !map.rows.empty() && !map.columns.empty() &&
              map.low < map.high;
  for (const auto& row : map.values) fits = fits && row.size() == map.columns.size();
  if (!fits)
    throw InternalError(fmt::format("[heat map] {} x {} titles, {} rows of values", map.rows.size(),
                                    map.columns.size(), map.values.size()));
}

/// Many columns or rows share the room of so many.
double shared(double size, size_t count, size_t most) {
  return count <= most ? size : size * static_cast<double>(most) / static_cast<double>(count);
}

}  // namespace

pictures::Color heat_color(double part) {
  struct Anchor {
    double at;
    pictures::Color color;
  };
  static constexpr Anchor kAnchors[] = {{0.00, {0.10, 0.11, 0.34}},
                                        {0.25, {0.16, 0.29, 0.55}},
                                        {0.50, {0.17, 0.52, 0.60}},
                                        {0.75, {0.46, 0.74, 0.49}},
                                        {1.00, {0.99, 0.91, 0.36}}};
  part = std::clamp(part, 0.0, 1.0);
  size_t next = 1;
  while (kAnchors[next].at < part) ++next;
  const auto& [from, a] = kAnchors[next - 1];
  const auto& [to, b] = kAnchors[next];
  const double weight = (part - from) / (to - from);
  return {std::lerp(a.red, b.red, weight), std::lerp(a.green, b.green, weight),
          std::lerp(a.blue, b.blue, weight)};
}

std::string picture_word(std::string_view english, bool chinese) {
  return std::string(chinese ? in_chinese(english) : english);
}

bool eval_pictures_speak_chinese() {
  return speaks_chinese() && pictures::fonts_show(in_chinese(kMeanWord)) &&
         pictures::fonts_show(in_chinese("depth of the needle (%)"));
}

std::string heat_map_picture(const HeatMap& map, pictures::PictureFormat format, bool chinese) {
  check_shape(map);
  Field field{.left = 96,
              .top = kMapTop,
              .cell_width = shared(kCellWidth, map.columns.size(), 16),
              .cell_height = shared(kCellHeight, map.rows.size(), 30),
              .columns = map.columns.size(),
              .rows = map.rows.size()};
  // A map of few columns and rows still has room for its titles.
  field.cell_width = std::max(field.cell_width, 320.0 / static_cast<double>(field.columns));
  field.cell_height = std::max(field.cell_height, 170.0 / static_cast<double>(field.rows + 1));
  const double width = field.mean_left() + kMeanWidth + 26 + kScaleRoom;
  const double height = field.mean_top() + field.cell_height + kBelow - 24;
  return pictures::paint(
      format, static_cast<int>(std::ceil(width)), static_cast<int>(std::ceil(height)), chinese,
      [&](Painter& painter) {
        painter.text({24, 30}, map.title,
                     {.size = 17, .color = kMapInk, .bold = true, .max_width = width - 48});
        draw_cells(painter, map, field, means_of(map));
        draw_axes(painter, map, field);
        draw_scale(painter, map, field);
      });
}

}  // namespace danlu::eval
