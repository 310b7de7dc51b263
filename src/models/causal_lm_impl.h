// models/causal_lm_impl.h: the state of a CausalLM, shared by its source files. Internal to models.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "layers/recompute.h"
#include "models/causal_lm.h"
#include "models/network.h"
#include "models/training_memory.h"
#include "weights/lora/peft.h"

namespace danlu::models {

/// A parameter that is trained whole beside the adapters (PEFT's modules_to_save). The network
/// holds a copy, which is trained, and the original stays as it is.
struct SavedModule {
  Parameter* place;
  Parameter original;
};

/// While it lives, and `adapters` is false, the network has the originals in their places.
/// REQUIRES: nothing is differentiated then, for a backward would read the copies.
class AsTheyWere {
 public:
  AsTheyWere(const std::vector<SavedModule>& modules, bool adapters);
  ~AsTheyWere();
  AsTheyWere(const AsTheyWere&) = delete;
  AsTheyWere& operator=(const AsTheyWere&) = delete;

 private:
  struct Trained {
    Parameter* place;
    at::Tensor tensor;
    ops::QuantizedPtr quantized;
  };
  std::vector<Trained> trained_;
};

/// What a layer that is recomputed so makes again.
layers::Again again_of(settings::LayerRecompute kind);

/// Counts LayerPasses. Graphs keep it alive.
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
  std::optional<weights::PeftConfig> lora;  ///< also what a file has beside the known keys
  std::vector<SavedModule> saved_modules;
  std::shared_ptr<PassCounters> counters = std::make_shared<PassCounters>();

  Impl(const arch::ModelConfig& config, const arch::Stage& stage, const parallel::Mesh& mesh,
       at::ScalarType dtype, const at::Device& device);
  const arch::Stage& stage() const { return network.stage; }
  /// Parameters of the base model, in model order, also a tied head; for saved modules the
  /// originals.
  std::vector<Parameter*> base();
  /// Parameters of adapters, and the copies of saved modules, where they stand in the network.
  std::vector<Parameter*> adapters();
  /// Makes `requires_grad` of every base tensor agree with `trainable`.
  void apply_trainable();

  std::shared_ptr<const layers::Pass> pass_for(const ForwardInput& input) const;
  /// nullptr: routers add nothing to the loss. Collective over the context axis.
  std::shared_ptr<const layers::Balance> balance_for(const ForwardInput& input) const;
  layers::HeadPass head_pass(const ForwardInput& input) const;
  /// The output of one chunk, after the final norm if it is the model's last; under sequence
  /// parallelism this rank's rows of it. On the last stage it has then entered the place of the
  /// head, which the caller leaves. hidden_NH: what the chunk before gave; undefined for the first.
  at::Tensor hidden_rows(const ForwardInput& input, at::Tensor hidden_NH = {},
                         int64_t chunk = 0) const;
  /// `normed_NH`, with the losses of the layers that predict further ahead as terms. hidden_NH:
  /// what it was before the final norm.
  at::Tensor with_predictions(const ForwardInput& input, const at::Tensor& hidden_NH,
                              const at::Tensor& normed_NH) const;
  /// Calls see(depth, output) for what each of these layers gives, after its norm.
  void predict(const ForwardInput& input, at::Tensor hidden_NH,
               const std::function<void(int64_t depth, const at::Tensor& hidden_NH)>& see) const;
  /// The output of the chunk's layers, without embedding and final norm.
  at::Tensor through_layers(const ForwardInput& input, at::Tensor hidden_NH, int64_t chunk) const;
  /// The output of the chunk's part of the vision tower. given_PD: what the chunk before gave. Only
  /// the adapters of `input` count.
  at::Tensor through_tower(const Visuals& visuals, at::Tensor given_PD, int64_t chunk,
                           const ForwardInput& input) const;
  /// Tokens, with what the tower gave in their places; under sequence parallelism this rank's rows.
  at::Tensor embedded(const ForwardInput& input, const at::Tensor& visual_MH) const;
  /// What goes through all layers of one pass: the decoder's, or the blocks of the tower.
  struct Through {
    const std::map<int64_t, std::unique_ptr<layers::Block>>& blocks;  ///< by number
    const std::vector<settings::RecomputeGroup>& groups;              ///< of those numbers
    int64_t first_place;                                              ///< that of number 0
    std::shared_ptr<const layers::Pass> pass;
    std::function<void(int64_t number, const at::Tensor& output_NH)> done;
    std::function<void(const at::Tensor& input_NH)> begin;  ///< hears of each layer's input

    const layers::Block& block(int64_t number) const;
    int64_t place(int64_t number) const { return first_place + number; }
  };
  at::Tensor through_blocks(const Through& through, at::Tensor hidden_NH, int64_t chunk) const;
  /// Runs layers that are recomputed together: they keep the input of the first alone.
  at::Tensor through_group(const settings::RecomputeGroup& group, const at::Tensor& hidden_NH,
                           const Through& through, const layers::Leaving& leaving) const;
  void count_backward(const at::Tensor& input_NH) const;

  /// Whether this rank writes the files of the model or gives pieces to the rank that does.
  bool takes_part_in_saving() const {
    using arch::Axis;
    return mesh.holders({Axis::kContext, Axis::kData}).rank() == 0 ||
           (memory.sharing_store() && mesh.replicas().rank() == 0);
  }

  /// Under sequence parallelism ranks divide the rows of a pass, so these are filled up to a
  /// multiple of this number.
  int64_t rows_divide_over() const {
    const parallel::Region region = mesh.region();
    return region.is_sequence() ? region.group().size() : 1;
  }
};

}  // namespace danlu::models
