// models/training_memory.h: where a model's parameters are in training, and what its passes keep
// for their backwards: shares and units, recomputation, activations elsewhere.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "layers/offload.h"
#include "layers/pass.h"
#include "models/network.h"
#include "parallel/store.h"
#include "settings/activation_offload.h"
#include "settings/model_setup.h"
#include "settings/recompute_layers.h"

namespace danlu::models {

using settings::Recompute;

/// Bytes of activations that have left, and that have come back, so far.
struct MovedBytes {
  int64_t out = 0, back = 0;
};

class TrainingMemory {
 public:
  /// Of a network that outlives it.
  TrainingMemory(const arch::ModelConfig& config, const parallel::Mesh& mesh,
                 const Network& network, const at::Device& device);

  void set_recompute(Recompute mode);
  /// Layers of each chunk of the stage as settings::recompute_groups divides them. Errors: as
  /// there.
  void set_recompute(const settings::RecomputeFlags& flags);
  /// What layers keep of a pass that trains is elsewhere meanwhile; to host memory on other devices
  /// than the CPU only. Gradients are the same. Errors: IoError.
  void set_activation_offload(const settings::ActivationOffload& flags);
  /// Waits for what is on its way out.
  MovedBytes moved_activations() const;

  /// Moves parameters into units, of which the ranks of the data axis may each keep a share
  /// (parallel/store.h). Which are trained must be settled. holds_values: false before weights are
  /// loaded, so that loading takes a share and one unit. Adapters that are added later are moved by
  /// a further call. base: of the base model, in model order; adapters: those there are.
  parallel::ParameterStore& keep(const parallel::Keeping& keeping,
                                 const std::vector<Parameter*>& base,
                                 const std::vector<Parameter*>& adapters, bool holds_values);
  /// nullptr: nothing was kept yet.
  parallel::ParameterStore* store() const { return store_.get(); }
  /// Of whom pieces are asked to save them, if of anybody.
  parallel::ParameterStore* sharing_store() const {
    return store_ && store_->shares_parameters() ? store_.get() : nullptr;
  }
  /// Waits until what others have updated of the weights is here.
  void settle() const;
  /// Passes of nothing on a rank that has no micro-batch where others of the data axis have one.
  /// keeps: a backward_idly() follows. chunk: of the stage.
  void forward_idly(bool keeps, int64_t chunk) const;
  void backward_idly(int64_t chunk = 0) const;

  // For passes.
  /// body() with the parameters of a place there.
  void with_place(int64_t place, const std::function<void()>& body) const;
  /// `input`: the hidden states that enter the place.
  void enter_place(int64_t place, const at::Tensor& input) const;
  /// The backward reaches `place` with the gradient of what it gave.
  void reach_backward_with(const at::Tensor& given, int64_t place) const;
  void leave_place(int64_t place, bool keeps) const;
  /// The backward begins at `place` where the gradient of `last` is there.
  void begin_backward_at(const at::Tensor& last, int64_t place) const;
  at::Tensor pass_place(int64_t place, const at::Tensor& input,
                        const std::function<at::Tensor()>& body) const;
  /// Of a chunk; layers are counted in the whole model.
  const std::vector<settings::RecomputeGroup>& groups(int64_t chunk) const {
    return groups_[static_cast<size_t>(chunk)];
  }
  /// The places that a chunk is.
  parallel::Places::Run run_of(int64_t chunk) const;
  /// What of a group whose forward begins is to leave; null: nothing.
  std::shared_ptr<layers::LeavingLayer> leaving_layer(const settings::RecomputeGroup& group,
                                                      int64_t chunk, const at::Tensor& hidden_NH,
                                                      const layers::Pass& pass) const;
  layers::Leaving parts_of(layers::LeavingLayer* layer) const;
  void leave(const std::shared_ptr<layers::LeavingLayer>& layer) const { offload_->leave(layer); }

 private:
  parallel::Places places() const;
  /// Makes the groups, and tells the store.
  void divide_into_groups();
  const arch::Stage& stage() const { return network_.stage; }

  const arch::ModelConfig& config_;
  const parallel::Mesh& mesh_;
  const Network& network_;
  at::Device device_;
  settings::RecomputeFlags recompute_;
  settings::ActivationOffload offload_flags_;
  std::unique_ptr<layers::Offload> offload_;  ///< null: nothing leaves
  std::vector<std::vector<settings::RecomputeGroup>> groups_;
  std::unique_ptr<parallel::ParameterStore> store_;
  bool has_stored_adapters_ = false;
};

/// Moves the model's parameters, as TrainingMemory::keep says.
parallel::ParameterStore& keep(CausalLM& model, const parallel::Keeping& keeping,
                               bool holds_values = true);

}  // namespace danlu::models
