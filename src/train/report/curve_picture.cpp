#include "train/report/curve_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/file.h"
#include "base/log.h"
#include "pictures/picture_fonts.h"
#include "train/report/axis.h"
#include "train/report/metrics_log.h"
#include "train/report/picture_labels.h"

namespace danlu::train {

using namespace pictures;
namespace {

constexpr double kWidth = 800, kHeight = 500;
constexpr double kRight = 776, kBottom = 436;  // of the frame; top and left depend on the texts
constexpr double kSmoothing = 0.9;
constexpr Color kPale{1.00, 0.72, 0.60}, kStrong{0.90, 0.29, 0.10}, kBlue{0.10, 0.42, 0.70};
constexpr Color kInk{0.13, 0.13, 0.13}, kGrey{0.36, 0.36, 0.36}, kFaint{0.91, 0.91, 0.91};
constexpr TextStyle kTickStyle{.size = 12, .color = kGrey};

/// What can be drawn: NaN for what cannot.
double drawable(double value) {
  if (!(std::abs(value) <= 1e300)) return std::numeric_limits<double>::quiet_NaN();
  return std::abs(value) < 1e-300 ? 0 : value;
}

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

struct Frame {
  Axis x, y;
  std::vector<double> x_ticks, y_ticks;
  std::vector<std::string> x_texts, y_texts;
};

double widest(const Painter& painter, const std::vector<std::string>& texts) {
  double width = 0;
  for (const std::string& text : texts)
    width = std::max(width, painter.text_width(text, kTickStyle));
  return width;
}

Frame make_frame(const Painter& painter, const Range& steps, const Range& values, double top) {
  Frame frame;
  frame.y = make_axis(values.low, values.high, 0.05, kBottom, top);
  frame.y_ticks = axis_ticks(frame.y.low, frame.y.high, 6);
  frame.y_texts = tick_texts(frame.y_ticks);
  const double left = std::max(64.0, 46 + widest(painter, frame.y_texts));
  frame.x = make_axis(steps.low, steps.high, 0.02, left, kRight);
  for (int count = 10; count > 0; count = count * 2 / 3) {
    frame.x_ticks = axis_ticks(frame.x.low, frame.x.high, count);
    // There are no half steps, and none before the run.
    std::erase_if(frame.x_ticks, [](double t) { return t != std::round(t) || t < 0; });
    frame.x_texts = tick_texts(frame.x_ticks);
    if (frame.x_ticks.size() < 2) break;
    const double apart = frame.x.at(frame.x_ticks[1]) - frame.x.at(frame.x_ticks[0]);
    if (widest(painter, frame.x_texts) + 14 <= apart) break;
  }
  return frame;
}

void draw_frame(Painter& painter, const Frame& frame) {
  const auto rule = [&](double x0, double y0, double x1, double y1, Color color) {
    const Point ends[] = {{x0, y0}, {x1, y1}};
    painter.line(ends, 1, color);
  };
  const double left = frame.x.from, top = frame.y.to;
  TextStyle style = kTickStyle;
  style.align = Align::kRight;
  for (size_t i = 0; i < frame.y_ticks.size(); ++i) {
    const double y = std::round(frame.y.at(frame.y_ticks[i])) + 0.5;
    rule(left, y, kRight, y, kFaint);
    painter.text({left - 9, y}, frame.y_texts[i], style);
  }
  style.align = Align::kCenter;
  for (size_t i = 0; i < frame.x_ticks.size(); ++i) {
    const double x = std::round(frame.x.at(frame.x_ticks[i])) + 0.5;
    rule(x, top, x, kBottom, kFaint);
    rule(x, kBottom, x, kBottom + 5, kGrey);
    painter.text({x, kBottom + 16}, frame.x_texts[i], style);
  }
  rule(left, top, left, kBottom, kGrey);
  rule(left, kBottom, kRight, kBottom, kGrey);
}

/// The first, lowest, highest and last of the points that fall on half a unit: more cannot be seen.
std::vector<Point> visible(const Series& points, std::span<const double> values,
                           const Frame& frame) {
  std::vector<Point> all;
  for (size_t i = 0; i < values.size(); ++i)
    all.push_back({frame.x.at(static_cast<double>(points[i].first)), frame.y.at(values[i])});
  if (all.size() <= 2000) return all;
  std::vector<Point> kept;
  for (size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    size_t lowest = begin, highest = begin;
    for (; end < all.size() && std::floor(2 * all[end].x) == std::floor(2 * all[begin].x); ++end) {
      if (all[end].y < all[lowest].y || std::isnan(all[lowest].y)) lowest = end;
      if (all[end].y > all[highest].y || std::isnan(all[highest].y)) highest = end;
    }
    std::vector<size_t> places = {begin, lowest, highest, end - 1};
    std::ranges::sort(places);
    places.erase(std::unique(places.begin(), places.end()), places.end());
    for (const size_t place : places) kept.push_back(all[place]);
  }
  return kept;
}

/// A point between gaps makes no line, so it is a dot.
void draw_values(Painter& painter, const std::vector<Point>& points, double width, Color color) {
  painter.line(points, width, color);
  const auto there = [&](size_t i) { return i < points.size() && std::isfinite(points[i].y); };
  for (size_t i = 0; i < points.size(); ++i) {
    if (there(i) && !there(i + 1) && (i == 0 || !there(i - 1)))
      painter.dot(points[i], width + 1, color);
  }
}

void draw_evaluations(Painter& painter, const std::vector<Point>& points) {
  painter.line(points, 1.2, kBlue);
  for (const Point& point : points) {
    if (std::isfinite(point.y)) painter.dot(point, 3.5, kBlue);
  }
}

struct LegendEntry {
  PictureLabel name;
  Color color;
  bool dots = false;
};

void draw_legend(Painter& painter, const std::vector<LegendEntry>& entries, double left, double y) {
  const TextStyle style{.size = 12.5, .color = kInk};
  for (const auto& [name, color, dots] : entries) {
    const Point ends[] = {{left, y}, {left + 24, y}};
    painter.line(ends, dots ? 1.2 : 3, color);
    if (dots) painter.dot({left + 12, y}, 3.5, color);
    const std::string_view text = name.in(painter.chinese());
    painter.text({left + 31, y}, text, style);
    left += 31 + painter.text_width(text, style) + 26;
  }
}

std::vector<double> scaled(const Series& series, double factor) {
  std::vector<double> values;
  for (const auto& [step, value] : series) values.push_back(drawable(value * factor));
  return values;
}

void draw_curve(Painter& painter, const Curve& curve) {
  const MetricLook look = metric_look(curve.key);
  const std::string_view name = look.name.in(painter.chinese());
  const std::vector<double> values = scaled(curve.points, look.factor),
                            evaluations = scaled(curve.evaluations, look.factor);
  std::vector<LegendEntry> legend;
  if (look.noisy) legend = {{kEachRecordLabel, kPale}, {kMeanLabel, kStrong}};
  if (!look.noisy && !evaluations.empty()) legend = {{look.name, kStrong}};
  if (!evaluations.empty()) legend.push_back({kEvaluationLabel, kBlue, true});

  Range range, steps;
  for (const std::vector<double>& some : {values, evaluations}) {
    for (const double value : some) range.add(value);
  }
  for (const Series& some : {curve.points, curve.evaluations}) {
    for (const auto& [step, value] : some) steps.add(static_cast<double>(step));
  }
  const std::string title =
      curve.run.empty() ? std::string(name) : fmt::format("{} · {}", name, curve.run);
  painter.text({24, 27}, title,
               {.size = 17, .color = kInk, .bold = true, .max_width = kWidth - 48});
  if (range.empty()) {
    painter.text({kWidth / 2, kHeight / 2}, kNothingLabel.in(painter.chinese()),
                 {.size = 15, .color = kGrey, .align = Align::kCenter});
    return;
  }
  const Frame frame = make_frame(painter, steps, range, legend.empty() ? 54 : 82);
  draw_frame(painter, frame);
  const TextStyle axis_style{.size = 13, .color = kInk, .align = Align::kCenter};
  painter.text({(frame.x.from + kRight) / 2, kHeight - 22}, kStepLabel.in(painter.chinese()),
               axis_style);
  TextStyle upwards = axis_style;
  upwards.upwards = true;
  painter.text({22, (frame.y.to + kBottom) / 2},
               look.unit.empty() ? std::string(name) : fmt::format("{} ({})", name, look.unit),
               upwards);
  draw_legend(painter, legend, frame.x.from, 60);
  const std::vector<Point> points = visible(curve.points, values, frame);
  if (curve.key.starts_with("eval_")) {
    draw_evaluations(painter, points);
  } else {
    draw_values(painter, points, look.noisy ? 1.3 : 2, look.noisy ? kPale : kStrong);
  }
  if (look.noisy)
    draw_values(painter, visible(curve.points, smoothed(values, kSmoothing), frame), 2.2, kStrong);
  draw_evaluations(painter, visible(curve.evaluations, evaluations, frame));
}

std::string file_stem(const std::string& key) {
  std::string stem = key.starts_with("eval_") ? key : "train_" + key;
  for (char& c : stem) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-' && c != '.') c = '_';
  }
  return stem;
}

void report_missing_fonts(bool chinese) {
  if (!fonts_show("0")) {
    log::info("images: no font on this machine, so pictures have no text (fonts-dejavu-core)");
  } else if (speaks_chinese() && !chinese) {
    log::info("images: no font with Chinese glyphs, so labels are English (fonts-wqy-microhei)");
  }
}

}  // namespace

