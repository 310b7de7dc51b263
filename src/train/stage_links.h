// train/stage_links.h: the exchanges between neighbouring stages of a pipeline.
#pragma once
#include <ATen/core/Tensor.h>

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "models/causal_lm.h"
#include "parallel/background.h"

namespace danlu::train {

/// Sends hidden states to the next stage and their gradients to the stage before. Tensors are sent
/// beside the computing, in the order in which they are given. A tensor that is expected is asked
/// for ahead and waited for when it is needed. Neighbours must exchange the same micro-batches in
/// the same order. With several chunks the last stage gives to the first. Errors: CommError. Not
/// thread-safe.
class StageLinks {
 public:
  /// `stage` outlives it. A model that is one stage has no exchanges.
  explicit StageLinks(const models::CausalLM& stage);

  // Announce what is received before the next finish(), in order: the shape of what enters the
  // chunk, and of what it gave (models::CausalLM::shape_before).
  void expect_hidden(int64_t chunk, const models::PassSize& size);
  void expect_grad(int64_t chunk, const models::PassSize& size);
  // Return the next tensor that was announced.
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
    std::deque<std::vector<int64_t>> shapes;  ///< of what was not asked for yet
    std::deque<std::pair<at::Tensor, parallel::Background::Job>> coming;
    std::unique_ptr<parallel::Background> thread;
  };
  void send(Outgoing& outgoing, const parallel::Group& group, const at::Tensor& what);
  void expect(Incoming& incoming, const parallel::Group& group, std::vector<int64_t> shape);
  void ask(Incoming& incoming, const parallel::Group& group);
  at::Tensor receive(Incoming& incoming, const parallel::Group& group);

  const models::CausalLM& stage_;
  const parallel::Mesh& mesh_;
  size_t most_under_way_;
  Outgoing hidden_, grad_;
  Incoming hidden_in_, grad_in_;
};

}  // namespace danlu::train
