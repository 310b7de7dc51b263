// optim/state_values.h: numbers of the optimizer's state as f32, however they are kept.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>

namespace danlu::optim {

/// Flat f32 numbers: a view of them, or the masters that a flat bf16 weight and what it lacks of
/// them make together (ops::join_master), of which there is never more than a block.
class StateValues {
 public:
  explicit StateValues(at::Tensor values) : values_(std::move(values)) {}
  StateValues(at::Tensor weight, at::Tensor low)
      : values_(std::move(weight)), low_(std::move(low)) {}

  int64_t size() const { return values_.numel(); }
  bool are_with_weight() const { return low_.defined(); }
  StateValues narrow(int64_t begin, int64_t size) const;

  /// All values as f32: a view, or a copy.
  at::Tensor f32() const;
  /// visit(block) of every block, in order, each as f32() of its numbers; once where there are
  /// none.
  void for_each_block(const std::function<void(const at::Tensor& block)>& visit) const;
  /// Takes [rows, cols], all of them, as give(first_row, to) fills `to` [some, cols] with rows from
  /// first_row on. Returns false as soon as give does: what came before has been taken.
  bool take(int64_t rows, int64_t cols,
            const std::function<bool(int64_t first_row, const at::Tensor& to)>& give) const;

 private:
  at::Tensor values_;  ///< f32, or bf16 with `low_`
  at::Tensor low_;
};

}  // namespace danlu::optim
