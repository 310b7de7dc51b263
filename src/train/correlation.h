// train/correlation.h: how well two rows of numbers go together.
#pragma once
#include <optional>
#include <vector>

namespace danlu::train {

/// Pearson's coefficient; nullopt where one of the two does not vary. REQUIRES: as many of each.
std::optional<double> pearson(const std::vector<double>& x, const std::vector<double>& y);
/// Spearman's: Pearson's of the numbers' places in order, equal numbers in the middle of theirs.
std::optional<double> spearman(const std::vector<double>& x, const std::vector<double>& y);

}  // namespace danlu::train
