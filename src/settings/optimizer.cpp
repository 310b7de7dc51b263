#include "settings/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "base/error.h"
#include "base/file.h"
#include "base/rng.h"

namespace danlu::settings {
namespace {

/// How the polynomials of a set follow one another.
enum class Sequence {
  kRepeated,    ///< again from the first, a whole number of times
  kLastGoesOn,  ///< all of them, then the last one again
};

struct Polynomials {
  const char* name;
  Sequence sequence;
  std::vector<NewtonSchulzStep> steps;
};

const std::vector<Polynomials>& polynomial_sets() {
  static const std::vector<Polynomials> sets = {
      {"simple", Sequence::kRepeated, {{3.4445, -4.7750, 2.0315}}},
      {"quintic",
       Sequence::kRepeated,
       {{4.0848, -6.8946, 2.9270},
        {3.9505, -6.3029, 2.6377},
        {3.7418, -5.5913, 2.3037},
        {2.8769, -3.1427, 1.2046},
        {2.8366, -3.0525, 1.2012}}},
      {"polar_express",
       Sequence::kLastGoesOn,
       {{8.2051, -22.9019, 16.4607},
        {4.0664, -2.8612, 0.5184},
        {3.9096, -2.8234, 0.5250},
        {3.2856, -2.4153, 0.4853},
        {2.2779, -1.6198, 0.3985},
        {1.8726, -1.2307, 0.3585},
        {1.8564, -1.2132, 0.3568},
        {1.8750, -1.2500, 0.3750}}},
      {"aol",
       Sequence::kRepeated,
       {{4.0098, -7.0585, 2.4635},
        {3.4585, -5.5479, 2.5959},
        {2.7573, -3.2939, 1.4254},
        {2.7215, -3.0494, 1.3169}}}};
  return sets;
}

/// nullptr: there is none of that name.
const Polynomials* polynomials_of(const std::string& name) {
  const auto& sets = polynomial_sets();
  const auto found = std::find_if(sets.begin(), sets.end(),
                                  [&](const Polynomials& set) { return set.name == name; });
  return found == sets.end() ? nullptr : &*found;
}

[[noreturn]] void refuse_muon(const char* field, const std::string& got, const std::string& rule) {
  throw UsageError(tr("[muon] {} must be {}, got {}", field, rule, got));
}

void check_steps(const MuonConfig& config) {
  const Polynomials* const set = polynomials_of(config.coefficients);
  if (!set)
    refuse_muon("muon_coefficient_type", config.coefficients,
                "simple, quintic, polar_express, aol");
  const auto count = static_cast<int64_t>(set->steps.size());
  const std::string got = std::to_string(config.num_steps);
  if (config.num_steps < 1) refuse_muon("muon_num_ns_steps", got, "at least 1");
  if (set->sequence == Sequence::kLastGoesOn && config.num_steps < count)
    refuse_muon("muon_num_ns_steps", got, tr("at least {} with {}", count, set->name));
  if (set->sequence == Sequence::kRepeated && config.num_steps % count != 0)
    refuse_muon("muon_num_ns_steps", got, tr("a multiple of {} with {}", count, set->name));
}

}  // namespace

void MuonConfig::validate() const {
  if (!(momentum >= 0 && momentum < 1))
    refuse_muon("muon_momentum", fmt::format("{}", momentum), "in [0, 1)");
  if (!(extra_scale > 0) || !std::isfinite(extra_scale))
    refuse_muon("muon_extra_scale_factor", fmt::format("{}", extra_scale), "positive");
  check_steps(*this);
}

std::vector<NewtonSchulzStep> newton_schulz_steps(const MuonConfig& config) {
  const Polynomials& set = *polynomials_of(config.coefficients);
  std::vector<NewtonSchulzStep> steps;
  for (int64_t i = 0; i < config.num_steps; ++i) {
    const auto count = static_cast<int64_t>(set.steps.size());
    const int64_t index =
        set.sequence == Sequence::kLastGoesOn ? std::min(i, count - 1) : i % count;
    steps.push_back(set.steps[static_cast<size_t>(index)]);
  }
  return steps;
}

double muon_scale(const MuonConfig& config, int64_t rows, int64_t cols) {
  const auto high = static_cast<double>(rows), wide = static_cast<double>(cols);
  const double squared = config.scale_mode == "spectral"        ? std::max(high, wide)
                         : config.scale_mode == "unit_rms_norm" ? high / wide
                                                                : std::max(1.0, high / wide);
  return config.extra_scale * std::sqrt(squared);
}

bool takes_muon(const arch::ParamSpec& spec) {
  using arch::Role;
  if (spec.shape.size() != 2 || spec.is_bias) return false;
  for (const Role role : {Role::kEmbedding, Role::kPositions, Role::kHead, Role::kScore,
                          Role::kTokenTypes, Role::kScoreDense})
    if (spec.role == role) return false;
  // The tower's tables, and what other trainers leave out by name.
  return spec.name.find("embed") == std::string::npos &&
         spec.name.find("lm_head") == std::string::npos;
}

void LayerTurns::validate() const {
  if (layers < 1) throw UsageError(tr("[{}] {} layers at a time: at least 1", name(), layers));
  if (start && *start < 0) throw UsageError(tr("[{}] layer {}: the first is 0", name(), *start));
}

namespace {

/// The numbers below `count`, in an order of their own for each `draw`.
std::vector<int64_t> drawn_order(int64_t count, uint64_t seed, int64_t draw) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  const uint64_t hash = hash_bytes(fmt::format("turn {} of {}", draw, seed));
  NumpyRandomState random(static_cast<uint32_t>(hash ^ (hash >> 32)));
  random.shuffle(std::span<int64_t>(order));
  return order;
}

}  // namespace

