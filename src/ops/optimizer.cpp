#include "ops/optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/isfinite.h>

#include "ops/backend.h"

namespace danlu::ops {

void adamw_update(const AdamWState& state, const std::vector<Chunk>& chunks,
                  std::span<const AdamWScalars> scalars) {
  completed_backend(state.master.device().type()).adamw_update(state, chunks, scalars);
}

std::vector<double> sums_of_squares(const at::Tensor& values, const std::vector<Chunk>& chunks) {
  return completed_backend(values.device().type()).sums_of_squares(values, chunks);
}

bool all_finite(const at::Tensor& x) { return completed_backend(x.device().type()).all_finite(x); }

void oracle::adamw_update(const AdamWState& state, const std::vector<Chunk>& chunks,
                          std::span<const AdamWScalars> scalars) {
  for (size_t i = 0; i < chunks.size();) {
    // Neighbours that one rule updates are one range: fewer calls.
    Range at = chunks[i].at;
    const AdamWScalars& s = scalars[chunks[i].index];
    for (const size_t index = chunks[i++].index;
         i < chunks.size() && chunks[i].index == index && chunks[i].at.begin == at.end; ++i)
      at.end = chunks[i].at.end;
    const auto part = [&](const at::Tensor& flat) { return flat.narrow(0, at.begin, at.size()); };
    const at::Tensor scaled = part(state.grad) * s.grad_scale;
    const at::Tensor exp_avg = part(state.exp_avg), exp_avg_sq = part(state.exp_avg_sq),
                     master = part(state.master);
    exp_avg.mul_(s.beta1).add_(scaled, s.one_minus_beta1);
    exp_avg_sq.mul_(s.beta2).addcmul_(scaled, scaled, s.one_minus_beta2);
    master.mul_(s.keep).addcdiv_(exp_avg, exp_avg_sq.sqrt().mul_(s.inv_sqrt_bias2).add_(s.eps),
                                 -s.step_size);
    if (state.weight.defined()) part(state.weight).copy_(master);
  }
}

std::vector<double> oracle::sums_of_squares(const at::Tensor& values,
                                            const std::vector<Chunk>& chunks) {
  std::vector<double> sums;
  for (const Chunk& chunk : chunks) {
    sums.push_back(values.narrow(0, chunk.at.begin, chunk.at.size())
                       .to(at::kDouble)
                       .square()
                       .sum()
                       .item<double>());
  }
  return sums;
}

bool oracle::all_finite(const at::Tensor& x) { return at::isfinite(x).all().item<bool>(); }

}  // namespace danlu::ops
