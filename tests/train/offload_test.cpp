// Activations that are elsewhere between their passes: the same bits, and the bytes that a formula
// says, counted on a pretend device.
#include "layers/offload.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <random>
#include <thread>

#include "base/error.h"
#include "device/host_memory.h"
#include "models/adapters.h"
#include "models/tensor_io.h"
#include "models/training_memory.h"
#include "models/weight_files.h"
#include "support/comes_true.h"
#include "support/pretend_device.h"
#include "support/pretend_kernels.h"
#include "train/mesh.h"

namespace danlu::train {
namespace offload_test {

namespace fs = std::filesystem;
using danlu::test::pretend_bytes;
using danlu::test::pretend_copies_beside;
using danlu::test::pretend_device;
using danlu::test::pretend_peak;
using danlu::test::pretend_waits;
using settings::ActivationOffload, settings::OffloadTo, settings::RecomputeFlags;

constexpr int64_t kLayers = 6, kHidden = 64, kFfn = 192, kTokens = 256;

arch::ModelConfig six_layers(int64_t layers = kLayers, const std::string& family = "llama") {
  Json json = danlu::test::tiny_config(family);
  json.update({{"vocab_size", 96},
               {"hidden_size", kHidden},
               {"intermediate_size", kFfn},
               {"num_attention_heads", 4},
               {"num_hidden_layers", layers},
               {"max_position_embeddings", kTokens}});
  return arch::family_of(json).parse(json);
}

RecomputeFlags block(int64_t layers) {
  return {.granularity = "full", .method = "block", .num_layers = layers};
}

ActivationOffload to_host(std::optional<int64_t> layers = {}) {
  return {.to = OffloadTo::kHost, .num_layers = layers};
}

models::ForwardInput input_of(int64_t tokens) {
  models::ForwardInput input;
  input.positions_N = at::arange(tokens, at::kLong);
  input.ids_N = input.positions_N.remainder(90);
  input.segments = {{0, tokens}, {0, tokens}};
  return input;
}

enum class Tuned { kAll, kLora, kDora };

/// Loss and gradients of two passes, the second begun before the first one's backward.
struct Results {
  std::vector<at::Tensor> tensors;
  models::MovedBytes moved;
};

Results results_of(const at::Device& device, at::ScalarType dtype, Tuned tuned,
                   const RecomputeFlags& recompute, const ActivationOffload& offload,
                   const std::string& family = "llama") {
  models::CausalLM model(six_layers(kLayers, family), parallel::Mesh::single(), dtype, device);
  models::initialize(model, 7);
  if (tuned != Tuned::kAll) {
    weights::PeftConfig adapters = settings::new_adapters();
    adapters.dropout = 0.3;
    adapters.dora = tuned == Tuned::kDora;
    models::add_lora(model, adapters, 5);
    const at::NoGradGuard no_grad;
    for (const parallel::Parameter& p : model.adapter_parameters())
      at::Tensor(p.tensor).copy_(p.tensor.cpu() +
                                 models::normal_values(p.tensor.sizes().vec(), 0.1, 3));
  }
  parallel::ParameterStore& store = models::keep(model, {});
  optim::GradBuffer gradients(store);
  model.memory().set_recompute(recompute);
  model.memory().set_activation_offload(offload);
  gradients.zero();
  std::vector<models::LossSum> losses;
  for (const int64_t tokens : {48, 32}) {
    models::ForwardInput input = input_of(tokens);
    if (tuned != Tuned::kAll) input.dropout_keys_N = input.positions_N * 7;
    losses.push_back(model.loss(input, input.ids_N + 1));
  }
  Results results;
  for (const bool last : {false, true}) {
    gradients.begin_pass(last);
    losses[last].sum.backward();
    gradients.end_pass();
    results.tensors.push_back(losses[last].sum.detach().cpu());
  }
  for (size_t unit = 0; unit < store.units().size(); ++unit) {
    if (store.units()[unit].trainable)
      results.tensors.push_back(gradients.share(unit).cpu().clone());
  }
  results.moved = model.memory().moved_activations();
  return results;
}

/// Any layers, any parts, beside any recomputation.
struct Choice {
  RecomputeFlags recompute;
  ActivationOffload offload;

