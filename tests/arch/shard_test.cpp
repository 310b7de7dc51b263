// The rectangles of all ranks cover each parameter exactly, for every family and every split.
#include "arch/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "arch/gated_delta.h"
#include "base/error.h"
#include "base/rng.h"
#include "support/tiny_model.h"

namespace danlu::arch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

ModelConfig config_of(const std::string& family, const Json& changes = Json::object()) {
  Json json = test::tiny_config(family);
  json.update(changes);
  if (family.ends_with("_vl")) test::add_tiny_tower(json);  // as wide as the decoder is now
  return parse_model_config(json, family);
}

/// How often each element of the parameter is held, over ranks that hold different rectangles.
std::vector<int> coverage(const ModelConfig& config, const ParamSpec& spec, Coord coord) {
  const Rect matrix = matrix_of(spec.shape);
  std::vector<int> held(static_cast<size_t>(matrix.rows * matrix.cols));
  std::set<std::tuple<int64_t, int64_t, int64_t, int64_t>> seen;
  for (coord.ep_rank = 0; coord.ep_rank < coord.ep_size; ++coord.ep_rank) {
    for (coord.tp_rank = 0; coord.tp_rank < coord.tp_size; ++coord.tp_rank) {
      for (const Rect& rect : shard(config, spec, coord)) {
        // Copies count once.
        if (!seen.insert({rect.row, rect.rows, rect.col, rect.cols}).second) continue;
        for (int64_t row = rect.row; row < rect.row + rect.rows; ++row) {
          for (int64_t col = rect.col; col < rect.col + rect.cols; ++col)
            ++held.at(static_cast<size_t>(row * matrix.cols + col));
        }
      }
    }
  }
  return held;
}

bool divides(const ModelConfig& c, int64_t tp) {
  if (tp > 1 && has_gated_delta(c)) return false;
  const bool heads =
      c.num_heads % tp == 0 && (c.num_kv_heads % tp == 0 || tp % c.num_kv_heads == 0);
  const bool experts =
      !c.has_experts() || (c.experts.ffn_size % tp == 0 && c.experts.shared_ffn_size % tp == 0);
  const bool tower = !c.vision || (c.vision->num_heads % tp == 0 && c.vision->ffn_size % tp == 0);
  return heads && c.ffn_size % tp == 0 && experts && tower;
}

