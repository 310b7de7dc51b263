// What is computed again, layer by layer: the same bits, and the bytes that a formula says, counted
// on a pretend device.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "models/adapters.h"
#include "models/tensor_io.h"
#include "models/training_memory.h"
#include "models/weight_files.h"
#include "ops/cross_entropy.h"
#include "ops/linear.h"
#include "ops/rms_norm.h"
#include "support/pretend_device.h"
#include "train/support.h"

namespace danlu::train {
namespace recompute_test {

using danlu::test::pretend_bytes;
using danlu::test::pretend_device;
using danlu::test::pretend_peak;
using settings::RecomputeFlags;

constexpr int64_t kLayers = 5, kHidden = 64, kFfn = 192, kTokens = 256;

arch::ModelConfig five_layers() {
  Json json = test::tiny_config_json();
  json.update({{"vocab_size", 96},
               {"hidden_size", kHidden},
               {"intermediate_size", kFfn},
               {"num_attention_heads", 4},
               {"num_key_value_heads", 2},
               {"num_hidden_layers", kLayers},
               {"max_position_embeddings", kTokens}});
  return arch::family_of(json).parse(json);
}

RecomputeFlags uniform(int64_t layers) {
  return {.granularity = "full", .method = "uniform", .num_layers = layers};
}
RecomputeFlags block(int64_t layers) {
  return {.granularity = "full", .method = "block", .num_layers = layers};
}
RecomputeFlags activation(int64_t layers) {
  return {.activation_function = true, .activation_function_num_layers = layers};
}
RecomputeFlags norm(int64_t layers) { return {.norm = true, .norm_num_layers = layers}; }

models::ForwardInput input_of(int64_t tokens) {
  models::ForwardInput input;
  input.positions_N = at::arange(tokens, at::kLong);
  input.ids_N = input.positions_N.remainder(90);
  input.segments = {{0, tokens}, {0, tokens}};
  return input;
}

/// Loss and gradients of one pass; main gradients, as training has them.
std::vector<at::Tensor> results_of(const RecomputeFlags& flags, at::ScalarType dtype, bool lora) {
  models::CausalLM model(five_layers(), parallel::Mesh::single(), dtype, at::Device(at::kCPU));
  models::initialize(model, 7);
  if (lora) {
    weights::PeftConfig adapters = settings::new_adapters();
    adapters.dropout = 0.3;
    models::add_lora(model, adapters, 5);
    const at::NoGradGuard no_grad;
    for (const parallel::Parameter& p : model.adapter_parameters())
      at::Tensor(p.tensor).copy_(models::normal_values(p.tensor.sizes().vec(), 0.1, 3));
  }
  parallel::ParameterStore& store = models::keep(model, {});
  optim::GradBuffer gradients(store);
  model.memory().set_recompute(flags);
  gradients.zero();
  gradients.begin_pass(true);
  models::ForwardInput input = input_of(48);
  if (lora) input.dropout_keys_N = input.positions_N * 7;
  const models::LossSum loss = model.loss(input, input.ids_N + 1);
  loss.sum.backward();
  gradients.end_pass();
  std::vector<at::Tensor> results{loss.sum.detach().clone()};
  for (size_t unit = 0; unit < store.units().size(); ++unit) {
    if (store.units()[unit].trainable) results.push_back(gradients.share(unit).clone());
  }
  return results;
}

TEST(RecomputedLayers, ChangeNoBit) {
  RecomputeFlags mixed = block(2);
  mixed.norm = true;
  mixed.norm_num_layers = 2;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const bool lora : {false, true}) {
      const auto plain = results_of({}, dtype, lora);
      EXPECT_EQ(plain.size(), lora ? 1 + kLayers : 1 + kLayers + 2);
      size_t which = 0;
      for (const RecomputeFlags& flags :
           {RecomputeFlags{.granularity = "selective"}, uniform(1), uniform(2), uniform(99),
            block(2), activation(3), activation(5), norm(5), mixed}) {
        const auto again = results_of(flags, dtype, lora);
        for (size_t i = 0; i < plain.size(); ++i)
          EXPECT_TRUE(at::equal(plain[i], again[i])) << which << " " << i << " " << lora;
        ++which;
      }
    }
  }
}

