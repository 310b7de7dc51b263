// settings/model_setup.h: what a run does to its model before it trains it.
#pragma once
#include "weights/lora/peft.h"

namespace danlu::settings {

/// What of a layer is computed again in backward instead of being kept.
enum class Recompute { kNone, kSelective, kFull };

/// Base weights that stay in NF4 (base/nf4.h) while adapters on them are trained.
struct Nf4Base {
  bool doubly = true;        ///< factors are quantised too
  bool is_in_files = false;  ///< the model's files hold them so; else they are made as it is loaded
  double bits() const { return doubly ? 4.127 : 4.5; }  ///< of a number, in blocks of 64
};

/// Adapters as a run makes them that is told no more: PEFT's defaults, but alpha 32, and on every
/// linear layer.
inline weights::PeftConfig new_adapters() {
  weights::PeftConfig adapters;
  adapters.alpha = 32;
  weights::set_targets(adapters, {"all-linear"});
  return adapters;
}

}  // namespace danlu::settings
