#include "train/report/curve_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/file.h"
#include "train/report/metrics_log.h"

namespace danlu::train {
namespace curve_picture_detail {

constexpr int kWidth = 800, kHeight = 500, kDotsPerInch = 100;
constexpr int kLeft = 100, kRight = 772, kTop = 58, kBottom = 430;  // the frame around the curve
constexpr double kSmoothing = 0.9;
constexpr Color kRawColor{0xFF, 0xE2, 0xD9}, kSmoothColor{0xFF, 0x70, 0x43};
constexpr Color kInk{0x33, 0x33, 0x33}, kFaint{0xEC, 0xEC, 0xEC};

struct Axis {
  double low, high;
  int from, to;  // pixels
  double at(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

Axis make_axis(double low, double high, double margin, int from, int to) {
  if (!(high > low)) {
    const double half = low == 0 ? 0.5 : std::abs(low) * 0.05;
    low -= half;
    high += half;
  }
  const double room = (high - low) * margin;
  return {low - room, high + room, from, to};
}

std::string tick_text(double value, double step) {
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size >= 1e6 || size < 1e-3) return fmt::format("{:.3g}", value);
  const int decimals = std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 6);
  return fmt::format("{:.{}f}", value, decimals);
}

void draw_axes(Canvas& canvas, const Axis& x, const Axis& y) {
  const std::vector<double> x_ticks = axis_ticks(x.low, x.high, 8),
                            y_ticks = axis_ticks(y.low, y.high, 6);
  const double x_step = x_ticks.size() > 1 ? x_ticks[1] - x_ticks[0] : 1;
  const double y_step = y_ticks.size() > 1 ? y_ticks[1] - y_ticks[0] : 1;
  for (const double tick : y_ticks) {
    const int row = static_cast<int>(std::lround(y.at(tick)));
    canvas.fill_rectangle(kLeft, row, kRight, row + 1, kFaint);
    canvas.fill_rectangle(kLeft - 5, row, kLeft, row + 1, kInk);
    canvas.draw_text(kLeft - 9, row - 6, tick_text(tick, y_step), 2, kInk, Align::kRight);
  }
  for (const double tick : x_ticks) {
    if (tick != std::round(tick)) continue;  // there are no half steps
    const int column = static_cast<int>(std::lround(x.at(tick)));
    canvas.fill_rectangle(column, kBottom, column + 1, kBottom + 5, kInk);
    canvas.draw_text(column, kBottom + 10, tick_text(tick, std::max(1.0, x_step)), 2, kInk,
                     Align::kCenter);
  }
}

void draw_frame(Canvas& canvas) {
  canvas.fill_rectangle(kLeft, kTop, kRight + 1, kTop + 1, kInk);
  canvas.fill_rectangle(kLeft, kBottom, kRight + 1, kBottom + 1, kInk);
  canvas.fill_rectangle(kLeft, kTop, kLeft + 1, kBottom + 1, kInk);
  canvas.fill_rectangle(kRight, kTop, kRight + 1, kBottom + 1, kInk);
}

void draw_values(Canvas& canvas, std::span<const std::pair<int64_t, double>> points,
                 const std::vector<double>& values, const Axis& x, const Axis& y, double thickness,
                 Color color) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    const bool joined = i > 0 && std::isfinite(values[i - 1]);
    const size_t from = joined ? i - 1 : i;
    canvas.draw_line(x.at(static_cast<double>(points[from].first)), y.at(values[from]),
                     x.at(static_cast<double>(points[i].first)), y.at(values[i]), thickness, color);
  }
}

void draw_legend(Canvas& canvas) {
  int x = kRight;
  const auto entry = [&](const char* name, Color color) {
    x -= Canvas::text_width(name, 1);
    canvas.draw_text(x, 39, name, 1, kInk);
    canvas.draw_line(x - 30, 43, x - 8, 43, 3, color);
    x -= 46;
  };
  entry("exponential mean 0.9", kSmoothColor);
  entry("each record", kRawColor);
}

std::string file_stem(const std::string& key) {
  std::string stem = key.starts_with("eval_") ? key : "train_" + key;
  for (char& c : stem) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-' && c != '.') c = '_';
  }
  return stem;
}

}  // namespace curve_picture_detail

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

std::vector<double> axis_ticks(double low, double high, int count) {
  const double rough = (high - low) / std::max(1, count);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double lead = rough / power;
  const double step = power * (lead < 1.5 ? 1 : lead < 3 ? 2 : lead < 7 ? 5 : 10);
  std::vector<double> ticks;
  // Counting whole steps keeps 0 exactly 0 and adds no rounding errors up.
  for (double n = std::ceil(low / step - 1e-9); n * step <= high + step * 1e-9; ++n)
    ticks.push_back(n * step);
  return ticks;
}

Canvas draw_curve(const std::string& title, std::span<const std::pair<int64_t, double>> points,
                  bool smooth) {
  using namespace curve_picture_detail;
  Canvas canvas(kWidth, kHeight);
  std::vector<double> values;
  double low = std::numeric_limits<double>::infinity(), high = -low;
  double first = low, last = high;
  for (const auto& [step, value] : points) {
    values.push_back(value);
    first = std::min(first, static_cast<double>(step));
    last = std::max(last, static_cast<double>(step));
    if (!std::isfinite(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  canvas.draw_text((kLeft + kRight) / 2, 14, title, 2, kInk, Align::kCenter);
  canvas.draw_text((kLeft + kRight) / 2, 466, "step", 2, kInk, Align::kCenter);
  if (low > high) {
    canvas.draw_text((kLeft + kRight) / 2, (kTop + kBottom) / 2, "no finite value", 2, kInk,
                     Align::kCenter);
    draw_frame(canvas);
    return canvas;
  }
  const Axis x = make_axis(first, last, 0.02, kLeft, kRight);
  const Axis y = make_axis(low, high, 0.05, kBottom, kTop);
  draw_axes(canvas, x, y);
  draw_values(canvas, points, values, x, y, smooth ? 1.6 : 2.0, smooth ? kRawColor : kSmoothColor);
  if (smooth) {
    draw_values(canvas, points, smoothed(values, kSmoothing), x, y, 2.0, kSmoothColor);
    draw_legend(canvas);
  }
  draw_frame(canvas);
  return canvas;
}

std::vector<fs::path> draw_run_pictures(const fs::path& logging_jsonl, const fs::path& images_dir) {
  using namespace curve_picture_detail;
  std::vector<fs::path> paths;
  const auto series = read_metrics(logging_jsonl);
  fs::create_directories(images_dir);
  for (const auto& [key, points] : series) {
    // Time is no curve, and "acc" is ms-swift's older name of token_acc.
    if (points.size() < 2 || key == "epoch" || key == "acc" || key == "eval_acc") continue;
    const std::string stem = file_stem(key);
    paths.push_back(images_dir / (stem + ".png"));
    // Only noisy series gain from a mean; schedules and speeds are shown as they are.
    const bool smooth = key == "loss" || key == "token_acc" || key == "grad_norm";
    draw_curve(key.starts_with("eval_") ? key : "train/" + key, points, smooth)
        .write_png(paths.back(), kDotsPerInch);
  }
  std::stable_partition(paths.begin(), paths.end(),
                        [](const fs::path& p) { return p.filename() == "train_loss.png"; });
  return paths;
}

}  // namespace danlu::train
