#include "layers/linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include "base/file.h"
#include "ops/linear.h"
#include "parallel/collectives.h"

namespace danlu::layers {

at::Tensor Linear::forward(const at::Tensor& x_NI, const Pass& pass) const {
  const parallel::Group& tensor_group = pass.mesh->group(parallel::Axis::kTensor);
  const bool splits_rows =
      weight.split == arch::Split::kRows || weight.split == arch::Split::kKvGroups;
  const at::Tensor input_NI = splits_rows ? parallel::copy_to(x_NI, tensor_group) : x_NI;
  if (!adapter) {
    if (weight.split != arch::Split::kColumns)
      return ops::linear(input_NI, weight.tensor, bias.tensor);
    const at::Tensor y_NO = parallel::sum_over(ops::linear(input_NI, weight.tensor), tensor_group);
    return bias.defined() ? y_NO + bias.tensor : y_NO;
  }
  at::Tensor y_NO =
      adapted_linear(input_NI, weight.tensor, *adapter, pass.dropout_keys_N, hash_bytes(path));
  if (weight.split == arch::Split::kColumns) y_NO = parallel::sum_over(y_NO, tensor_group);
  return bias.defined() ? y_NO + bias.tensor : y_NO;
}

void Linear::collect(std::vector<at::Tensor>& tensors) const {
  for (const at::Tensor& tensor : {weight.tensor, bias.tensor}) {
    if (tensor.defined()) tensors.push_back(tensor);
  }
  if (!adapter) return;
  for (const at::Tensor& tensor : {adapter->a_RI, adapter->b_OR, adapter->magnitude_O}) {
    if (tensor.defined()) tensors.push_back(tensor);
  }
}

}  // namespace danlu::layers
