// Attention over pages of an NPU against a softmax in f64 of the keys one by one: where the pages
// lie, by the operator for paged caches, or of copies where it does not take them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "infer/page_pool.h"
#include "npu/support.h"
#include "ops/attention.h"
#include "ops/backend.h"
#include "ops/cached_attention.h"

namespace danlu::npu::test {
namespace {

using ops::kPageTokens;

/// Sequences of random lengths in shuffled pages: what nobody has written is no number.
struct Cached {
  ops::Pages host, there;
  ops::CachedSequences sequences;
  int64_t num_new = 0;

  Cached(const ops::PageShape& shape, at::ScalarType type, int64_t slabs, int64_t most_new,
         std::mt19937& random) {
    const auto up_to = [&](int64_t most) {
      return 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most));
    };
    std::vector<int64_t> news, lengths;
    for (int64_t s = up_to(5); s > 0; --s) {
      news.push_back(up_to(most_new));
      lengths.push_back(news.back() + up_to(90));
      num_new += news.back();
    }
    int64_t pages = 0;
    for (const int64_t length : lengths) pages += ops::pages_for(length);
    host.shape = shape;
    host.per_slab = (pages + 2 + slabs - 1) / slabs;
    for (int64_t i = 0; i < slabs; ++i) {
      host.slabs.push_back(at::full({host.per_slab, shape.elements()},
                                    std::numeric_limits<double>::quiet_NaN(),
                                    at::TensorOptions(type)));
    }
    std::vector<int32_t> numbers(static_cast<size_t>(host.count()));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(i);
    std::shuffle(numbers.begin(), numbers.end(), random);
    std::vector<std::vector<int32_t>> tables;
    for (const int64_t length : lengths) {
      const auto end = numbers.end() - ops::pages_for(length);
      tables.emplace_back(end, numbers.end());
      numbers.erase(end, numbers.end());
    }
    for (size_t s = 0; s < lengths.size(); ++s) write(tables[s], lengths[s], random());
    there = host;
    for (at::Tensor& slab : there.slabs) slab = slab.to(npu());
    sequences = ops::cached_sequences(tables, news, lengths, npu());
  }

  void write(const std::vector<int32_t>& table, int64_t length, uint64_t seed) {
    const ops::PageShape& shape = host.shape;
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      for (const auto& [which, dim] :
           {std::pair(0, shape.key_dim), std::pair(1, shape.value_dim)}) {
        if (dim == 0) continue;
        const at::Tensor all = normal({length, shape.heads, dim}, ++seed);
        ops::each_page_part(table.data(), 0, length,
                            [&](int64_t page, int64_t place, int64_t at, int64_t count) {
                              host.rows(page, layer, which)
                                  .narrow(1, place, count)
                                  .copy_(all.narrow(0, at, count).transpose(0, 1));
                            });
      }
    }
  }

  /// f64 [length, heads, D].
  at::Tensor kept(int64_t sequence, int64_t layer, int64_t which) const {
    const int64_t length = sequences.lengths[static_cast<size_t>(sequence)];
    std::vector<at::Tensor> parts;
    for (int64_t i = 0; i < ops::pages_for(length); ++i)
      parts.push_back(host.rows(sequences.host_table(sequence)[i], layer, which).transpose(0, 1));
    return at::cat(parts).narrow(0, 0, length).to(at::kDouble);
  }

  at::Tensor expected(const at::Tensor& q_NQD, int64_t layer,
                      const ops::AttentionOptions& options) const {
    std::vector<at::Tensor> rows;
    for (int64_t s = 0; s < sequences.count(); ++s) {
      const auto index = static_cast<size_t>(s);
      const at::Tensor k = kept(s, layer, 0), v = host.shape.value_dim > 0 ? kept(s, layer, 1) : k;
      for (int64_t i = 0; i < sequences.num_new[index]; ++i) {
        const int64_t end = sequences.lengths[index] - sequences.num_new[index] + i + 1,
                      from = options.window > 0 ? std::max<int64_t>(0, end - options.window) : 0,
                      group = q_NQD.size(1) / k.size(1);
        const auto seen = [&](const at::Tensor& x) {  // [Q, keys, D]
          return x.narrow(0, from, end - from).transpose(0, 1).repeat_interleave(group, 0);
        };
        const at::Tensor q = q_NQD[static_cast<int64_t>(rows.size())].to(at::kDouble).unsqueeze(1);
        at::Tensor scores = at::bmm(q, seen(k).transpose(1, 2)) * options.scale;
        if (options.softcap > 0) scores = (scores / options.softcap).tanh() * options.softcap;
        if (options.alibi_slopes_Q.defined()) {
          scores = scores + options.alibi_slopes_Q.to(at::kCPU).to(at::kDouble).view({-1, 1, 1}) *
                                (at::arange(from, end, at::kDouble) - (end - 1));
        }
        rows.push_back(at::bmm(at::softmax(scores, -1), seen(v)).squeeze(1));
      }
    }
    return at::stack(rows);
  }
};

ops::AttentionOptions with(double scale, int64_t window = 0, double softcap = 0) {
  ops::AttentionOptions options;
  options.scale = scale;
  options.window = window;
  options.softcap = softcap;
  return options;
}

