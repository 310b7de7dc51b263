// train/report/sparkline.h: a curve in one line of text.
#pragma once
#include <span>
#include <string>

namespace danlu::train {

/// Means of equal stretches of `values` as eight heights of block characters, at most `width`
/// columns. Values that are not finite are left out of the means; a stretch without any is a space.
std::string sparkline(std::span<const double> values, int width = 60);

}  // namespace danlu::train
