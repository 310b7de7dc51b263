// settings/low_rank.h: optimizers whose state is of fewer numbers than Adam's: GaLore and APOLLO
// see a matrix's gradient in a subspace, Adam-mini has one second moment for a block.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arch/model_config.h"

namespace danlu::settings {

/// Sources: GaLore (arXiv:2403.03507) and galore_torch, APOLLO (arXiv:2412.05270) and apollo_torch.
struct LowRankConfig {
  enum class Method {
    kGalore,  ///< Adam's update in the subspace is projected back
    kApollo,  ///< the gradient itself, scaled as Adam scales what is in the subspace
  } method = Method::kGalore;
  int64_t rank = 128;
  int64_t interval = 50;  ///< updates between two projections
  double scale = 1.0;     ///< of an update; with APOLLO its root is
  /// Which of the gradient's sides shrinks: right has [rows, rank] left of it, left [rank, cols],
  /// std is the smaller side, reverse_std the other, full both.
  std::string side = "std";
  /// APOLLO: the projection is drawn, else it has the gradient's largest singular vectors.
  bool draws = false;
  bool has_one_factor = false;  ///< APOLLO: for the matrix, else one for each row or column
  bool scales_first = false;    ///< APOLLO: before the growth of the norm is limited, else after
  /// Parts of the names of modules; empty: all of takes_muon().
  std::vector<std::string> targets = {};
  bool with_embedding = false;
  uint64_t seed = 42;

  std::string name() const { return method == Method::kGalore ? "GaLore" : "APOLLO"; }
  /// Errors: UsageError naming the field.
  void validate() const;
};

/// A tensor of the state of a whole matrix: "<kind><parameter>".
struct WholeState {
  std::string kind;  ///< a prefix that ends in a dot
  std::vector<int64_t> shape;
};

/// Whether a matrix of that shape shrinks on its right side, on its left, or both.
struct ShrunkSides {
  bool right = false, left = false;
};
ShrunkSides shrunk_sides(const LowRankConfig& config, int64_t rows, int64_t cols);

/// Whether the parameter is updated so where it is asked for.
bool takes_low_rank(const LowRankConfig& config, const arch::ParamSpec& spec);
/// The state of a matrix, in f32: "low_projection." [rank, cols] and "low_projection_left." [rows,
/// rank], those that there are; "low_avg." and "low_avg_sq.", Adam's moments in the subspace; with
/// APOLLO "low_norm." [1], the norm of the last update.
std::vector<WholeState> low_rank_state(const LowRankConfig& config, int64_t rows, int64_t cols);

/// Adam-mini (arXiv:2406.16793) and its program: second moments of q and k by head, of others by
/// parameter; of embeddings and heads as Adam's. head_size: rows of a head, where a model has any.
struct AdamMiniConfig {
  int64_t head_size = 0;
};
/// How many second moments the parameter has, "block_avg_sq." [blocks]; 0: as many as elements.
int64_t mini_blocks(const AdamMiniConfig& config, const arch::ParamSpec& spec);

struct AdamWConfig;

/// Where the state of a parameter is: in elements of its own, or in tensors of the whole.
struct StateRule {
  enum class Kind { kAdam, kMuon, kLowRank, kMini } kind = Kind::kAdam;
  /// A number for each element: "exp_avg." (Muon's is called "momentum."), and "exp_avg_sq.".
  bool has_avg = true, has_squares = true;
  std::vector<WholeState> wholes = {};
};
StateRule state_rule(const AdamWConfig& config, const arch::ParamSpec& spec);
/// Numbers of the state of the whole parameter, its master aside.
int64_t state_numel(const AdamWConfig& config, const arch::ParamSpec& spec);

}  // namespace danlu::settings
