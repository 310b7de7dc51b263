#include "infer/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/rng.h"

namespace danlu::infer {
namespace {

constexpr float kRemoved = -std::numeric_limits<float>::infinity();

/// The first largest number of a row; where all are -inf, the first of all.
struct Largest {
  size_t index = 0;
  float value = kRemoved;
  bool beside_nan = false;  ///< a NaN is nowhere the largest
};

/// In lanes: a vocabulary compared number by number would take several hundredths of a token's
/// time.
Largest largest_of(std::span<const float> row) {
  constexpr size_t kLanes = 16, kBlock = 1024;
  Largest result;
  std::array<int32_t, kLanes> nan{};
  for (size_t begin = 0; begin < row.size(); begin += kBlock) {
    const std::span<const float> block = row.subspan(begin, std::min(kBlock, row.size() - begin));
    std::array<float, kLanes> most;
    most.fill(kRemoved);
    size_t at = 0;
    for (; at + kLanes <= block.size(); at += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) {
        const float value = block[at + lane];
        most[lane] = most[lane] < value ? value : most[lane];
        nan[lane] |= value != value;
      }
    }
    for (; at < block.size(); ++at) {
      most[0] = std::max(most[0], block[at]);
      nan[0] |= std::isnan(block[at]);
    }
    const float top = *std::max_element(most.begin(), most.end());
    if (top <= result.value) continue;
    result.value = top;
    result.index =
        begin + static_cast<size_t>(std::find(block.begin(), block.end(), top) - block.begin());
  }
  result.beside_nan = std::any_of(nan.begin(), nan.end(), [](int32_t is_nan) { return is_nan; });
  return result;
}

void penalize_seen(std::span<float> logits_V, std::span<const int32_t> seen, double penalty) {
  std::vector<bool> done(logits_V.size());
  for (const int32_t id : seen) {
    if (id < 0 || static_cast<size_t>(id) >= logits_V.size() || done[static_cast<size_t>(id)])
      continue;
    done[static_cast<size_t>(id)] = true;
    float& logit = logits_V[static_cast<size_t>(id)];
    logit = static_cast<float>(logit > 0 ? logit / penalty : logit * penalty);
  }
}

/// The k-th largest. REQUIRES: 0 < k <= their number.
float k_largest(std::span<const float> row, size_t k) {
  constexpr size_t kHeap = 1024;  // of more a heap is slower than parting a copy
  if (k <= kHeap) {
    std::vector<float> most(k);
    std::partial_sort_copy(row.begin(), row.end(), most.begin(), most.end(), std::greater<float>());
    return most.back();
  }
  std::vector<float> all(row.begin(), row.end());
  const auto place = all.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(all.begin(), place, all.end(), std::greater<float>());
  return *place;
}

void keep_top_k(std::span<float> logits_V, int64_t k) {
  if (k <= 0 || static_cast<size_t>(k) >= logits_V.size()) return;
  const float threshold = k_largest(logits_V, static_cast<size_t>(k));
  for (float& logit : logits_V) {
    if (logit < threshold) logit = kRemoved;
  }
}

/// exp(logit - top), 0 of a removed token; in f32, as HF's softmax.
float weight_of(float logit, float top) { return logit == kRemoved ? 0 : std::exp(logit - top); }

/// Nucleus sampling: the likeliest tokens whose probabilities reach top_p together, ties by id; the
/// one that crosses the border stays, as does the likeliest. Tokens are parted into bands of alike
/// logits, of which only the one that holds the border is sorted: sorting a vocabulary would take
/// several times as long as drawing from it.
void keep_top_p(std::span<float> logits_V, double top_p) {
  constexpr size_t kBands = 512;
  constexpr float kBandsPerLogit = 16;  // the last takes all that is 32 and more below the top
  const float top = largest_of(logits_V).value;
  const auto band_of = [&](float logit) {
    return static_cast<size_t>(std::min<float>(kBands - 1, (top - logit) * kBandsPerLogit));
  };
  std::array<double, kBands> mass{};
  for (const float logit : logits_V) mass[band_of(logit)] += weight_of(logit, top);
  const double border = top_p * std::accumulate(mass.begin(), mass.end(), 0.0);
  size_t band = 0;
  double before = 0;
  while (band + 1 < kBands && before + mass[band] < border) before += mass[band++];

  std::vector<int32_t> order;
  for (size_t i = 0; i < logits_V.size(); ++i) {
    const size_t own = band_of(logits_V[i]);
    if (own == band) order.push_back(static_cast<int32_t>(i));
    if (own > band) logits_V[i] = kRemoved;
  }
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const float x = logits_V[static_cast<size_t>(a)], y = logits_V[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  double within = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    float& logit = logits_V[static_cast<size_t>(order[i])];
    const bool is_likeliest = band == 0 && i == 0;
    const float weight = weight_of(logit, top);
    if (before + within >= border && !is_likeliest) logit = kRemoved;
    within += weight;
  }
}

void keep_min_p(std::span<float> logits_V, double min_p) {
  const float top = largest_of(logits_V).value;
  const float threshold = top + static_cast<float>(std::log(min_p));
  for (float& logit : logits_V) {
    if (logit < threshold) logit = kRemoved;
  }
}

/// Places of the `count` likeliest tokens, ties by id.
std::vector<size_t> likeliest(std::span<const float> row, size_t count) {
  count = std::min(count, row.size());
  const auto is_before = [&](size_t a, size_t b) {
    return row[a] != row[b] ? row[a] > row[b] : a < b;
  };
  std::vector<size_t> first(count);  // a heap, the last of them on top
  std::iota(first.begin(), first.end(), size_t{0});
  std::make_heap(first.begin(), first.end(), is_before);
  for (size_t i = count; count > 0 && i < row.size(); ++i) {
    if (!is_before(i, first.front())) continue;
    std::pop_heap(first.begin(), first.end(), is_before);
    first.back() = i;
    std::push_heap(first.begin(), first.end(), is_before);
  }
  std::sort_heap(first.begin(), first.end(), is_before);
  return first;
}

void require(bool good, const char* name, const char* rule, double value) {
  if (!good) throw UsageError(tr("[sampling] {} must be {}, got {}", name, rule, value));
}

}  // namespace

