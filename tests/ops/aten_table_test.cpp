// The table of devices that ATen computes on (src/ops/aten), on the pretend device, whose memory
// the host cannot reach: every entry, over random shapes, against the composite in f64 on the host.
// (DANLU_TEST_TABLE=aten runs this program's other tests with it too.) DANLU_TEST_DEVICE=cuda: the
// table of an NVIDIA GPU, kernels and all, on the card itself.
#include "support/aten_table.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "finite_differences.h"
#include "ops/alibi.h"
#include "ops/cross_entropy.h"
#include "ops/dropout.h"
#include "ops/grouped_linear.h"
#include "ops/linear.h"
#include "ops/optimizer.h"
#include "ops/pointwise.h"
#include "ops/rms_norm.h"
#include "ops/swiglu.h"
#include "random_blocks.h"

namespace danlu::ops {
namespace aten_table_test {

using test::AtenTable;
using test::random_f64;

const at::Device kCard = test::are_on_gpu() ? at::Device(at::kCUDA, 0) : test::pretend_device();

/// The card's table.
const Backend& entries() { return completed_backend(kCard.type()); }

/// The same numbers, rounded to a type, on the card and in f64 on the host.
struct Twin {
  at::Tensor card, exact;
  Twin(at::IntArrayRef sizes, at::ScalarType type, uint64_t seed) {
    const at::Tensor host = random_f64(sizes, seed).to(type);
    card = host.to(kCard);
    exact = host.to(at::kDouble);
  }
};

double distance(const at::Tensor& card, const at::Tensor& exact) {
  if (exact.numel() == 0) return 0;
  // What is nothing in truth is measured against the inputs, which are about 1.
  const double largest = exact.abs().max().item<double>(), found = largest < 1e-9 ? 1 : largest;
  const double off = (card.cpu().to(at::kDouble) - exact).abs().max().item<double>();
  return std::isfinite(off) ? off / found : std::numeric_limits<double>::infinity();
}

/// Sums are f32 whatever is summed; a result is off by a rounding to its type.
double limit_of(at::ScalarType result) { return result == at::kFloat ? 4e-6 : 8e-3; }

void expect_near(const at::Tensor& card, const at::Tensor& exact, const std::string& what) {
  EXPECT_EQ(card.sizes(), exact.sizes()) << what;
  EXPECT_LE(distance(card, exact), limit_of(card.scalar_type())) << what;
}

const std::vector<at::ScalarType> kTypes = {at::kFloat, at::kBFloat16};
std::vector<at::ScalarType> types_of_products() {
  return test::aten_multiplies_bf16() ? kTypes : std::vector{at::kFloat};
}

struct Sizes {
  int64_t n, i, o;
};
const std::vector<Sizes> kSizes = {{1, 1, 1}, {7, 129, 5}, {33, 64, 130}, {300, 17, 48}};

TEST(AtenTable, ProductsAreRoundedOnceAndSummedInF32) {
  const AtenTable table;
  const Backend& own = entries();
  for (const auto& [n, i, o] : kSizes) {
    for (const at::ScalarType type : types_of_products()) {
      const Twin x({n, i}, type, 1), weight({o, i}, type, 2), bias({o}, type, 3),
          d_y({n, o}, type, 4);
      const at::Tensor y = x.exact.matmul(weight.exact.t());
      for (const at::ScalarType result : {type, at::kFloat}) {
        const std::string what =
            std::string(c10::toString(type)) + " into " + c10::toString(result);
        expect_near(own.product(x.card, weight.card, {}, result), y, what);
        expect_near(own.product(x.card, weight.card, bias.card, result), y + bias.exact, what);
        expect_near(own.input_grad(d_y.card, weight.card, result), d_y.exact.matmul(weight.exact),
                    what);
        expect_near(own.weight_grad(d_y.card, x.card, result), d_y.exact.t().matmul(x.exact), what);
      }
      const Twin sum({n, o}, at::kFloat, 5);
      own.add_product(x.card, weight.card, sum.card);
      expect_near(sum.card, sum.exact + y, "added");
    }
  }
}

TEST(AtenTable, AddsAWeightsGradientToASumOfF32) {
  const AtenTable table;
  for (const auto& [n, i, o] : kSizes) {
    for (const at::ScalarType type : kTypes) {
      const Twin x({n, i}, type, 1), d_y({n, o}, type, 2);
      const at::Tensor grad = d_y.exact.t().matmul(x.exact);
      // Rows that lie apart; what is between them stays.
      const at::Tensor whole = at::full({o, i + 3}, 7, at::device(kCard).dtype(at::kFloat));
      const at::Tensor sum = whole.narrow(1, 1, i);
      sum.fill_(std::numeric_limits<double>::quiet_NaN());
      entries().add_weight_grad(d_y.card, x.card, sum, /*is_fresh=*/true);
      expect_near(sum, grad, "fresh");
      entries().add_weight_grad(d_y.card, x.card, sum, false);
      expect_near(sum, grad * 2, "added");
      EXPECT_TRUE(whole.narrow(1, 0, 1).eq(7).all().item<bool>());
      entries().add_weight_grad(d_y.card.narrow(0, 0, 0), x.card.narrow(0, 0, 0), sum, true);
      EXPECT_TRUE(sum.eq(0).all().item<bool>()) << "nothing makes a fresh sum 0";
    }
  }
}

TEST(AtenTable, MultipliesWeightsInBlocks) {
  const AtenTable table;
  const Backend& own = entries();
  for (const BlockType type : test::kBlockTypes) {
    const test::Matrix first = test::random_matrix(type, 37, 512),
                       second = test::random_matrix(type, 16, 512);
    const auto card = first.weight.to(kCard), other = second.weight.to(kCard);
    EXPECT_TRUE(at::equal(card->dense().cpu(), first.weight.dense()));
    for (const at::ScalarType dtype : types_of_products()) {
      const Twin x({5, 512}, dtype, 1), bias({37}, dtype, 2);
      const std::vector<BlockFactor> factors{{*card, bias.card}, {*other}};
      const auto products = own.block_products(x.card, factors);
      // The weight is rounded to x's type too.
      const at::Tensor exact_OI = first.dense_OI.to(dtype).to(at::kDouble),
                       other_OI = second.dense_OI.to(dtype).to(at::kDouble);
      expect_near(products.at(0), x.exact.matmul(exact_OI.t()) + bias.exact, "with a bias");
      expect_near(products.at(1), x.exact.matmul(other_OI.t()), "without");
      const at::Tensor ids = at::tensor({3, 36, 3, 0, 16}, at::kLong);
      EXPECT_TRUE(at::equal(own.block_rows(*card, ids.to(kCard), dtype).cpu(),
                            first.dense_OI.index_select(0, ids).to(dtype)));
    }
  }
}

TEST(AtenTable, FindsTheLikeliestTokens) {
  const AtenTable table;
  for (const at::ScalarType type : kTypes) {
    const Twin logits({9, 130}, type, 1);
    const at::Tensor found = entries().likeliest(logits.card).cpu();
    EXPECT_EQ(found.scalar_type(), at::kLong);
    EXPECT_TRUE(at::equal(logits.exact.gather(1, found.unsqueeze(1)), logits.exact.amax(1, true)));
  }
}

TEST(AtenTable, GroupsGoThroughTheirWeights) {
  const AtenTable table;
  const std::vector<int64_t> counts{3, 0, 9, 1};
  for (const at::ScalarType type : kTypes) {
    const Twin x({13, 20}, type, 1), d_y({13, 6}, type, 2);
    std::vector<at::Tensor> weights, y, d_x;
    int64_t first = 0;
    for (size_t g = 0; g < counts.size(); ++g) {
      const Twin weight({6, 20}, type, 10 + g);
      weights.push_back(weight.card);
      y.push_back(x.exact.narrow(0, first, counts[g]).matmul(weight.exact.t()));
      d_x.push_back(d_y.exact.narrow(0, first, counts[g]).matmul(weight.exact));
      first += counts[g];
    }
    expect_near(entries().grouped_product(x.card, weights, counts), at::cat(y), "products");
    expect_near(entries().grouped_input_grad(d_y.card, weights, counts), at::cat(d_x), "gradients");
  }
}

TEST(AtenTable, NormsHaveTheCompositesGradients) {
  const AtenTable table;
  for (const int64_t dim : {1, 7, 129, 512}) {
    for (const at::ScalarType type : kTypes) {
      const Twin x({5, 3, dim}, type, 1), weight({dim}, type, 2), dy({5, 3, dim}, type, 3);
      at::Tensor exact_x = x.exact.clone().requires_grad_(true),
                 exact_weight = weight.exact.clone().requires_grad_(true);
      const at::Tensor y = oracle::rms_norm(exact_x, exact_weight, 1e-3);
      y.backward(dy.exact);
      const NormResult result = entries().rms_norm(x.card, weight.card, 1e-3);
      const NormGrads grads =
          entries().rms_norm_backward(x.card, weight.card, result.rstd, dy.card, true, true);
      const std::string what = std::to_string(dim) + " " + c10::toString(type);
      expect_near(result.y, y.detach(), what);
      EXPECT_EQ(result.rstd.sizes(), at::IntArrayRef({15}));
      // Where x has one number its gradient is what eps leaves of it, and roundings are of dy.
      EXPECT_LE(
          (grads.x.cpu().to(at::kDouble) - exact_x.grad()).abs().max().item<double>(),
          limit_of(type) * dy.exact.abs().max().item<double>() * result.rstd.max().item<double>())
          << what;
      // The weight meets what was rounded.
      const at::Tensor rstd = (x.exact.square().mean(-1, true) + 1e-3).rsqrt();
      expect_near(grads.weight_D,
                  (dy.exact * (x.exact * rstd).to(at::kFloat).to(type)).sum(at::IntArrayRef{0, 1}),
                  what);
      EXPECT_FALSE(entries()
                       .rms_norm_backward(x.card, weight.card, result.rstd, dy.card, false, true)
                       .x.defined());
    }
  }
}

TEST(AtenTable, RotatesAndTurnsBack) {
  const AtenTable table;
  for (const at::ScalarType type : kTypes) {
    const Twin wide({9, 4, 24}, type, 1);
    const at::Tensor card = wide.card.narrow(2, 4, 16), exact = wide.exact.narrow(2, 4, 16);
    const Twin cos({9, 8}, at::kFloat, 2), sin({9, 8}, at::kFloat, 3);
    const at::Tensor turned = entries().rotary(card, {cos.card, sin.card}, false);
    expect_near(turned, oracle::rotary(exact, {cos.exact, sin.exact}), "turned");
    EXPECT_TRUE(turned.is_contiguous());
    expect_near(entries().rotary(card, {cos.card, sin.card}, true),
                oracle::rotary(exact, {cos.exact, -sin.exact}), "back");
  }
}

TEST(AtenTable, GatesHaveTheCompositesGradients) {
  const AtenTable table;
  for (const at::ScalarType type : kTypes) {
    const Twin gate({7, 33}, type, 1), up({7, 33}, type, 2), dy({33, 7}, type, 3);
    at::Tensor exact_gate = gate.exact.clone().requires_grad_(true),
               exact_up = up.exact.clone().requires_grad_(true);
    const at::Tensor y = oracle::swiglu(exact_gate, exact_up);
    y.backward(dy.exact.t());
    const SwigluGrads grads = entries().swiglu_backward(gate.card, up.card, dy.card.t());
    expect_near(entries().swiglu(gate.card, up.card), y.detach(), "gated");
    expect_near(grads.gate, exact_gate.grad(), "gate");
    expect_near(grads.up, exact_up.grad(), "up");
    EXPECT_TRUE(grads.gate.is_contiguous() && grads.up.is_contiguous());
  }
}

struct AttentionCase {
  Spans spans;
  int64_t queries, keys, heads, kv_heads;
  int64_t window = 0;
  bool alibi = false;
};

/// Sequences of chance: one after the other, some with keys before them, and one beyond its keys,
/// as where ranks share a sequence.
AttentionCase case_of(unsigned seed) {
  std::mt19937 chance(seed);
  const auto below = [&](int64_t bound) { return static_cast<int64_t>(chance() % bound); };
  AttentionCase c{{}, 0, 0, 0, 1 + below(3)};
  c.heads = c.kv_heads * (1 + below(3));
  c.window = below(2) * (1 + below(9));
  c.alibi = below(3) == 0;
  const bool has_masks = c.window > 0 || c.alibi;
  for (int64_t s = 0; s < 4; ++s) {
    const int64_t q_len = 1 + below(14), more = below(2) * below(20);
    Span span{c.queries, q_len, c.keys, q_len + more, more, has_masks || below(3) > 0};
    if (s == 3) span.lead = -below(q_len);
    c.spans.push_back(span);
    c.queries += q_len + (s == 2 ? 2 : 0);  // queries of no span
    c.keys += q_len + more;
  }
  return c;
}

TEST(AtenTable, AttentionOverSpansIsTheCompositesInF64) {
  const AtenTable table;
  for (unsigned seed = 0; seed < 24; ++seed) {
    const AttentionCase c = case_of(seed);
    AttentionOptions options{.scale = 0.3, .window = c.window, .alibi_slopes_Q = {}};
    AttentionOptions exact_options = options;
    if (c.alibi) {
      exact_options.alibi_slopes_Q =
          at::tensor(alibi_slopes(c.heads), at::TensorOptions(at::kFloat));
      options.alibi_slopes_Q = exact_options.alibi_slopes_Q.to(kCard);
    }
    for (const at::ScalarType type : kTypes) {
      const std::string what = "seed " + std::to_string(seed) + " " + c10::toString(type);
      const Twin q({c.queries, c.heads, 12}, type, 1), k({c.keys, c.kv_heads, 12}, type, 2),
          v({c.keys, c.kv_heads, 10}, type, 3), d_out({c.queries, c.heads, 10}, type, 4);
      const PartialAttention exact =
          oracle::attention_part(q.exact, k.exact, v.exact, c.spans, exact_options);
      const at::Tensor delta = (d_out.exact * exact.out_NQD).sum(-1).t().contiguous();
      const AttentionGrads exact_grads = oracle::attention_part_backward(
          q.exact, k.exact, v.exact, c.spans, exact_options, d_out.exact,
          exact.lse_QN.masked_fill(exact.lse_QN.isinf(), 0), delta);
      const PartialAttention part =
          entries().attention(q.card, k.card, v.card, c.spans, options, at::kFloat);
      // FlashAttention has weights and results in the type of its inputs.
      const bool is_narrow = test::are_on_gpu() && type != at::kFloat;
      EXPECT_LE(distance(part.out_NQD, exact.out_NQD), is_narrow ? 1.6e-2 : 4e-6) << what;
      const at::Tensor seen = exact.lse_QN.isfinite();
      EXPECT_TRUE(at::equal(part.lse_QN.cpu().isfinite(), seen)) << what;
      EXPECT_LE(
          distance(part.lse_QN.cpu().masked_fill(~seen, 0), exact.lse_QN.masked_fill(~seen, 0)),
          is_narrow ? 1e-3 : 4e-6)
          << what;
      const AttentionGrads grads =
          entries().attention_backward(q.card, k.card, v.card, c.spans, options, d_out.card,
                                       part.lse_QN, delta.to(at::kFloat).to(kCard));
      const double grad_limit = is_narrow ? 2e-2 : 1e-5;
      EXPECT_LE(distance(grads.q_NQD, exact_grads.q_NQD), grad_limit) << what;
      EXPECT_LE(distance(grads.k_MKD, exact_grads.k_MKD), grad_limit) << what;
      EXPECT_LE(distance(grads.v_MKD, exact_grads.v_MKD), grad_limit) << what;
    }
  }
}

TEST(AtenTable, SumsOfSquaresWaitOnceAndFiniteOnce) {
  const AtenTable table;
  const Twin values({100000}, at::kFloat, 1);
  const std::vector<Chunk> chunks = chunks_of({{3, 20}, {20, 90001}, {99999, 100000}});
  const int64_t before = test::pretend_waits();
  const std::vector<double> sums = sums_of_squares(values.card, chunks);
  EXPECT_EQ(test::pretend_waits(), test::are_on_gpu() ? before : before + 1);
  ASSERT_EQ(sums.size(), chunks.size());
  for (size_t i = 0; i < chunks.size(); ++i) {
    const double expected = values.exact.narrow(0, chunks[i].at.begin, chunks[i].at.size())
                                .square()
                                .sum()
                                .item<double>();
    EXPECT_NEAR(sums[i], expected, 1e-11 * expected);
  }
  EXPECT_TRUE(sums_of_squares(values.card, {}).empty());
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor x = at::full({33, 7}, -3, at::device(kCard).dtype(type));
    EXPECT_TRUE(all_finite(x));
    for (const double bad : {-std::numeric_limits<double>::infinity(), std::nan("")}) {
      const at::Tensor broken = x.clone();
      broken.narrow(0, 32, 1).narrow(1, 6, 1).fill_(bad);
      EXPECT_FALSE(all_finite(broken)) << c10::toString(type);
      EXPECT_TRUE(all_finite(broken.narrow(0, 0, 32))) << c10::toString(type);
    }
  }
  EXPECT_TRUE(all_finite(values.card.narrow(0, 0, 0)));
}

TEST(AtenTable, RowsOfOneIndexAreAddedUp) {
  const AtenTable table;
  const at::Tensor index = at::tensor({2, 0, 2, 2, 4}, at::kLong);
  for (const at::ScalarType type : kTypes) {
    const Twin sum({5, 8}, at::kFloat, 1), rows({5, 8}, type, 2);
    add_rows(sum.card, index.to(kCard), rows.card);
    expect_near(sum.card, sum.exact.index_add(0, index, rows.exact), "rows");
  }
}

/// Two pages a slab, in no order, and what nobody has written is NaN, as all fresh memory here.
TEST(AtenTable, AttendsOverPagesWithoutAWait) {
  const AtenTable table;
  for (const auto& [window, alibi] : {std::pair<int64_t, bool>(0, false), {9, false}, {0, true}}) {
    for (const int64_t value_dim : {0, 6}) {
      constexpr int64_t kHeads = 2, kDim = 6;
      const std::vector<int64_t> lengths{40, 3, 70}, num_new{1, 2, 3};
      Pages pages{{2, kHeads, kDim, value_dim}, 2, {}};
      for (int slab = 0; slab < 4; ++slab)
        pages.slabs.push_back(at::full({2, pages.shape.elements()},
                                       std::numeric_limits<double>::quiet_NaN(),
                                       at::device(kCard)));
      const std::vector<std::vector<int32_t>> tables{{6, 1}, {3}, {0, 5, 2}};
      const auto all = cached_sequences(tables, lengths, lengths, kCard);
      const auto newest = cached_sequences(tables, num_new, lengths, kCard);
      const Twin k({113, kHeads, kDim}, at::kFloat, 1), v({113, kHeads, value_dim}, at::kFloat, 2),
          q({6, 4, kDim}, at::kFloat, 3);
      store_in_pages(k.card, v.card, pages, all, 1);
      AttentionOptions options{.scale = 0.4, .window = window, .alibi_slopes_Q = {}};
      AttentionOptions exact_options = options;
      if (alibi) {
        exact_options.alibi_slopes_Q = at::tensor(alibi_slopes(4), at::TensorOptions(at::kFloat));
        options.alibi_slopes_Q = exact_options.alibi_slopes_Q.to(kCard);
      }
      const int64_t before = test::pretend_waits();
      const at::Tensor seen = entries().attention_over_pages(q.card, pages, newest, 1, options);
      EXPECT_EQ(test::pretend_waits(), before);
      const at::Tensor exact =
          oracle::attention(q.exact, k.exact, value_dim == 0 ? k.exact : v.exact,
                            {{0, 1, 3, 6}, {0, 40, 43, 113}}, exact_options);
      expect_near(seen, exact, "pages");
      for (int64_t s = 0; s < 3; ++s) {
        const int64_t first = s == 0 ? 0 : s == 1 ? 40 : 43;
        EXPECT_TRUE(at::equal(gathered(pages, all, s, 1, 0).cpu(),
                              k.card.cpu().narrow(0, first, lengths[static_cast<size_t>(s)])));
      }
    }
  }
}

TEST(AtenTable, NoEntryWaitsForTheDevice) {
  const at::ScalarType type = types_of_products().back();
  const AtenTable table;
  const Twin x({33, 64}, type, 1), weight({48, 64}, type, 2), d_y({33, 48}, type, 3),
      unit({64}, type, 4), heads({33, 4, 16}, type, 5);
  const at::Tensor sum = at::zeros({48, 64}, at::device(kCard)),
                   index = at::arange(33, at::kLong).remainder(48).to(kCard);
  const Spans spans{{0, 20, 0, 20, 0, true}, {20, 13, 20, 13, 0, true}};
  const int64_t before = test::pretend_waits();
  entries().product(x.card, weight.card, {}, at::kFloat);
  entries().input_grad(d_y.card, weight.card, type);
  entries().add_weight_grad(d_y.card, x.card, sum, true);
  const NormResult norm = entries().rms_norm(x.card, unit.card, 1e-5);
  entries().rms_norm_backward(x.card, unit.card, norm.rstd, norm.y, true, true);
  entries().swiglu_backward(x.card, x.card, x.card);
  const PartialAttention part = entries().attention(heads.card, heads.card, heads.card, spans,
                                                    {.scale = 1, .alibi_slopes_Q = {}}, type);
  entries().attention_backward(heads.card, heads.card, heads.card, spans,
                               {.scale = 1, .alibi_slopes_Q = {}}, part.out_NQD, part.lse_QN,
                               part.lse_QN);
  entries().add_rows(sum, index, x.card.to(at::kFloat));
  EXPECT_EQ(test::pretend_waits(), before);
}

// What the composite does on the pretend device, and a GPU by kernels of its own: by the public
// functions, against the same functions on the host in f64.

TEST(AtenTable, DropsWhatTheHostDrops) {
  const AtenTable table;
  for (const at::ScalarType type : kTypes) {
    const Twin x({37, 130}, type, 1);
    const at::Tensor keys = at::arange(37, at::kLong) * 977 - 12345;
    const at::Tensor card = dropout(x.card, 0.3, keys.to(kCard), 5, 2).cpu(),
                     exact = oracle::dropout(x.exact, 0.3, keys, 5, 2);
    EXPECT_TRUE(at::equal(card.eq(0), exact.eq(0))) << c10::toString(type);
    expect_near(card, exact, c10::toString(type));
  }
}

TEST(AtenTable, HeadsHaveTheLossAndGradientsOfTheHost) {
  const AtenTable table;
  for (const at::ScalarType type : types_of_products()) {
    const Twin hidden({70, 32}, type, 1), weight({130, 32}, type, 2);
    at::Tensor targets = at::arange(70, at::kLong).remainder(130);
    targets.narrow(0, 3, 9).fill_(kIgnoreLabel);
    const HeadOptions options{.z_loss_weight = 0.01, .grad_scale = 0.25, .chunk_tokens = 32};
    const auto of = [&](const at::Tensor& h, const at::Tensor& w) {
      std::vector<at::Tensor> leaves = {h.detach().clone(), w.detach().clone()};
      for (at::Tensor& leaf : leaves) leaf.requires_grad_(true);
      const CrossEntropy loss = head_cross_entropy(leaves[0], leaves[1], targets, options);
      loss.sum.backward(loss.factor);
      return std::vector<at::Tensor>{loss.sum.detach(), leaves[0].grad(), leaves[1].grad(),
                                     loss.num_correct};
    };
    const std::vector<at::Tensor> card = of(hidden.card, weight.card),
                                  exact = of(hidden.exact, weight.exact);
    const std::string what = c10::toString(type);
    EXPECT_LE(distance(card[0], exact[0]), type == at::kFloat ? 1e-6 : 5e-3) << what;
    for (const size_t i : {size_t{1}, size_t{2}})
      EXPECT_LE(distance(card[i], exact[i]), type == at::kFloat ? 1e-5 : 2e-2) << what;
    if (type == at::kFloat) {
      EXPECT_EQ(card[3].item<int64_t>(), exact[3].item<int64_t>());
    }
  }
}

TEST(AtenTable, UpdatesWeightsAsTheHost) {
  const AtenTable table;
  constexpr int64_t kCount = 1000;
  const AdamWScalars scalars{.beta1 = 0.9F,
                             .beta2 = 0.99F,
                             .one_minus_beta1 = 0.1F,
                             .one_minus_beta2 = 0.01F,
                             .eps = 1e-8F,
                             .step_size = 1e-2F,
                             .inv_sqrt_bias2 = 2,
                             .keep = 0.999F,
                             .grad_scale = 0.5F};
  const std::vector<Chunk> chunks = chunks_of({{0, 400}, {400, kCount - 8}});
  for (const bool in_halves : {false, true}) {
    const auto updated = [&](const at::Device& device) {
      const auto values = [&](uint64_t seed) { return random_f64({kCount}, seed).to(at::kFloat); };
      AdamWState state{values(1).to(device), values(2).to(device), values(3).square().to(device),
                       values(4).to(device),
                       at::zeros({kCount}, at::device(device).dtype(at::kBFloat16))};
      state.weight.copy_(state.master);
      if (in_halves) {
        state.low = at::zeros({kCount}, at::device(device).dtype(at::kShort));
        split_master(state.master, state.weight, state.low);
        state.master = at::Tensor();
      }
      adamw_update(state, chunks, std::vector{scalars, scalars});
      const at::Tensor master = in_halves ? join_master(state.weight, state.low) : state.master;
      return std::vector<at::Tensor>{master.cpu(), state.exp_avg.cpu(), state.exp_avg_sq.cpu(),
                                     state.weight.cpu()};
    };
    const std::vector<at::Tensor> card = updated(kCard), host = updated(at::kCPU);
    for (size_t i = 0; i < card.size(); ++i) {
      EXPECT_LE(distance(card[i], host[i].to(at::kDouble)), limit_of(host[i].scalar_type()))
          << i << in_halves;
    }
    EXPECT_TRUE(at::equal(card[0].narrow(0, kCount - 8, 8), host[0].narrow(0, kCount - 8, 8)));
  }
}

}  // namespace aten_table_test
}  // namespace danlu::ops