int64_t launched(const char* name) { return counter(std::string("launches.aclnn") + name); }
int64_t in_place() { return launched("FusedInferAttentionScoreV2"); }

/// Attends in every layer. Gives how often the operator for pages ran.
int64_t attend(const Cached& cached, int64_t heads, at::ScalarType type,
               const ops::AttentionOptions& options) {
  const int64_t before = in_place();
  for (int64_t layer = 0; layer < cached.host.shape.layers; ++layer) {
    const at::Tensor q = normal({cached.num_new, heads, cached.host.shape.key_dim},
                                static_cast<uint64_t>(layer), type);
    const at::Tensor got =
        ops::backend_of(npu().type())
            .attention_over_pages(q.to(npu()), cached.there, cached.sequences, layer, options);
    EXPECT_LE(distance(got, cached.expected(q, layer, options)), type == at::kHalf ? 2e-3 : 1.5e-2)
        << "layer " << layer;
  }
  return in_place() - before;
}

TEST(NpuPages, AreReadWhereTheyLie) {
  if (is_on_card()) GTEST_SKIP() << "asks the simulator";
  std::mt19937 random(5);
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    for (const auto& [shape, heads] :
         {std::pair(ops::PageShape{3, 2, 16, 16}, 4), std::pair(ops::PageShape{1, 1, 48, 48}, 1),
          std::pair(ops::PageShape{2, 3, 32, 32}, 9), std::pair(ops::PageShape{2, 1, 64, 0}, 8)}) {
      for (const int64_t most_new : {1, 4}) {
        SCOPED_TRACE(testing::Message() << c10::toString(type) << ", " << shape << ", " << heads
                                        << " queries, up to " << most_new << " new tokens");
        const Cached cached(shape, type, /*slabs=*/1, most_new, random);
        EXPECT_EQ(attend(cached, heads, type, with(0.3)), shape.layers);
        EXPECT_EQ(attend(cached, heads, type, with(0.3, 94)), shape.layers)
            << "the window hides nothing";
      }
    }
  }
}

TEST(NpuPages, AreCopiedWhereTheOperatorDoesNotTakeThem) {
  if (is_on_card()) GTEST_SKIP() << "asks the simulator";
  std::mt19937 random(6);
  const ops::PageShape plain{2, 2, 16, 16};
  const auto copies = [&](const ops::PageShape& shape, at::ScalarType type, int64_t slabs,
                          const ops::AttentionOptions& options) {
    EXPECT_EQ(attend(Cached(shape, type, slabs, 3, random), 4, type, options), 0);
  };
  copies(plain, at::kFloat, 1, {});
  copies(plain, at::kHalf, 3, {});
  copies({2, 2, 24, 24}, at::kHalf, 1, {});
  copies({2, 2, 32, 16}, at::kHalf, 1, {});
  copies(plain, at::kHalf, 1, with(1, 3));
  copies(plain, at::kHalf, 1, with(1, 0, 2));
  ops::AttentionOptions slopes = with(0.3);
  slopes.alibi_slopes_Q = at::tensor({0.5F, 0.25F, 0.1F, 0.05F}).to(npu());
  copies(plain, at::kHalf, 1, slopes);
}

/// A step makes one table, whatever the layers, and a layer one launch.
TEST(NpuPages, CostALayerOneLaunchAndAStepOneTable) {
  if (is_on_card()) GTEST_SKIP() << "asks the simulator";
  std::mt19937 random(7);
  const Cached cached({4, 2, 16, 16}, at::kHalf, 1, 1, random);
  const at::Tensor q = normal({cached.num_new, 4, 16}, 1, at::kHalf).to(npu());
  const auto attend_in = [&](int64_t layer) {
    ops::backend_of(npu().type())
        .attention_over_pages(q, cached.there, cached.sequences, layer, with(0.25));
  };
  attend_in(0);
  const int64_t sent = counter("bytes.h2d"), launches = counter("launches");
  for (int64_t layer = 1; layer < 4; ++layer) attend_in(layer);
  EXPECT_EQ(counter("bytes.h2d"), sent);
  EXPECT_EQ(counter("launches") - launches, 3);
}

/// A pool that grows stays one slab, with what its pages held.
TEST(NpuPages, GrowInOneSlab) {
  const ops::PageShape shape{1, 1, 16, 16};
  infer::PagePool pool(shape, at::kHalf, npu(), 0);
  std::vector<int32_t> held;
  for (int i = 0; i < 700; ++i) {
    held.push_back(pool.take().value());
    pool.pages().page(held.back()).fill_(i % 100);
  }
  ASSERT_EQ(pool.pages().slabs.size(), 1u);
  EXPECT_LT(pool.pages().count(), 700 * 5 / 4 + 64);
  const at::Tensor all = pool.pages().slabs.front().to(at::kCPU).to(at::kFloat);
  for (int i = 0; i < 700; ++i)
    ASSERT_TRUE((all[held[static_cast<size_t>(i)]] == i % 100).all().item<bool>()) << i;
  for (const int32_t page : held) pool.give_back(page);
  EXPECT_EQ(pool.pages().count(), 0);
  pool.take();
  EXPECT_LE(pool.pages().count(), 64);
}

}  // namespace
}  // namespace danlu::npu::test
