// models/training_memory.h: where a model's parameters are in training (units and shares), and what
// its passes keep for their backwards (recomputation and offload of activations).
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

/// Bytes of activations that were moved out, and back, so far.
struct MovedBytes {
  int64_t out = 0, back = 0;
};

class TrainingMemory {
 public:
  /// Config, mesh and network outlive it.
  TrainingMemory(const arch::ModelConfig& config, const parallel::Mesh& mesh,
                 const Network& network, const at::Device& device);

  void set_recompute(Recompute mode);
  /// Divides the layers of each chunk as settings::recompute_groups does. Errors: as there.
  void set_recompute(const settings::RecomputeFlags& flags);
  /// Moves what layers keep for their backward to files or, on devices other than the CPU, to host
  /// memory. Gradients stay the same. Errors: IoError.
  void set_activation_offload(const settings::ActivationOffload& flags);
  /// Waits until everything on its way out has left.
  MovedBytes moved_activations() const;

  /// Moves parameters into units (parallel/store.h). Which of them are trained must be decided
  /// before. holds_values: false before weights are loaded, so that loading needs memory for this
  /// rank's shares and one unit only. Call it again for adapters that are added later. base: the
  /// base model's parameters, in model order; adapters: those that exist.
  parallel::ParameterStore& keep(const parallel::Keeping& keeping,
                                 const std::vector<Parameter*>& base,
                                 const std::vector<Parameter*>& adapters, bool holds_values);
  /// nullptr before keep().
  parallel::ParameterStore* store() const { return store_.get(); }
  /// The store, if parameters are shared and must be gathered to be saved; else nullptr.
  parallel::ParameterStore* sharing_store() const {
    return store_ && store_->shares_parameters() ? store_.get() : nullptr;
  }
  /// Waits until the weights that other ranks have updated are here.
  void settle() const;
  /// Calls use() while the parameters of every place are there, gathered once where they are
  /// shared: between steps, for passes that ask for none themselves, such as those of answers that
  /// are drawn. Collective if parameters are shared.
  void with_all(const std::function<void()>& use);
  bool has_all() const { return !store_ || has_all_; }
  /// Takes part in the exchanges of a pass for which this rank has no micro-batch, but others of
  /// the data axis have one. keeps: a backward_idly() follows.
  void forward_idly(bool keeps, int64_t chunk) const;
  void backward_idly(int64_t chunk = 0) const;

  // For the sources of passes.
  /// Calls body() while the parameters of a place are there.
  void with_place(int64_t place, const std::function<void()>& body) const;
  /// `input`: the hidden states that enter the place.
  void enter_place(int64_t place, const at::Tensor& input) const;
  /// Tells the store that the backward has reached `place` when the gradient of its output is
  /// there.
  void reach_backward_with(const at::Tensor& given, int64_t place) const;
  void leave_place(int64_t place, bool keeps) const;
  /// Tells the store that the backward begins at `place` when the gradient of `last` is there.
  void begin_backward_at(const at::Tensor& last, int64_t place) const;
  at::Tensor pass_place(int64_t place, const at::Tensor& input,
                        const std::function<at::Tensor()>& body) const;
  /// How the layers of a chunk are recomputed; layers are numbered in the whole model.
  const std::vector<settings::RecomputeGroup>& groups(int64_t chunk) const {
    return groups_[static_cast<size_t>(chunk)];
  }
  /// The same of the blocks of a vision tower.
  const std::vector<settings::RecomputeGroup>& tower_groups(int64_t chunk) const {
    return tower_groups_[static_cast<size_t>(chunk)];
  }
  /// The places of a chunk.
  parallel::Places::Run run_of(int64_t chunk) const;
  /// Collects what is to be moved out of a group whose forward begins; nullptr: nothing is.
  std::shared_ptr<layers::LeavingLayer> leaving_layer(const settings::RecomputeGroup& group,
                                                      int64_t chunk, const at::Tensor& hidden_NH,
                                                      const layers::Pass& pass) const;
  layers::Leaving parts_of(layers::LeavingLayer* layer) const;
  /// Says that a group's forward is over. layer: of leaving_layer(). When it returns, nothing else
  /// is on its way out.
  void leave(const std::shared_ptr<layers::LeavingLayer>& layer) const {
    if (layer) return offload_->leave(layer);
    if (offload_) offload_->wait_for_last();
  }

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
  std::vector<std::vector<settings::RecomputeGroup>> groups_, tower_groups_;
  std::unique_ptr<parallel::ParameterStore> store_;
  bool has_stored_adapters_ = false;
  bool has_all_ = false;  ///< inside of with_all()
};

/// TrainingMemory::keep for all parameters of the model.
parallel::ParameterStore& keep(CausalLM& model, const parallel::Keeping& keeping,
                               bool holds_values = true);

}  // namespace danlu::models
