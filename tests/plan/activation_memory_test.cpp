// Activations in the plan: what leaves is not kept, and the least that must be run again is found.
#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "plan/fit.h"
#include "support/throws.h"

namespace danlu::plan {
namespace activation_memory_test {

using settings::OffloadTo, settings::RecomputeFlags;

/// A Llama whose layers take most of what a pass does: its head takes less than a layer backward.
Request small(int64_t layers, int64_t stages = 1) {
  Request request;
  const Json json = {{"architectures", {"LlamaForCausalLM"}},
                     {"model_type", "llama"},
                     {"vocab_size", 100},
                     {"hidden_size", 256},
                     {"num_hidden_layers", layers},
                     {"num_attention_heads", 8},
                     {"intermediate_size", 700},
                     {"max_position_embeddings", 4096},
                     {"rms_norm_eps", 1e-6},
                     {"tie_word_embeddings", false},
                     {"hidden_act", "silu"}};
  request.model = arch::parse_model_config(json, "test");
  request.tokens = 2048;
  request.num_micro_batches = 2 * stages;
  request.pipeline.stages = request.mesh.pipeline = stages;
  return request;
}

int64_t needed(Request request, const RecomputeFlags& flags) {
  request.recompute = flags;
  return fullest_of(request).memory.total();
}

/// The least of all ways to recompute: not always all layers, for the last one's backward comes
/// when all others' are kept, and running it again first keeps nothing less then.
int64_t least_needed(const Request& request) {
  int64_t least = std::min(needed(request, {.granularity = "full"}),
                           needed(request, {.granularity = "selective"}));
  for (int64_t layers = 1; layers <= request.model.num_layers; ++layers) {
    least = std::min(
        least, needed(request, {.granularity = "full", .method = "block", .num_layers = layers}));
  }
  return least;
}

TEST(ActivationMemory, WhatLeavesIsNotKept) {
  const Request request = small(8);
  const Memory none = fullest_of(request).memory;
  const int64_t layer = none.activations - fullest_of(small(7)).memory.activations;
  for (const int64_t layers : {1, 4, 8}) {
    Request away = request;
    away.offload = {.to = OffloadTo::kHost, .num_layers = layers};
    const Memory memory = fullest_of(away).memory;
    EXPECT_EQ(memory.kept(), none.kept());
    // Two of those that leave are back at a time; where the last does not leave, none beside it.
    const int64_t back = layers == 8 ? 2 : 0;
    EXPECT_NEAR(memory.pass(), none.pass() - (layers - back) * layer, 0.01 * layer) << layers;
  }
}

TEST(ActivationMemory, NoPartIsNegativeWhereSamplesAreShort) {
  for (const int64_t tokens : {1, 16, 64, 512, 4096}) {
    for (const int64_t layers : {1, 2, 8}) {
      Request request = small(layers);
      request.tokens = tokens;
      request.num_micro_batches = 1;
      const Memory planned = fullest_of(request).memory, memory = planned.in_parts();
      EXPECT_EQ(memory.total(), planned.total());
      EXPECT_GE(memory.working, 0) << tokens << " tokens, " << layers << " layers";
      EXPECT_GE(memory.activations, 0) << tokens << " tokens, " << layers << " layers";
    }
  }
}

TEST(ActivationMemory, PartsLeaveByThemselves) {
  const Request request = small(8);
  const auto kept = [&](bool input_norm, bool attention, bool post_norm, bool mlp) {
    Request away = request;
    away.offload = {.to = OffloadTo::kFile,
                    .num_layers = 4,
                    .input_norm = input_norm,
                    .self_attention = attention,
                    .post_attention_norm = post_norm,
                    .mlp = mlp};
    return fullest_of(away).memory.activations;
  };
  const int64_t none = kept(false, false, false, false), all = kept(true, true, true, true);
  EXPECT_EQ(none, fullest_of(request).memory.activations);
  EXPECT_EQ(none - all, (none - kept(true, false, false, false)) +
                            (none - kept(false, true, false, false)) +
                            (none - kept(false, false, true, false)) +
                            (none - kept(false, false, false, true)));
  EXPECT_EQ(kept(true, false, false, false), kept(false, false, true, false));
  const int64_t hidden = 4 * request.tokens * (256 * 2 + 4);  // rows and their roots
  EXPECT_EQ(none - kept(true, false, false, false), hidden);
}

/// Every other candidate needs more than there is, or runs more again.
TEST(LeastRecompute, IsTheCheapestOfAllThatFit) {
  std::mt19937 random(4);
  for (int i = 0; i < 40; ++i) {
    Request request = small(4 + 2 * static_cast<int64_t>(random() % 5), 1 + random() % 2);
    if (random() % 2 == 0) request.adapters = settings::new_adapters();
    request.tokens = 256 << (random() % 4);
    const int64_t least = least_needed(request), most = needed(request, {});
    const auto span = static_cast<uint64_t>(most - least);
    const int64_t bytes = least + static_cast<int64_t>(random() % (span + span / 8));
    const RecomputeChoice choice = least_recompute(request, bytes);
    ASSERT_TRUE(choice.fits);
    EXPECT_LE(needed(request, choice.flags), bytes);
    EXPECT_EQ(needed(request, choice.flags), choice.bytes);
    if (most <= bytes) {
      EXPECT_EQ(choice.flags, RecomputeFlags{});
    }
    // Fewer layers of the same kind do not fit.
    if (choice.flags.method == "block" && *choice.flags.num_layers > 1) {
      RecomputeFlags fewer = choice.flags;
      --*fewer.num_layers;
      EXPECT_GT(needed(request, fewer), bytes);
    }
    if (choice.cheaper) {
      EXPECT_GT(needed(request, *choice.cheaper), bytes);
      EXPECT_EQ(needed(request, *choice.cheaper), choice.cheaper_bytes);
    } else {
      EXPECT_EQ(choice.flags, RecomputeFlags{});
    }
  }
}

TEST(LeastRecompute, RunsMoreAgainTheLessThereIs) {
  const Request request = small(12);
  const int64_t least = least_needed(request), most = needed(request, {});
  double before = -1;
  std::vector<std::string> names;
  for (int step = 0; step <= 200; ++step) {
    const RecomputeChoice choice = least_recompute(request, most - (most - least) * step / 200);
    EXPECT_TRUE(choice.fits) << step;
    EXPECT_GE(choice.recomputed_share, before);
    before = choice.recomputed_share;
    const std::string name = settings::recompute_text(choice.flags);
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  EXPECT_GT(before, 0.9);
  ASSERT_GE(names.size(), 4U);
  EXPECT_EQ(names[0], "none");
  EXPECT_EQ(names[1], "norm");
  EXPECT_EQ(names[2], "activation-function");
  EXPECT_EQ(names.back(), "full block 11");
}

TEST(LeastRecompute, TakesWhatNeedsLeastWhereNothingFits) {
  const Request request = small(6);
  const int64_t least = least_needed(request);
  const RecomputeChoice choice = least_recompute(request, least - 1);
  EXPECT_FALSE(choice.fits);
  EXPECT_EQ(choice.bytes, least);
  EXPECT_THAT(explain(choice, least - 1), testing::HasSubstr("needs the least"));
}

TEST(LeastRecompute, SaysWhy) {
  const Request request = small(6);
  const int64_t most = needed(request, {});
  EXPECT_THAT(explain(least_recompute(request, most), most), testing::StartsWith("none: "));
  EXPECT_THAT(explain(least_recompute(request, most - 1), most - 1),
              testing::AllOf(testing::StartsWith("norm, "), testing::HasSubstr("none would need")));
}

// A flag of the command line that stays there says the same to what is named beside it.
TEST(ActivationMemory, TheFewestChangesTakeBackWhatWasAskedFor) {
  struct Row {
    RecomputeFlags from;
    std::string flags;
  };
  for (const Row& row :
       std::vector<Row>{{{.granularity = "full", .method = "block", .num_layers = 3},
                         "--recompute-method uniform --recompute-num-layers 1"},
                        {{.granularity = "full", .method = "uniform", .num_layers = 4},
                         "--recompute-num-layers 1"},
                        {{.granularity = "full", .num_layers = 8}, "--recompute-num-layers 1"},
                        {{.granularity = "selective"}, "--recompute full"}}) {
    Request request = small(8);
    request.recompute = row.from;
    const int64_t bytes = needed(request, {.granularity = "full"});
    ASSERT_GT(fullest_of(request).memory.total(), bytes);
    const std::optional<Fit> fit = nearest_fit(request, bytes);
    ASSERT_TRUE(fit) << row.flags;
    EXPECT_EQ(fit->flags, row.flags);
    EXPECT_EQ(fit->bytes, bytes);
  }
}

TEST(ActivationMemory, AdaptersAreOfferedWhereThereIsSomethingToAdapt) {
  const Request request = small(1);
  Fit least;
  EXPECT_FALSE(nearest_fit(request, 1, /*may_adapt=*/false, &least));
  EXPECT_FALSE(least.request.adapters);
  const std::optional<Fit> fit = nearest_fit(request, least.bytes - 1);
  ASSERT_TRUE(fit);
  EXPECT_TRUE(fit->request.adapters);
}

}  // namespace activation_memory_test
}  // namespace danlu::plan