std::vector<double> smoothed(std::span<const double> values, double smoothing) {
  std::vector<double> means;
  double sum = 0, weight = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) {
      means.push_back(std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    sum = sum * smoothing + value;
    weight = weight * smoothing + 1;
    means.push_back(sum / weight);
  }
  return means;
}

std::string curve_picture(const Curve& curve, PictureFormat format, bool chinese) {
  return paint(format, static_cast<int>(kWidth), static_cast<int>(kHeight), chinese,
               [&](Painter& painter) { draw_curve(painter, curve); });
}

bool pictures_speak_chinese() { return speaks_chinese() && fonts_show(chinese_labels()); }

std::vector<fs::path> draw_run_pictures(const fs::path& logging_jsonl, const fs::path& images_dir,
                                        const std::string& run) {
  std::vector<fs::path> paths;
  const auto series = read_metrics(logging_jsonl);
  fs::create_directories(images_dir);
  find_fonts(fs::absolute(images_dir) / ".fontconfig");
  const bool chinese = pictures_speak_chinese();
  for (const auto& [key, points] : series) {
    // Time is no curve, and "acc" is ms-swift's older name of token_acc.
    if (key == "epoch" || key == "acc" || key == "eval_acc") continue;
    if (points.size() < 2 && key != "loss") continue;
    Curve curve{key, run, points};
    if (const auto found = series.find("eval_" + key); found != series.end())
      curve.evaluations = found->second;
    const fs::path stem = images_dir / file_stem(key);
    write_file_atomic(stem.string() + ".svg", curve_picture(curve, PictureFormat::kSvg, chinese));
    paths.push_back(stem.string() + ".png");
    write_file_atomic(paths.back(), curve_picture(curve, PictureFormat::kPng, chinese));
  }
  if (!paths.empty()) report_missing_fonts(chinese);
  std::stable_partition(paths.begin(), paths.end(),
                        [](const fs::path& p) { return p.filename() == "train_loss.png"; });
  return paths;
}

}  // namespace danlu::train
