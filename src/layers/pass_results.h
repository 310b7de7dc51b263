// layers/pass_results.h: what the layers of a pass give beside hidden states.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>

#include "layers/pass.h"
#include "ops/routing.h"

namespace danlu::layers {

/// Named sums over the tokens of passes, such as terms of the loss or counts. They are never means,
/// so that ranks and micro-batches can add them up. Under sequence parallelism a rank sums its own
/// rows only.
class PassResults {
 public:
  /// Adds the values of a tensor, of one shape under a name; its gradient is not kept.
  void add(const std::string& name, const at::Tensor& sum);
  /// The same of a sum over `weight` things, by which its figure is divided instead of by the
  /// weight of the step's batches.
  void add_mean(const std::string& name, const at::Tensor& sum, double weight);
  /// Hears what the router of a layer has made of the pass's tokens; may be empty.
  std::function<void(int64_t layer, const at::Tensor& logits_NE, const ops::Routing& routing)>
      on_routing;
  /// The sums by name: f64, where numbers are worked with (ops/pointwise.h). Reading them waits for
  /// the device.
  const std::map<std::string, at::Tensor>& sums() const { return sums_; }
  /// The weights of figures that have weights of their own, by name.
  const std::map<std::string, double>& weights() const { return weights_; }

 private:
  std::map<std::string, at::Tensor> sums_;
  std::map<std::string, double> weights_;
};

/// Makes `sum` a term of the loss and returns `hidden` unchanged. The backward of `hidden` starts
/// the gradient of `sum` with Pass::loss_scale, the factor of the token loss, so it works in any
/// stage of a pipeline. The value is added to pass.results under `name`, once even if the layer is
/// recomputed.
/// Shapes  hidden: any; sum: a scalar over the rows that this rank has. A step divides the sum of
///         all terms by the weight of its batches, so a term's own factor is in `sum` already.
at::Tensor with_loss_term(const at::Tensor& hidden, const std::string& name, const at::Tensor& sum,
                          const Pass& pass);

/// The same without a name: the value is added nowhere.
at::Tensor with_gradient_of(const at::Tensor& hidden, const at::Tensor& sum, const Pass& pass);
/// The same, where the gradient of `sum` starts with this very scalar.
at::Tensor with_gradient_of(const at::Tensor& hidden, const at::Tensor& sum,
                            const at::Tensor& factor);

}  // namespace danlu::layers
