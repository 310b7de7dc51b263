// models/causal_lm_impl.h: the state of a CausalLM, shared by its source files. Internal to models.
#pragma once
#include <atomic>
#include <memory>

#include "models/causal_lm.h"
#include "models/network.h"
#include "weights/lora/peft.h"

namespace danlu::models {

/// A parameter trained whole beside the adapters (PEFT's modules_to_save): its place in the network
/// holds a copy, which is trained; the original stays as it is.
struct SavedModule {
  Parameter* place;
  Parameter original;
};

/// LayerPasses as they are counted; graphs keep it alive.
struct PassCounters {
  std::atomic<int64_t> forward = 0, backward = 0;
};

struct CausalLM::Impl {
  arch::ModelConfig config;
  const parallel::Mesh& mesh;
  at::ScalarType dtype;
  at::Device device;
  Network network;
  std::optional<LoraConfig> lora;
  weights::PeftConfig
      peft;  ///< what `lora` came from, unknown keys included; meaningful with `lora`
  std::vector<SavedModule> saved_modules;
  Recompute recompute = Recompute::kNone;
  std::shared_ptr<PassCounters> counters = std::make_shared<PassCounters>();

  Impl(const arch::ModelConfig& config, const parallel::Mesh& mesh, at::ScalarType dtype,
       const at::Device& device);
  /// Parameters of the base model, in model order, a tied head too: originals of saved modules.
  std::vector<Parameter*> base();
  std::shared_ptr<const layers::Pass> pass_for(const ForwardInput& input) const;
  /// Final hidden states as the last layer gives them: this rank's rows under sequence parallelism.
  at::Tensor hidden_rows(const ForwardInput& input) const;
  /// from_file: as PEFT does, targets that this model lacks are passed over while one is found.
  void add_adapters(const weights::PeftConfig& config_of_adapters, uint64_t seed,
                    bool from_file = false);
  /// Gives the other end of a tied pair weights of its own.
  void untie();
  /// Makes `requires_grad` of every base tensor agree with `trainable`.
  void apply_trainable();
};

}  // namespace danlu::models
