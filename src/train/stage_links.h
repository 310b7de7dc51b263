// train/stage_links.h: what neighbouring stages of a pipeline give each other in a pass.
#pragma once
#include <ATen/core/Tensor.h>

#include <deque>
#include <future>
#include <memory>

#include "models/causal_lm.h"
#include "parallel/background.h"

namespace danlu::train {

/// Hidden states on the way forward, their gradients on the way back. What is sent leaves beside
/// the computing, in the order given; what is received is waited for. The neighbours name the same
/// micro-batches in the same order. Errors: CommError. Not thread-safe.
class StageLinks {
 public:
  /// Of a model of several stages or one, which outlives it.
  explicit StageLinks(const models::CausalLM& stage);

  bool is_first() const { return mesh_.stage() == 0; }
  bool is_last() const { return mesh_.stage() + 1 == mesh_.shape().pipeline; }

  // tokens: of the micro-batch (models::CausalLM::hidden_shape).
  at::Tensor receive_hidden(int64_t tokens) const;
  at::Tensor receive_grad(int64_t tokens) const;
  void send_hidden(const at::Tensor& hidden_nH);
  void send_grad(const at::Tensor& grad_nH);
  /// Waits until everything has left.
  void finish();

 private:
  using Way = parallel::Mesh::Way;
  struct Outgoing {
    std::deque<std::shared_future<void>> running;
    std::unique_ptr<parallel::Background> thread;
  };
  void send(Outgoing& outgoing, const parallel::Group& group, int64_t from, const at::Tensor& what);
  at::Tensor receive(const parallel::Group& group, int64_t from, int64_t tokens) const;

  const models::CausalLM& stage_;
  const parallel::Mesh& mesh_;
  Outgoing hidden_, grad_;
};

}  // namespace danlu::train
