#include "layers/balance.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace danlu::layers {
namespace {

using settings::BalanceLoss;

/// What share of each segment's tokens each column gets: f64 [S, columns]. count adds a token's
/// picks, which begin at the pointer, to a row.
template <typename Count>
at::Tensor parts_of_segments(const Balance& balance, const at::Tensor& picks_NK, int64_t columns,
                             const Count& count) {
  const auto segments = static_cast<int64_t>(balance.lengths.size());
  at::Tensor load_SC = at::zeros({segments, columns}, at::kDouble);
  double* const load = load_SC.data_ptr<double>();
  const int64_t per_token = picks_NK.size(1);
  const int64_t* const picks = picks_NK.data_ptr<int64_t>();
  for (const ops::SegmentPart& part : balance.parts) {
    for (int64_t token = part.begin; token < part.end; ++token)
      count(picks + token * per_token, load + part.segment * columns);
  }
  balance.context->all_reduce_sum(load_SC);
  for (int64_t segment = 0; segment < segments; ++segment) {
    for (int64_t column = 0; column < columns; ++column)
      load[segment * columns + column] /=
          static_cast<double>(balance.lengths[static_cast<size_t>(segment)]);
  }
  return load_SC;
}

/// Picks of each expert, for one pick of all: f64 [S, E].
at::Tensor picks_of_experts(const Balance& balance, const at::Tensor& picks_NK, int64_t experts) {
  const int64_t per_token = picks_NK.size(1);
  return parts_of_segments(balance, picks_NK, experts,
                           [per_token](const int64_t* picks, double* row) {
                             for (int64_t k = 0; k < per_token; ++k) row[picks[k]] += 1;
                           });
}

/// Tokens that have a pick in each group: f64 [S, groups].
at::Tensor tokens_of_groups(const Balance& balance, const at::Tensor& picks_NK, int64_t groups,
                            int64_t each) {
  const int64_t per_token = picks_NK.size(1);
  return parts_of_segments(
      balance, picks_NK, groups, [per_token, each](const int64_t* picks, double* row) {
        for (int64_t k = 0; k < per_token; ++k) {
          const bool is_first = std::none_of(
              picks, picks + k, [&](int64_t before) { return before / each == picks[k] / each; });
          if (is_first) row[picks[k] / each] += 1;
        }
      });
}

/// Adds DeepSeek-V2's terms: the sum over groups of load · score is one over their experts.
void add_groups(const Balance& balance, const at::Tensor& picks_NK, const at::Tensor& load_SE,
                const ops::RoutingRule& rule, at::Tensor& result_SE) {
  const int64_t groups = rule.groups, experts = load_SE.size(1), each = experts / groups;
  const at::Tensor of_group_SG = load_SE.view({-1, groups, each}).mean(2);
  const at::Tensor sent_SG = tokens_of_groups(balance, picks_NK, groups, each);
  // Balance::factor multiplies by experts / per_token, the published form by groups / chosen.
  const double sent_factor = static_cast<double>(groups * rule.per_token) /
                             static_cast<double>(rule.chosen_groups * experts);
  const at::Tensor both_SG = of_group_SG * balance.training.group_loss_coef +
                             sent_SG * (balance.training.group_sent_loss_coef * sent_factor);
  result_SE += both_SG.repeat_interleave(each, 1);
}

}  // namespace

double Balance::factor(const ops::RoutingRule& rule, int64_t experts) const {
  const auto all = static_cast<double>(experts);
  return training.loss == BalanceLoss::kModel ? all / static_cast<double>(sparse_layers)
                                              : all / static_cast<double>(rule.per_token);
}

std::shared_ptr<const ops::ExpertLoad> Balance::load_of(const at::Tensor& picks_NK,
                                                        const ops::RoutingRule& rule,
                                                        int64_t experts, bool records) const {
  if (training.loss != BalanceLoss::kModel) {
    auto load = std::make_shared<ops::ExpertLoad>();
    const at::Tensor picks_SE = picks_of_experts(*this, picks_NK, experts);
    load->parts_SE = picks_SE * training.aux_loss_coef;
    if (training.balances_groups()) add_groups(*this, picks_NK, picks_SE, rule, load->parts_SE);
    return load;
  }
  if (!of_model->load.parts_SE.defined())
    of_model->load.parts_SE =
        at::zeros({static_cast<int64_t>(lengths.size()), experts}, at::kDouble);
  if (records) {
    const at::Tensor layer_SE = picks_of_experts(*this, picks_NK, experts);
    of_model->load.parts_SE +=
        layer_SE * (training.aux_loss_coef / static_cast<double>(sparse_layers));
  }
  return {of_model, &of_model->load};
}

