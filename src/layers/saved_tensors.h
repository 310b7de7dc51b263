// layers/saved_tensors.h: what operators save for backward, and what may be there in its place.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

namespace danlu::layers {

/// Called in backward, by whichever thread computes it: a tensor with the values, shape and strides
/// of the one that was saved.
using Restore = std::function<at::Tensor()>;

/// While it lives it is shown every tensor that operators save for backward on this thread, also
/// those that scopes inside of it do not take. Not for use across threads; scopes are nested.
class SavedTensors {
 public:
  /// `take` says what gives a tensor back, and must not keep it then; an empty Restore leaves it.
  explicit SavedTensors(std::function<Restore(const at::Tensor&)> take);
  ~SavedTensors();
  SavedTensors(const SavedTensors&) = delete;
  SavedTensors& operator=(const SavedTensors&) = delete;

 private:
  std::function<Restore(const at::Tensor&)> take_;
  const SavedTensors* outside_;
  friend class ScopeHooks;
};

/// Puts what such scopes need into libtorch. Before the process's first backward.
void prepare_saved_tensors();

using Make = std::function<at::Tensor(const std::vector<at::Tensor>& sources)>;

/// While it lives, operators that save `output` or a view of it save nothing: in backward it is
/// make(sources), made once for all of them. `sources` are saved as by an operator. `make` must
/// give the values of `output` bit by bit; it is called without grad mode.
class MadeAgain {
 public:
  MadeAgain(const at::Tensor& output, const std::vector<at::Tensor>& sources, Make make);

 private:
  std::unique_ptr<SavedTensors> scope_;  ///< null without grad mode
};

}  // namespace danlu::layers
