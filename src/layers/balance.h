// layers/balance.h: what training asks of the routers of a pass beside their choice.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "ops/routing.h"
#include "parallel/group.h"
#include "settings/router_training.h"

namespace danlu::layers {

/// Terms that routers add to the loss in one pass (layers/experts.h), and what the pass knows for
/// them. A term is the mean over segments, weighed by `weights`.
struct Balance {
  settings::RouterTraining training;
  /// The segments: the pass's sequences, or all of it as one (settings::BalanceLoss).
  /// Lengths of whole segments, of which ranks of the context axis have parts.
  std::vector<int64_t> lengths;
  std::vector<double> weights;  ///< how much of the step's loss lies in each
  /// The tokens of this rank, inside a region, that belong to each segment.
  std::vector<ops::SegmentPart> parts;
  /// The same of sequences, by which experts have room.
  std::vector<ops::SegmentPart> sequences;
  std::vector<int64_t> sequence_lengths;
  const parallel::Group* context = &parallel::Group::alone();
  /// On a context axis: where the tokens of each of its ranks lie in the whole batch, then -1s:
  /// int64 [ranks, most], and the starts of all sequences there. Undefined: all tokens are here.
  at::Tensor places_RN;
  std::vector<int64_t> starts;
  int64_t sparse_layers = 0;  ///< of the whole model

  /// For settings::BalanceLoss::kModel: what the layers have seen so far, divided by their number.
  struct OfModel {
    ops::ExpertLoad load;  ///< undefined before the first layer
    at::Tensor scores_E;   ///< f64: means
    double value = 0;      ///< of the term, so far
  };
  std::shared_ptr<OfModel> of_model;

  /// The factor of Σ load · score for one segment of weight 1.
  double factor(const ops::RoutingRule& rule, int64_t experts) const;
  /// The load of this layer, or of all so far, by its picks, with the coefficients of the terms
  /// that read it. records: this is the layer's first forward. Collective over the context axis.
  std::shared_ptr<const ops::ExpertLoad> load_of(const at::Tensor& picks_NK,
                                                 const ops::RoutingRule& rule, int64_t experts,
                                                 bool records) const;
  /// int64 on the host, of each token: noise follows from them; undefined: there is none.
  at::Tensor keys_N;

  /// The choice of a layer's routers, as far as training makes it. Collective over the context
  /// axis.
  ops::TrainedChoice choice(const at::Tensor& logits_NE, const ops::RoutingRule& rule,
                            int64_t layer) const;
  /// What a layer's router reads: x with noise, or x.
  at::Tensor read_by_router(const at::Tensor& x_NH, int64_t layer) const;
  /// Takes picks out that experts have no room for; returns how many of this rank's. Room is that
  /// of whole sequences, whose tokens other ranks may have. Collective over the context axis.
  int64_t drop(ops::Routing& routing, int64_t experts) const;
  /// The rows of all tokens of the batch, from what each rank of the context axis has of its own,
  /// on the host: [whole batch, K]. Collective over the axis. REQUIRES: `places_RN`.
  at::Tensor of_whole_batch(const at::Tensor& own_NK) const;
  /// How much the layer adds to the term's value. sum: of ops::balance_term with `term`.
  double value_of(const at::Tensor& sum, const at::Tensor& logits_NE,
                  const ops::BalanceTerm& term) const;

 private:
  at::Tensor keys_of(int64_t rows) const;
  std::vector<ops::SegmentPart> all_sequences() const;
};

}  // namespace danlu::layers
