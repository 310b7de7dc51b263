#include "layers/experts.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "device/dtype.h"
#include "device/sent.h"
#include "layers/balance.h"
#include "layers/pass_results.h"
#include "ops/activation.h"
#include "ops/dropout.h"
#include "ops/grouped_linear.h"
#include "ops/linear.h"
#include "ops/pointwise.h"
#include "ops/swiglu.h"
#include "parallel/exchange.h"

namespace danlu::layers {
namespace {

using Group = std::vector<const Linear*>;  // the same linear layer of each expert

/// get: which parameter of each of them.
template <typename Each, typename Get>
at::Tensor grouped_product(const Each& of_experts, const Get& get, const at::Tensor& x_RI,
                           const std::vector<int64_t>& counts) {
  std::vector<ops::MainGradPtr> main;
  std::vector<at::Tensor> weights;
  for (const auto* of_expert : of_experts) {
    const Parameter& parameter = get(*of_expert);
    weights.push_back(parameter.tensor);
    main.push_back(parameter.main_grad);
  }
  return ops::grouped_linear(x_RI, weights, counts, main);
}

const Parameter& weight_of(const Linear& linear) { return linear.weight; }
const Parameter& a_of(const LoraAdapter& adapter) { return adapter.a_RI; }
const Parameter& b_of(const LoraAdapter& adapter) { return adapter.b_OR; }

/// The adapters of all rows, where they are two products and no more, of equal sizes in all
/// experts; else nothing.
std::vector<const LoraAdapter*> plain_adapters(const Group& linears, const Pass& pass) {
  std::vector<const LoraAdapter*> adapters;
  for (const Linear* linear : linears) {
    const LoraAdapter* const adapter = linear->adapter_of_all(pass);
    if (!adapter || linear->weight.quantized || adapter->magnitude_O.defined()) return {};
    adapters.push_back(adapter);
  }
  const LoraAdapter& first = *adapters.front();
  const bool are_alike =
      std::all_of(adapters.begin(), adapters.end(), [&](const LoraAdapter* adapter) {
        return adapter->scale == first.scale &&
               adapter->a_RI.tensor.sizes() == first.a_RI.tensor.sizes() &&
               !(adapter->dropout > 0 && pass.dropout_keys_N.defined());
      });
  return are_alike ? adapters : std::vector<const LoraAdapter*>{};
}

/// `pass` as rows see it that were taken from its own by their numbers.
std::shared_ptr<const Pass> pass_of_rows(const std::shared_ptr<const Pass>& pass,
                                         const at::Tensor& rows_R) {
  const bool has_keys = pass->dropout_keys_N.defined(), mixes = pass->adapter_runs.size() > 1;
  if (!has_keys && !mixes) return pass;
  auto own = std::make_shared<Pass>(*pass);
  if (has_keys)
    own->dropout_keys_N = ops::take_rows(pass->dropout_keys_N.unsqueeze(1), rows_R).squeeze(1);
  if (mixes) own->adapter_runs = runs_of_rows(pass->adapter_runs, rows_R);
  return own;
}

/// Scores of all experts. For rows without an adapter they are computed in the wider type.
at::Tensor router_logits(const Linear& router, const at::Tensor& x_NH, const Pass& pass) {
  const at::ScalarType wide = device::wide_type(x_NH.scalar_type());
  if (!router.is_adapted(pass)) {
    return ops::linear(x_NH.to(wide), router.weight.tensor.to(wide), {}, {router.weight.main_grad});
  }
  if (router.adapter_of_all(pass)) return router.forward(x_NH, pass).to(wide);
  std::vector<at::Tensor> parts;
  Pass own = pass;
  int64_t first = 0;
  for (const AdapterRun& run : pass.adapter_runs) {
    own.adapter_runs = {run};
    parts.push_back(router_logits(router, x_NH.narrow(0, first, run.count), own));
    first += run.count;
  }
  return ops::rows_joined(parts);
}

/// What each expert's linear layer makes of its rows. `pass`: with keys of dropout for these rows.
at::Tensor grouped(const Group& linears, const at::Tensor& x_RI, const std::vector<int64_t>& counts,
                   const Pass& pass) {
  const bool is_plain = std::none_of(linears.begin(), linears.end(), [&](const Linear* linear) {
    return linear->is_adapted(pass) || linear->weight.quantized;
  });
  if (is_plain) return grouped_product(linears, weight_of, x_RI, counts);
  if (const auto adapters = plain_adapters(linears, pass); !adapters.empty()) {
    const auto x = ops::shared_by(2, x_RI);
    const at::Tensor base_RO = grouped_product(linears, weight_of, x[0], counts);
    const at::Tensor low_RR = grouped_product(adapters, a_of, x[1], counts);
    const at::Tensor low_RO = grouped_product(adapters, b_of, low_RR, counts);
    return ops::add(base_RO, ops::scaled(low_RO, adapters.front()->scale));
  }
  const auto parts = ops::parts_of(x_RI, counts, 0);
  std::vector<at::Tensor> results;
  Pass own = pass;
  int64_t first = 0;
  for (size_t expert = 0; expert < linears.size(); ++expert) {
    if (pass.dropout_keys_N.defined())
      own.dropout_keys_N = pass.dropout_keys_N.narrow(0, first, counts[expert]);
    if (pass.adapter_runs.size() > 1)
      own.adapter_runs = runs_within(pass.adapter_runs, first, counts[expert]);
    first += counts[expert];
    results.push_back(linears[expert]->forward(parts[expert], own));
  }
  return ops::rows_joined(results);
}

Group group_of(const std::vector<Expert>& experts, Linear Expert::* which) {
  Group group;
  for (const Expert& expert : experts) group.push_back(&(expert.*which));
  return group;
}

/// Which rows go where, if ranks divide the experts among them. Rows come by source, and by expert
/// within a source; those that neighbours have got are sources after a rank's own, or before them.
struct OwnersRows {
  std::vector<int64_t> sends, receives;  ///< rows to and from each rank
  std::vector<int64_t> of_cutters;       ///< rows that each neighbour has got
  std::vector<int64_t> counts;           ///< of each of this rank's experts, from all ranks
  at::Tensor by_expert_R;  ///< int64: which of the rows that came is row r by expert, then source
  at::Tensor by_source_R;  ///< the other way

