// optim/low_rank.h: the updates of a whole matrix whose state is smaller than the matrix: GaLore's,
// APOLLO's and Adam-mini's.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>

#include "settings/optimizer.h"

namespace danlu::optim {

using settings::AdamMiniConfig, settings::LowRankConfig;

/// Tensors of the state of one matrix by their kinds (settings::WholeState), updated in place, f32.
using StateByKind = std::map<std::string, at::Tensor>;

/// What of a matrix's gradient an update is made of.
struct MatrixGradient {
  std::string name;  ///< the parameter's: projections are drawn for it
  at::Tensor gradient_RC;
  int64_t update = 1;  ///< its number, from 1
};

/// The change [R, C] of one update, which the rate is multiplied with and which is subtracted. The
/// moments are those of `adam`. Where a matrix of singular vectors is made anew, the largest number
/// of each is positive: programs that find them choose signs as they like, and the moments outlive
/// them.
at::Tensor low_rank_change(const LowRankConfig& config, const settings::AdamWConfig& adam,
                           const MatrixGradient& of, const StateByKind& state);

/// Means of the squares of as many blocks of consecutive numbers, [blocks].
at::Tensor means_of_squares(const at::Tensor& values, int64_t blocks);

}  // namespace danlu::optim
