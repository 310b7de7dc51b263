// train/report/axis.h: one side of a picture: where a value lies, which round numbers stand there.
#pragma once
#include <span>
#include <string>
#include <vector>

namespace danlu::train {

struct Axis {
  double low, high;  ///< values at the ends
  double from, to;   ///< their places
  double at(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

/// Covers [low, high], both within ±1e300, with `margin` (a part of the length) left at both ends.
/// Values that are almost equal get room around them.
Axis make_axis(double low, double high, double margin, double from, double to);

/// Round numbers within [low, high], about `count` of them.
std::vector<double> axis_ticks(double low, double high, int count);

/// Ticks as short as tells them apart: 0.25, 1200, 20k, 1.5M, 2e-5.
std::vector<std::string> tick_texts(std::span<const double> ticks);

}  // namespace danlu::train