  static Choice of(std::mt19937& random) {
    const std::vector<RecomputeFlags> recomputed = {
        {},
        {.granularity = "selective"},
        {.granularity = "full"},
        {.granularity = "full", .method = "uniform", .num_layers = 2},
        block(2),
        block(5),
        {.activation_function = true, .activation_function_num_layers = 4},
        {.norm = true, .norm_num_layers = 4}};
    const auto below = [&](size_t end) { return random() % end; };
    Choice choice{recomputed[below(recomputed.size())], {.to = OffloadTo::kFile}};
    if (below(3) > 0) choice.offload.num_layers = 1 + static_cast<int64_t>(below(kLayers));
    const size_t parts = 1 + below(15);
    choice.offload.input_norm = parts & 1;
    choice.offload.self_attention = parts & 2;
    choice.offload.post_attention_norm = parts & 4;
    choice.offload.mlp = parts & 8;
    return choice;
  }
  std::string text() const {
    return fmt::format("{}; {} layers, {}{}{}{}", settings::recompute_text(recompute),
                       offload.num_layers.value_or(0), offload.input_norm ? "i" : "",
                       offload.self_attention ? "a" : "", offload.post_attention_norm ? "p" : "",
                       offload.mlp ? "m" : "");
  }
};

TEST(ActivationOffload, ChangesNoBitWhateverLeaves) {
  const danlu::test::TemporaryDirectory directory;
  std::mt19937 random(11);
  int64_t moved = 0;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const Tuned tuned : {Tuned::kAll, Tuned::kLora, Tuned::kDora}) {
      // Fused projections of two kinds give views of one memory.
      const std::string family = tuned == Tuned::kAll    ? "internlm2"
                                 : tuned == Tuned::kLora ? "baichuan"
                                                         : "llama";
      const auto plain = results_of(at::kCPU, dtype, tuned, {}, {}, family).tensors;
      for (int i = 0; i < 12; ++i) {
        Choice choice = i == 0 ? Choice{{}, {.to = OffloadTo::kFile}} : Choice::of(random);
        choice.offload.directory = directory.path();
        const Results got =
            results_of(at::kCPU, dtype, tuned, choice.recompute, choice.offload, family);
        ASSERT_EQ(got.tensors.size(), plain.size());
        for (size_t t = 0; t < plain.size(); ++t)
          EXPECT_TRUE(at::equal(got.tensors[t], plain[t])) << t << " " << choice.text();
        EXPECT_LE(got.moved.back, got.moved.out) << choice.text();
        moved += got.moved.back;
      }
    }
  }
  EXPECT_GT(moved, 0);
  EXPECT_TRUE(fs::is_empty(directory.path())) << "nothing is left";
}

TEST(ActivationOffload, ChangesNoBitWhereHostMemoryIsNotTheDevices) {
  std::mt19937 random(5);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const Tuned tuned : {Tuned::kAll, Tuned::kLora}) {
      for (int i = 0; i < 8; ++i) {
        Choice choice = i == 0 ? Choice{} : Choice::of(random);
        choice.offload.to = OffloadTo::kHost;
        // Where aten computes the host waits for it all the time.
        std::optional<danlu::test::PretendKernels> table_alone;
        if (i >= 4) table_alone.emplace();
        // The same recomputation: of kernels of several operators a norm's gradient is summed in
        // another order where the norm is run again.
        const auto plain = results_of(pretend_device(), dtype, tuned, choice.recompute, {}).tensors;
        const auto got =
            results_of(pretend_device(), dtype, tuned, choice.recompute, choice.offload).tensors;
        for (size_t t = 0; t < plain.size(); ++t)
          EXPECT_TRUE(at::equal(got[t], plain[t])) << t << " " << choice.text();
      }
      EXPECT_EQ(pretend_bytes(), 0);
    }
  }
}

