#include "infer/likelihood.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"
#include "base/json.h"
#include "infer/prefix_tree.h"
#include "infer/tested_device.h"
#include "models/weight_files.h"

namespace danlu::infer {
namespace likelihood_test {

using Ids = std::vector<text::TokenId>;

constexpr int64_t kVocab = 37;

std::unique_ptr<models::CausalLM> model_of(int64_t window = 256, int64_t vocab = kVocab,
                                           int64_t hidden = 32, const Json& rope_scaling = {}) {
  Json json = {{"model_type", "llama"},    {"vocab_size", vocab},
               {"hidden_size", hidden},    {"intermediate_size", 40},
               {"num_hidden_layers", 2},   {"num_attention_heads", 4},
               {"num_key_value_heads", 2}, {"max_position_embeddings", window},
               {"rms_norm_eps", 1e-5},     {"initializer_range", 0.3}};
  if (!rope_scaling.is_null()) json["rope_scaling"] = rope_scaling;
  auto model = std::make_unique<models::CausalLM>(
      arch::family_of(json).parse(json), parallel::Mesh::single(), at::kFloat, tested_device());
  models::initialize(*model, 7);
  return model;
}

/// Without a cache, a batch or a tree; softmax in double.
Likelihood alone(const models::CausalLM& model, const ScoredText& text) {
  std::vector<int64_t> ids(text.ids.begin(), text.ids.end()), positions;
  for (size_t i = 0; i < ids.size(); ++i) positions.push_back(static_cast<int64_t>(i));
  const int64_t n = std::ssize(ids);
  models::ForwardInput input;
  input.ids_N = at::tensor(ids, at::kLong);
  input.positions_N = at::tensor(positions, at::kLong);
  input.segments = {{0, n}, {0, n}};
  const at::NoGradGuard no_grad;
  const at::Tensor logits = model.logits(model.forward_hidden(input)).to(at::kDouble);
  const at::Tensor log_p = at::log_softmax(logits, -1);
  Likelihood result;
  for (int64_t i = 1; i < n; ++i) {
    const double p = log_p[i - 1][ids[static_cast<size_t>(i)]].item<double>();
    if (text.wants_whole) result.whole_sum += p;
    if (i < text.num_context) continue;
    result.sum += p;
    result.is_greedy &= logits[i - 1].argmax().item<int64_t>() == ids[static_cast<size_t>(i)];
  }
  return result;
}

std::vector<Likelihood> scored(const models::CausalLM& model, const std::vector<ScoredText>& texts,
                               const LikelihoodSettings& settings,
                               LikelihoodStats* stats = nullptr) {
  std::vector<Likelihood> all(texts.size());
  std::vector<int> told(texts.size());
  EXPECT_TRUE(score_texts(
      model, texts, settings,
      [&](size_t index, const Likelihood& likelihood) {
        all[index] = likelihood;
        ++told[index];
      },
      stats));
  EXPECT_THAT(told, testing::Each(1));
  return all;
}

class RandomTexts {
 public:
  explicit RandomTexts(uint32_t seed) : random_(seed) {}