void SamplingParams::validate() const {
  require(temperature > 0 && std::isfinite(temperature), "temperature", "> 0", temperature);
  require(top_k >= 0, "top_k", ">= 0 (0 = off)", static_cast<double>(top_k));
  require(top_p > 0 && top_p <= 1, "top_p", "in (0, 1]", top_p);
  require(min_p >= 0 && min_p < 1, "min_p", "in [0, 1)", min_p);
  require(repetition_penalty > 0 && std::isfinite(repetition_penalty), "repetition_penalty", "> 0",
          repetition_penalty);
  require(std::isfinite(length_penalty), "length_penalty", "a finite number", length_penalty);
  require(num_beams >= 1 && num_beams <= 64, "num_beams", "in [1, 64]",
          static_cast<double>(num_beams));
}

std::string hint_of_unusable_logits(at::ScalarType computed_in) {
  if (computed_in != at::kFloat) return tr("try --dtype fp32, and `danlu verify` on the model");
  return tr(
      "its weights may hold NaN or infinity, of which `danlu convert` warns; "
      "`danlu verify` compares the model with another implementation");
}

void require_usable_logits(std::span<const float> logits_V, at::ScalarType computed_in) {
  const Largest largest = largest_of(logits_V);
  const char* what = nullptr;
  if (largest.value == kRemoved) what = "no finite";
  if (largest.value == std::numeric_limits<float>::infinity()) what = "infinite";
  if (largest.beside_nan) what = "NaN";
  if (!what) return;
  throw NumericError(tr("[sampling] the model produced {} logits", what),
                     hint_of_unusable_logits(computed_in));
}

