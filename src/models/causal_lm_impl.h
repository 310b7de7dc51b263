// models/causal_lm_impl.h: the state of a CausalLM, shared by its source files. Internal to models.
#pragma once
#include <atomic>
#include <functional>
#include <memory>

#include "models/causal_lm.h"
#include "models/network.h"
#include "models/training_memory.h"
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
  TrainingMemory memory;
  std::optional<weights::PeftConfig> lora;  ///< with what a file said beside it
  std::vector<SavedModule> saved_modules;
  std::shared_ptr<PassCounters> counters = std::make_shared<PassCounters>();

  Impl(const arch::ModelConfig& config, const arch::Stage& stage, const parallel::Mesh& mesh,
       at::ScalarType dtype, const at::Device& device);
  const arch::Stage& stage() const { return network.stage; }
  /// Parameters of the base model, in model order, a tied head too: originals of saved modules.
  std::vector<Parameter*> base();
  /// Adapters and modules trained whole beside them, where they are in the network.
  std::vector<Parameter*> adapters();
  /// Makes `requires_grad` of every base tensor agree with `trainable`.
  void apply_trainable();

  std::shared_ptr<const layers::Pass> pass_for(const ForwardInput& input) const;
  layers::HeadPass head_pass(const ForwardInput& input) const;
  /// Hidden states as the stage's last layer, or the final norm, gives them: this rank's rows under
  /// sequence parallelism. A last stage's place of the head is then entered, and to be left.
  /// hidden_NH: what the stage before gave; undefined on the first. Through one chunk of the stage.
  at::Tensor hidden_rows(const ForwardInput& input, at::Tensor hidden_NH = {},
                         int64_t chunk = 0) const;
  /// The same of its layers alone.
  at::Tensor through_layers(const ForwardInput& input, at::Tensor hidden_NH, int64_t chunk) const;
  /// What the layers of one pass share.
  struct Through {
    std::shared_ptr<const layers::Pass> pass;
    std::function<void(int64_t layer, const at::Tensor& output_NH)> done;
  };
  /// Layers of which backward has the input of the first alone, and runs them again.
  at::Tensor through_group(const settings::RecomputeGroup& group, const at::Tensor& hidden_NH,
                           const Through& through, const layers::Leaving& leaving) const;
  void count_backward(const at::Tensor& input_NH) const;

  /// Whether this rank gives pieces of what the first one writes, or is that one.
  bool takes_part_in_saving() const {
    using arch::Axis;
    return mesh.copies({Axis::kContext, Axis::kData}).rank() == 0 ||
           (memory.sharing_store() && mesh.replicas().rank() == 0);
  }

  /// The number of rows in a pass is a multiple of this.
  int64_t rows_divide_over() const {
    const parallel::Region region = mesh.region();
    return region.is_sequence() ? region.group().size() : 1;
  }
};

}  // namespace danlu::models