  int64_t number(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  Ids ids(int64_t length) {
    Ids all;
    for (int64_t i = 0; i < length; ++i)
      all.push_back(static_cast<text::TokenId>(number(0, kVocab - 1)));
    return all;
  }
  /// Questions of a benchmark: shots that many share, choices behind one context, and strangers.
  std::vector<ScoredText> some(bool whole) {
    std::vector<ScoredText> texts;
    for (int64_t subject = number(1, 3); subject-- > 0;) {
      const Ids shots = ids(number(1, 60));
      for (int64_t question = number(1, 5); question-- > 0;) {
        Ids context = shots;
        const Ids asked = ids(number(0, 30));
        context.insert(context.end(), asked.begin(), asked.end());
        for (int64_t choice = number(1, 4); choice-- > 0;) {
          ScoredText text{context, std::ssize(context), whole && number(0, 2) > 0};
          const Ids continuation = ids(number(1, 3) == 1 ? number(1, 40) : 1);
          text.ids.insert(text.ids.end(), continuation.begin(), continuation.end());
          texts.push_back(text);
        }
      }
    }
    texts.push_back({ids(2), 1, whole});
    texts.push_back(texts.front());
    std::shuffle(texts.begin(), texts.end(), random_);
    return texts;
  }

 private:
  std::mt19937 random_;
};

TEST(PrefixTree, EverySequenceIsThePathToWhereItEnds) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    RandomTexts random(seed);
    const std::vector<ScoredText> texts = random.some(false);
    std::vector<std::span<const text::TokenId>> inputs;
    for (const ScoredText& text : texts) inputs.push_back(text.ids);
    for (const bool share : {false, true}) {
      const PrefixTree tree = make_prefix_tree(inputs, share, random.number(1, 20));
      size_t num_ending = 0;
      for (const PrefixTree::Node& node : tree.nodes) {
        for (const size_t index : node.ending) {
          ++num_ending;
          ASSERT_EQ(node.end, std::ssize(inputs[index]));
          for (const PrefixTree::Node* at = &node; at != nullptr;
               at = at->parent < 0 ? nullptr : &tree.nodes[static_cast<size_t>(at->parent)]) {
            const auto part = [&](const auto& ids) {
              return Ids(ids.begin() + at->begin, ids.begin() + at->end);
            };
            ASSERT_EQ(part(inputs[index]), part(inputs[at->example]));
            ASSERT_EQ(at->begin,
                      at->parent < 0 ? 0 : tree.nodes[static_cast<size_t>(at->parent)].end);
            ASSERT_LT(at->begin, at->end);
          }
        }
      }
      EXPECT_EQ(num_ending, texts.size());
    }
  }
}

TEST(ScoreTexts, BatchesAndSharedPrefixesGiveWhatEachTextHasAlone) {
  const auto model = model_of();
  for (uint32_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    RandomTexts random(seed);
    const std::vector<ScoredText> texts = random.some(seed % 2 == 1);
    const LikelihoodSettings settings{.batch_size = random.number(0, 5),
                                      .pass_tokens = random.number(1, 300),
                                      .pass_cache_bytes = random.number(1, 1 << 16),
                                      .share_prefixes = seed % 3 != 0};
    const std::vector<Likelihood> all = scored(*model, texts, settings);
    for (size_t i = 0; i < texts.size(); ++i) {
      const Likelihood expected = alone(*model, texts[i]);
      EXPECT_NEAR(all[i].sum, expected.sum, 1e-5 * std::abs(expected.sum)) << i;
      EXPECT_NEAR(all[i].whole_sum, expected.whole_sum, 1e-5 * std::abs(expected.whole_sum)) << i;
      EXPECT_EQ(all[i].is_greedy, expected.is_greedy) << i;
    }
  }
}

/// A beginning that is short for itself lies in a text that is long.
TEST(ScoreTexts, AnglesThatFollowALengthAreThoseOfTheWholeText) {
  const auto model = model_of(256, kVocab, 32,
                              {{"type", "longrope"},
                               {"original_max_position_embeddings", 30},
                               {"short_factor", std::vector<double>(4, 1.0)},
                               {"long_factor", std::vector<double>(4, 8.0)}});
  RandomTexts random(3);
  const Ids shots = random.ids(20);
  std::vector<ScoredText> texts;
  for (const int64_t more : {5, 20, 27}) {
    Ids ids = shots;
    const Ids own = random.ids(more);
    ids.insert(ids.end(), own.begin(), own.end());
    texts.push_back({ids, 20});
  }
  const std::vector<Likelihood> all = scored(*model, texts, {});
  for (size_t i = 0; i < texts.size(); ++i) {
    const Likelihood expected = alone(*model, texts[i]);
    EXPECT_NEAR(all[i].sum, expected.sum, 1e-5 * std::abs(expected.sum)) << i;
  }
}

TEST(ScoreTexts, WhatIsGreedyIsWhatTheModelWouldSay) {
  const auto model = model_of();
  Request request;
  request.prompt = {3, 1, 4};
  request.max_new_tokens = 5;
  const Answer answer = generate(*model, {request}, 1)[0];
  ScoredText said{request.prompt, 3};
  said.ids.insert(said.ids.end(), answer.ids.begin(), answer.ids.end());
  ScoredText other = said;
  other.ids[5] = (other.ids[5] + 1) % kVocab;
  const std::vector<Likelihood> all = scored(*model, {said, other}, {});
  EXPECT_TRUE(all[0].is_greedy);
  EXPECT_FALSE(all[1].is_greedy);
}

TEST(ScoreTexts, SharedIdsGoThroughTheModelOnce) {
  const auto model = model_of();
  RandomTexts random(5);
  const Ids shots = random.ids(100);
  std::vector<ScoredText> texts;
  for (int question = 0; question < 6; ++question) {
    Ids context = shots;
    const Ids asked = random.ids(20);
    context.insert(context.end(), asked.begin(), asked.end());
    for (text::TokenId choice = 0; choice < 4; ++choice) {
      texts.push_back({context, std::ssize(context)});
      texts.back().ids.push_back(choice);
    }
  }
  LikelihoodStats stats;
  scored(*model, texts, {}, &stats);
  EXPECT_EQ(stats.given_tokens, 24 * 120);
  EXPECT_EQ(stats.computed_tokens, 100 + 6 * 20);
}

TEST(ScoreTexts, AloneTheBitsDoNotDependOnWhatElseIsAsked) {
  const auto model = model_of();
  RandomTexts random(9);
  const std::vector<ScoredText> texts = random.some(true);
  const LikelihoodSettings settings{.batch_size = 1, .share_prefixes = false};
  const std::vector<Likelihood> all = scored(*model, texts, settings);
  for (size_t i = 0; i < texts.size(); ++i) {
    const Likelihood one = scored(*model, {texts[i]}, settings)[0];
    EXPECT_EQ(all[i].sum, one.sum) << i;
    EXPECT_EQ(all[i].whole_sum, one.whole_sum) << i;
  }
}

/// Products of several rows may round otherwise than those of one.
TEST(ScoreTexts, AloneTheBitsDoNotDependOnWhichRowsOthersWant) {
  const auto model = model_of(256, 3000, 512);
  RandomTexts random(4);
  const ScoredText last{random.ids(60), 59}, many{last.ids, 3};
  const LikelihoodSettings settings{.batch_size = 1, .share_prefixes = false};
  const std::vector<Likelihood> both = scored(*model, {last, many}, settings);
  EXPECT_EQ(both[0].sum, scored(*model, {last}, settings)[0].sum);
  EXPECT_EQ(both[1].sum, scored(*model, {many}, settings)[0].sum);
}

TEST(ScoreTexts, RefusesWhatDoesNotFitAndWhatIsNoNumber) {
  const auto model = model_of(8);
  const auto score = [&](const ScoredText& text) {
    score_texts(*model, {text}, {}, [](size_t, const Likelihood&) {});
  };
  EXPECT_NO_THROW(score({Ids(9, 1), 1}));
  EXPECT_THROW(score({Ids(10, 1), 1}), DataError);
  EXPECT_THROW(score({{1, kVocab}, 1}), DataError);
  const at::NoGradGuard no_grad;
  for (const auto& parameter : model->parameters())
    parameter.tensor.fill_(std::numeric_limits<double>::quiet_NaN());
  EXPECT_THROW(score({{1, 2}, 1}), NumericError);
}

TEST(ScoreTexts, EndsWhenAsked) {
  const auto model = model_of();
  RandomTexts random(2);
  int calls = 0, told = 0;
  const bool is_whole = score_texts(
      *model, random.some(false), {.batch_size = 1}, [&](size_t, const Likelihood&) { ++told; },
      nullptr, [&] { return ++calls > 2; });
  EXPECT_FALSE(is_whole);
  EXPECT_GT(told, 0);
}

}  // namespace likelihood_test
}  // namespace danlu::infer