ops::TrainedChoice Balance::choice(const at::Tensor& logits_NE, const ops::RoutingRule& rule,
                                   int64_t layer) const {
  ops::TrainedChoice choice;
  if (training.draws_picks) {
    choice.keys_N = keys_of(logits_NE.size(0));
    choice.salt = static_cast<uint64_t>(2 * layer);
  }
  if (!training.sinkhorn) return choice;
  const at::Tensor own_NE = logits_NE.detach().cpu();
  const bool is_whole = !places_RN.defined();
  const at::Tensor all_NE = is_whole ? own_NE : of_whole_batch(own_NE);
  const at::Tensor picks_NK = ops::balanced_picks(
      ops::sinkhorn(all_NE, is_whole ? sequences : all_sequences()), all_NE, rule.per_token);
  if (is_whole) {
    choice.picks_NK = picks_NK;
    return choice;
  }
  choice.picks_NK = at::zeros({own_NE.size(0), rule.per_token}, at::kLong);
  const at::Tensor places = places_RN[context->rank()];
  const at::Tensor own = places.masked_select(places.ge(0));
  choice.picks_NK.narrow(0, 0, own.size(0)).copy_(picks_NK.index_select(0, own));
  return choice;
}

at::Tensor Balance::read_by_router(const at::Tensor& x_NH, int64_t layer) const {
  if (!(training.input_jitter > 0)) return x_NH;
  return ops::jittered(x_NH, keys_of(x_NH.size(0)), static_cast<uint64_t>(2 * layer + 1),
                       training.input_jitter);
}

at::Tensor Balance::keys_of(int64_t rows) const {
  return at::constant_pad_nd(keys_N, {0, rows - keys_N.size(0)});  // filling follows the tokens
}

std::vector<ops::SegmentPart> Balance::all_sequences() const {
  std::vector<ops::SegmentPart> all;
  for (size_t s = 0; s + 1 < starts.size(); ++s)
    all.push_back({starts[s], starts[s + 1], static_cast<int64_t>(s)});
  return all;
}

int64_t Balance::drop(ops::Routing& routing, int64_t experts) const {
  if (!(training.capacity_factor > 0)) return 0;
  const bool by_position = training.drop == settings::DropPolicy::kPosition;
  if (!places_RN.defined()) {
    return ops::drop_beyond(training.capacity_factor, by_position, experts, sequences,
                            sequence_lengths, routing.experts_NK, routing.weights_NK);
  }
  const at::Tensor experts_NK = of_whole_batch(routing.experts_NK);
  ops::drop_beyond(training.capacity_factor, by_position, experts, all_sequences(),
                   sequence_lengths, experts_NK, of_whole_batch(routing.weights_NK.detach().cpu()));
  const int64_t* const places = places_RN[context->rank()].data_ptr<int64_t>();
  int64_t dropped = 0;
  const int64_t per_token = experts_NK.size(1);
  const int64_t* const all_kept = experts_NK.data_ptr<int64_t>();
  int64_t* const own = routing.experts_NK.data_ptr<int64_t>();
  for (int64_t token = 0; token < places_RN.size(1) && places[token] >= 0; ++token) {
    const int64_t* const kept = all_kept + places[token] * per_token;
    for (int64_t k = 0; k < per_token; ++k) {
      if (kept[k] < 0 && own[token * per_token + k] >= 0) ++dropped;
      own[token * per_token + k] = kept[k];
    }
  }
  return dropped;
}

at::Tensor Balance::of_whole_batch(const at::Tensor& own_NK) const {
  const int64_t most = places_RN.size(1), here = std::min(most, own_NK.size(0));
  const at::Tensor mine = at::constant_pad_nd(own_NK.narrow(0, 0, here), {0, 0, 0, most - here});
  const at::Tensor all = context->all_gather(mine.contiguous(), 0);
  at::Tensor whole = at::empty({starts.back(), own_NK.size(1)}, own_NK.options());
  const at::Tensor places = places_RN.flatten(), is_there = places.ge(0);
  whole.index_copy_(0, places.masked_select(is_there),
                    all.index_select(0, is_there.nonzero().squeeze(1)));
  return whole;
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