/// Bytes of one pass: kept between forward and backward, and at most in all of it.
struct Counted {
  int64_t kept = 0, peak = 0;
};

Counted counted(const RecomputeFlags& flags, at::ScalarType dtype) {
  models::CausalLM model(five_layers(), parallel::Mesh::single(), dtype, pretend_device());
  models::initialize(model, 7);
  parallel::ParameterStore& store = models::keep(model, {});
  optim::GradBuffer gradients(store);
  model.memory().set_recompute(flags);
  gradients.zero();
  // As in a second micro-batch: those of the first are there.
  for (size_t unit = 0; unit < store.units().size(); ++unit) gradients.share(unit);
  gradients.begin_pass(true);
  const models::ForwardInput input = input_of(kTokens);
  const int64_t before = pretend_bytes();
  danlu::test::reset_pretend_peak();
  Counted bytes;
  {
    const models::LossSum loss = model.loss(input, input.ids_N + 1);
    bytes.kept = pretend_bytes() - before;
    loss.sum.backward();
  }
  gradients.end_pass();
  bytes.peak = pretend_peak() - before;
  return bytes;
}

/// What a layer does not keep. On this device the activation is several of aten's operators, which
/// keep what they make on the way: silu and the product, and a wide copy of a 16-bit gate, which is
/// kept instead.
int64_t spared_by_activation(int64_t element) {
  return kTokens * kFfn * (element == 4 ? 4 + 4 : 4 + 2 + 2 - 2);
}

/// All that a norm alone leaves, less a 16-bit input, of which it would have kept a wide copy
/// alone.
int64_t spared_by_norms(int64_t element) {
  const at::TensorOptions options =
      at::TensorOptions(element == 4 ? at::kFloat : at::kBFloat16).device(pretend_device());
  const at::Tensor x = at::ones({kTokens, kHidden}, options).requires_grad_(true);
  const at::Tensor weight = at::ones({kHidden}, options).requires_grad_(true);
  const int64_t before = pretend_bytes();
  const at::Tensor output = ops::rms_norm(x, weight, 1e-6);
  const int64_t left = pretend_bytes() - before, input = kTokens * kHidden * element;
  EXPECT_GE(left, 2 * input);
  return 2 * (left - (element == 4 ? 0 : input));
}

TEST(RecomputedLayers, KeepTheBytesThatTheFormulaSays) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const int64_t element = dtype == at::kFloat ? 4 : 2;
    const int64_t hidden = kTokens * kHidden * element;
    const Counted none = counted({}, dtype), full = counted(uniform(1), dtype);
    // What a layer keeps that is not run again, its input included.
    const int64_t layer = (none.kept - full.kept) / kLayers + hidden;
    EXPECT_GT(layer, 10 * hidden);
    const auto row = [&](const char* what, const RecomputeFlags& flags) {
      const Counted bytes = counted(flags, dtype);
      std::printf("| %s | %s | %.2f | %.2f |\n", element == 4 ? "fp32" : "bf16", what,
                  static_cast<double>(bytes.kept) / 1e6, static_cast<double>(bytes.peak) / 1e6);
    };
    row("none", {});
    row("selective", {.granularity = "selective"});
    row("activation function", activation(kLayers));
    row("norm", norm(kLayers));
    row("full, block 2", block(2));
    row("full", uniform(1));
    row("full, uniform 2", uniform(2));
    for (const int64_t layers : {1, 3, 5}) {
      EXPECT_EQ(counted(activation(layers), dtype).kept,
                none.kept - layers * spared_by_activation(element))
          << layers;
      EXPECT_EQ(counted(norm(layers), dtype).kept, none.kept - layers * spared_by_norms(element))
          << layers;
      EXPECT_EQ(counted(block(layers), dtype).kept, none.kept - layers * (layer - hidden))
          << layers;
      const int64_t groups = (kLayers + layers - 1) / layers;
      EXPECT_EQ(counted(uniform(layers), dtype).kept, full.kept - (kLayers - groups) * hidden)
          << layers;
    }
    RecomputeFlags both = norm(2);
    both.activation_function = true;
    EXPECT_EQ(counted(both, dtype).kept,
              none.kept - 2 * spared_by_norms(element) - kLayers * spared_by_activation(element));
    RecomputeFlags mixed = block(2);
    mixed.activation_function = true;
    EXPECT_EQ(counted(mixed, dtype).kept,
              none.kept - 2 * (layer - hidden) - 3 * spared_by_activation(element));
  }
}

