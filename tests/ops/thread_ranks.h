// thread_ranks.h: threads that stand for the ranks of a head that they share.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>

#include <barrier>
#include <vector>

#include "ops/cross_entropy.h"

namespace danlu::test {

/// Sums and maxima over threads that all ask for the same ones.
class Threads {
 public:
  explicit Threads(size_t count) : parts_(count), meet_(static_cast<std::ptrdiff_t>(count)) {}
  ops::VocabularyShare share(size_t rank, int64_t first, int64_t vocab, int64_t most) {
    return {first, vocab, most, [this, rank](at::Tensor& t) { exchange(rank, t, false); },
            [this, rank](at::Tensor& t) { exchange(rank, t, true); }};
  }

 private:
  void exchange(size_t rank, at::Tensor& tensor, bool largest) {
    parts_[rank] = tensor.clone();
    meet_.arrive_and_wait();
    const at::Tensor all = at::stack(parts_);
    tensor.copy_(largest ? all.amax({0}) : all.sum({0}));
    meet_.arrive_and_wait();
  }
  std::vector<at::Tensor> parts_;
  std::barrier<> meet_;
};

}  // namespace danlu::test