  /// given: this rank's rows for each expert of the layer. Collective.
  OwnersRows(const std::vector<int64_t>& given, const parallel::Group& owners,
             const parallel::Group& cutters) {
    const int64_t ranks = owners.size(), all = static_cast<int64_t>(given.size()),
                  own = all / ranks;
    const at::Tensor mine_E = at::empty({all}, at::kLong);
    std::copy(given.begin(), given.end(), mine_E.data_ptr<int64_t>());
    sends = sums_of_rows(mine_E.view({ranks, own}));
    const at::Tensor came_RE =
        owners.all_gather(mine_E.unsqueeze(0), 0).narrow(1, owners.rank() * own, own).contiguous();
    receives = sums_of_rows(came_RE);
    const at::Tensor table_SE = cutters.all_gather(came_RE, 0);
    of_cutters = sums_of_rows(table_SE.view({cutters.size(), -1}));
    put_in_order(table_SE);
  }

 private:
  static std::vector<int64_t> sums_of_rows(const at::Tensor& table) {
    const at::Tensor sums = table.sum(1);
    return {sums.data_ptr<int64_t>(), sums.data_ptr<int64_t>() + sums.numel()};
  }
  /// table_SE: rows from each source for each expert.
  void put_in_order(const at::Tensor& table_SE) {
    const at::Tensor counts_E = table_SE.sum(0);
    counts.assign(counts_E.data_ptr<int64_t>(), counts_E.data_ptr<int64_t>() + counts_E.numel());
    const int64_t rows = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    by_expert_R = at::empty({rows}, at::kLong);
    by_source_R = at::empty({rows}, at::kLong);
    std::vector<int64_t> next(counts.size(), 0);
    std::partial_sum(counts.begin(), counts.end() - 1, next.begin() + 1);
    const int64_t* from = table_SE.data_ptr<int64_t>();
    int64_t came = 0;
    for (int64_t source = 0; source < table_SE.size(0); ++source) {
      for (size_t expert = 0; expert < counts.size(); ++expert, ++from) {
        for (int64_t i = 0; i < *from; ++i, ++came) {
          by_source_R.data_ptr<int64_t>()[came] = next[expert];
          by_expert_R.data_ptr<int64_t>()[next[expert]++] = came;
        }
      }
    }
  }
};

}  // namespace

/// What the expert that every token passes, and its gate, make of a pass's tokens: in two parts,
/// each of which may be done while rows travel.
class SharedWork {
 public:
  /// The references outlive it.
  SharedWork(const Experts& of, const at::Tensor& x_NH, const at::Tensor& gate_x_NH,
             const std::shared_ptr<const Pass>& pass, const Again& again)
      : of_(of), x_NH_(x_NH), gate_x_NH_(gate_x_NH), pass_(pass), again_(again) {}

