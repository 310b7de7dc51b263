// optim/muon.h: what Muon makes of a matrix's momentum, wherever parts of the matrix are.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "parallel/store.h"
#include "settings/optimizer.h"

namespace danlu::optim {

using settings::MuonConfig, settings::NewtonSchulzStep;

/// The matrix [R, C] with its singular values brought near 1: of U S V^T about U V^T, 0 of 0. It is
/// divided by its Frobenius norm + 1e-7 and goes through the steps, in f32, with the products of
/// ops::linear. REQUIRES: f32.
at::Tensor orthogonalised(const at::Tensor& matrix_RC, const std::vector<NewtonSchulzStep>& steps);

/// The new momentum in its place, and the direction that goes with it. All flat f32 of one length;
/// each element is rounded alike wherever it lies, so that shares have the bits of the whole.
at::Tensor muon_direction(const at::Tensor& momentum, const at::Tensor& gradient, double grad_scale,
                          const MuonConfig& config);

/// Directions of the matrices of one unit, whole although this rank has parts of them: of shares
/// (ZeRO) and of rectangles (the tensor axis). All ranks that hold something of the unit make one
/// together and ask for the same parameters in the same order.
class WholeDirections {
 public:
  /// share: directions of this rank's share of the unit, in its order, f32; elements of what is not
  /// asked for do not matter. Collective over the ranks that share the unit.
  WholeDirections(const parallel::ParameterStore& store, const parallel::Unit& unit,
                  const at::Tensor& share);
  /// The whole matrix [rows, cols] of parameter `index`. Collective over the ranks of the
  /// tensor axis where they cut the matrix.
  at::Tensor of(size_t index) const;

 private:
  const parallel::Mesh& mesh_;
  const parallel::Unit& unit_;
  at::Tensor flat_;
};

}  // namespace danlu::optim
