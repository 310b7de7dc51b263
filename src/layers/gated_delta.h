// layers/gated_delta.h: linear attention by the gated delta rule, as Qwen3-Next has it.
#pragma once
#include "arch/gated_delta.h"
#include "layers/attention.h"

namespace danlu::layers {

/// One rank has all heads. A pass with a cache goes on from the state of each of its sequences.
struct GatedDeltaAttention : SelfAttention {
  arch::GatedDelta sizes;
  Linear joined_inputs, joined_steps;  ///< of GatedDelta::joins_inputs; else the four that follow
  Linear inputs, gate, step, decay;
  Parameter convolution;             ///< [C, 1, K]
  Parameter decay_bias, decay_rate;  ///< [H]; the rate's logarithm
  Norm norm;                         ///< of each head's result, which the gate then multiplies

  at::Tensor forward(const at::Tensor& x_NH, const Pass& pass,
                     const Again& again = {}) const override;
  void visit(Visitor& visitor) override;

 private:
  struct Projected {
    at::Tensor mixed_NC, gate_NHV, step_NH, decay_NH;
  };
  Projected project(const at::Tensor& x_NH, const Pass& pass) const;
  at::Tensor attend(const Projected& projected, const Pass& pass) const;
};

}  // namespace danlu::layers
