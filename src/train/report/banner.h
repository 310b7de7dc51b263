// train/report/banner.h: what a person should see before the first step.
#pragma once
#include <cstdint>
#include <string>

#include "train/prepare_data.h"
#include "train/settings.h"
#include "train/step.h"

namespace danlu::train {

/// What a banner tells of; `weights`: where they come from.
struct BannerFacts {
  const TrainConfig& config;
  const at::Device& device;
  const arch::ModelConfig& model;
  const std::string& weights;
  const PreparedText& text;
  const PreparedData& data;
  const RunPlan& plan;
};

/// Known before weights are loaded: the device chosen, data, batch arithmetic, one decoded sample
/// with its mask. all: each fact on a line of its own and the whole sample; else about half as many
/// lines, for who has seen it before.
std::string data_banner(const BannerFacts& facts, bool all);

/// "trainable params: 12,288 || all params: 272,704 || trainable%: 4.5059", as PEFT prints it.
std::string parameter_line(const models::CausalLM& model);

/// What is trained, as users call it: "sft", "dpo".
std::string stage_name(const TrainConfig& config);

}  // namespace danlu::train
