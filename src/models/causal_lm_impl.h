// models/causal_lm_impl.h: the state of a CausalLM, shared by its source files. Internal to models.
#pragma once
#include <atomic>
#include <functional>
#include <memory>

#include "layers/offload.h"
#include "models/causal_lm.h"
#include "models/network.h"
#include "parallel/store.h"
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
  std::optional<weights::PeftConfig> lora;  ///< with what a file said beside it
  std::vector<SavedModule> saved_modules;
  settings::RecomputeFlags recompute;
  settings::ActivationOffload offload_flags;
  std::unique_ptr<layers::Offload> offload;  ///< null: nothing leaves
  /// Of each chunk; layers are counted in the whole model.
  std::vector<std::vector<settings::RecomputeGroup>> groups;
  std::unique_ptr<parallel::ParameterStore> store;  ///< in training
  bool has_stored_adapters = false;
  std::shared_ptr<PassCounters> counters = std::make_shared<PassCounters>();

  Impl(const arch::ModelConfig& config, const arch::Stage& stage, const parallel::Mesh& mesh,
       at::ScalarType dtype, const at::Device& device);
  const arch::Stage& stage() const { return network.stage; }
  /// Parameters of the base model, in model order, a tied head too: originals of saved modules.
  std::vector<Parameter*> base();
  std::shared_ptr<const layers::Pass> pass_for(const ForwardInput& input) const;
  layers::HeadPass head_pass(const ForwardInput& input) const;
  /// Calls one() for every base parameter that has values of its own; it fills them.
  void fill(const std::function<void(Parameter&)>& one);
  /// Whether the parameter is one that is held in blocks; its values are then there.
  bool quantise(Parameter& parameter, const weights::TensorSource& source,
                const Quantisation& quantisation) const;
  /// body() with the parameters of a place in the network there (parallel/store.h).
  void with_place(int64_t place, const std::function<void()>& body) const;
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
  /// What of a group whose forward begins is to leave; null: nothing.
  std::shared_ptr<layers::LeavingLayer> leaving_layer(const settings::RecomputeGroup& group,
                                                      int64_t chunk, const at::Tensor& hidden_NH,
                                                      const layers::Pass& pass) const;
  void count_backward(const at::Tensor& input_NH) const;
  /// Makes `groups` of `recompute`, and tells the store.
  void divide_into_groups();
  /// from_file: as PEFT does, targets that this model lacks are passed over while one is found.
  void add_adapters(const weights::PeftConfig& config_of_adapters, uint64_t seed,
                    bool from_file = false);
  /// Makes `requires_grad` of every base tensor agree with `trainable`.
  void apply_trainable();

  /// Adapters and modules trained whole beside them, where they are in the network.
  std::vector<Parameter*> adapters();

  /// Whether this rank gives pieces of what the first one writes, or is that one.
  bool takes_part_in_saving() const {
    using arch::Axis;
    return mesh.copies({Axis::kContext, Axis::kData}).rank() == 0 ||
           (sharing_store() && mesh.replicas().rank() == 0);
  }

  /// Of whom pieces are asked to save them, if of anybody.
  parallel::ParameterStore* sharing_store() const {
    return store && store->shares_parameters() ? store.get() : nullptr;
  }

  /// The number of rows in a pass is a multiple of this.
  int64_t rows_divide_over() const {
    const parallel::Region region = mesh.region();
    return region.is_sequence() ? region.group().size() : 1;
  }
  /// The places of the store that a chunk is.
  parallel::Places::Run run_of(int64_t chunk) const {
    const arch::LayerRange& layers = stage().chunks[static_cast<size_t>(chunk)];
    return {stage().begins_at(chunk) ? 0 : arch::place_of_layer(layers.first),
            stage().ends_at(chunk) ? arch::place_of_head(config)
                                   : arch::place_of_layer(layers.end) - 1};
  }
  /// Those of the stage.
  parallel::Places places() const {
    parallel::Places places{{}, arch::place_of_head(config)};
    for (int64_t chunk = 0; chunk < stage().num_chunks(); ++chunk)
      places.runs.push_back(run_of(chunk));
    return places;
  }

  // Where a pass is (parallel/store.h). `input`: the hidden states that enter the place.
  void enter_place(int64_t place, const at::Tensor& input) const;
  /// The backward reaches `place` with the gradient of what it gave.
  void reach_backward_with(const at::Tensor& given, int64_t place) const;
  void leave_place(int64_t place, bool keeps) const;
  /// The backward begins at `place` where the gradient of `last` is there.
  void begin_backward_at(const at::Tensor& last, int64_t place) const;
  at::Tensor pass_place(int64_t place, const at::Tensor& input,
                        const std::function<at::Tensor()>& body) const;
};

}  // namespace danlu::models
