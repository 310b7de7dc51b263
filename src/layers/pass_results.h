// layers/pass_results.h: what the layers of a pass give beside hidden states.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "layers/pass.h"

namespace danlu::layers {

/// Named sums over the tokens of passes, never means: of terms of the loss, of counts. On a rank of
/// the tensor axis that has a part of the rows, of those rows.
class PassResults {
 public:
  /// `sum`: a scalar, of which the value alone is taken.
  void add(const std::string& name, const at::Tensor& sum);
  /// By name; f64, where they were computed. Reading them waits for the device.
  const std::map<std::string, at::Tensor>& sums() const { return sums_; }

 private:
  std::map<std::string, at::Tensor> sums_;
};

/// Gives `hidden` as it is and makes `sum` a term of the loss, wherever in the pipeline the layer
/// stands: backward gives it the gradient that the loss of the tokens has (Pass::loss_scale), and
/// pass.results its value under `name`, once where the layer is recomputed.
/// Shapes  hidden: any; sum: a scalar, over the rows that this rank has. Its weight in the loss is
///         in it: the loss of a step is (all sums) / (all targets).
at::Tensor with_loss_term(const at::Tensor& hidden, const std::string& name, const at::Tensor& sum,
                          const Pass& pass);

}  // namespace danlu::layers
