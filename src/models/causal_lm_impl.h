// models/causal_lm_impl.h: the state of a CausalLM, shared by its source files. Internal to models.
#pragma once
#include <atomic>
#include <map>
#include <memory>

#include "models/causal_lm.h"
#include "models/network.h"
#include "ops/cross_entropy.h"
#include "weights/lora/peft.h"

namespace danlu::models {

/// A whole parameter trained beside the adapters (PEFT's modules_to_save): the layers use
/// `trained`, the base parameter of the same name keeps the original.
struct SavedModule {
  std::string name;  ///< HF name of the parameter
  at::Tensor trained;
};

/// LayerPasses as they are counted; graphs keep it alive.
struct PassCounters {
  std::atomic<int64_t> forward = 0, backward = 0;
};

struct CausalLM::Impl {
  arch::ModelConfig config;
  at::ScalarType dtype;
  at::Device device;
  std::vector<BaseParameter> base;  ///< a tied head is an entry that shares the embedding's tensor
  Network network;
  std::optional<LoraConfig> lora;
  weights::PeftConfig
      peft;  ///< what `lora` came from, unknown keys included; meaningful with `lora`
  std::vector<SavedModule> saved_modules;
  Recompute recompute = Recompute::kNone;
  std::shared_ptr<PassCounters> counters = std::make_shared<PassCounters>();

  Impl(const arch::ModelConfig& config, at::ScalarType dtype, const at::Device& device);
  std::shared_ptr<const layers::Pass> pass_for(const ForwardInput& input) const;
  /// What an adapter on the head adds to the logits; keys as ForwardInput's.
  ops::HeadAddition head_addition(const at::Tensor& hidden_NH,
                                  const at::Tensor& dropout_keys_N) const;
  /// from_file: as PEFT does, targets that this model lacks are passed over while one is found.
  void add_adapters(const weights::PeftConfig& config, uint64_t seed, bool from_file = false);
  /// Makes `requires_grad` of every base tensor agree with `trainable`.
  void apply_trainable();
};

}  // namespace danlu::models
