#include "ops/optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/isfinite.h>

#include "ops/backend.h"
#include "ops/check.h"

namespace danlu::ops {
namespace {

bool is_flat(const at::Tensor& x, int64_t size, at::ScalarType type) {
  return x.defined() && x.dim() == 1 && x.size(0) == size && x.is_contiguous() &&
         x.scalar_type() == type;
}

void check_halves(const at::Tensor& weight, const at::Tensor& low, int64_t size) {
  require(is_flat(weight, size, at::kBFloat16) && is_flat(low, size, at::kShort), "optimizer",
          "the halves of ", size, " masters must be flat and contiguous, bf16 and int16");
}

void check_chunks(const std::vector<Chunk>& chunks, int64_t size) {
  for (const Chunk& chunk : chunks) {
    require(chunk.at.begin >= 0 && chunk.at.begin <= chunk.at.end && chunk.at.end <= size,
            "optimizer", "elements [", chunk.at.begin, ", ", chunk.at.end, ") of ", size);
  }
}

void check_update(const AdamWState& state, const std::vector<Chunk>& chunks, size_t num_scalars) {
  const int64_t size = state.exp_avg.numel();
  const auto is_f32 = [&](const at::Tensor& x) { return is_flat(x, size, at::kFloat); };
  require(is_f32(state.exp_avg) && is_f32(state.exp_avg_sq) && is_f32(state.grad), "optimizer",
          "moments and gradients must be flat, contiguous f32 of one length");
  if (state.low.defined()) {
    check_halves(state.weight, state.low, size);
  } else {
    require(is_f32(state.master), "optimizer", "there must be ", size, " f32 masters");
    require(!state.weight.defined() || is_flat(state.weight, size, state.weight.scalar_type()),
            "optimizer", "weights must be flat and contiguous, ", size, " of them");
  }
  check_chunks(chunks, size);
  for (const Chunk& chunk : chunks)
    require(chunk.index < num_scalars, "optimizer", "no scalars for range ", chunk.index);
}

}  // namespace

void adamw_update(const AdamWState& state, const std::vector<Chunk>& chunks,
                  std::span<const AdamWScalars> scalars) {
  check_update(state, chunks, scalars.size());
  completed_backend(state.exp_avg.device().type()).adamw_update(state, chunks, scalars);
}

void split_master(const at::Tensor& master, const at::Tensor& weight, const at::Tensor& low) {
  check_halves(weight, low, master.numel());
  require(is_flat(master, master.numel(), at::kFloat), "optimizer",
          "masters must be flat, contiguous f32");
  completed_backend(master.device().type()).split_master(master, weight, low);
}

at::Tensor join_master(const at::Tensor& weight, const at::Tensor& low) {
  check_halves(weight, low, weight.numel());
  return completed_backend(weight.device().type()).join_master(weight, low);
}

std::vector<double> sums_of_squares(const at::Tensor& values, const std::vector<Chunk>& chunks) {
  check_chunks(chunks, values.numel());
  require(is_flat(values, values.numel(), at::kFloat), "optimizer",
          "values to square must be flat, contiguous f32");
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
    const bool is_split = state.low.defined();
    const at::Tensor exp_avg = part(state.exp_avg), exp_avg_sq = part(state.exp_avg_sq),
                     master = is_split ? join_master(part(state.weight), part(state.low))
                                       : part(state.master);
    exp_avg.mul_(s.beta1).add_(scaled, s.one_minus_beta1);
    exp_avg_sq.mul_(s.beta2).addcmul_(scaled, scaled, s.one_minus_beta2);
    master.mul_(s.keep).addcdiv_(exp_avg, exp_avg_sq.sqrt().mul_(s.inv_sqrt_bias2).add_(s.eps),
                                 -s.step_size);
    if (!state.weight.defined()) continue;
    if (state.weight.scalar_type() == at::kBFloat16) {
      split_master(master, part(state.weight),
                   is_split ? part(state.low) : at::empty_like(master, at::kShort));
    } else {
      part(state.weight).copy_(master);
    }
  }
}

void oracle::split_master(const at::Tensor& master, const at::Tensor& weight,
                          const at::Tensor& low) {
  constexpr int64_t kLower = 0xffff, kQuiet = 0x400000;
  const at::Tensor given = master.view(at::kInt);
  const at::Tensor bits =
      given.bitwise_or(kQuiet).bitwise_and(~kLower).where(master.isnan(), given);
  const at::Tensor unsigned_low = bits.bitwise_and(kLower);
  const at::Tensor signed_low =
      unsigned_low - unsigned_low.ge(0x8000).to(at::kInt).mul_(kLower + 1);
  at::Tensor(low).copy_(signed_low);
  weight.view(at::kShort).copy_((bits - signed_low).bitwise_right_shift(16));
}

at::Tensor oracle::join_master(const at::Tensor& weight, const at::Tensor& low) {
  return weight.view(at::kShort).to(at::kInt).mul_(0x10000).add_(low).view(at::kFloat);
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
