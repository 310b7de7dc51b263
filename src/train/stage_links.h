// train/stage_links.h: what neighbouring stages of a pipeline give each other in a pass.
#pragma once
#include <ATen/core/Tensor.h>

#include <deque>
#include <memory>
#include <utility>

#include "models/causal_lm.h"
#include "parallel/background.h"

namespace danlu::train {

/// Hidden states on the way forward, their gradients on the way back. What is sent leaves beside
/// the computing, in the order given; what is received is asked for ahead, and waited for when it
/// is needed. The neighbours name the same micro-batches in the same order. With several chunks the
/// last stage gives to the first. Errors: CommError. Not thread-safe.
class StageLinks {
 public:
  /// Of a model of several stages or one, which outlives it.
  explicit StageLinks(const models::CausalLM& stage);

  // What is to be received before the next finish(), in order, by its tokens
  // (models::CausalLM::hidden_shape).
  void expect_hidden(int64_t tokens);
  void expect_grad(int64_t tokens);
  // The next of those.
  at::Tensor receive_hidden();
  at::Tensor receive_grad();
  void send_hidden(const at::Tensor& hidden_nH);
  void send_grad(const at::Tensor& grad_nH);
  /// Waits until everything has left.
  void finish();

 private:
  using Way = parallel::Mesh::Way;
  struct Outgoing {
    std::deque<parallel::Background::Job> running;
    std::unique_ptr<parallel::Background> thread;
  };
  struct Incoming {
    std::deque<int64_t> tokens;  ///< not asked for yet
    std::deque<std::pair<at::Tensor, parallel::Background::Job>> coming;
    std::unique_ptr<parallel::Background> thread;
  };
  void send(Outgoing& outgoing, const parallel::Group& group, const at::Tensor& what);
  void expect(Incoming& incoming, const parallel::Group& group, int64_t tokens);
  void ask(Incoming& incoming, const parallel::Group& group);
  at::Tensor receive(Incoming& incoming, const parallel::Group& group);

  const models::CausalLM& stage_;
  const parallel::Mesh& mesh_;
  size_t most_under_way_;
  Outgoing hidden_, grad_;
  Incoming hidden_in_, grad_in_;
};

}  // namespace danlu::train
