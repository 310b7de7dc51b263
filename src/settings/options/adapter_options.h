// settings/options/adapter_options.h: the LoRA adapters that a run makes.
#pragma once
#include "arch/model_config.h"
#include "base/options.h"
#include "settings/options/vision_options.h"
#include "weights/lora/peft.h"

namespace danlu::settings {

/// --lora_rank and the flags beside it; targets have the names of `model`. What else is made of
/// them is said where `tuner` makes adapters.
weights::PeftConfig lora_from(const Options& options, Tuner tuner, const arch::ModelConfig& model,
                              const VisionTraining& vision);

}  // namespace danlu::settings
