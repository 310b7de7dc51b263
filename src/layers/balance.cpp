#include "layers/balance.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

namespace danlu::layers {
namespace {

using settings::BalanceLoss;

/// Picks of each expert among the tokens of each segment, as parts of its tokens: f64 [S, E].
at::Tensor parts_of_segments(const Balance& balance, const at::Tensor& picks_NK, int64_t experts) {
  const auto segments = static_cast<int64_t>(balance.lengths.size());
  at::Tensor load_SE = at::zeros({segments, experts}, at::kDouble);
  double* const load = load_SE.data_ptr<double>();
  const int64_t per_token = picks_NK.size(1);
  const int64_t* const picks = picks_NK.data_ptr<int64_t>();
  for (const ops::SegmentPart& part : balance.parts) {
    for (int64_t at = part.begin * per_token; at < part.end * per_token; ++at)
      load[part.segment * experts + picks[at]] += 1;
  }
  balance.context->all_reduce_sum(load_SE);
  for (int64_t segment = 0; segment < segments; ++segment) {
    for (int64_t expert = 0; expert < experts; ++expert)
      load[segment * experts + expert] /=
          static_cast<double>(balance.lengths[static_cast<size_t>(segment)]);
  }
  return load_SE;
}

}  // namespace

double Balance::factor(const ops::RoutingRule& rule, int64_t experts) const {
  const double all = training.aux_loss_coef * static_cast<double>(experts);
  return training.loss == BalanceLoss::kModel ? all / static_cast<double>(sparse_layers)
                                              : all / static_cast<double>(rule.per_token);
}

std::shared_ptr<const ops::ExpertLoad> Balance::load_of(const at::Tensor& picks_NK, int64_t experts,
                                                        bool records) const {
  if (training.loss != BalanceLoss::kModel) {
    auto load = std::make_shared<ops::ExpertLoad>();
    load->parts_SE = parts_of_segments(*this, picks_NK, experts);
    return load;
  }
  if (!of_model->load.parts_SE.defined())
    of_model->load.parts_SE =
        at::zeros({static_cast<int64_t>(lengths.size()), experts}, at::kDouble);
  if (records) {
    const at::Tensor layer_SE = parts_of_segments(*this, picks_NK, experts);
    of_model->load.parts_SE += layer_SE / static_cast<double>(sparse_layers);
  }
  return {of_model, &of_model->load};
}

double Balance::value_of(const at::Tensor& sum, const at::Tensor& logits_NE,
                         const ops::BalanceTerm& term) const {
  if (training.loss != BalanceLoss::kModel) return sum.item<double>();
  const at::Tensor scores_E = ops::mean_scores(logits_NE, term);
  OfModel& all = *of_model;
  all.scores_E = all.scores_E.defined() ? all.scores_E + scores_E : scores_E;
  const double before = all.value;
  all.value = (all.load.parts_SE[0] * all.scores_E).sum().item<double>();
  return all.value - before;
}

}  // namespace danlu::layers