void require_probabilities(bool are_there, const SamplingParams& params) {
  if (are_there) return;
  throw UsageError(tr("[sampling] temperature {} and repetition_penalty {} take the logits out "
                      "of the range of f32",
                      params.temperature, params.repetition_penalty),
                   tr("values nearer to 1; temperature 0 takes the likeliest token"));
}

void process_logits(std::span<float> logits_V, std::span<const int32_t> seen,
                    const SamplingParams& params, size_t least_kept) {
  if (params.repetition_penalty != 1.0) penalize_seen(logits_V, seen, params.repetition_penalty);
  if (!params.do_sample) return;
  if (params.temperature != 1.0) {
    const auto temperature = static_cast<float>(params.temperature);
    for (float& logit : logits_V) logit /= temperature;
  }
  const auto least = static_cast<int64_t>(least_kept);
  keep_top_k(logits_V, params.top_k > 0 ? std::max(params.top_k, least) : 0);
  std::vector<std::pair<size_t, float>> kept;  // each cut leaves the likeliest one by itself
  if (least > 1 && (params.top_p < 1.0 || params.min_p > 0.0)) {
    for (const size_t place : likeliest(logits_V, least_kept))
      kept.emplace_back(place, logits_V[place]);
  }
  if (params.top_p < 1.0) keep_top_p(logits_V, params.top_p);
  if (params.min_p > 0.0) keep_min_p(logits_V, params.min_p);
  for (const auto& [place, logit] : kept) logits_V[place] = logit;
}

TokenLogprobs logprobs_of(std::span<const float> logits_V, int32_t chosen, int64_t num_likeliest) {
  const float top = largest_of(logits_V).value;
  double total = 0;
  for (const float logit : logits_V) total += std::exp(static_cast<double>(logit - top));
  const double log_total = std::log(total) + top;
  const auto of = [&](size_t place) {
    return TokenLogprob{static_cast<int32_t>(place),
                        static_cast<float>(logits_V[place] - log_total)};
  };
  TokenLogprobs result{of(static_cast<size_t>(chosen)), {}};
  const float at_chosen = logits_V[static_cast<size_t>(chosen)];
  result.chosen.rank += std::count_if(logits_V.begin(), logits_V.end(),
                                      [&](float logit) { return logit > at_chosen; });
  for (const size_t place : likeliest(logits_V, static_cast<size_t>(num_likeliest))) {
    result.likeliest.push_back(of(place));
    result.likeliest.back().rank = std::ssize(result.likeliest);
  }
  return result;
}

double uniform_at(uint64_t seed, uint64_t stream, uint64_t step) {
  const uint64_t bits = mix64(mix64(seed, stream), step);
  return (static_cast<double>(bits >> 11) + 0.5) / 9007199254740992.0;  // 2^53
}

int32_t sample_token(std::span<float> logits_V, std::span<const int32_t> seen,
                     const SamplingParams& params, uint64_t stream, uint64_t step,
                     at::ScalarType computed_in) {
  require_usable_logits(logits_V, computed_in);
  process_logits(logits_V, seen, params);
  if (!params.do_sample) return static_cast<int32_t>(largest_of(logits_V).index);
  // Walk the tokens in id order: no sort is needed when nothing was cut.
  const float top = largest_of(logits_V).value;
  double total = 0;
  for (float& logit : logits_V) {
    logit = weight_of(logit, top);
    total += logit;
  }
  require_probabilities(total > 0 && std::isfinite(total), params);
  double left = uniform_at(params.seed, stream, step) * total;
  int32_t last = 0;
  for (size_t i = 0; i < logits_V.size() && left > 0; ++i) {
    if (logits_V[i] == 0) continue;
    last = static_cast<int32_t>(i);
    left -= logits_V[i];
  }
  return last;
}

}  // namespace danlu::infer
