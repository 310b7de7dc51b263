// settings/model_setup.h: what a run does to its model before it trains it.
#pragma once
#include "weights/lora/peft.h"

namespace danlu::settings {

/// What of a layer is computed again in backward instead of being kept.
enum class Recompute { kNone, kSelective, kFull };

/// Adapters as a run makes them that is told no more: PEFT's defaults, but alpha 32, and on every
/// linear layer.
inline weights::PeftConfig new_adapters() {
  weights::PeftConfig adapters;
  adapters.alpha = 32;
  weights::set_targets(adapters, {"all-linear"});
  return adapters;
}

}  // namespace danlu::settings
