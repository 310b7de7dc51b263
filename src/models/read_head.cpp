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

std::vector<std::vector<float>> rows_of(const at::Tensor& weight_KH) {
  const at::Tensor on_host = weight_KH.to(at::kCPU, at::kFloat).contiguous();
  std::vector<std::vector<float>> rows;
  for (int64_t row = 0; row < on_host.size(0); ++row) rows.push_back(floats_of(on_host[row]));
  return rows;
}

double product_of(const std::vector<float>& row, const std::vector<float>& hidden) {
  double sum = 0;
  for (size_t i = 0; i < hidden.size(); ++i) sum += double{row[i]} * hidden[i];
  return sum;
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
    if (const layers::Linear& dense = network.score.dense; dense.defined()) {
      read.dense_rows = rows_of(dense.weight.tensor);
      read.dense_bias = floats_of(dense.bias.tensor);
    }
  } else {
    if (network.head.linear.adapter)
      throw ModelError(tr("[model] adapters on the head do not go with ranking by its tokens"),
                       tr("danlu merge makes them a part of it"));
    const std::vector<int64_t> wide(ids.begin(), ids.end());
    rows_KH = network.head.rows_of(at::tensor(wide, at::TensorOptions(at::kLong)));
    read.scale = network.head.scale;
    read.softcap = network.head.softcap;
  }
  read.rows = rows_of(rows_KH);
  return read;
}

std::vector<double> numbers_of(const ReadHead& head, const std::vector<float>& given) {
  std::vector<float> hidden = given;
  for (size_t i = 0; i < head.dense_rows.size(); ++i) {
    hidden[i] = static_cast<float>(
        std::tanh(product_of(head.dense_rows[i], given) + double{head.dense_bias[i]}));
  }
  std::vector<double> numbers;
  for (size_t row = 0; row < head.rows.size(); ++row) {
    const double sum = product_of(head.rows[row], hidden) * head.scale +
                       (head.bias.empty() ? 0.0 : double{head.bias[row]});
    numbers.push_back(head.softcap > 0 ? head.softcap * std::tanh(sum / head.softcap) : sum);
  }
  return numbers;
}

}  // namespace danlu::models
