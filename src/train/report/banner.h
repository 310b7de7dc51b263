// train/report/banner.h: what a person should see before the first step.
#pragma once
#include <cstdint>
#include <string>

#include "train/prepare_data.h"
#include "train/settings.h"
#include "train/step.h"

namespace danlu::train {

/// Known before weights are loaded: the device chosen, data, one decoded sample with its mask,
/// batch arithmetic. `weights`: where they come from.
std::string data_banner(const TrainConfig& config, const at::Device& device,
                        const arch::ModelConfig& model, const std::string& weights,
                        const PreparedText& text, const PreparedData& data, const RunPlan& plan);

/// "trainable params: 12,288 || all params: 272,704 || trainable%: 4.5059", as PEFT prints it.
std::string parameter_line(const models::CausalLM& model);

/// Bytes that stay in memory for the whole run; activations come on top.
struct MemoryPlan {
  uint64_t weights = 0, gradients = 0, optimizer = 0;
  uint64_t total() const { return weights + gradients + optimizer; }
};
MemoryPlan memory_plan(const TrainState& state);

/// "memory: weights 988 MB + gradients 2.0 GB + optimizer 5.9 GB = 8.9 GB, and activations; 20.1 GB
/// are there for them". available_bytes 0: unknown, left out.
std::string memory_line(const MemoryPlan& plan, uint64_t available_bytes);

}  // namespace danlu::train
