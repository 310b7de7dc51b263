// tests/ops/finite_differences.h: gradients from autograd against central differences in f64.
#pragma once
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <vector>

namespace danlu::test {

inline at::Tensor random_f64(at::IntArrayRef shape, uint64_t seed) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::empty(shape, at::kDouble).normal_(0, 1, generator);
}

/// Every element of every input: d sum(w * f(inputs)) / d input, w random, by autograd and by
/// (f(x+h) - f(x-h)) / 2h. Inputs are f64; f must not keep state.
inline void expect_gradients(const std::function<at::Tensor(const std::vector<at::Tensor>&)>& f,
                             std::vector<at::Tensor> inputs, double tolerance = 1e-7) {
  for (at::Tensor& input : inputs) input = input.detach().clone().requires_grad_(true);
  const at::Tensor output = f(inputs);
  const at::Tensor weight = random_f64(output.sizes(), 99);
  const auto grads = torch::autograd::grad({(output * weight).sum()}, inputs);
  const at::NoGradGuard no_grad;
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < inputs.size(); ++i) {
    at::Tensor numeric = at::zeros_like(inputs[i]).view({-1});
    const at::Tensor flat = inputs[i].detach().view({-1});
    for (int64_t e = 0; e < flat.numel(); ++e) {
      const double original = flat[e].item<double>();
      flat[e].fill_(original + kStep);
      const double above = (f(inputs) * weight).sum().item<double>();
      flat[e].fill_(original - kStep);
      const double below = (f(inputs) * weight).sum().item<double>();
      flat[e].fill_(original);
      numeric[e].fill_((above - below) / (2 * kStep));
    }
    const double largest = numeric.abs().max().item<double>();
    const double difference = (grads[i].reshape({-1}) - numeric).abs().max().item<double>();
    EXPECT_LE(difference, tolerance * std::max(1.0, largest))
        << "input " << i << " " << inputs[i].sizes();
    // A gradient that is zero everywhere would agree with a function that ignores its input.
    EXPECT_GT(largest, 0) << "input " << i;
  }
}

}  // namespace danlu::test
