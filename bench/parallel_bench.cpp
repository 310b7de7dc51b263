// bench/parallel_bench.cpp: what a rank keeps and sends, against the textbook.
//
//   parallel_bench [--ranks 2] [--micro 2] [--layers 12] [--hidden 512] [--vocab 32000]
//
// Ranks are threads; payload is counted by the transport. One JSON line for each scheme: bytes of
// model, gradients and optimizer that a rank keeps between passes for each parameter, and bytes
// that it sends in a step, each over the textbook's figure (bf16 parameters P, f32 gradients,
// moments and half of a master; N ranks, m micro-batches): kept 16, 6 + 10/N, 2 + 14/N, 16/N bytes
// a parameter; sent (N-1)/N times 8P (all-reduce of gradients), 6P (their reduce-scatter,
// parameters' all-gather), (4m + 2)P, m (2·2 + 4)P. Then tensor parallelism, without and with
// sequence parallelism: bytes sent a layer and micro-batch over two forward and two backward
// all-reduces of the hidden states (Megatron-LM, arXiv:1909.08053 §3), and what embedding and head
// send, in such all-reduces.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <map>
#include <mutex>
#include <string>

#include "arch/model_config.h"
#include "flags.h"
#include "models/causal_lm.h"
#include "models/training_memory.h"
#include "models/weight_files.h"
#include "optim/adamw.h"
#include "parallel/comm/local.h"