TEST(RecomputedLayers, PeakAsTheFormulaSays) {
  const int64_t hidden = kTokens * kHidden * 4;
  const Counted none = counted({}, at::kFloat), full = counted(uniform(1), at::kFloat);
  const int64_t layer = (none.kept - full.kept) / kLayers + hidden;
  const auto near = [&](const RecomputeFlags& flags, int64_t expected) {
    const int64_t peak = counted(flags, at::kFloat).peak;
    EXPECT_NEAR(static_cast<double>(peak), static_cast<double>(expected), 0.05 * expected);
    EXPECT_LT(peak, none.peak);
  };
  // The backward's peak is in the last layer, whose own parts are there while it is under way.
  near(activation(kLayers), none.peak - (kLayers - 1) * spared_by_activation(4));
  near(norm(kLayers), none.peak - (kLayers - 1) * spared_by_norms(4));
  // All that one layer keeps and makes beside what groups keep, of a group of two twice.
  near(uniform(1), none.peak - kLayers * (layer - hidden) + layer - hidden);
  near(uniform(2), full.peak + layer - 2 * hidden);
}

/// At most beside inputs and targets, of loss and gradients of a head.
int64_t peak_of_head(int64_t tokens, int64_t vocab, int64_t chunk_tokens) {
  constexpr int64_t kWidth = 8;
  const at::TensorOptions options = at::TensorOptions(at::kFloat).device(pretend_device());
  const at::Tensor hidden = at::ones({tokens, kWidth}, options).requires_grad_(true);
  const at::Tensor weight = at::ones({vocab, kWidth}, options).requires_grad_(true);
  const at::Tensor targets = at::arange(tokens, at::kLong).remainder(vocab).to(pretend_device());
  const int64_t before = pretend_bytes();
  danlu::test::reset_pretend_peak();
  if (chunk_tokens > 0) {
    ops::head_cross_entropy(hidden, weight, targets, {.chunk_tokens = chunk_tokens}).sum.backward();
  } else {
    ops::cross_entropy(ops::linear(hidden, weight), targets, 0).sum.backward();
  }
  return pretend_peak() - before - (tokens + vocab) * kWidth * 4;  // and their gradients
}

TEST(ChunkedLoss, TakesTheMemoryOfAChunkWhateverTheTokens) {
  constexpr int64_t kVocab = 8192;
  const int64_t row = kVocab * 4;
  const int64_t small = peak_of_head(512, kVocab, 16), more = peak_of_head(1024, kVocab, 16);
  const int64_t twice = peak_of_head(512, kVocab, 32), whole = peak_of_head(512, kVocab, 0);
  EXPECT_GE(whole, 2 * 512 * row) << "all logits and their gradient";
  // Logits, a wide copy or what an operator makes of them, and what the weights' gradient takes.
  EXPECT_LE(small, 3 * 16 * row + 2 * kVocab * 8 * 4);
  EXPECT_LE(more - small, 1024 * 64) << "of a token a few numbers, not a row";
  EXPECT_GE(twice - small, 16 * row);
  EXPECT_LE(twice - small, 3 * 16 * row);
  EXPECT_LT(small * 10, whole);
}

}  // namespace recompute_test
}  // namespace danlu::train
