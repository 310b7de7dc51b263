// train/expert_load.h: how many tokens went to each expert in a step, and what follows from it.
#pragma once
#include <cstdint>
#include <vector>

#include "models/causal_lm.h"
#include "parallel/store.h"
#include "train/metrics.h"

namespace danlu::train {

/// Picks of a step, on every rank alike.
struct ExpertLoad {
  int64_t layers = 0, experts = 0;
  std::vector<double> picks;  ///< [layers, experts + 1]: the last of a layer were dropped

  bool is_empty() const { return picks.empty(); }
  const double* of(int64_t layer) const { return picks.data() + layer * (experts + 1); }
};

/// The sum over all ranks' passes; empty in a model without experts. Collective.
ExpertLoad load_of_all(const models::CausalLM& model, const models::PassResults& results);

/// max_load: how many tokens the busiest expert of a layer got, as a multiple of the mean, in the
/// layer where that is most. dropped: the part of all picks that found no room, if any.
Metrics load_metrics(const ExpertLoad& load);

/// Moves the bias of each expert's choice by `rate`: up if it got fewer tokens than the mean of its
/// layer, else down (DeepSeek-V3, arXiv:2412.19437 §2.1.2). store: of the model.
void update_router_biases(const models::CausalLM& model, const parallel::ParameterStore& store,
                          const ExpertLoad& load, double rate);

}  // namespace danlu::train