namespace {

using danlu::Json;
using danlu::parallel::Mesh;
using danlu::parallel::Sharding;

using Sizes = std::map<std::string, int64_t>;

Sizes parse(int argc, char** argv) {
  Sizes sizes{{"ranks", 2}, {"micro", 2}, {"layers", 12}, {"hidden", 512}, {"vocab", 32000}};
  danlu::bench::Flags flags;
  for (auto& [name, size] : sizes) flags["--" + name] = danlu::bench::WholeNumber{&size};
  danlu::bench::parse_flags(argc, argv, flags);
  return sizes;
}

danlu::arch::ModelConfig config_of(const Sizes& sizes) {
  const int64_t hidden = sizes.at("hidden");
  const Json json = {{"model_type", "llama"},
                     {"vocab_size", sizes.at("vocab")},
                     {"hidden_size", hidden},
                     {"intermediate_size", 3 * hidden},
                     {"num_hidden_layers", sizes.at("layers")},
                     {"num_attention_heads", 8},
                     {"num_key_value_heads", 8},
                     {"max_position_embeddings", 4096},
                     {"rms_norm_eps", 1e-6},
                     {"rope_theta", 10000.0},
                     {"tie_word_embeddings", false}};
  return danlu::arch::family_of(json).parse(json);
}

int64_t sent(const Mesh& mesh) {
  return mesh.data().traffic().bytes + mesh.background().data().traffic().bytes;
}

struct Figures {
  double kept = 0, sent = 0;  ///< bytes a parameter, of rank 0
};

Figures measure(const Sizes& sizes, Sharding sharding) {
  Figures figures;
  danlu::parallel::run_local_ranks(sizes.at("ranks"), [&](danlu::parallel::World& world) {
    const Mesh mesh(world, {.data = world.size()});
    danlu::models::CausalLM model(config_of(sizes), mesh, at::kBFloat16, at::Device(at::kCPU));
    auto& store = models::keep(model, {.sharding = sharding}, /*holds_values=*/false);
    models::initialize(model, 1);
    danlu::optim::GradBuffer gradients(store);
    danlu::optim::AdamW optimizer(store, {});
    danlu::models::ForwardInput input;
    input.ids_N = at::arange(8, at::kLong);
    input.positions_N = at::arange(8, at::kLong);
    input.segments = {{0, 8}, {0, 8}};
    const int64_t before = sent(mesh);
    gradients.zero();
    for (int64_t i = 0; i < sizes.at("micro"); ++i) {
      gradients.begin_pass(i + 1 == sizes.at("micro"));
      model.loss(input, input.ids_N + 1).sum.backward();
      gradients.end_pass();
    }
    gradients.finish();
    optimizer.step(gradients, 1e-4, 1.0);
    store.settle();
    if (mesh.rank() > 0) return;
    const auto parameters = static_cast<double>(danlu::arch::parameter_count(model.config()));
    const int64_t kept = store.kept_bytes() + gradients.kept_bytes() + optimizer.state_bytes();
    figures = {static_cast<double>(kept) / parameters,
               static_cast<double>(sent(mesh) - before) / parameters};
  });
  return figures;
}

/// Bytes that rank 0 sends over the tensor axis in one forward and backward.
int64_t sent_in_a_pass(const Sizes& sizes, int64_t layers, int64_t tokens, bool sequence) {
  Sizes own = sizes;
  own["layers"] = layers;
  int64_t bytes = 0;
  danlu::parallel::run_local_ranks(sizes.at("ranks"), [&](danlu::parallel::World& world) {
    const Mesh mesh(world, {.tensor = world.size(), .sequence_parallel = sequence});
    danlu::models::CausalLM model(config_of(own), mesh, at::kBFloat16, at::Device(at::kCPU));
    models::initialize(model, 1);
    danlu::models::ForwardInput input;
    input.ids_N = at::arange(tokens, at::kLong);
    input.positions_N = at::arange(tokens, at::kLong);
    input.segments = {{0, tokens}, {0, tokens}};
    const int64_t before = mesh.tensor().traffic().bytes;
    model.loss(input, input.ids_N + 1).sum.backward();
    if (mesh.rank() == 0) bytes = mesh.tensor().traffic().bytes - before;
  });
  return bytes;
}

void print_tensor_axis(const Sizes& sizes) {
  const int64_t ranks = sizes.at("ranks"), hidden = sizes.at("hidden"), tokens = 256;
  if (8 % ranks != 0) return;  // heads
  const double all_reduce = 2.0 * static_cast<double>(ranks - 1) / static_cast<double>(ranks) *
                            static_cast<double>(tokens * hidden * 2);
  for (const bool sequence : {false, true}) {
    const int64_t two = sent_in_a_pass(sizes, 2, tokens, sequence),
                  four = sent_in_a_pass(sizes, 4, tokens, sequence);
    const double layer = static_cast<double>(four - two) / 2;
    fmt::print(
        "{{\"scheme\": \"tensor{}\", \"ranks\": {}, \"tokens\": {}, \"layer_bytes\": {}, "
        "\"layer_ratio\": {:.4f}, \"ends_in_all_reduces\": {:.3f}}}\n",
        sequence ? "+sequence" : "", ranks, tokens, static_cast<int64_t>(layer),
        layer / (4 * all_reduce), (static_cast<double>(two) - 2 * layer) / all_reduce);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Sizes sizes = parse(argc, argv);
  const auto n = static_cast<double>(sizes.at("ranks")), m = static_cast<double>(sizes.at("micro"));
  const std::map<Sharding, Figures> textbook = {{Sharding::kNone, {16, 8}},
                                                {Sharding::kState, {6 + 10 / n, 6}},
                                                {Sharding::kGradients, {2 + 14 / n, 4 * m + 2}},
                                                {Sharding::kParameters, {16 / n, m * 8}}};
  for (const auto& [sharding, expected] : textbook) {
    const Figures got = measure(sizes, sharding);
    const double wire = expected.sent * (n - 1) / n;
    fmt::print(
        "{{\"scheme\": \"zero{}\", \"ranks\": {}, \"micro_batches\": {}, \"params\": {}, "
        "\"kept_bytes\": {:.3f}, \"kept_ratio\": {:.4f}, \"sent_bytes\": {:.3f}, "
        "\"sent_ratio\": {:.4f}}}\n",
        static_cast<int>(sharding), sizes.at("ranks"), sizes.at("micro"),
        danlu::arch::parameter_count(config_of(sizes)), got.kept, got.kept / expected.kept,
        got.sent, got.sent / wire);
  }
  print_tensor_axis(sizes);
  return 0;
}
