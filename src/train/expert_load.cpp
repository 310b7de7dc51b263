#include "train/expert_load.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>

#include "layers/experts.h"

namespace danlu::train {

ExpertLoad load_of_all(const models::CausalLM& model, const models::PassResults& results) {
  const arch::ModelConfig& config = model.config();
  if (!config.has_experts()) return {};
  ExpertLoad load{config.num_layers + config.num_predictions(), config.experts.count, {}};
  load.picks.assign(static_cast<size_t>(load.layers * (load.experts + 1)), 0.0);
  if (const auto found = results.sums().find(layers::kExpertLoad); found != results.sums().end()) {
    const at::Tensor here = found->second.cpu().contiguous();
    std::copy_n(here.data_ptr<double>(), load.picks.size(), load.picks.begin());
  }
  const parallel::Mesh& mesh = model.mesh();
  for (const parallel::Group* group : {&mesh.batch_ranks(), &mesh.pipeline()})
    sum_over(*group, load.picks);
  take_first(mesh.tensor(), load.picks);
  return load;
}

Metrics load_metrics(const ExpertLoad& load) {
  if (load.is_empty()) return {};
  double most = 0, kept = 0, dropped = 0;
  for (int64_t layer = 0; layer < load.layers; ++layer) {
    const double* const begin = load.of(layer);
    const double* const end = begin + load.experts;
    const double sum = std::accumulate(begin, end, 0.0);
    kept += sum;
    dropped += *end;
    if (sum > 0)
      most =
          std::max(most, *std::max_element(begin, end) * static_cast<double>(load.experts) / sum);
  }
  Metrics metrics{{"max_load", {most, most > 0 ? 1.0 : 0.0}}};
  if (dropped > 0) metrics["dropped"] = {dropped, kept + dropped};
  return metrics;
}

namespace {

/// By how much the biases of a layer move.
at::Tensor changes_of(const ExpertLoad& load, int64_t layer, double rate) {
  const double* const picks = load.of(layer);
  const double mean =
      std::accumulate(picks, picks + load.experts, 0.0) / static_cast<double>(load.experts);
  const at::Tensor change_E = at::empty({load.experts}, at::kFloat);
  for (int64_t expert = 0; expert < load.experts; ++expert) {
    const double short_of = mean - picks[expert];
    change_E.data_ptr<float>()[expert] = static_cast<float>(short_of > 0   ? rate
                                                            : short_of < 0 ? -rate
                                                                           : 0.0);
  }
  return change_E;
}

}  // namespace

void update_router_biases(const models::CausalLM& model, const parallel::ParameterStore& store,
                          const ExpertLoad& load, double rate) {
  const at::NoGradGuard no_grad;
  for (const parallel::Parameter& parameter : model.parameters()) {
    if (parameter.spec.role != arch::Role::kRouterBias) continue;
    const at::Tensor change_E = changes_of(load, parameter.spec.layer, rate);
    const std::optional<size_t> unit = store.unit_of(parameter.name());
    if (!unit) {
      parameter.tensor.detach().add_(change_E.to(parameter.tensor.device()));
      continue;
    }
    // Ranks that share it each have a part, which the next pass gathers.
    const parallel::Unit& shared = store.units()[*unit];
    for (size_t i = 0; i < shared.parameters.size(); ++i) {
      if (shared.parameters[i]->name() != parameter.name()) continue;
      const parallel::Range held = shared.held(i), place = shared.place_in_share(i);
      shared.shard.narrow(0, place.begin, place.size())
          .add_(change_E.narrow(0, held.begin, held.size()).to(shared.shard.device()));
    }
  }
}

}  // namespace danlu::train
