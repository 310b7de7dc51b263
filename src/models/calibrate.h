// models/calibrate.h: a decoder's linear layers quantised by calibration, a layer after the other.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/causal_lm.h"
#include "models/gptq.h"

namespace danlu::models {

struct Calibration {
  std::vector<std::vector<int64_t>> texts;  ///< token ids, each a sequence of its own
  int64_t batch_size = 1;                   ///< sequences of one pass
};

/// Errors: UsageError naming what the model has (experts, a vision tower, …) that is not
/// calibrated, and ModelError for layers whose sizes the files' words do not divide.
void require_calibrated(const arch::ModelConfig& config, const GptqForm& form);

/// Takes a module's name and what its weight became, in model order.
using TakeGptq = std::function<void(const std::string& module, GptqMatrix matrix)>;

/// Quantises the linear layers of all decoder layers, head and embedding excepted, in the order of
/// a pass: each is calibrated on what it gets when all before it are quantised, those with one
/// input together. The model has the rounded numbers afterwards. progress: called with how many
/// layers are done.
/// Errors: as require_calibrated and quantise_by_gptq. REQUIRES: a whole model without adapters
/// that only answers.
void calibrate_gptq(CausalLM& model, const Calibration& calibration, const GptqForm& form,
                    const TakeGptq& take, const std::function<void(int64_t layers)>& progress);

}  // namespace danlu::models