TEST(Shard, RectanglesOfAllRanksCoverEveryParameterOnce) {
  int splits = 0;
  for (const Family& family : families()) {
    for (uint64_t trial = 0; trial < 8; ++trial) {
      auto draw = [&, n = uint64_t{0}](int64_t most) mutable {
        return 1 + static_cast<int64_t>(mix64(trial, n++) % static_cast<uint64_t>(most));
      };
      const int64_t kv_heads = int64_t{1} << (draw(3) - 1), group = int64_t{1} << (draw(3) - 1);
      Json changes = {{"num_attention_heads", kv_heads * group},
                      {"hidden_size", 8 * kv_heads * group},
                      {"intermediate_size", 8 * draw(4)},
                      {"vocab_size", 94 + draw(20)}};
      if (family.name != "baichuan" && family.name != "qwen")
        changes["num_key_value_heads"] = kv_heads;
      if (family.name == "chatglm") changes["multi_query_group_num"] = kv_heads;
      const ModelConfig config = config_of(family.name, changes);
      for (const int64_t tp : {1, 2, 4, 8}) {
        if (!divides(config, tp)) continue;
        for (const int64_t ep : {1, 2, 4}) {
          for (int64_t dealers = 1; dealers <= tp; dealers *= 2) {
            const bool dealt = config.has_experts() && config.experts.count % (ep * dealers) == 0;
            if (ep * dealers > 1 && !dealt) continue;
            ++splits;
            for (const ParamSpec& spec : parameters_of(config)) {
              const std::vector<int> held = coverage(config, spec, {tp, 0, ep, 0, dealers});
              ASSERT_TRUE(std::all_of(held.begin(), held.end(), [](int n) { return n == 1; }))
                  << family.name << " tp " << tp << " ep " << ep << " dealers " << dealers << " "
                  << spec.name;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(splits, 150);
}

TEST(Shard, RanksHoldEqualSharesOfWhatTheyCut) {
  const ModelConfig config = config_of("qwen2", {{"vocab_size", 96}});
  for (const ParamSpec& spec : parameters_of(config)) {
    std::set<int64_t> sizes;
    for (const int64_t rank : {0, 1}) {
      int64_t elements = 0;
      for (const Rect& rect : shard(config, spec, {2, rank})) elements += rect.rows * rect.cols;
      sizes.insert(elements);
    }
    const Rect matrix = matrix_of(spec.shape);
    const int64_t parts = spec.cut_on().has(Axis::kTensor) ? 2 : 1;
    EXPECT_THAT(sizes, ElementsAre(matrix.rows * matrix.cols / parts)) << spec.name;
  }
}

ParamSpec spec_named(const ModelConfig& config, const std::string& ending) {
  for (const ParamSpec& spec : parameters_of(config)) {
    if (spec.name.ends_with(ending)) return spec;
  }
  ADD_FAILURE() << "no " << ending;
  return {};
}

// 4 query heads of 8 rows in 2 groups, hidden 32.
TEST(Shard, MoreRanksThanKvHeadsShareOne) {
  const ModelConfig config = config_of("qwen2");
  const ParamSpec q = spec_named(config, "0.self_attn.q_proj.weight"),
                  k = spec_named(config, "0.self_attn.k_proj.weight");
  EXPECT_THAT(shard(config, q, {4, 3}), ElementsAre(Rect{24, 8, 0, 32}));
  EXPECT_THAT(shard(config, k, {4, 2}), ElementsAre(Rect{8, 8, 0, 32}));
  EXPECT_THAT(shard(config, k, {4, 3}), ElementsAre(Rect{8, 8, 0, 32}));
  EXPECT_THAT(shard(config, k, {2, 1}), ElementsAre(Rect{8, 8, 0, 32}));
}

TEST(Shard, FusedMatricesAreCutInsideTheirParts) {
  const ModelConfig baichuan = config_of("baichuan");
  EXPECT_THAT(shard(baichuan, spec_named(baichuan, "0.self_attn.W_pack.weight"), {2, 1}),
              ElementsAre(Rect{16, 16, 0, 32}, Rect{48, 16, 0, 32}, Rect{80, 16, 0, 32}));
  // wqkv: per group 2 query heads, key, value: 32 rows.
  const ModelConfig internlm = config_of("internlm2");
  const ParamSpec wqkv = spec_named(internlm, "0.attention.wqkv.weight");
  EXPECT_THAT(shard(internlm, wqkv, {2, 1}), ElementsAre(Rect{32, 32, 0, 32}));
  EXPECT_THAT(shard(internlm, wqkv, {4, 3}), ElementsAre(Rect{40, 8, 0, 32}, Rect{48, 16, 0, 32}));
}

TEST(Shard, ASmallVocabularyEndsBeforeTheLastRank) {
  const ModelConfig config = config_of("llama", {{"vocab_size", 9}});
  const ParamSpec head = spec_named(config, "lm_head.weight");
  EXPECT_THAT(shard(config, head, {4, 2}), ElementsAre(Rect{6, 3, 0, 32}));
  EXPECT_THAT(shard(config, head, {4, 3}), IsEmpty());
}

TEST(Shard, ARefusalNamesWhatDoesNotDivide) {
  const auto refusal = [](int64_t heads, int64_t kv_heads, int64_t ffn, int64_t ranks) {
    ModelConfig config;
    config.num_heads = heads;
    config.num_kv_heads = kv_heads;
    config.ffn_size = ffn;
    try {
      require_divides(config, ranks);
    } catch (const UsageError& error) {
      return error.what() + (" | " + error.hint());
    }
    return std::string("(accepted)");
  };
  EXPECT_EQ(refusal(12, 4, 48, 4), "(accepted)");
  EXPECT_EQ(refusal(12, 2, 48, 4), "(accepted)");  // two ranks each hold a copy of a key head
  EXPECT_EQ(refusal(12, 4, 50, 4),
            "[parallel] 4 tensor-parallel ranks cannot divide a feed-forward width of 50 | sizes "
            "that do: 1, 2");
  EXPECT_EQ(refusal(14, 2, 48, 4),
            "[parallel] 4 tensor-parallel ranks cannot divide 14 attention heads | sizes that do: "
            "1, 2");
  EXPECT_EQ(refusal(12, 4, 48, 3),
            "[parallel] 3 tensor-parallel ranks cannot divide 4 key-value heads | sizes that do: "
            "1, 2, 4, 12");
  EXPECT_EQ(refusal(32, 8, 100, 3),
            "[parallel] 3 tensor-parallel ranks cannot divide 32 attention heads and 8 key-value "
            "heads and a feed-forward width of 100 | sizes that do: 1, 2, 4");
}

}  // namespace
}  // namespace danlu::arch
