#include "base/nf4.h"

#include <algorithm>
#include <cmath>

namespace danlu {
namespace {

/// Half of the way from each number to the next: up to it, a quotient has the lower one's code.
std::array<float, 15> nf4_borders() {
  std::array<float, 15> borders{};
  for (size_t i = 0; i < borders.size(); ++i)
    borders[i] = (kNf4Numbers[i] + kNf4Numbers[i + 1]) * 0.5f;
  return borders;
}

unsigned nf4_code_of(float quotient, const std::array<float, 15>& borders) {
  unsigned code = 0;
  for (const float border : borders) code += quotient > border ? 1u : 0u;
  return code;
}

/// The number whose distance, in f32, is the smallest; of several the first.
uint8_t nearest_factor_code(float quotient) {
  const auto& numbers = nf4_factor_numbers();
  const auto above = std::lower_bound(numbers.begin(), numbers.end(), quotient);
  auto from = above - numbers.begin();
  from = std::max<decltype(from)>(0, from - 2);
  size_t best = static_cast<size_t>(from);
  for (size_t i = best + 1; i < std::min<size_t>(best + 4, numbers.size()); ++i) {
    if (std::fabs(quotient - numbers[i]) < std::fabs(quotient - numbers[best])) best = i;
  }
  return static_cast<uint8_t>(best);
}

/// Sums of 8 lanes by 4 neighbours, which pass on what they have after a power of two steps.
class CascadeSum {
 public:
  explicit CascadeSum(std::span<const float> numbers) : numbers_(numbers) {}

  float sum() const {
    if (numbers_.size() < kLanes) return sum_of_few();
    const size_t vectors = numbers_.size() / kLanes, steps = vectors / kNeighbours;
    Level total = cascade(steps);
    for (size_t i = steps * kNeighbours; i < vectors; ++i) add(i, total[0]);
    for (size_t k = 1; k < kNeighbours; ++k) add(total[k], total[0]);
    float result = 0;
    for (size_t i = vectors * kLanes; i < numbers_.size(); ++i) result += numbers_[i];
    for (const float lane : total[0]) result += lane;
    return result;
  }

 private:
  static constexpr size_t kLanes = 8, kNeighbours = 4, kLevels = 4;
  using Lanes = std::array<float, kLanes>;
  using Level = std::array<Lanes, kNeighbours>;

  float sum_of_few() const {
    float sums[kNeighbours] = {};
    const size_t whole = numbers_.size() / kNeighbours * kNeighbours;
    for (size_t i = 0; i < numbers_.size(); ++i)
      sums[i < whole ? i % kNeighbours : 0] += numbers_[i];
    return sums[0] + sums[1] + sums[2] + sums[3];
  }
  void add(size_t vector, Lanes& to) const {
    for (size_t i = 0; i < kLanes; ++i) to[i] += numbers_[vector * kLanes + i];
  }
  static void add(const Lanes& more, Lanes& to) {
    for (size_t i = 0; i < kLanes; ++i) to[i] += more[i];
  }
  void add_step(size_t step, Level& to) const {
    for (size_t k = 0; k < kNeighbours; ++k) add(step * kNeighbours + k, to[k]);
  }
  static void add(const Level& more, Level& to) {
    for (size_t k = 0; k < kNeighbours; ++k) add(more[k], to[k]);
  }

  Level cascade(size_t steps) const {
    size_t bits = 0;
    while ((size_t{1} << bits) < steps) ++bits;
    const size_t power = std::max<size_t>(4, bits / kLevels), unit = size_t{1} << power;
    std::array<Level, kLevels> levels{};
    size_t step = 0;
    while (step + unit <= steps) {
      for (const size_t end = step + unit; step < end; ++step) add_step(step, levels[0]);
      for (size_t j = 1; j < kLevels; ++j) {
        add(levels[j - 1], levels[j]);
        levels[j - 1] = {};
        if ((step & ((unit - 1) << (j * power))) != 0) break;
      }
    }
    for (; step < steps; ++step) add_step(step, levels[0]);
    for (size_t j = 1; j < kLevels; ++j) add(levels[j], levels[0]);
    return levels[0];
  }

