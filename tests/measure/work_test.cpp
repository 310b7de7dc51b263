// What benchmarks divide by the time, worked out by hand: a wrong count would show as a wrong share
// of the machine.
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cmath>

#include "infer/kv_cache.h"
#include "infer/step.h"
#include "measure/decoding.h"
#include "measure/ops_table.h"
#include "measure/training_step.h"

namespace danlu::measure {
namespace {

constexpr StepShape kSmall = {.vocab = 11,
                              .hidden = 8,
                              .layers = 2,
                              .heads = 2,
                              .kv_heads = 1,
                              .ffn = 12,
                              .batch = 2,
                              .sequence = 3};
// Table 88; a layer: q 64 + 8, k and v 32 + 4 each, o 64, gate, up and down 96 each, norms 16; last
// norm 8.
constexpr double kParameters = 88 + 2 * (72 + 36 + 36 + 64 + 3 * 96 + 16) + 8;

TEST(Work, OfATrainingStepIsSixATokenAndParameter) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const TrainingStep step(kSmall, type);
    EXPECT_EQ(step.parameters(), kParameters);
    EXPECT_EQ(step.tokens(), 6);
    EXPECT_EQ(step.work().flops, 6 * kParameters * 6);
    EXPECT_EQ(step.work().in_bf16, type == at::kBFloat16);
    // Gradient, two moments and weight or the halves of its master, 4 bytes each; all but the first
    // are written.
    EXPECT_EQ(step.update_work().bytes_read, 16 * kParameters);
    EXPECT_EQ(step.update_work().bytes_written, 12 * kParameters);
    EXPECT_EQ(step.norm_work().bytes_read, 4 * kParameters);
  }
}

TEST(Work, OfATokenReadsWeightsOnceAndKeysOfEachSequence) {
  const auto model = random_model(config_of(kSmall), at::kBFloat16);
  Decoding decoding(*model, /*sequences=*/3, /*context=*/5);
  const auto bytes_with = [](double tokens) {
    // Keys and values of 2 layers, one head of 4, three sequences.
    return 2 * kParameters + 2 * (3 * tokens * 2 * 2 * 4);
  };
  EXPECT_EQ(decoding.work().flops, 2 * kParameters * 3);
  EXPECT_EQ(decoding.work().bytes_read, bytes_with(5));
  for (int i = 0; i < 3; ++i) decoding.token_again();
  EXPECT_EQ(decoding.work().bytes_read, bytes_with(5));
  decoding.token();
  EXPECT_EQ(decoding.work().bytes_read, bytes_with(6));
}

arch::ModelConfig of_experts() {
  return arch::parse_model_config({{"model_type", "mixtral"},
                                   {"vocab_size", 11},
                                   {"hidden_size", 8},
                                   {"intermediate_size", 12},
                                   {"num_hidden_layers", 2},
                                   {"num_attention_heads", 2},
                                   {"num_key_value_heads", 1},
                                   {"num_local_experts", 5},
                                   {"num_experts_per_tok", 2},
                                   {"max_position_embeddings", 64}},
                                  "test");
}
/// A layer: q 64, k and v 32 each, o 64, norms 16, router 40; head 88, last norm 8. An expert: 288.
constexpr double kBesideExperts = 2 * (64 + 2 * 32 + 64 + 16 + 40) + 88 + 8, kExpert = 3 * 96;

TEST(Work, OfATokenOfExpertsReadsThoseThatItIsSentTo) {
  const auto model = random_model(of_experts(), at::kFloat);
  Decoding decoding(*model, /*sequences=*/1, /*context=*/5);
  // The prompt's tokens went to more.
  EXPECT_GT(decoding.experts_read(), 4);
  decoding.token();
  EXPECT_EQ(decoding.experts_read(), 2 * 2);
  // Keys and values of 2 layers, one head of 4, of 6 tokens.
  EXPECT_EQ(decoding.work().bytes_read, 4 * (kBesideExperts + 4 * kExpert + 6 * 2 * 2 * 4));
  EXPECT_EQ(decoding.work().flops, 2 * (kBesideExperts + 4 * kExpert));
  Decoding several(*model, /*sequences=*/7, /*context=*/5);
  several.token();
  EXPECT_GT(several.experts_read(), 4);
  EXPECT_EQ(several.work().bytes_read,
            4 * (kBesideExperts + static_cast<double>(several.experts_read()) * kExpert +
                 7 * 6 * 2 * 2 * 4));
}

/// What is not counted is not touched: no number of its weights reaches an answer.
TEST(Work, ExpertsWithoutARowAreNotRead) {
  const auto model = random_model(of_experts(), at::kFloat);
  infer::SequenceCache cache(*model);
  const infer::SequenceId sequence = cache.add();
  infer::next_logits(*model, cache, {{sequence, {3, 1, 4, 1, 5}}});
  const auto one_token = [&] {
    const at::Tensor logits_1V = infer::next_logits(*model, cache, {{sequence, {9}}});
    cache.truncate(sequence, 5);
    return logits_1V;
  };
  const at::Tensor before_1V = one_token();
  int64_t read = 0;
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (int64_t expert = 0; expert < 5; ++expert) {
      std::vector<std::pair<at::Tensor, at::Tensor>> kept;
      for (const parallel::Parameter& parameter : model->parameters()) {
        if (parameter.spec.layer != layer || parameter.spec.expert != expert) continue;
        at::Tensor weight = parameter.tensor.detach();
        kept.emplace_back(weight, weight.clone());
        weight.fill_(std::nan(""));
      }
      ASSERT_EQ(kept.size(), 3u);
      const at::Tensor after_1V = one_token();
      if (!after_1V.equal(before_1V)) ++read;
      for (auto& [weight, value] : kept) weight.copy_(value);
    }
  }
  EXPECT_EQ(read, 2 * 2);
}

TEST(Work, OfAPrefillCountsTheHeadForOneToken) {
  const auto model = random_model(config_of(kSmall), at::kFloat);
  EXPECT_EQ(prefill_work(*model, 7).flops, 2 * (kParameters - 88) * 7 + 2 * 88);
  EXPECT_EQ(prefill_work(*model, 7).bytes_read, 4 * kParameters);
}

TEST(Work, OfAttentionCountsThePairsThatAreSeen) {
  const OpShapes shapes = {.tokens = 8,
                           .sequences = 2,
                           .long_tokens = 6,
                           .head_tokens = 4,
                           .cold_bytes = 1,
                           .hidden = 8,
                           .ffn = 12,
                           .heads = 2,
                           .kv_heads = 1,
                           .vocab = 11};
  int found = 0;
  for (const OpMaker& maker : ops_of_a_step(shapes, at::kFloat)) {
    const bool forward = maker.name == "attention_2x4.forward";
    if (!forward && maker.name != "attention_2x4.backward") continue;
    ++found;
    const Op op = maker.make();
    // 10 pairs a sequence, a multiplication and an addition for each of 8 numbers, two products;
    // five backward.
    EXPECT_EQ(op.work.flops, 2 * 10 * 2 * 8 * (forward ? 2 : 5));
    EXPECT_EQ(op.work.bytes_read, forward ? 4 * (64 + 2 * 32) : 4 * (3 * 64 + 2 * 32));
    EXPECT_EQ(op.work.bytes_written, forward ? 4 * 64 : 4 * (64 + 2 * 32));
  }
  EXPECT_EQ(found, 2);
}

}  // namespace
}  // namespace danlu::measure