/// One pass in figures: bytes that are kept between forward and backward when all has left, and at
/// most in all of it; how often the host has waited, and sent by another stream than the passes'.
struct Counted {
  int64_t kept = 0, peak = 0, waits = 0, beside = 0;
  models::MovedBytes moved;
};

Counted counted(const RecomputeFlags& recompute, const ActivationOffload& offload,
                at::ScalarType dtype, int64_t layers = kLayers) {
  models::CausalLM model(six_layers(layers), parallel::Mesh::single(), dtype, pretend_device());
  models::initialize(model, 7);
  parallel::ParameterStore& store = models::keep(model, {});
  optim::GradBuffer gradients(store);
  model.memory().set_recompute(recompute);
  model.memory().set_activation_offload(offload);
  gradients.zero();
  // As in a second micro-batch: those of the first are there.
  for (size_t unit = 0; unit < store.units().size(); ++unit) gradients.share(unit);
  gradients.begin_pass(true);
  const models::ForwardInput input = input_of(kTokens);
  const int64_t before = pretend_bytes(), waits = pretend_waits(), beside = pretend_copies_beside();
  danlu::test::reset_pretend_peak();
  Counted bytes;
  {
    const models::LossSum loss = model.loss(input, input.ids_N + 1);
    model.memory().moved_activations();  // until the last has left
    bytes.kept = pretend_bytes() - before;
    loss.sum.backward();
  }
  gradients.end_pass();
  bytes.peak = pretend_peak() - before;
  bytes.waits = pretend_waits() - waits;
  bytes.beside = pretend_copies_beside() - beside;
  bytes.moved = model.memory().moved_activations();
  EXPECT_EQ(pretend_bytes() - before, 0) << "nothing stays of a pass";
  return bytes;
}

/// What one layer keeps: of layers that are alike, what one more adds.
int64_t kept_by_a_layer(const RecomputeFlags& recompute, at::ScalarType dtype) {
  return counted(recompute, {}, dtype).kept - counted(recompute, {}, dtype, kLayers - 1).kept;
}

TEST(ActivationOffload, KeepsOnTheDeviceWhatDoesNotLeave) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const int64_t element = dtype == at::kFloat ? 4 : 2;
    const Counted none = counted({}, {}, dtype);
    const int64_t layer = kept_by_a_layer({}, dtype);
    EXPECT_GT(layer, 10 * kTokens * kHidden * element);
    for (const int64_t layers : {1, 3, 6, 99}) {
      const int64_t leaves = std::min(layers, kLayers) * layer;
      const Counted got = counted({}, to_host(layers), dtype);
      EXPECT_EQ(got.kept, none.kept - leaves) << layers;
      EXPECT_EQ(got.moved.out, leaves) << "once, whoever saved it";
      EXPECT_EQ(got.moved.back, leaves) << "once, whoever needs it";
      std::printf("| %s | host, %ld layers | %.2f | %.2f |\n", element == 4 ? "fp32" : "bf16",
                  static_cast<long>(std::min(layers, kLayers)), static_cast<double>(got.kept) / 1e6,
                  static_cast<double>(got.peak) / 1e6);
    }
    // The inputs of layers that are run again whole leave.
    const int64_t hidden = kTokens * kHidden * element;
    const Counted full = counted({.granularity = "full"}, {}, dtype);
    const Counted inputs = counted({.granularity = "full"}, to_host(), dtype);
    EXPECT_EQ(inputs.kept, full.kept - kLayers * hidden);
    EXPECT_EQ(inputs.moved.out, kLayers * hidden);
    // A layer that is run again beside one that leaves.
    const RecomputeFlags two = block(2);
    const Counted mixed = counted(two, to_host(4), dtype);
    EXPECT_EQ(mixed.kept, counted(two, {}, dtype).kept - 2 * hidden - 2 * layer);
    for (const RecomputeFlags& parts :
         {RecomputeFlags{.granularity = "selective"}, RecomputeFlags{.activation_function = true},
          RecomputeFlags{.norm = true}}) {
      const int64_t less = kept_by_a_layer(parts, dtype);
      EXPECT_LT(less, layer);
      const Counted got = counted(parts, to_host(3), dtype);
      EXPECT_EQ(got.kept, counted(parts, {}, dtype).kept - 3 * less)
          << settings::recompute_text(parts);
      EXPECT_EQ(got.moved.out, 3 * less) << settings::recompute_text(parts);
    }
  }
}

