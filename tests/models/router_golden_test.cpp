// Routers and their terms of the loss against Megatron-Core's own functions
// (shared/golden/moe/moe_router_megatron).
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "layers/experts.h"
#include "models/tensor_io.h"
#include "ops/pointwise.h"
#include "support/shared_data.h"
#include "weights/tensor_source.h"

namespace danlu::models {
namespace {

class MegatronRouter : public testing::Test {
 protected:
  void SetUp() override {
    DANLU_REQUIRES_SHARED();
    golden_ = weights::open_safetensors(test::shared_dir() /
                                        "golden/moe/moe_router_megatron/golden.safetensors");
  }
  at::Tensor take(const std::string& name) { return read_tensor(*golden_, name); }

  /// Weights and choice as a matrix over all experts.
  static at::Tensor dense(const ops::Routing& routing, int64_t experts) {
    return at::zeros({routing.experts_NK.size(0), experts})
        .scatter(1, routing.experts_NK, routing.weights_NK);
  }
  void expect_routing(const std::string& name, const ops::RoutingRule& rule,
                      const at::Tensor& bias = {}) {
    const at::Tensor logits = take("logits");
    const at::Tensor got = dense(ops::route(logits, bias, rule), logits.size(1));
    EXPECT_LE((got - take(name + ".probs")).abs().max().item<float>(), 1e-6f) << name;
    EXPECT_TRUE((got != 0).equal(take(name + ".map") != 0)) << name;
  }
  std::shared_ptr<const weights::TensorSource> golden_;
};

constexpr int64_t kPicks = 2;
constexpr double kScale = 2.5;

TEST_F(MegatronRouter, ChoosesAndWeighsAlike) {
  using ops::RouterScore;
  const at::Tensor bias = take("expert_bias");
  expect_routing("softmax_post", {.per_token = kPicks, .norm = true});
  expect_routing("softmax_pre", {.per_token = kPicks});
  expect_routing("softmax_pre_scaled", {.per_token = kPicks, .weight_scale = kScale});
  ops::RoutingRule sigmoid{
      .score = RouterScore::kSigmoid, .per_token = kPicks, .norm = true, .norm_add = 1e-20};
  expect_routing("sigmoid", sigmoid);
  expect_routing("sigmoid_bias", sigmoid, bias);
  sigmoid.groups = 4;
  sigmoid.chosen_groups = 2;
  sigmoid.weight_scale = kScale;
  // Megatron adds up the topk / group_topk best of a group: one here.
  expect_routing("sigmoid_bias_groups", sigmoid, bias);
  expect_routing("softmax_pre_groups",
                 {.per_token = kPicks, .groups = 4, .chosen_groups = 2, .weight_scale = kScale});
}

/// Value and gradient of a term of factor `factor`.
struct Term {
  double value;
  at::Tensor grad_NE;
};
template <typename Make>
Term term_of(const at::Tensor& given, const Make& make) {
  const at::Tensor logits = given.detach().clone().requires_grad_(true);
  const at::Tensor sum = make(logits);
  return {sum.item<double>(), torch::autograd::grad({sum}, {logits})[0]};
}

TEST_F(MegatronRouter, SinkhornBalancesAndChoosesAlike) {
  const at::Tensor logits = take("logits"), norm = take("sinkhorn.norm");
  const at::Tensor got = ops::sinkhorn(logits, {{0, logits.size(0), 0}});
  EXPECT_LE((got - norm).abs().max().item<double>(), 1e-6 * norm.abs().max().item<double>());
  const at::Tensor picks = ops::balanced_picks(got, logits, kPicks);
  // The golden has them in the order of their numbers.
  EXPECT_TRUE(std::get<0>(picks.sort(1)).equal(take("sinkhorn.ids").to(at::kLong)));
  // Every expert gets the same of a single token, whose own scores decide.
  const at::Tensor one = logits.narrow(0, 5, 1);
  EXPECT_TRUE(ops::balanced_picks(ops::sinkhorn(one, {{0, 1, 0}}), one, kPicks)
                  .equal(ops::best_experts(one, kPicks)));
  // Two segments are balanced each by itself.
  const int64_t half = logits.size(0) / 2;
  const at::Tensor both = ops::sinkhorn(logits, {{0, half, 0}, {half, logits.size(0), 1}});
  EXPECT_TRUE(
      both.narrow(0, 0, half).equal(ops::sinkhorn(logits.narrow(0, 0, half), {{0, half, 0}})));
}

TEST_F(MegatronRouter, TermsOfTheLossAreAlike) {
  const at::Tensor logits = take("logits");
  const int64_t tokens = logits.size(0), experts = logits.size(1);
  ops::BalanceTerm term;
  term.parts = {{0, tokens, 0}};
  term.lengths = {tokens};
  const Term z = term_of(logits, [&](const at::Tensor& x) {
    term.factors = {0.001};
    return ops::z_term(x, term);
  });
  EXPECT_NEAR(z.value, take("z_loss.value").item<float>(), 1e-6);
  EXPECT_LE((z.grad_NE - take("z_loss.grad_logits")).abs().max().item<float>(), 1e-6f);

  for (const bool is_sigmoid : {false, true}) {
    term.score = is_sigmoid ? ops::RouterScore::kSigmoid : ops::RouterScore::kSoftmax;
    const std::string end = is_sigmoid ? "_sigmoid" : "_softmax";
    const at::Tensor picks = ops::best_experts(logits, kPicks);
    for (const bool by_sequence : {false, true}) {
      // Row s * sequences + b of the file: rows of a sequence are brought together.
      const int64_t sequences = by_sequence ? 3 : 1, length = tokens / sequences;
      const auto ordered = [&](const at::Tensor& x) {
        return x.reshape({length, sequences, -1}).transpose(0, 1).reshape({tokens, -1});
      };
      auto load = std::make_shared<ops::ExpertLoad>();
      load->parts_SE = at::zeros({sequences, experts}, at::kDouble);
      const at::Tensor mine = ordered(picks);
      term.parts.clear();
      term.lengths.assign(static_cast<size_t>(sequences), length);
      term.factors.assign(
          static_cast<size_t>(sequences),
          0.01 * static_cast<double>(experts) / static_cast<double>(kPicks * sequences));
      for (int64_t s = 0; s < sequences; ++s) {
        term.parts.push_back({s * length, (s + 1) * length, s});
        for (int64_t n = s * length; n < (s + 1) * length; ++n) {
          for (int64_t k = 0; k < kPicks; ++k)
            load->parts_SE[s][mine[n][k].item<int64_t>()] += 1.0 / static_cast<double>(length);
        }
      }
      term.load = load;
      const Term got =
          term_of(logits, [&](const at::Tensor& x) { return ops::balance_term(ordered(x), term); });
      const std::string name = (by_sequence ? "aux_seq" : "aux_switch") + end;
      EXPECT_NEAR(got.value, take(name + ".value").item<float>(), 1e-6) << name;
      EXPECT_LE((got.grad_NE - take(name + ".grad_logits")).abs().max().item<float>(), 1e-6f)
          << name;
    }
  }
}

TEST_F(MegatronRouter, ExpertsWithoutRoomDropTheSamePicks) {
  const at::Tensor logits = take("logits");
  const int64_t tokens = logits.size(0), experts = logits.size(1);
  for (const double factor : {0.5, 1.0, 1.25}) {
    for (const bool by_position : {false, true}) {
      ops::Routing routing = ops::route(logits, {}, {.per_token = kPicks});
      ops::drop_beyond(factor, by_position, experts, {{0, tokens, 0}}, {tokens}, routing.experts_NK,
                       routing.weights_NK);
      at::Tensor kept = at::zeros({tokens, experts});
      for (int64_t n = 0; n < tokens; ++n) {
        for (int64_t k = 0; k < kPicks; ++k) {
          const int64_t expert = routing.experts_NK[n][k].item<int64_t>();
          if (expert >= 0) kept[n][expert] = routing.weights_NK[n][k];
        }
      }
      const std::string factor_text = factor == 0.5 ? "0.5" : factor == 1.0 ? "1.0" : "1.25";
      const std::string name = "drop_cf" + factor_text + (by_position ? "_position" : "_probs");
      // By position Megatron's own top-k leaves equal places open (its README): the numbers of
      // picks are compared.
      if (by_position) {
        EXPECT_TRUE((kept != 0).sum(0).equal(take(name + ".map").sum(0))) << name;
      } else {
        EXPECT_LE((kept - take(name + ".probs")).abs().max().item<float>(), 1e-6f) << name;
      }
    }
  }
}

TEST_F(MegatronRouter, RowsAreSortedAndPutBackAlike) {
  const at::Tensor hidden = take("hidden"), logits = take("logits");
  const ops::Routing routing = ops::route(logits, {}, {.per_token = kPicks});
  const layers::Dispatch to = layers::dispatch(routing.experts_NK, logits.size(1), at::kCPU);
  EXPECT_TRUE(to.token_R.equal(take("permute.source_row")));
  EXPECT_TRUE(ops::take_rows(hidden, to.token_R).equal(take("permute.tokens")));
  const at::Tensor counts = take("permute.tokens_per_expert");
  for (int64_t e = 0; e < counts.size(0); ++e)
    EXPECT_EQ(to.counts[static_cast<size_t>(e)], counts[e].item<int64_t>());
  const at::Tensor weights_R1 = ops::take_rows(routing.weights_NK.reshape({-1, 1}), to.pick_R);
  EXPECT_LE((weights_R1.squeeze(1) - take("permute.probs")).abs().max().item<float>(), 1e-6f);
  const at::Tensor doubled = ops::scale_rows(ops::take_rows(hidden, to.token_R) * 2, weights_R1);
  const at::Tensor back = ops::rows_summed(doubled, to.token_R, hidden.size(0));
  EXPECT_LE((back - take("unpermute_of_doubled.tokens")).abs().max().item<float>(), 1e-5f);
}

}  // namespace
}  // namespace danlu::models
