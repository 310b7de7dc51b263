#include "models/read_head.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <cmath>

#include "base/error.h"
#include "models/causal_lm_impl.h"

namespace danlu::models {
namespace {

std::vector<float> floats_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kCPU, at::kFloat).contiguous();
  return {flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel()};
}

}  // namespace

ReadHead read_head(const CausalLM& model, const std::vector<int32_t>& ids) {
  const c10::InferenceMode no_autograd;
  const Network& network = model.impl().network;
  ReadHead read;
  at::Tensor rows_KH;
  if (model.config().score) {
    const layers::Linear& linear = network.score.linear;
    rows_KH = linear.weight.tensor;
    if (linear.bias.defined()) read.bias = floats_of(linear.bias.tensor);
  } else {
    if (network.head.linear.adapter)
      throw ModelError(tr("[model] adapters on the head do not go with ranking by its tokens"),
                       tr("danlu merge makes them a part of it"));
    const std::vector<int64_t> wide(ids.begin(), ids.end());
    rows_KH = network.head.rows_of(at::tensor(wide, at::TensorOptions(at::kLong)));
    read.scale = network.head.scale;
    read.softcap = network.head.softcap;
  }
  const at::Tensor on_host = rows_KH.to(at::kCPU, at::kFloat).contiguous();
  for (int64_t row = 0; row < on_host.size(0); ++row) read.rows.push_back(floats_of(on_host[row]));
  return read;
}

std::vector<double> numbers_of(const ReadHead& head, const std::vector<float>& hidden) {
  std::vector<double> numbers;
  for (size_t row = 0; row < head.rows.size(); ++row) {
    double sum = 0;
    for (size_t i = 0; i < hidden.size(); ++i) sum += double{head.rows[row][i]} * hidden[i];
    sum = sum * head.scale + (head.bias.empty() ? 0.0 : double{head.bias[row]});
    numbers.push_back(head.softcap > 0 ? head.softcap * std::tanh(sum / head.softcap) : sum);
  }
  return numbers;
}

}  // namespace danlu::models
