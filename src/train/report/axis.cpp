#include "train/report/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace danlu::train {
namespace {

int decimals_for(double step) {
  return std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 12);
}

std::string scientific(double value, double step) {
  const int digits = static_cast<int>(std::floor(std::log10(std::abs(value)) + 1e-9) -
                                      std::floor(std::log10(step) + 1e-9));
  const std::string text = fmt::format("{:.{}e}", value, std::clamp(digits, 0, 12));
  const size_t e = text.find('e');
  std::string mantissa = text.substr(0, e);
  if (mantissa.find('.') != std::string::npos) {
    mantissa.erase(mantissa.find_last_not_of('0') + 1);
    if (mantissa.back() == '.') mantissa.pop_back();
  }
  return fmt::format("{}e{}", mantissa, std::stoi(text.substr(e + 1)));
}

std::string tick_text(double value, double largest, double step) {
  constexpr std::pair<double, const char*> kUnits[] = {
      {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}};
  if (value == 0) return "0";
  if (largest >= 1e15 || largest < 1e-3) return scientific(value, step);
  // Four digits are read faster than a unit: 2000, but 20k.
  const auto unit = std::ranges::find_if(
      kUnits, [&](const auto& u) { return largest >= (u.first == 1e3 ? 1e4 : u.first); });
  const auto& [size, name] = unit == std::end(kUnits) ? kUnits[4] : *unit;
  return fmt::format("{:.{}f}{}", value / size, decimals_for(step / size), name);
}

}  // namespace

Axis make_axis(double low, double high, double margin, double from, double to) {
  const double size = std::max(std::abs(low), std::abs(high));
  if (!(high - low > size * 1e-11)) {
    const double half = size == 0 ? 0.5 : size * 0.05;
    low -= half;
    high += half;
  }
  const double room = (high - low) * margin;
  return {low - room, high + room, from, to};
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

std::vector<std::string> tick_texts(std::span<const double> ticks) {
  std::vector<std::string> texts;
  double largest = 0;
  for (const double tick : ticks) largest = std::max(largest, std::abs(tick));
  const double step = ticks.size() > 1 ? ticks[1] - ticks[0] : largest;
  for (const double tick : ticks) texts.push_back(tick_text(tick, largest, step));
  return texts;
}

}  // namespace danlu::train
