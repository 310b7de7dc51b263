#include "data/megatron/splits.h"

#include <fmt/format.h>

#include <cfenv>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace danlu::data {
namespace {

[[noreturn]] void bad_split(std::string_view text, std::string_view rule) {
  throw UsageError(tr("--split \"{}\": {}", text, rule),
                   tr("give shares for training, validation and test, for example --split 99,1,0"));
}

double parse_share(std::string_view whole, std::string_view part) {
  double value = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
  if (error != std::errc() || end != part.data() + part.size() || !std::isfinite(value) ||
      value < 0) {
    bad_split(whole, tr("\"{}\" is not a share (a number >= 0)", part));
  }
  return value;
}

int64_t round_half_even(double value) { return static_cast<int64_t>(std::nearbyint(value)); }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())))
    text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())))
    text.remove_suffix(1);
  return text;
}

}  // namespace

std::string_view split_name(DatasetSplit split) {
  constexpr std::string_view kNames[] = {"train", "valid", "test"};
  return kNames[static_cast<size_t>(split)];
}

double numpy_sum(std::span<const double> values) {
  if (values.size() < 8) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum;
  }
  if (values.size() > 128) {
    const size_t half = values.size() / 2 - values.size() / 2 % 8;
    return numpy_sum(values.first(half)) + numpy_sum(values.subspan(half));
  }
  double r[8];
  for (size_t i = 0; i < 8; ++i) r[i] = values[i];
  size_t at = 8;
  for (; at + 8 <= values.size(); at += 8) {
    for (size_t i = 0; i < 8; ++i) r[i] += values[at + i];
  }
  double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; at < values.size(); ++at) sum += values[at];
  return sum;
}

std::vector<double> normalize_weights(std::span<const double> values) {
  const double sum = numpy_sum(values);
  std::vector<double> shares(values.begin(), values.end());
  for (double& share : shares) share /= sum;
  return shares;
}

SplitMatrix parse_split(std::string_view text) {
  std::vector<double> shares;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = text.find_first_of(".0123456789", at);
    if (begin == std::string_view::npos) break;
    const size_t end = std::min(text.find_first_not_of(".0123456789", begin), text.size());
    shares.push_back(parse_share(text, text.substr(begin, end - begin)));
    at = end;
  }
  if (shares.empty() || shares.size() > 3) {
    bad_split(text, tr("needs one to three numbers, got {}", shares.size()));
  }
  shares.resize(3, 0.0);
  if (numpy_sum(shares) <= 0) bad_split(text, "at least one share must be above 0");
  shares = normalize_weights(shares);
  SplitMatrix matrix;
  double low = 0;
  for (size_t i = 0; i < 3; ++i) {
    const double high = low + shares[i];
    if (high > low) matrix[i] = {low, high};
    low = high;
  }
  return matrix;
}

std::optional<IdRange> split_range(const SplitMatrix& matrix, DatasetSplit split, int64_t count) {
  const auto& share = matrix[static_cast<size_t>(split)];
  if (!share) return std::nullopt;
  const auto total = static_cast<double>(count);
  return IdRange{round_half_even(share->first * total), round_half_even(share->second * total)};
}

std::array<IdRange, 3> legacy_split_ranges(std::string_view text, int64_t count) {
  const char separator = text.find(',') != std::string_view::npos ? ',' : '/';
  std::vector<double> shares;
  for (std::string_view rest = text;;) {
    const size_t at = rest.find(separator);
    shares.push_back(parse_share(text, trimmed(rest.substr(0, at))));
    if (at == std::string_view::npos) break;
    rest.remove_prefix(at + 1);
  }
  shares.resize(3, 0.0);
  const double sum = shares[0] + shares[1] + shares[2];
  if (sum <= 0) bad_split(text, "at least one share must be above 0");
  std::array<int64_t, 4> bounds{};
  for (size_t i = 0; i < 3; ++i) {
    bounds[i + 1] = bounds[i] + round_half_even(shares[i] / sum * static_cast<double>(count));
  }
  const int64_t excess = bounds[3] - count;
  for (size_t i = 1; i < 4; ++i) bounds[i] -= excess;
  std::array<IdRange, 3> ranges;
  for (size_t i = 0; i < 3; ++i) ranges[i] = {bounds[i], bounds[i + 1]};
  return ranges;
}

}  // namespace danlu::data
