// layers/experts.h: a feed-forward layer made of experts, of which a router picks a few for each
// token.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layers/mlp.h"
#include "ops/routing.h"
#include "parallel/exchange.h"

namespace danlu::layers {

/// Names in PassResults. The terms of the loss are sums over segments, weighted as Balance says.
inline const std::string kBalanceTerm = "aux_loss", kRouterZTerm = "z_loss";
/// Picks of each layer of the model that went to each expert, and last those that were dropped:
/// [layers, experts + 1].
inline const std::string kExpertLoad = "expert_load";

struct Expert {
  Linear gate, up, down;
  void visit(Visitor& visitor);
};

/// Where the picks of tokens go: row r of the experts' input is token token_R[r], which is pick
/// pick_R[r] of all, token by token. Rows are sorted by expert, then by token.
struct Dispatch {
  at::Tensor token_R, pick_R;   ///< int64 on the experts' device
  std::vector<int64_t> counts;  ///< rows of each expert
};
/// experts_NK: int64 on the host; a negative number is no pick.
Dispatch dispatch(const at::Tensor& experts_NK, int64_t experts, const at::Device& device);

class SharedWork;

struct Experts : FeedForward {
  Linear router;          ///< [experts, H]; its product is f32 (f64 of f64) whatever the type
  Parameter choice_bias;  ///< f32 [experts], or undefined
  ops::RoutingRule rule;
  bool scales_input = false;    ///< weights multiply what experts are given
  std::vector<Expert> experts;  ///< this rank's: as many as each of `owners` has
  /// The ranks that divide the experts among them, in the order of their numbers. Each has tokens
  /// of its own, which go to the owners of their experts and come back.
  const parallel::Group* owners = &parallel::Group::alone();
  /// Carries rows to `owners` and back while the shared expert computes; nullptr: nothing does.
  const parallel::AsyncExchange* beside = nullptr;
  /// Runs of neighbours on the tensor axis that have experts of their own, and this rank's. The
  /// ranks of one send the rows of the experts that its number has on every owner: a part of the
  /// sum, as what each makes of these with its part of the experts.
  int64_t dealers = 1, dealer = 0;
  /// The ranks that cut this rank's experts between them, where each sends the rows of an equal
  /// part of the tokens, and owners gather what their neighbours have got. Else this rank alone.
  const parallel::Group* cutters = &parallel::Group::alone();
  std::optional<Mlp> shared;          ///< the expert that every token passes
  Linear shared_gate;                 ///< [1, H], or undefined
  int64_t layer = 0, num_layers = 1;  ///< in the whole model

  explicit Experts(const parallel::Region& region) : FeedForward(region) {}
  at::Tensor forward(const at::Tensor& x_NH, const std::shared_ptr<const Pass>& pass,
                     const Again& again) const override;
  void visit(Visitor& visitor) override;

 private:
  at::Tensor routed(const at::Tensor& x_NH, const at::Tensor& logits_NE,
                    const std::shared_ptr<const Pass>& pass, const Again& again,
                    SharedWork& shared_work) const;
  /// What the experts make of rows sorted by expert, on whichever rank they are. counts: rows of
  /// each expert of the layer.
  at::Tensor through_owners(const at::Tensor& x_RH, const std::vector<int64_t>& counts,
                            const std::shared_ptr<const Pass>& pass, const Again& again,
                            SharedWork& shared_work) const;
  /// parallel::exchange_rows among the owners, with `meanwhile` done while rows travel if anything
  /// can be; without one nothing is.
  at::Tensor exchanged(const at::Tensor& x_RH, const std::vector<int64_t>& sends,
                       const std::vector<int64_t>& receives,
                       const std::function<void()>& meanwhile) const;
  /// The same of this rank's experts. counts: rows of each of them.
  at::Tensor through(const at::Tensor& x_RH, const std::vector<int64_t>& counts,
                     const std::shared_ptr<const Pass>& pass, const Again& again) const;
  /// Picks of the experts that this rank's dealer has on every owner, numbered among these, by the
  /// tokens whose rows this rank sends; the others are taken out. all: experts of the layer.
  at::Tensor dealt(const at::Tensor& experts_NK, int64_t all) const;
  void count(const at::Tensor& experts_NK, int64_t all, int64_t dropped,
             PassResults& results) const;
  at::Tensor with_terms(const at::Tensor& hidden_NH, const std::vector<at::Tensor>& logits,
                        const at::Tensor& experts_NK, const Pass& pass) const;
};

}  // namespace danlu::layers