TEST(ActivationOffload, CopiesGoBesidePassesThatDoNotWaitForThem) {
  const danlu::test::PretendKernels table_alone;  // where aten computes, the host waits for it
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const Counted none = counted({}, {}, dtype), all = counted({}, to_host(), dtype);
    EXPECT_EQ(all.waits, none.waits);
    EXPECT_GE(all.beside - none.beside, 10 * (kLayers - 1)) << "what a layer has saved";
    EXPECT_GT(all.moved.back, 0);
  }
}

std::atomic<bool> second_is_done = false, first_was_late = false, has_waited = false;
std::thread::id of_passes;

/// Memory for what leaves, the first of which comes when the forward of the second layer is over.
at::Tensor late_memory(at::IntArrayRef sizes, at::ScalarType type) {
  if (std::this_thread::get_id() != of_passes && !has_waited.exchange(true))
    first_was_late = danlu::test::comes_true([] { return second_is_done.load(); });
  return at::empty(sizes, at::TensorOptions(type));
}

TEST(ActivationOffload, ALayerIsAtWorkWhileTheOneBeforeItLeaves) {
  const auto type = pretend_device().type();
  const device::PinnedMemory before = device::pinned_memory_of(type);
  models::CausalLM model(six_layers(), parallel::Mesh::single(), at::kFloat, pretend_device());
  models::initialize(model, 7);
  models::keep(model, {});
  model.memory().set_activation_offload(to_host());
  models::ForwardInput input = input_of(kTokens);
  input.on_hidden = [](int64_t index, const at::Tensor&) { second_is_done = index >= 2; };
  of_passes = std::this_thread::get_id();
  device::set_pinned_memory(type, &late_memory);
  const models::LossSum loss = model.loss(input, input.ids_N + 1);
  loss.sum.backward();
  device::set_pinned_memory(type, before);
  EXPECT_TRUE(has_waited);
  EXPECT_TRUE(first_was_late) << "the second layer waited for the first to leave";
  EXPECT_GT(model.memory().moved_activations().back, 0);
}

TEST(ActivationOffload, TwoLayersAreBackAtATimeAtMost) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const Counted none = counted({}, {}, dtype);
    const int64_t layer = kept_by_a_layer({}, dtype);
    // The last layer's backward has all layers of none, and of those that leave itself and the one
    // before it. It is where the most is needed: later ones have less beside them.
    for (const int64_t layers : {3, 6}) {
      const Counted got = counted({}, to_host(layers), dtype);
      const int64_t back = layers == kLayers ? 2 : 0;
      EXPECT_LE(got.peak, none.peak - (layers - back) * layer) << layers;
      EXPECT_GE(got.peak, none.peak - layers * layer) << layers;
    }
    // However many layers there are.
    const auto peak = [&](int64_t layers) { return counted({}, to_host(), dtype, layers).peak; };
    EXPECT_LE(peak(12), peak(6) + layer);
  }
}

TEST(ActivationOffload, BringsALayerBackWhileTheOneBehindItIsAtWork) {
  const int64_t layer = kept_by_a_layer({}, at::kFloat);
  models::CausalLM model(six_layers(), parallel::Mesh::single(), at::kFloat, pretend_device());
  models::initialize(model, 7);
  models::keep(model, {});
  model.memory().set_activation_offload(to_host());
  models::ForwardInput input = input_of(kTokens);
  bool is_there = false;
  input.on_hidden = [&](int64_t index, const at::Tensor& hidden) {
    if (index != 3) return;
    // The backward of the last three is over, that of the third has not begun, and asks for nothing
    // before this returns.
    hidden.register_hook([&](const at::Tensor&) {
      is_there = danlu::test::comes_true(
          [&] { return model.memory().moved_activations().back >= 4 * layer; });
      EXPECT_EQ(model.memory().moved_activations().back, 4 * layer) << "and none further ahead";
    });
  };
  const models::LossSum loss = model.loss(input, input.ids_N + 1);
  // Waited for: what is still on its way out when it is wanted again does not come back, but stays.
  EXPECT_GT(model.memory().moved_activations().out, 4 * layer);
  loss.sum.backward();
  EXPECT_TRUE(is_there);
}

