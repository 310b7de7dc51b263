// optim/grad_buffer.h: gradients of a whole step, summed over micro-batches and ranks in f32.
#pragma once
#include <ATen/core/Tensor.h>

#include <deque>
#include <string>
#include <vector>

#include "ops/optimizer.h"
#include "optim/parameter.h"
#include "parallel/store.h"

namespace danlu::optim {

using ops::AdamWScalars, ops::Chunk, ops::Range, ops::chunks_in, ops::chunks_of;

/// A flat f32 buffer for each trained unit of a store, laid out as the unit. It comes with the
/// first gradient of a step, when the activations of later layers are gone, and lives until the
/// next step begins. Linear layers, norms, the embedding and the head add their gradients to it
/// themselves (ops/main_grad.h). The few and small gradients of other parameters are added when a
/// backward has passed the unit; from then on an f32 parameter's .grad is its slice, so that
/// autograd adds into it. Sums over ranks are made in the background, each unit's while the
/// backward goes on; where gradients are shared (Sharding::kGradients) after every micro-batch, and
/// a unit's buffer lives no longer than that.
class GradBuffer {
 public:
  /// Takes over the gradient of every trained parameter, and listens to the store, which outlives
  /// it.
  explicit GradBuffer(parallel::ParameterStore& store);
  ~GradBuffer();
  GradBuffer(const GradBuffer&) = delete;
  GradBuffer& operator=(const GradBuffer&) = delete;

  /// Units (of the store's) that are trained in other steps: they have no gradients from now on,
  /// and no part in norms and sums. Before zero(); every rank that shares a unit says the same.
  void rest(const std::vector<bool>& units);

  /// Every gradient is 0 from now on, and has no memory: call before the first pass of a step.
  void zero();
  /// Before each backward; last: of the step, which begins the sums over ranks. later: linear
  /// layers leave their weights' gradients there. REQUIRES then: !last; gradients are not shared.
  void begin_pass(bool last, ops::LaterWork* later = nullptr);
  /// What a pass has left; last: of the step, which begins the sums over ranks.
  void add_later(ops::LaterWork& later, bool last);
  /// After each backward.
  void end_pass();
  /// After the last one: waits for the sums over the data axis, and over the ranks of the
  /// tensor axis whose gradients of a rectangle are parts of one sum.
  void finish();

  const parallel::ParameterStore& store() const { return store_; }
  /// What this rank holds of the sum for unit `unit` (of the store's), f32: the unit's share, or
  /// all of it where state is not shared. Undefined for units that are not trained.
  const at::Tensor& share(size_t unit) const;
  /// The gradient of a parameter of the unit. REQUIRES: nothing is shared.
  at::Tensor grad(size_t unit, size_t parameter) const;

  /// sqrt of the sum of squares of all gradients of the whole model, times `scale`, added in f64 in
  /// a fixed order; not finite if any gradient is not. Every rank calls it after finish(), and gets
  /// the same.
  double norm(double scale) const;
  /// Names of the parameters with a non-finite gradient in this rank's shares, at most `limit`.
  std::vector<std::string> non_finite(size_t limit) const;
  /// Bytes kept between passes of a step, at most; and those of them that have no memory yet.
  int64_t kept_bytes() const;
  int64_t absent_bytes() const;

 private:
  void leave_to(ops::LaterWork* later);
  bool is_resting(size_t unit) const { return unit < resting_.size() && resting_[unit]; }
  struct UnitGradient {
    at::Tensor whole;   ///< of a unit whose gradients are shared: while a backward is in it
    at::Tensor buffer;  ///< that `whole` is the beginning of
    at::Tensor share;
  };
  bool shares_gradients() const { return store_.sharding() >= parallel::Sharding::kGradients; }
  at::Tensor take_buffer(int64_t elements, const at::Device& device);
  void before_unit(size_t unit);
  void after_unit(size_t unit);
  void give_memory(size_t unit) const;
  void point_gradients(size_t unit) const;
  void forget_gradients(size_t unit) const;
  void complete(size_t unit) const;
  void collect(size_t unit);
  /// What of a parameter is not trained has no gradient.
  void clear_fixed(size_t index) const;
  void start_sum(size_t unit);
  void wait_for_oldest();

  parallel::ParameterStore& store_;
  mutable std::vector<UnitGradient> units_;  ///< asked for, a gradient is there
  std::vector<bool> resting_;                ///< empty: none is
  bool last_pass_ = true;
  struct Running {
    parallel::Background::Job done;
    at::Tensor buffer;  ///< free to use again afterwards; undefined: none
  };
  std::deque<Running> running_;
  std::vector<at::Tensor> spare_;
};

}  // namespace danlu::optim
