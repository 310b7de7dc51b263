#include "train/throughput.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>

#include "device/select.h"
#include "ops/linear.h"

namespace danlu::train {

double flops_per_token(const arch::ModelConfig& model, const TrainConfig& config,
                       double mean_length) {
  double weights = 0;
  for (const arch::ParamSpec& parameter : arch::parameters_of(model)) {
    const bool embedding = parameter.role == arch::Role::kEmbedding && !model.tie_embeddings;
    if (parameter.shape.size() != 2 || embedding) continue;
    weights += static_cast<double>(parameter.shape[0]) * static_cast<double>(parameter.shape[1]);
  }
  // A frozen weight needs no gradient of its own: forward and the gradient of its input remain.
  const double per_weight = config.tuner == Tuner::kLora ? 4.0 : 6.0;
  // Scores and mixture of a causal layer: 2 · 2 · T/2 · heads · head_dim forward, twice that
  // backward.
  const double attention =
      6.0 * static_cast<double>(model.num_layers * model.num_heads * model.head_dim) * mean_length;
  return per_weight * weights + attention;
}

double peak_flops(const TrainConfig& config, const at::Device& device) {
  if (config.output.device_tflops > 0) return config.output.device_tflops * 1e12;
  constexpr int64_t kSize = 1024;
  constexpr int kRuns = 8;
  const auto trained = config.precision == Precision::kF32    ? at::kFloat
                       : config.precision == Precision::kBF16 ? at::kBFloat16
                                                              : at::kHalf;
  // Where a type has no products of its own the work is done in f32: that is the peak to compare
  // with.
  const auto dtype = device::has_matmul(device, trained) ? trained : at::kFloat;
  at::NoGradGuard no_grad;
  const at::Tensor a = at::full({kSize, kSize}, 0.01, at::TensorOptions(dtype).device(device));
  double best_s = 1e30;
  for (int run = 0; run < kRuns; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    const at::Tensor product = ops::linear(a, a);
    product[0][0].item<float>();  // waits for an asynchronous device
    best_s = std::min(
        best_s, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return 2.0 * kSize * kSize * kSize / best_s;
}

}  // namespace danlu::train