TEST(ActivationOffload, SwapAttentionLeavesWhatAnMlpKeeps) {
  ActivationOffload swapped = to_host();
  swapped.mlp = false;
  ActivationOffload rest = to_host();
  rest.input_norm = rest.self_attention = rest.post_attention_norm = false;
  const int64_t all = kLayers * kept_by_a_layer({}, at::kFloat);
  const Counted attention = counted({}, swapped, at::kFloat), mlp = counted({}, rest, at::kFloat);
  EXPECT_GT(attention.moved.out, all / 4);
  EXPECT_LT(attention.moved.out, 3 * all / 4);
  EXPECT_EQ(attention.moved.out + mlp.moved.out, all);
}

TEST(ActivationOffload, NamesTheDirectoryThatIsGone) {
  models::CausalLM model(six_layers(), parallel::Mesh::single(), at::kFloat, at::kCPU);
  try {
    model.memory().set_activation_offload({.to = OffloadTo::kFile, .directory = "/no/such/place"});
    FAIL();
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("/no/such/place"), std::string::npos);
  }
}

using mesh_test::Case;

std::vector<Case> meshes() {
  const auto with = [](Case c) {
    c.offload.to = OffloadTo::kFile;
    return c;
  };
  using mesh_test::Tuning, parallel::Sharding;
  const Case base{.name = "qwen2", .family = "qwen2", .changes = {}, .layers = 8};
  std::vector<Case> all;
  const auto add = [&](const std::function<void(Case&)>& change) {
    Case c = with(base);
    change(c);
    all.push_back(c);
  };
  add([](Case& c) { c.shape.pipeline = 2; });
  add([](Case& c) { c.shape.pipeline = 2, c.chunks = 2, c.tuning = Tuning::kDora; });
  add([](Case& c) { c.shape.pipeline = 2, c.zero_bubble = true; });
  add([](Case& c) {
    c.shape = {.tensor = 2, .sequence_parallel = true};
    c.by_layer = {.norm = true};
    c.by_layer_name = "_norm";
  });
  add([](Case& c) { c.shape.data = 2, c.sharding = Sharding::kParameters; });
  add([](Case& c) {
    c.shape = {.data = 2, .pipeline = 2};
    c.sharding = Sharding::kGradients;
    c.tuning = Tuning::kLora;
    c.dtype = at::kBFloat16;
    c.by_layer = block(2);
    c.by_layer_name = "_block2";
  });
  add([](Case& c) { c.shape.context = {.ring = 2}; });
  add([](Case& c) {
    c.shape.context = {.ulysses = 2};
    c.recompute = models::Recompute::kSelective;
    c.offload.mlp = false;
    c.offload.num_layers = 5;
  });
  return all;
}

class OffloadOnMesh : public testing::TestWithParam<Case> {};

TEST_P(OffloadOnMesh, GivesTheBitsThatItGivesWithout) {
  Case plain = GetParam();
  plain.offload = {};
  const mesh_test::Outcome expected = mesh_test::train(plain, plain.shape, 2);
  const mesh_test::Outcome got = mesh_test::train(GetParam(), plain.shape, 2);
  EXPECT_EQ(got.losses, expected.losses);
  EXPECT_EQ(got.norms, expected.norms);
  for (const auto& [name, gradient] : expected.gradients)
    EXPECT_TRUE(at::equal(got.gradients.at(name), gradient)) << name;
  for (const auto& [name, weight] : expected.weights)
    EXPECT_TRUE(at::equal(got.weights.at(name), weight)) << name;
}

INSTANTIATE_TEST_SUITE_P(Meshes, OffloadOnMesh, testing::ValuesIn(meshes()), mesh_test::name_of);

}  // namespace offload_test
}  // namespace danlu::train
