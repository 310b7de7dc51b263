#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "eval/compare/compare.h"

namespace danlu::eval {
namespace {

using namespace pictures;

constexpr int kWidth = 800;
constexpr double kTop = 76, kRow = 44, kBar = 15, kRight = 720, kMargin = 24;
constexpr Color kInk{0.13, 0.13, 0.13}, kGrey{0.36, 0.36, 0.36}, kFaint{0.88, 0.88, 0.88};
constexpr Color kColorA{0.10, 0.42, 0.70}, kColorB{0.90, 0.45, 0.10};

struct Bars {
  std::string label;
  double a = 0, b = 0, error_a = 0, error_b = 0;
};

/// Bars of the first metric of each task whose values lie between 0 and `largest`.
std::vector<Bars> bars_of(const std::vector<TaskComparison>& tasks, double largest) {
  std::vector<Bars> all;
  for (const TaskComparison& task : tasks) {
    const auto metric =
        std::find_if(task.metrics.begin(), task.metrics.end(), [&](const MetricComparison& m) {
          return std::min(m.a, m.b) >= 0 && std::max(m.a, m.b) <= largest;
        });
    if (metric == task.metrics.end()) continue;
    all.push_back({fmt::format("{} ({})", task.alias, metric->metric), metric->a, metric->b,
                   metric->stderr_a.value_or(0), metric->stderr_b.value_or(0)});
  }
  return all;
}

/// The right end of the axis: a round number that holds every bar with its error.
double axis_end(const std::vector<Bars>& all) {
  double largest = 0;
  for (const Bars& bars : all)
    largest = std::max({largest, bars.a + bars.error_a, bars.b + bars.error_b});
  for (const double end : {0.1, 0.25, 0.5, 1.0, 10.0, 25.0, 50.0}) {
    if (largest <= end) return end;
  }
  return largest <= 1.25 ? 1.25 : std::max(100.0, std::ceil(largest / 25) * 25);
}

struct Scale {
  double left, end;
  double at(double value) const { return left + value / end * (kRight - left); }
};

void draw_bar(Painter& painter, const Scale& scale, double y, double value, double error,
              Color color) {
  painter.fill({scale.left, y}, scale.at(value) - scale.left, kBar, color);
  const double middle = y + kBar / 2;
  if (error > 0) {
    const double low = scale.at(std::max(0.0, value - error)), high = scale.at(value + error);
    for (const auto& ends : {std::pair(Point{low, middle}, Point{high, middle}),
                             std::pair(Point{low, middle - 4}, Point{low, middle + 4}),
                             std::pair(Point{high, middle - 4}, Point{high, middle + 4})}) {
      const Point line[] = {ends.first, ends.second};
      painter.line(line, 1.2, kInk);
    }
  }
  painter.text({scale.at(value + error) + 6, middle}, fmt::format("{:.3f}", value),
               {.size = 11, .color = kGrey});
}

void draw_axis(Painter& painter, const Scale& scale, double bottom) {
  constexpr int kSteps = 5;
  for (int i = 0; i <= kSteps; ++i) {
    const double value = scale.end * i / kSteps;
    const double x = std::round(scale.at(value)) + 0.5;
    const Point line[] = {{x, kTop - 8}, {x, bottom}};
    painter.line(line, 1, i == 0 ? kGrey : kFaint);
    painter.text({x, bottom + 14}, fmt::format("{:g}", value),
                 {.size = 11, .color = kGrey, .align = Align::kCenter});
  }
}

void draw_legend(Painter& painter, const RunComparison& comparison) {
  const auto entry = [&](double y, const char* letter, const std::string& model,
                         const fs::path& path, Color color) {
    painter.fill({kMargin, y - 6}, 12, 12, color);
    painter.text({kMargin + 20, y},
                 fmt::format("{}  {}", letter, model.empty() ? path.string() : model),
                 {.size = 12, .color = kInk, .max_width = kWidth - 2 * kMargin - 20});
  };
  entry(24, "A", comparison.model_a, comparison.path_a, kColorA);
  entry(44, "B", comparison.model_b, comparison.path_b, kColorB);
}

double label_width(const Painter& painter, const std::vector<Bars>& all) {
  constexpr double kWidest = 280;
  double width = 0;
  for (const Bars& bars : all)
    width = std::max(width, painter.text_width(bars.label, {.size = 12}));
  return std::min(width, kWidest);
}

}  // namespace

std::string comparison_picture(const RunComparison& comparison, pictures::PictureFormat format) {
  const auto& tasks = comparison.groups.empty() ? comparison.tasks : comparison.groups;
  std::vector<Bars> all = bars_of(tasks, 1);
  if (all.empty()) all = bars_of(tasks, 100);
  if (all.empty()) {
    throw DataError(
        tr("there is nothing to draw: no metric that both runs have lies between 0 and 100"));
  }
  const double bottom = kTop + kRow * static_cast<double>(all.size());
  return pictures::paint(
      format, kWidth, static_cast<int>(bottom + 36), speaks_chinese(), [&](Painter& painter) {
        draw_legend(painter, comparison);
        const double labels = label_width(painter, all);
        const Scale scale{kMargin + labels + 10, axis_end(all)};
        draw_axis(painter, scale, bottom);
        for (size_t i = 0; i < all.size(); ++i) {
          const double y = kTop + kRow * static_cast<double>(i);
          painter.text(
              {scale.left - 8, y + kBar + 1}, all[i].label,
              {.size = 12, .color = kInk, .align = Align::kRight, .max_width = labels + 1});
          draw_bar(painter, scale, y, all[i].a, all[i].error_a, kColorA);
          draw_bar(painter, scale, y + kBar + 2, all[i].b, all[i].error_b, kColorB);
        }
      });
}

}  // namespace danlu::eval