  /// Whether ranks of the region wait for one another in it or in its backward: DoRA sums row
  /// lengths over columns, and norms that are made again gather a sequence's rows. Beside rows that
  /// travel that would be two exchanges from two threads, whose order differs between ranks: where
  /// a device runs one at a time, ranks would wait for ever.
  bool waits() const {
    if (!of_.shared || of_.region.is_alone()) return false;
    const LoraAdapter* const adapter = of_.shared->down.adapter_of_all(*pass_);
    return (adapter && adapter->magnitude_O.defined()) ||
           (again_.norm_outputs && of_.region.is_sequence());
  }
  void do_first() {
    if (of_.shared && inputs_.empty()) inputs_ = of_.shared->inputs_of(x_NH_, *pass_);
  }
  void do_second() {
    if (!of_.shared || sum_NH_.defined()) return;
    do_first();
    sum_NH_ = of_.shared->partial_of(inputs_, pass_, again_);
    if (!of_.shared_gate.defined()) return;
    const at::ScalarType wide = device::wide_type(x_NH_.scalar_type());
    const at::Tensor gate_N1 = of_.shared_gate.forward(gate_x_NH_, *pass_).to(wide);
    sum_NH_ = ops::scale_rows(sum_NH_, ops::sigmoid(gate_N1));
  }
  /// Undefined: the layer has no such expert.
  at::Tensor result() {
    do_second();
    return sum_NH_;
  }

