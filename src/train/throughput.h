// train/throughput.h: model FLOP utilisation: the work a token needs against what the device can
// do.
#pragma once
#include <c10/core/Device.h>

#include "data/preprocess_report.h"
#include "models/causal_lm.h"
#include "train/settings.h"

namespace danlu::train {

/// Floating-point operations of forward and backward per real token of samples with these lengths:
/// 6 for each weight of a matrix product that is trained, 4 for a frozen one (no gradient of its
/// own), and causal attention: 3 · layers · heads · (head_dim + that of a value) · ΣT² / ΣT.
/// Embedding look-ups, recomputation and padding are no work. Of all stages, and collective over
/// them. (Narayanan et al. 2021, appendix A, counted per token.)
double flops_per_token(const models::CausalLM& model, const data::LengthStats& lengths);

/// What the vision tower adds for each visual token: its blocks work on the patches that the token
/// was merged from, the merger on the token. As above; with a tower of which nothing is trained
/// there is no backward, 2 for each weight. Attention between patches is not counted. 0 without a
/// tower. Collective over the stages.
double flops_per_visual_token(const models::CausalLM& model);

/// Operations per second: --device_tflops, else what device/peak.h knows of the device in the run's
/// own type.
double peak_flops(const TrainConfig& config, const at::Device& device);

/// For the MFU.
struct WorkOfTokens {
  double flops_per_token = 0, flops_per_visual_token = 0;
  double peak_flops = 0;  ///< of all ranks together; 0: unknown
};

}  // namespace danlu::train