  std::span<const float> numbers_;
};

float largest_magnitude(const float* numbers, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(numbers[i]));
  return largest;
}

/// In f32, as torch's linspace: from both ends to the middle.
float evenly_between(float first, float last, int64_t steps, int64_t index) {
  const float step = (last - first) / static_cast<float>(steps - 1);
  return index < steps / 2 ? std::fma(step, static_cast<float>(index), first)
                           : std::fma(-step, static_cast<float>(steps - index - 1), last);
}

std::array<float, 256> make_factor_numbers() {
  constexpr int kDecades = 7;
  std::vector<float> numbers{0.0f, 1.0f};
  for (int i = 0; i < kDecades; ++i) {
    const int64_t borders = (int64_t{1} << i) + 1;
    const auto decade = static_cast<float>(std::pow(10.0, i - kDecades + 1));
    for (int64_t k = 0; k + 1 < borders; ++k) {
      const float mean =
          (evenly_between(0.1f, 1.0f, borders, k) + evenly_between(0.1f, 1.0f, borders, k + 1)) /
          2.0f;
      numbers.push_back(decade * mean);
      numbers.push_back(-(decade * mean));
    }
  }
  std::sort(numbers.begin(), numbers.end());
  std::array<float, 256> result{};
  std::copy(numbers.begin(), numbers.end(), result.begin());
  return result;
}

}  // namespace

const std::array<float, 16> kNf4Numbers = {
    -1.0f,          -0.696192801f, -0.525073051f, -0.394917488f, -0.284441382f, -0.18477343f,
    -0.0910500363f, 0.0f,          0.0795802996f, 0.160930201f,  0.246112302f,  0.337915242f,
    0.440709829f,   0.562617004f,  0.722956836f,  1.0f};

const std::array<float, 256>& nf4_factor_numbers() {
  static const std::array<float, 256> numbers = make_factor_numbers();
  return numbers;
}

void quantize_nf4(const float* numbers, int64_t count, int64_t block, uint8_t* codes,
                  float* factors) {
  static const std::array<float, 15> borders = nf4_borders();
  constexpr unsigned kZero = 7;
  for (int64_t first = 0; first < count; first += block) {
    const int64_t size = std::min(block, count - first);
    const float largest = largest_magnitude(numbers + first, size);
    factors[first / block] = largest;
    const float inverse = 1.0f / largest;
    const auto code = [&](int64_t i) {
      // What fills the last byte up is a zero too.
      if (largest == 0 || i >= size) return kZero;
      return nf4_code_of(std::clamp(numbers[first + i] * inverse, -1.0f, 1.0f), borders);
    };
    for (int64_t i = 0; i < size; i += 2)
      codes[(first + i) / 2] = static_cast<uint8_t>(code(i) << 4 | code(i + 1));
  }
}

Nf4Factors quantize_nf4_factors(std::span<const float> factors) {
  constexpr float kLeastGroup = 1e-38f;  // of equal factors, which leave nothing
  Nf4Factors result;
  if (factors.empty()) return result;
  result.offset = CascadeSum(factors).sum() / static_cast<float>(factors.size());
  std::vector<float> rest(factors.begin(), factors.end());
  for (float& factor : rest) factor -= result.offset;
  result.codes.resize(rest.size());
  for (size_t first = 0; first < rest.size(); first += static_cast<size_t>(kNf4Group)) {
    const size_t end = std::min(rest.size(), first + static_cast<size_t>(kNf4Group));
    const float largest = std::max(
        kLeastGroup, largest_magnitude(rest.data() + first, static_cast<int64_t>(end - first)));
    result.groups.push_back(largest);
    const float inverse = 1.0f / largest;
    for (size_t i = first; i < end; ++i)
      result.codes[i] = nearest_factor_code(std::clamp(rest[i] * inverse, -1.0f, 1.0f));
  }
  return result;
}

}  // namespace danlu
