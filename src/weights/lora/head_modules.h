// weights/lora/head_modules.h: what PEFT's files call the head of an encoder.
#pragma once
#include "arch/model_config.h"
#include "weights/lora/peft.h"

namespace danlu::weights {

/// modules_to_save of a file as the model's own modules: PEFT names the head of RoBERTa as a whole
/// ("classifier"), and adds what other classes call theirs ("score"). Nothing of models without an
/// encoder's head.
void split_head_modules(PeftConfig& peft, const arch::ModelConfig& config);

/// The other way: as PEFT writes them.
void join_head_modules(PeftConfig& peft, const arch::ModelConfig& config);

}  // namespace danlu::weights
