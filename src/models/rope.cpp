#include "models/rope.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "arch/attention_size.h"
#include "base/error.h"
#include "ops/pointwise.h"

namespace danlu::models {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

int64_t original_positions(const arch::ModelConfig& config) {
  return config.rope.original_max_positions > 0 ? config.rope.original_max_positions
                                                : config.max_positions;
}

std::vector<double> plain(double theta, int64_t head_dim) {
  std::vector<double> frequencies;
  for (int64_t j = 0; j < head_dim / 2; ++j) {
    frequencies.push_back(
        std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(head_dim)));
  }
  return frequencies;
}

/// Long waves are stretched by `factor`, short ones kept, those between blended by wave length.
double llama3(double frequency, const arch::RopeConfig& rope, double original) {
  const double wave_length = kTwoPi / frequency;
  if (wave_length < original / rope.high_freq_factor) return frequency;
  if (wave_length > original / rope.low_freq_factor) return frequency / rope.factor;
  const double smooth = (original / wave_length - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

/// Which pair turns `rotations` times over the original context.
double yarn_pair(double rotations, const arch::ModelConfig& config, double original) {
  return static_cast<double>(arch::rotated_dims(config)) *
         std::log(original / (rotations * kTwoPi)) / (2 * std::log(config.rope.theta));
}

void yarn(std::vector<double>& frequencies, const arch::ModelConfig& config) {
  const double original = static_cast<double>(original_positions(config));
  const double low = std::max(std::floor(yarn_pair(config.rope.beta_fast, config, original)), 0.0);
  double high = std::min(std::ceil(yarn_pair(config.rope.beta_slow, config, original)),
                         static_cast<double>(arch::rotated_dims(config) - 1));
  if (low == high) high += 0.001;
  for (size_t j = 0; j < frequencies.size(); ++j) {
    const double interpolated = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
    frequencies[j] *= (1 - interpolated) + interpolated / config.rope.factor;
  }
}

/// NTK-aware theta for a sequence longer than the original context.
double dynamic_theta(const arch::ModelConfig& config, int64_t sequence_length) {
  const double original = static_cast<double>(original_positions(config));
  const double length = std::max(static_cast<double>(sequence_length), original);
  const double dim = static_cast<double>(arch::rotated_dims(config));
  return config.rope.theta *
         std::pow(config.rope.factor * length / original - (config.rope.factor - 1),
                  dim / (dim - 2));
}

double yarn_temperature(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1;
}

at::Tensor as_tensor(const std::vector<double>& frequencies, const at::Device& device) {
  const std::vector<float> rounded(frequencies.begin(), frequencies.end());
  return at::tensor(rounded, at::TensorOptions(at::kFloat)).to(device);
}

/// One row of frequencies per token: each segment's follow from its own length.
at::Tensor dynamic_rows(const arch::ModelConfig& config, const at::Tensor& positions_N,
                        const ForwardInput& input) {
  const at::Tensor positions = positions_N.cpu();
  const std::vector<int64_t>& starts = input.segments.q_starts;
  std::vector<RowRange> here = input.rows;
  if (here.empty()) here.push_back({0, starts.back()});
  std::vector<at::Tensor> rows;
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
    const at::Tensor row = as_tensor(rope_frequencies(config, length), at::kCPU);
    rows.push_back(row.unsqueeze(0).expand({count, row.size(0)}));
  }
  // Rows that were added to divide over ranks; or none at all, where tokens are few.
  int64_t known = 0;
  for (const at::Tensor& row : rows) known += row.size(0);
  if (const int64_t more = positions_N.size(-1) - known; more > 0 || rows.empty())
    rows.push_back(
        at::zeros({more, arch::rotated_dims(config) / 2}, at::TensorOptions(at::kFloat)));
  return at::cat(rows, 0).to(positions_N.device());
}

/// The table of positions on three axes: each axis turns a run of the pairs, and the runs lie one
/// behind the other in the order of the axes.
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

}  // namespace

std::vector<double> rope_frequencies(const arch::ModelConfig& config, int64_t sequence_length) {
  const arch::RopeConfig& rope = config.rope;
  const bool dynamic = rope.scaling == arch::RopeScaling::kDynamic;
  std::vector<double> frequencies = plain(
      dynamic ? dynamic_theta(config, sequence_length) : rope.theta, arch::rotated_dims(config));
  if (rope.scaling == arch::RopeScaling::kLinear) {
    for (double& frequency : frequencies) frequency /= rope.factor;
  } else if (rope.scaling == arch::RopeScaling::kLlama3) {
    const double original = static_cast<double>(original_positions(config));
    for (double& frequency : frequencies) frequency = llama3(frequency, rope, original);
  } else if (rope.scaling == arch::RopeScaling::kYarn) {
    yarn(frequencies, config);
  }
  return frequencies;
}

double rope_attention_factor(const arch::ModelConfig& config) {
  const arch::RopeConfig& rope = config.rope;
  if (rope.scaling != arch::RopeScaling::kYarn) return 1.0;
  if (rope.attention_factor) return *rope.attention_factor;
  // HF asks whether both are true: 0 counts as missing.
  const double mscale = rope.mscale.value_or(0), all_dim = rope.mscale_all_dim.value_or(0);
  if (mscale != 0 && all_dim != 0) {
    return yarn_temperature(rope.factor, mscale) / yarn_temperature(rope.factor, all_dim);
  }
  return yarn_temperature(rope.factor, 1.0);
}

ops::RotaryTable rope_table(const arch::ModelConfig& config, const at::Tensor& positions_N,
                            const ForwardInput& input) {
  if (!config.rope.enabled) return {};
  const at::Tensor frequencies = config.rope.scaling == arch::RopeScaling::kDynamic
                                     ? dynamic_rows(config, positions_N, input)
                                     : as_tensor(rope_frequencies(config), positions_N.device());
  const double factor = rope_attention_factor(config);
  if (positions_N.dim() == 1) return ops::rotary_table(positions_N, frequencies, factor);
  const std::vector<int64_t>& sections = config.rope.mrope_section;
  if (positions_N.dim() != 2 || sections.empty() ||
      positions_N.size(0) != static_cast<int64_t>(sections.size()))
    throw InternalError("[rope] positions of other axes than the model's");
  return table_of_axes(sections, positions_N, frequencies, factor);
}

}  // namespace danlu::models
