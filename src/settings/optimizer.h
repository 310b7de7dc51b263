// settings/optimizer.h: what AdamW, its other rules and the loss scale are told.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "settings/low_rank.h"

namespace danlu::settings {

/// Which parameters weight decay applies to.
enum class DecayRule {
  kAll,       ///< every parameter
  kMatrices,  ///< not biases, not norm weights (everything with fewer than two dimensions)
};

/// "all" or "matrices". Errors: UsageError.
DecayRule decay_rule_from_name(const std::string& name);
std::string decay_rule_name(DecayRule rule);

/// Parameters whose name matches `pattern` (base/pattern.h, searched) get these settings; the last
/// match wins.
struct GroupRule {
  std::string pattern;
  double lr_scale = 1.0;
  double weight_decay = -1.0;         ///< negative: the common one
  std::string flag = "param_groups";  ///< what the user wrote it in
  bool may_match_nothing = false;
};

struct GroupConfig {
  double weight_decay = 0.0;
  DecayRule decay_rule = DecayRule::kMatrices;
  std::vector<GroupRule> rules = {};
};

/// A step of the Newton-Schulz iteration: X becomes a X + (b A + c A^2) X, where A = X X^T.
struct NewtonSchulzStep {
  double a, b, c;
};

/// Muon, of matrices (takes_muon). By default it is Moonlight's.
/// Sources: arXiv:2502.16982; Keller Jordan's Muon; for the polynomials and the factors the pages
/// and the code of NVIDIA's Emerging-Optimizers.
struct MuonConfig {
  double momentum = 0.95;               ///< m = momentum m + gradient
  bool nesterov = true;                 ///< the direction is gradient + momentum m, else m
  std::string coefficients = "simple";  ///< simple, quintic, polar_express, aol
  int64_t num_steps = 5;
  /// The factor of an update of [rows, cols]: spectral is sqrt(max(rows, cols)), unit_rms_norm
  /// sqrt(rows / cols), shape_scaling sqrt(max(1, rows / cols)); times `extra_scale`.
  std::string scale_mode = "spectral";
  double extra_scale = 0.2;
  /// Errors: UsageError naming the field; for a number of steps that the polynomials do not have.
  void validate() const;
};

/// All steps of an iteration. REQUIRES: validate() throws nothing.
std::vector<NewtonSchulzStep> newton_schulz_steps(const MuonConfig& config);
/// What an orthogonalised direction of that shape is multiplied with, beside the rate.
double muon_scale(const MuonConfig& config, int64_t rows, int64_t cols);
/// Whether Muon updates the parameter where it is asked for: a matrix of two dimensions that is
/// neither an embedding, a table of positions nor a head, and no adapter of one. An expert's
/// matrices are parameters of their own.
bool takes_muon(const arch::ParamSpec& spec);

/// Layers that take turns in being trained, as in LISA (arXiv:2403.17919) and BAdam
/// (arXiv:2404.02827). The others have no gradients meanwhile.
struct LayerTurns {
  enum class Order { kRandom, kAscending, kDescending, kFixed } order = Order::kRandom;
  int64_t layers = 1;                 ///< that are trained at a time
  int64_t interval = 50;              ///< updates of a turn; below 1: there is one
  std::optional<int64_t> start = {};  ///< the first layer
  /// LISA trains what is in no layer all the time, and a layer's moments wait for its next turn;
  /// BAdam trains nothing else, and moments begin anew with each turn.
  bool is_badam = false;
  uint64_t seed = 42;

  int64_t turn_of(int64_t update) const { return interval > 0 ? update / interval : 0; }
  std::string name() const { return is_badam ? "BAdam" : "LISA"; }
  /// Errors: UsageError.
  void validate() const;
};
/// The layers of turn `turn` (from 0) among `count`; ascending.
std::vector<int64_t> layers_in_turn(const LayerTurns& turns, int64_t turn, int64_t count);
/// Updates that a layer has had when the model has had `updates`; with BAdam those of the turn
/// that the last of them was of.
int64_t updates_of_layer(const LayerTurns& turns, int64_t updates, int64_t layer, int64_t count);

struct AdamWConfig {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  GroupConfig groups = {};
  std::optional<MuonConfig> muon = {};         ///< of what takes_muon() says; AdamW has the rest
  std::optional<LowRankConfig> low_rank = {};  ///< of what takes_low_rank() says
  std::optional<AdamMiniConfig> mini = {};     ///< of what mini_blocks() says
  std::optional<LayerTurns> turns = {};
  /// Whether the state is Adam's alone, one layer's like another's.
  bool is_plain() const { return !muon && !low_rank && !mini && !turns; }
  /// Errors: UsageError naming the field.
  void validate() const;
};

/// "GaLore (rank 128, side std, …)" of what is neither AdamW's nor Muon's; else empty. English.
std::string optimizer_words(const AdamWConfig& config);

/// The factor that the loss is multiplied with before backward, in fp16.
struct LossScaleConfig {
  double fixed_scale = 0;          ///< > 0: constant; 0: dynamic
  double initial_scale = 65536.0;  ///< 2^16
  int64_t window = 1000;           ///< good steps after which the scale doubles
  int64_t hysteresis = 2;          ///< overflows in a window before the scale halves
  double min_scale = 1.0;
  double max_scale = 16777216.0;  ///< 2^24: larger ones only lose steps to overflow
  /// Errors: UsageError.
  void validate() const;
};

}  // namespace danlu::settings