std::vector<int64_t> layers_in_turn(const LayerTurns& turns, int64_t turn, int64_t count) {
  using Order = LayerTurns::Order;
  if (turns.order == Order::kRandom && !turns.is_badam) {
    std::vector<int64_t> drawn = drawn_order(count, turns.seed, turn);
    drawn.resize(static_cast<size_t>(std::min(turns.layers, count)));
    std::sort(drawn.begin(), drawn.end());
    return drawn;
  }
  if (turns.order == Order::kRandom) {
    // Each layer once before any comes again.
    if (turn == 0 && turns.start) return {*turns.start % count};
    return {drawn_order(count, turns.seed, turn / count)[static_cast<size_t>(turn % count)]};
  }
  const bool falls = turns.order == Order::kDescending;
  const int64_t first = turns.start.value_or(falls ? count - 1 : 0) % count;
  const int64_t moved = turns.order == Order::kFixed ? 0 : turn % count;
  return {(falls ? first - moved + count : first + moved) % count};
}

int64_t updates_of_layer(const LayerTurns& turns, int64_t updates, int64_t layer, int64_t count) {
  if (updates == 0) return 0;
  const int64_t last = turns.turn_of(updates - 1);
  const int64_t begun = turns.interval > 0 ? last * turns.interval : 0;
  int64_t had = 0;
  for (int64_t turn = turns.is_badam ? last : 0; turn <= last; ++turn) {
    const std::vector<int64_t> layers = layers_in_turn(turns, turn, count);
    if (std::find(layers.begin(), layers.end(), layer) != layers.end())
      had += turn < last ? turns.interval : updates - begun;
  }
  return had;
}

DecayRule decay_rule_from_name(const std::string& name) {
  if (name == "all") return DecayRule::kAll;
  if (name == "matrices") return DecayRule::kMatrices;
  throw UsageError(tr("[weight_decay_on] must be all or matrices, got '{}'", name));
}

std::string decay_rule_name(DecayRule rule) { return rule == DecayRule::kAll ? "all" : "matrices"; }

void AdamWConfig::validate() const {
  const auto bad = [](const char* field, double got, const char* rule) {
    throw UsageError(tr("[adamw] {} must be {}, got {}", field, rule, got));
  };
  if (!(beta1 >= 0 && beta1 < 1)) bad("adam_beta1", beta1, "in [0, 1)");
  if (!(beta2 >= 0 && beta2 < 1)) bad("adam_beta2", beta2, "in [0, 1)");
  if (!(eps > 0) || !std::isfinite(eps)) bad("adam_epsilon", eps, "positive");
  if (!(groups.weight_decay >= 0) || !std::isfinite(groups.weight_decay))
    bad("weight_decay", groups.weight_decay, "≥ 0");
  if (muon) muon->validate();
  if (low_rank) low_rank->validate();
  if (turns) turns->validate();
}

void LossScaleConfig::validate() const {
  const auto bad = [](const char* field, double got, const char* rule) {
    throw UsageError(tr("[loss_scale] {} must be {}, got {}", field, rule, got));
  };
  const auto fits = [](double scale) { return scale <= std::numeric_limits<float>::max(); };
  if (!fits(fixed_scale)) bad("loss_scale", fixed_scale, "a number that fp32 can hold");
  if (!fits(initial_scale)) bad("initial scale", initial_scale, "a number that fp32 can hold");
  if (!(fixed_scale >= 0)) bad("loss_scale", fixed_scale, "0 (dynamic) or positive");
  if (!(min_scale > 0)) bad("min_loss_scale", min_scale, "positive");
  if (!(initial_scale >= min_scale)) bad("initial scale", initial_scale, "at least min_loss_scale");
  if (window < 1) bad("loss_scale_window", static_cast<double>(window), "at least 1");
  if (hysteresis < 1) bad("hysteresis", static_cast<double>(hysteresis), "at least 1");
}

}  // namespace danlu::settings