 private:
  const Experts& of_;
  const at::Tensor &x_NH_, &gate_x_NH_;
  const std::shared_ptr<const Pass>& pass_;
  const Again& again_;
  std::vector<at::Tensor> inputs_;
  at::Tensor sum_NH_;
};

void Expert::visit(Visitor& visitor) {
  for (Linear* linear : {&gate, &up, &down}) linear->visit(visitor);
}

Dispatch dispatch(const at::Tensor& experts_NK, int64_t experts, const at::Device& device) {
  const int64_t picks = experts_NK.size(1), all = experts_NK.numel();
  const int64_t* const chosen = experts_NK.data_ptr<int64_t>();
  Dispatch result;
  result.counts.assign(static_cast<size_t>(experts), 0);
  for (int64_t pick = 0; pick < all; ++pick) {
    if (chosen[pick] >= 0) ++result.counts[static_cast<size_t>(chosen[pick])];
  }
  std::vector<int64_t> next(static_cast<size_t>(experts), 0);
  int64_t rows = 0;
  for (size_t expert = 0; expert < next.size(); ++expert) {
    next[expert] = rows;
    rows += result.counts[expert];
  }
  const at::Tensor token_R = at::empty({rows}, at::kLong), pick_R = at::empty({rows}, at::kLong);
  for (int64_t pick = 0; pick < all; ++pick) {
    if (chosen[pick] < 0) continue;
    const int64_t row = next[static_cast<size_t>(chosen[pick])]++;
    token_R.data_ptr<int64_t>()[row] = pick / picks;
    pick_R.data_ptr<int64_t>()[row] = pick;
  }
  result.token_R = device::sent(token_R, device);
  result.pick_R = device::sent(pick_R, device);
  return result;
}

at::Tensor Experts::forward(const at::Tensor& x_NH, const std::shared_ptr<const Pass>& pass,
                            const Again& again) const {
  const auto x = ops::shared_by(4, x_NH);
  const at::Tensor read_NH = pass->balance ? pass->balance->read_by_router(x[0], layer) : x[0];
  const at::Tensor logits_NE = router_logits(router, read_NH, *pass);
  SharedWork shared_work(*this, x[2], x[3], pass, again);
  at::Tensor sum_NH = routed(x[1], logits_NE, pass, again, shared_work);
  if (const at::Tensor shared_NH = shared_work.result(); shared_NH.defined())
    sum_NH = ops::add(sum_NH, shared_NH);
  return region.leave(sum_NH);
}

at::Tensor Experts::routed(const at::Tensor& x_NH, const at::Tensor& logits_NE,
                           const std::shared_ptr<const Pass>& pass, const Again& again,
                           SharedWork& shared_work) const {
  const auto logits = ops::shared_by(3, logits_NE);
  const ops::TrainedChoice choice =
      pass->balance ? pass->balance->choice(logits_NE, rule, layer) : ops::TrainedChoice();
  ops::Routing routing = ops::route(logits[0], choice_bias.tensor, rule, choice);
  // Filling is sent nowhere.
  routing.experts_NK.narrow(0, pass->num_tokens, x_NH.size(0) - pass->num_tokens).fill_(-1);
  const at::Tensor chosen_NK = routing.experts_NK.clone();
  const int64_t all = logits_NE.size(1);
  const int64_t dropped = pass->balance ? pass->balance->drop(routing, all) : 0;
  if (pass->results) count(routing.experts_NK, all, dropped, *pass->results);
  const Dispatch to = dispatch(dealt(routing.experts_NK, all), all / dealers, x_NH.device());
  if (pass->results && pass->results->on_routing)
    pass->results->on_routing(layer, logits_NE, routing);
  const at::Tensor weights_R1 = ops::take_rows(routing.weights_NK.reshape({-1, 1}), to.pick_R);
  at::Tensor rows_RH = ops::take_rows(x_NH, to.token_R);
  if (scales_input) rows_RH = ops::scale_rows(rows_RH, weights_R1);
  rows_RH = through_owners(rows_RH, to.counts, pass_of_rows(pass, to.token_R), again, shared_work);
  if (!scales_input) rows_RH = ops::scale_rows(rows_RH, weights_R1);
  const at::Tensor sum_NH = ops::rows_summed(rows_RH, to.token_R, x_NH.size(0));
  return with_terms(sum_NH, {logits[1], logits[2]}, chosen_NK, *pass);
}

void Experts::count(const at::Tensor& experts_NK, int64_t all, int64_t dropped,
                    PassResults& results) const {
  const at::Tensor load_LE = at::zeros({num_layers, all + 1}, at::kDouble);
  double* const to = load_LE[layer].data_ptr<double>();
  const int64_t* const chosen = experts_NK.data_ptr<int64_t>();
  for (int64_t pick = 0; pick < experts_NK.numel(); ++pick) {
    if (chosen[pick] >= 0) to[chosen[pick]] += 1;
  }
  to[all] = static_cast<double>(dropped);
  results.add(kExpertLoad, load_LE);
}

at::Tensor Experts::dealt(const at::Tensor& experts_NK, int64_t all) const {
  if (dealers == 1 && cutters->is_alone()) return experts_NK;
  // Owners stand in the order of their numbers, and among them the dealers of each.
  const int64_t each = all / (owners->size() * dealers);
  const int64_t picks = experts_NK.numel(), senders = cutters->size();
  const at::Tensor own_NK = experts_NK.clone();
  int64_t* const chosen = own_NK.data_ptr<int64_t>();
  for (int64_t pick = 0; pick < picks; ++pick) {
    const int64_t expert = chosen[pick];
    const int64_t token = pick / experts_NK.size(1);
    const bool is_sent = token * senders / experts_NK.size(0) == cutters->rank();
    const bool is_own = is_sent && expert >= 0 && expert / each % dealers == dealer;
    chosen[pick] = is_own ? expert / (each * dealers) * each + expert % each : -1;
  }
  return own_NK;
}

at::Tensor Experts::exchanged(const at::Tensor& x_RH, const std::vector<int64_t>& sends,
                              const std::vector<int64_t>& receives,
                              const std::function<void()>& meanwhile) const {
  if (!beside || !meanwhile) return parallel::exchange_rows(x_RH, sends, receives, *owners);
  const auto under_way = beside->begin(x_RH, sends, receives);
  meanwhile();
  return beside->end(under_way);
}

at::Tensor Experts::through_owners(const at::Tensor& x_RH, const std::vector<int64_t>& counts,
                                   const std::shared_ptr<const Pass>& pass, const Again& again,
                                   SharedWork& shared_work) const {
  if (owners->is_alone()) return through(x_RH, counts, pass, again);
  if (pass->adapter_runs.size() > 1)
    throw InternalError("[lora] rows of different adapters go to experts of other ranks");
  const OwnersRows rows(counts, *owners, *cutters);
  const at::Tensor by_expert_R = device::sent(rows.by_expert_R, x_RH.device());
  const auto in_order = [&](const at::Tensor& came_RH) {
    return ops::take_rows(parallel::gather_rows(came_RH, rows.of_cutters, *cutters), by_expert_R);
  };
  auto own = pass;
  if (pass->dropout_keys_N.defined()) {
    auto keyed = std::make_shared<Pass>(*pass);
    const at::Tensor keys_R1 = parallel::exchange_rows(pass->dropout_keys_N.unsqueeze(1),
                                                       rows.sends, rows.receives, *owners);
    keyed->dropout_keys_N = in_order(keys_R1).squeeze(1);
    own = keyed;
  }
  std::function<void()> first, second;
  if (!shared_work.waits()) {
    first = [&] { shared_work.do_first(); };
    second = [&] { shared_work.do_second(); };
  }
  at::Tensor here_RH = in_order(exchanged(x_RH, rows.sends, rows.receives, first));
  here_RH = through(here_RH, rows.counts, own, again);
  here_RH = ops::take_rows(here_RH, device::sent(rows.by_source_R, x_RH.device()));
  here_RH = parallel::scatter_rows_sum(here_RH, rows.of_cutters, *cutters);
  return exchanged(here_RH, rows.receives, rows.sends, second);
}

at::Tensor Experts::through(const at::Tensor& x_RH, const std::vector<int64_t>& counts,
                            const std::shared_ptr<const Pass>& pass, const Again& again) const {
  const auto x = ops::shared_by(2, x_RH);
  const at::Tensor gate_RF = grouped(group_of(experts, &Expert::gate), x[0], counts, *pass),
                   up_RF = grouped(group_of(experts, &Expert::up), x[1], counts, *pass);
  const Body body = [this, pass, counts](const std::vector<at::Tensor>& gate_up) {
    return grouped(group_of(experts, &Expert::down), ops::swiglu(gate_up[0], gate_up[1]), counts,
                   *pass);
  };
  if (!again.gated_product && !again.activation_output) return body({gate_RF, up_RF});
  std::vector<at::Tensor> read;
  for (const Expert& expert : experts) {
    const auto tensors = tensors_of(const_cast<Linear&>(expert.down));
    read.insert(read.end(), tensors.begin(), tensors.end());
  }
  return recomputed(body, {gate_RF, up_RF}, read);
}

at::Tensor Experts::with_terms(const at::Tensor& hidden_NH, const std::vector<at::Tensor>& logits,
                               const at::Tensor& experts_NK, const Pass& pass) const {
  if (!pass.balance) return hidden_NH;
  const Balance& balance = *pass.balance;
  at::Tensor result_NH = hidden_NH;
  ops::BalanceTerm term;
  term.score = rule.score;
  term.parts = balance.parts;
  term.lengths = balance.lengths;
  // Each rank of the tensor axis has the whole term, and their gradients are summed.
  const auto ranks = static_cast<double>(region.group().size());
  const auto add = [&](const std::string& name, const at::Tensor& sum, double value) {
    if (pass.results)
      pass.results->add(
          name, at::scalar_tensor(region.is_sequence() ? value / ranks : value, at::kDouble));
    result_NH = with_gradient_of(result_NH, sum, pass);
  };
  if (balance.training.z_loss_coef != 0) {
    for (const double weight : balance.weights)
      term.factors.push_back(balance.training.z_loss_coef * weight / ranks);
    const at::Tensor sum = ops::z_term(logits[0], term);
    add(kRouterZTerm, sum, sum.item<double>() * ranks);
  }
  if (!balance.training.balances()) return result_NH;
  const at::Tensor counted_NK = rule.score == ops::RouterScore::kSigmoid
                                    ? ops::best_experts(logits[1], rule.per_token)
                                    : experts_NK;
  const int64_t count = logits[1].size(1);
  term.load = balance.load_of(counted_NK, rule, count, /*records=*/pass.results != nullptr);
  term.factors.clear();
  for (const double weight : balance.weights)
    term.factors.push_back(balance.factor(rule, count) * weight / ranks);
  const at::Tensor sum = ops::balance_term(logits[1], term);
  const double value = pass.results ? balance.value_of(sum, logits[1], term) * ranks : 0;
  add(kBalanceTerm, sum, value);
  return result_NH;
}

void Experts::visit(Visitor& visitor) {
  router.visit(visitor);
  visitor.parameter(choice_bias);
  for (Expert& expert : experts) expert.visit(visitor);
  if (shared) shared->visit(visitor);
  shared_gate.visit(visitor);
}

}  // namespace danlu::layers
