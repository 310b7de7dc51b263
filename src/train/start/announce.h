// train/start/announce.h: what a run will be and need, told before its weights are read.
#pragma once
#include "parallel/ranks.h"
#include "plan/request.h"
#include "train/report/banner.h"
#include "train/settings.h"

namespace danlu::train {

struct Announced {
  TrainConfig config;     ///< the facts', with the recomputation that --recompute auto chose
  plan::Request request;  ///< from which the run's memory is planned
};

/// Errors: MemoryError where the run would not fit; as choose_recompute. Collective.
Announced announce(const BannerFacts& facts, const Ranks& ranks);

}  // namespace danlu::train
