// layers/offload.h: offload of activations: between its forward and its backward, what a layer
// keeps lies in host memory or in a file.
#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "layers/saved_tensors.h"
#include "parallel/background.h"

namespace danlu::layers {

struct Elsewhere;  // the host memory or file, and what went wrong with it

/// What one layer keeps in one pass. Tensors that share memory leave once, as that memory, and come
/// back once. It is freed when all operators that have saved a part of it have run their backward.
class LeavingLayer : public std::enable_shared_from_this<LeavingLayer> {
 public:
  LeavingLayer(std::shared_ptr<Elsewhere> elsewhere, parallel::Background& thread,
               const at::Device& device);
  /// Says that the memory of these tensors is not moved, because it is kept in any case.
  void stay(const std::vector<at::Tensor>& tensors);
  /// While the result lives, what operators save on this thread leaves with the layer.
  std::unique_ptr<SavedTensors> scope();
  /// Says, from any thread, that the layer's backward comes soon. Further calls have no effect.
  void come_back();

 private:
  friend class Offload;
  struct SavedMemory;
  Restore take(const at::Tensor& tensor);
  at::Tensor get(SavedMemory& memory);
  void leave();
  void fetch();

  std::shared_ptr<Elsewhere> elsewhere_;
  parallel::Background& thread_;
  at::Device device_;
  struct State;
  std::unique_ptr<State, void (*)(State*)> state_;
};

/// Moves layers in a thread beside the passes. It outlives the graphs whose tensors it moves. All
/// forwards run in one thread, backwards may run in another.
class Offload {
 public:
  /// directory: where the file is made that takes the activations; empty: host memory takes them.
  /// Errors: IoError.
  Offload(const at::Device& device, const std::filesystem::path& directory);
  std::shared_ptr<LeavingLayer> layer();
  /// Begins to move a layer out, whose forward is over. Waits for the layer before, so that at most
  /// one is on its way out. Errors: IoError if an earlier layer could not leave.
  void leave(const std::shared_ptr<LeavingLayer>& layer);
  /// Waits for the layer that is on its way out: a layer after it that stays does so too, so that
  /// memory does not depend on how fast a disk is. Errors: IoError if it could not leave.
  void wait_for_last() const;
  /// Bytes that were moved out, and back, so far. bytes_out() waits for what is on its way out.
  int64_t bytes_out() const;
  int64_t bytes_back() const;

 private:
  at::Device device_;
  std::shared_ptr<Elsewhere> elsewhere_;
  parallel::Background::Job leaving_;
  parallel::Background thread_;
};

/// Which parts of a layer are moved out; none if `layer` is nullptr.
struct Leaving {
  LeavingLayer* layer = nullptr;
  bool input_norm = false, self_attention = false, post_attention_norm = false, mlp = false;

  std::unique_ptr<SavedTensors> scope(bool leaves) const {
    return layer && leaves ? layer->scope() : nullptr;
  }
};

}  // namespace danlu::layers
