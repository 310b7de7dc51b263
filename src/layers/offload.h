// layers/offload.h: what a layer keeps for backward is elsewhere between its two passes.
#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "layers/saved_tensors.h"
#include "parallel/background.h"

namespace danlu::layers {

struct Elsewhere;  // where it goes, and what went wrong there

/// Of one layer in one pass. Tensors that share memory leave once, as that memory, and come back
/// once; it is free again when the last that saved any of it has done its backward.
class LeavingLayer : public std::enable_shared_from_this<LeavingLayer> {
 public:
  LeavingLayer(std::shared_ptr<Elsewhere> elsewhere, parallel::Background& thread,
               const at::Device& device);
  /// The memory of these does not leave: it lives anyway.
  void stay(const std::vector<at::Tensor>& tensors);
  /// While it lives, what operators save on this thread leaves with the layer.
  std::unique_ptr<SavedTensors> scope();
  /// From any thread: it will be needed soon. Again: no effect.
  void come_back();

 private:
  friend class Offload;
  struct Piece;
  Restore take(const at::Tensor& tensor);
  at::Tensor get(Piece& piece);
  void leave();
  void fetch();

  std::shared_ptr<Elsewhere> elsewhere_;
  parallel::Background& thread_;
  at::Device device_;
  struct State;
  std::unique_ptr<State, void (*)(State*)> state_;
};

/// Moves layers in a thread beside the passes. Outlives the graphs of what it moves. The passes are
/// one thread's, backward may be another's.
class Offload {
 public:
  /// directory: of the file that holds what is elsewhere; empty: it is in host memory.
  /// Errors: IoError.
  Offload(const at::Device& device, const std::filesystem::path& directory);
  std::shared_ptr<LeavingLayer> layer();
  /// Its forward is over. Of all layers one at most is on its way out when this returns: waits for
  /// the one before. Errors: IoError of what could not leave earlier.
  void leave(const std::shared_ptr<LeavingLayer>& layer);
  /// Bytes that have left, when what is on its way out has, and that have come back, so far.
  int64_t bytes_out() const;
  int64_t bytes_back() const;

 private:
  at::Device device_;
  std::shared_ptr<Elsewhere> elsewhere_;
  parallel::Background::Job leaving_;
  parallel::Background thread_;
};

/// Which parts of a layer leave; null: none does.
struct Leaving {
  LeavingLayer* layer = nullptr;
  bool input_norm = false, self_attention = false, post_attention_norm = false, mlp = false;

  std::unique_ptr<SavedTensors> scope(bool leaves) const {
    return layer && leaves ? layer->scope() : nullptr;
  }
};

}  // namespace danlu::layers
