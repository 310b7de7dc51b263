// Which exchanges of a step nothing hides, in seconds.
#include <gmock/gmock.h>

#include "plan/estimate.h"

namespace danlu::plan {
namespace exchange_time_test {

constexpr int64_t kLayers = 4, kPasses = 3;

Request request_of(const settings::MeshShape& mesh) {
  Request request;
  request.model = arch::parse_model_config(Json{{"model_type", "llama"},
                                                {"architectures", {"LlamaForCausalLM"}},
                                                {"vocab_size", 1000},
                                                {"hidden_size", 256},
                                                {"intermediate_size", 768},
                                                {"num_hidden_layers", kLayers},
                                                {"num_attention_heads", 8},
                                                {"num_key_value_heads", 2},
                                                {"rms_norm_eps", 1e-6},
                                                {"max_position_embeddings", 512},
                                                {"tie_word_embeddings", true},
                                                {"hidden_act", "silu"}},
                                           "test");
  request.mesh = mesh;
  request.tokens = 4096;
  request.num_micro_batches = kPasses;
  return request;
}

/// Without latencies, and so slow at attention that a ring's keys are there before it is done.
Machine slow_at_attention() {
  Machine machine = load_machine("a100-80g");
  machine.attention = 1e-6;
  machine.node.latency_s = machine.network.latency_s = 0;
  return machine;
}

TEST(ExchangeTime, BesideAttentionGoKeysAndValuesAlone) {
  const Machine machine = slow_at_attention();
  for (const settings::ContextShape shape :
       {settings::ContextShape{.ring = 4}, {.ulysses = 2, .ring = 2}, {.ulysses = 4}}) {
    const Request request = request_of({.context = shape});
    const double tokens = 4096.0 / 4, dim = 32, members = static_cast<double>(shape.ulysses);
    const double keys = tokens * 2 * dim;
    // Heads of q, k, v and the result, each way in 16 bits; gradients of keys and values in f32,
    // once round the ring.
    const double key_heads = tokens * dim * std::max(2.0, members);
    const double heads = 2 * (2 * tokens * 8 * dim + 2 * key_heads) * 2 * (members - 1) / members;
    const double gradients = shape.ring > 1 ? 2 * keys * 4 * static_cast<double>(shape.ring) : 0;
    const double seconds = paths_of(request, machine).context.seconds(heads + gradients);
    EXPECT_NEAR(make_plan(request, machine).parts.context, kPasses * kLayers * seconds,
                1e-9 * seconds)
        << shape.ulysses << " " << shape.ring;
  }
}

TEST(ExchangeTime, WhatRunsAgainExchangesAgain) {
  const Machine machine = slow_at_attention();
  const auto context = [&](const settings::ContextShape& shape, const char* recompute) {
    Request request = request_of({.context = shape});
    request.recompute = {.granularity = recompute};
    return make_plan(request, machine).parts.context;
  };
  // Forward, backward and forward again: as many bytes each where only heads are exchanged.
  const double heads = context({.ulysses = 4}, "none");
  EXPECT_DOUBLE_EQ(context({.ulysses = 4}, "selective"), 1.5 * heads);
  EXPECT_DOUBLE_EQ(context({.ulysses = 4}, "full"), 1.5 * heads);
}

TEST(ExchangeTime, NormsThatAreMadeAgainAreGatheredAgain) {
  const Machine machine = slow_at_attention();
  for (const bool sequence : {false, true}) {
    Request request = request_of({.tensor = 2, .sequence_parallel = sequence});
    const Plan none = make_plan(request, machine);
    request.recompute = {.norm = true, .norm_num_layers = 3};
    const Plan norms = make_plan(request, machine);
    // Half of the hidden states of a pass, before each of two norms.
    const double bytes = sequence ? kPasses * 3 * 2 * 4096.0 * 256 * 2 / 2 : 0;
    EXPECT_NEAR(norms.stages[0].traffic.tensor - none.stages[0].traffic.tensor, bytes, 1e-3);
    const double seconds = paths_of(request, machine).tensor.seconds(bytes);
    EXPECT_NEAR(norms.parts.tensor - none.parts.tensor, seconds, 1e-9);
  }
}

TEST(ExchangeTime, BothEndsSumTheirShareOfATiedTable) {
  const Machine machine = slow_at_attention();
  const auto tied = [&](settings::Sharding sharding) {
    Request request = request_of({.data = 4, .pipeline = 2});
    request.pipeline.stages = 2;
    request.sharding = sharding;
    const double with = make_plan(request, machine).optimizer_s;
    request.model.tie_embeddings = false;
    return with - make_plan(request, machine).optimizer_s;
  };
  const double whole = tied(settings::Sharding::kNone);
  EXPECT_GT(whole, 0);
  EXPECT_NEAR(tied(settings::Sharding::kState), whole / 4, 1e-6 * whole);
}

}  // namespace exchange_time_test
}  // namespace danlu::plan
