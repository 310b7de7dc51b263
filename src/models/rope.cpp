#include "models/rope.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "base/error.h"
#include "device/sent.h"
#include "ops/pointwise.h"

namespace danlu::models {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

/// One of a model's rotary embeddings.
struct Turn {
  const arch::RopeConfig& rope;
  int64_t dims;           ///< of a head, that are rotated
  int64_t max_positions;  ///< of the model

  int64_t original() const {
    return rope.original_max_positions > 0 ? rope.original_max_positions : max_positions;
  }
};

Turn turn_of(const arch::ModelConfig& config, const arch::RopeConfig& rope) {
  return {rope, rope.rotated_dims > 0 ? rope.rotated_dims : config.head_dim, config.max_positions};
}

std::vector<double> plain(double theta, int64_t dims) {
  std::vector<double> frequencies;
  for (int64_t j = 0; j < dims / 2; ++j) {
    frequencies.push_back(
        std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(dims)));
  }
  return frequencies;
}

/// Long waves are stretched by `factor`, short ones kept, those between blended by wave length.
double llama3(double frequency, const arch::RopeConfig& rope, double original) {
  const double wave_length = kTwoPi / frequency;
  if (wave_length < original / rope.high_freq_factor) return frequency;
  if (wave_length > original / rope.low_freq_factor) return frequency / rope.factor;
  // Llama-4's two factors are the same.
  if (rope.high_freq_factor == rope.low_freq_factor) return frequency;
  const double smooth = (original / wave_length - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

/// Which pair turns `rotations` times over the original context.
double yarn_pair(double rotations, const Turn& turn) {
  return static_cast<double>(turn.dims) *
         std::log(static_cast<double>(turn.original()) / (rotations * kTwoPi)) /
         (2 * std::log(turn.rope.theta));
}

void yarn(std::vector<double>& frequencies, const Turn& turn) {
  const double low = std::max(std::floor(yarn_pair(turn.rope.beta_fast, turn)), 0.0);
  double high =
      std::min(std::ceil(yarn_pair(turn.rope.beta_slow, turn)), static_cast<double>(turn.dims - 1));
  if (low == high) high += 0.001;
  for (size_t j = 0; j < frequencies.size(); ++j) {
    const double interpolated = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
    frequencies[j] *= (1 - interpolated) + interpolated / turn.rope.factor;
  }
}

/// NTK-aware theta for a sequence longer than the original context.
double dynamic_theta(const Turn& turn, int64_t sequence_length) {
  const double original = static_cast<double>(turn.original());
  const double length = std::max(static_cast<double>(sequence_length), original);
  const double dim = static_cast<double>(turn.dims);
  return turn.rope.theta *
         std::pow(turn.rope.factor * length / original - (turn.rope.factor - 1), dim / (dim - 2));
}

bool is_long(const Turn& turn, int64_t sequence_length) {
  return sequence_length > turn.original();
}

std::vector<double> frequencies_of(const Turn& turn, int64_t sequence_length) {
  const arch::RopeConfig& rope = turn.rope;
  const bool dynamic = rope.scaling == arch::RopeScaling::kDynamic;
  std::vector<double> frequencies =
      plain(dynamic ? dynamic_theta(turn, sequence_length) : rope.theta, turn.dims);
  if (rope.scaling == arch::RopeScaling::kLinear) {
    for (double& frequency : frequencies) frequency /= rope.factor;
  } else if (rope.scaling == arch::RopeScaling::kLlama3) {
    const double original = static_cast<double>(turn.original());
    for (double& frequency : frequencies) frequency = llama3(frequency, rope, original);
  } else if (rope.scaling == arch::RopeScaling::kYarn) {
    yarn(frequencies, turn);
  } else if (rope.scaling == arch::RopeScaling::kLongRope) {
    const auto& divisors = is_long(turn, sequence_length) ? rope.long_factors : rope.short_factors;
    for (size_t j = 0; j < frequencies.size(); ++j) frequencies[j] /= divisors.at(j);
  }
  return frequencies;
}

double yarn_temperature(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1;
}

double longrope_factor(const Turn& turn, int64_t sequence_length) {
  const arch::RopeConfig& rope = turn.rope;
  const std::optional<double>& own =
      is_long(turn, sequence_length) ? rope.long_mscale : rope.short_mscale;
  if (own) return *own;
  if (rope.attention_factor) return *rope.attention_factor;
  const double stretched = rope.factor, original = static_cast<double>(turn.original());
  return stretched <= 1 ? 1.0 : std::sqrt(1 + std::log(stretched) / std::log(original));
}

double attention_factor_of(const Turn& turn, int64_t sequence_length) {
  const arch::RopeConfig& rope = turn.rope;
  if (rope.scaling == arch::RopeScaling::kLongRope) return longrope_factor(turn, sequence_length);
  if (rope.scaling != arch::RopeScaling::kYarn) return 1.0;
  if (rope.attention_factor) return *rope.attention_factor;
  // HF asks whether both are true: 0 counts as missing.
  const double mscale = rope.mscale.value_or(0), all_dim = rope.mscale_all_dim.value_or(0);
  if (mscale != 0 && all_dim != 0) {
    return yarn_temperature(rope.factor, mscale) / yarn_temperature(rope.factor, all_dim);
  }
  return yarn_temperature(rope.factor, 1.0);
}

at::Tensor as_tensor(const std::vector<double>& frequencies, const at::Device& device) {
  const std::vector<float> rounded(frequencies.begin(), frequencies.end());
  return device::sent(at::tensor(rounded, at::TensorOptions(at::kFloat)), device);
}

/// A row of frequencies for each token, and the factor on its cosines and sines: each segment's
/// follow from its own length.
struct TurnedRows {
  at::Tensor frequencies_NE, factors_N1;
};
TurnedRows rows_by_length(const Turn& turn, const at::Tensor& positions_N,
                          const ForwardInput& input) {
  const at::Tensor positions = positions_N.cpu();
  const std::vector<int64_t>& starts = input.segments.q_starts;
  std::vector<RowRange> here = input.rows;
  if (here.empty()) here.push_back({0, starts.back()});
  std::vector<at::Tensor> rows, factors;
  for (size_t s = 0; s + 1 < starts.size(); ++s) {
    const int64_t begin = starts[s];
    int64_t count = 0;
    for (const RowRange& range : here) {
      count +=
          std::max<int64_t>(0, std::min(range.end, starts[s + 1]) - std::max(range.begin, begin));
    }
    if (count == 0) continue;
    const int64_t length = input.rows.empty()
                               ? positions.narrow(-1, begin, count).max().item<int64_t>() + 1
                               : input.segment_lengths[s];
    const at::Tensor row = as_tensor(frequencies_of(turn, length), at::kCPU);
    rows.push_back(row.unsqueeze(0).expand({count, row.size(0)}));
    factors.push_back(as_tensor({attention_factor_of(turn, length)}, at::kCPU).expand({count, 1}));
  }
  // Rows that were added to divide over ranks; or none at all, where tokens are few.
  int64_t known = 0;
  for (const at::Tensor& row : rows) known += row.size(0);
  if (const int64_t more = positions_N.size(-1) - known; more > 0 || rows.empty()) {
    rows.push_back(at::zeros({more, turn.dims / 2}, at::TensorOptions(at::kFloat)));
    factors.push_back(at::zeros({more, 1}, at::TensorOptions(at::kFloat)));
  }
  const at::Device device = positions_N.device();
  return {device::sent(at::cat(rows, 0), device), device::sent(at::cat(factors, 0), device)};
}

/// The table of positions on three axes: each axis turns a run of the pairs, and the runs lie one
/// after the other in the order of the axes.
ops::RotaryTable table_of_axes(const std::vector<int64_t>& sections, const at::Tensor& positions_3N,
                               const at::Tensor& frequencies, double attention_factor) {
  std::vector<at::Tensor> cos, sin;
  int64_t first = 0;
  for (size_t axis = 0; axis < sections.size(); ++axis) {
    const ops::RotaryTable table =
        ops::rotary_table(positions_3N.select(0, static_cast<int64_t>(axis)),
                          frequencies.narrow(-1, first, sections[axis]), attention_factor);
    cos.push_back(table.cos_NE);
    sin.push_back(table.sin_NE);
    first += sections[axis];
  }
  return {ops::joined(cos, 1), ops::joined(sin, 1)};
}

/// The table of the positions, by the frequencies of one embedding.
ops::RotaryTable table_of(const arch::ModelConfig& config, const Turn& turn,
                          const at::Tensor& positions_N, const ForwardInput& input) {
  TurnedRows rows;
  if (arch::turns_by_length(turn.rope)) rows = rows_by_length(turn, positions_N, input);
  const at::Tensor frequencies = arch::turns_by_length(turn.rope)
                                     ? rows.frequencies_NE
                                     : as_tensor(frequencies_of(turn, 0), positions_N.device());
  const bool factor_knows_length = turn.rope.scaling == arch::RopeScaling::kLongRope;
  const double factor = factor_knows_length ? 1.0 : attention_factor_of(turn, 0);
  if (positions_N.dim() == 1) {
    ops::RotaryTable table = ops::rotary_table(positions_N, frequencies, factor);
    if (factor_knows_length) {
      table.cos_NE = table.cos_NE * rows.factors_N1;
      table.sin_NE = table.sin_NE * rows.factors_N1;
    }
    table.is_pairwise = turn.rope.is_pairwise;
    return table;
  }
  const std::vector<int64_t>& sections = config.rope.mrope_section;
  if (positions_N.dim() != 2 || sections.empty() ||
      positions_N.size(0) != static_cast<int64_t>(sections.size()))
    throw InternalError("[rope] positions of other axes than the model's");
  return table_of_axes(sections, positions_N, frequencies, factor);
}

}  // namespace

std::vector<double> rope_frequencies(const arch::ModelConfig& config, int64_t sequence_length) {
  return frequencies_of(turn_of(config, config.rope), sequence_length);
}

double rope_attention_factor(const arch::ModelConfig& config, int64_t sequence_length) {
  return attention_factor_of(turn_of(config, config.rope), sequence_length);
}

ops::RotaryTable rope_table(const arch::ModelConfig& config, const at::Tensor& positions_N,
                            const ForwardInput& input) {
  if (!config.rope.enabled) return {};
  return table_of(config, turn_of(config, config.rope), positions_N, input);
}

ops::RotaryTable window_rope_table(const arch::ModelConfig& config, const at::Tensor& positions_N,
                                   const ForwardInput& input) {
  if (!config.window_rope) return {};
  return table_of(config, turn_of(config, *config.window_rope), positions_N, input);
}

}  // namespace danlu::models
