// tests/train/gated_residual.h: a kind of layer that the program does not know: what it takes to
// add one. A gated residual MLP, with a term of the loss for gates that stand open.
#pragma once
#include <memory>

#include "arch/layer_kind.h"
#include "layers/linear.h"
#include "layers/module.h"
#include "layers/norm.h"

namespace danlu::train {

inline constexpr const char* kGateTerm = "gate_loss";
inline constexpr double kGateWeight = 0.3;

/// x + s(x) * down(relu(up norm(x))^2), s(x) = sigmoid(x · gate); the loss gets kGateWeight times
/// the sum over tokens of s(x)^2.
struct GatedResidual : layers::Block {
  layers::Norm norm;
  layers::Parameter gate_H;
  layers::Linear up, down;
  parallel::Region region{parallel::Group::alone(), false};

  void visit(layers::Visitor& visitor) override;
  at::Tensor forward(const at::Tensor& x_NH, const std::shared_ptr<const layers::Pass>& pass,
                     const layers::Again& again, const layers::Leaving& leaving) const override;
};

/// The family "gated_residual": a Llama of which every second layer is one. Once a program.
void add_gated_residual();

}  // namespace danlu::train
