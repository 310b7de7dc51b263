// bench/statistics.h: what some numbers that should be one number come to.
#pragma once
#include <vector>

namespace danlu::bench {

/// For an even count, the mean of the two in the middle. REQUIRES: not empty.
double median(std::vector<double> values);

/// What a share of `below` (0 to 1) of the values is at most. REQUIRES: not empty.
double quantile(std::vector<double> values, double below);

/// (largest - smallest) / median: how far apart they lie. REQUIRES: not empty; all above 0.
double spread(const std::vector<double>& values);

/// larger / smaller - 1: how far one number has moved to become another, either way.
/// REQUIRES: both above 0.
double moved(double before, double after);

}  // namespace danlu::bench
