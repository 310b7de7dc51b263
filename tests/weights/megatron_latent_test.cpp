// Which rows of latent attention's matrices stand where in Megatron's and MindSpeed's files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/throws.h"
#include "weights/bytes.h"
#include "weights/megatron/checkpoint.h"
#include "weights/megatron/target.h"
#include "weights/random_models.h"
#include "weights/write_megatron.h"

namespace danlu::weights::megatron {
namespace megatron_latent_test {

/// Four heads: q_rank 20, kv_rank 12, 6 + 4 dimensions of a key, 7 of a value; two tensor ranks.
class LatentFiles : public testing::Test {
 protected:
  void write(const Form& form, const Json& changes = Json::object()) {
    Json json = test::tiny_config("deepseek_v3");
    json.update({{"attention_bias", true}, {"torch_dtype", "float32"}});
    for (const auto& [key, value] : changes.items()) json[key] = value;
    test::RandomModels random(7);
    const arch::ModelConfig config = random.parse(json);
    model_ = random.source(global_tensors(config, DType::kF32));
    Split split;
    split.tp = 2;
    const std::filesystem::path root = folder_ / ("mg" + std::to_string(written_++));
    test::write_megatron(root, json, config, model_, {split, form});
    std::filesystem::path iteration;
    for (const auto& entry : std::filesystem::directory_iterator(root)) {
      if (entry.is_directory()) iteration = entry.path();
    }
    for (const char* rank : {"mp_rank_00", "mp_rank_01"})
      ranks_.push_back(open_torch_file(iteration / rank / kModelFile));
  }
  std::string stored(size_t rank, const std::string& name) const {
    const std::string full = "model.decoder.layers.1.self_attention." + name;
    if (!ranks_[rank]->find(full)) return "no " + full;
    return test::read_tensor(*ranks_[rank], full);
  }
  std::string whole(const std::string& name) const {
    return test::read_tensor(*model_, "model.layers.1.self_attn." + name);
  }
  /// Rows of a matrix [*, cols].
  std::string rows(const std::string& name, int64_t first, int64_t count, int64_t cols) const {
    return whole(name).substr(static_cast<size_t>(first * cols * 4),
                              static_cast<size_t>(count * cols * 4));
  }
  const test::TemporaryDirectory folder_;
  int written_ = 0;
  std::shared_ptr<const TensorSource> model_;
  std::vector<std::shared_ptr<const TensorSource>> ranks_;
};

TEST_F(LatentFiles, MindSpeedStacksWhatReadsTheHiddenStateAndCutsTheRestByHeads) {
  write({});
  for (const size_t rank : {0, 1}) {
    EXPECT_EQ(stored(rank, "linear_qkv.weight"),
              whole("q_a_proj.weight") + whole("kv_a_proj_with_mqa.weight"));
    EXPECT_EQ(stored(rank, "linear_qkv.bias"),
              whole("q_a_proj.bias") + whole("kv_a_proj_with_mqa.bias"));
    EXPECT_EQ(stored(rank, "q_layernorm.weight"), whole("q_a_layernorm.weight"));
    EXPECT_EQ(stored(rank, "k_layernorm.weight"), whole("kv_a_layernorm.weight"));
    const int64_t half = static_cast<int64_t>(rank);
    EXPECT_EQ(stored(rank, "linear_qb.weight"), rows("q_b_proj.weight", half * 20, 20, 20));
    EXPECT_EQ(stored(rank, "linear_kvb.weight"), rows("kv_b_proj.weight", half * 26, 26, 12));
  }
}

TEST_F(LatentFiles, WithoutAShortVectorMindSpeedKeepsAllQueriesOnEachRank) {
  write({}, {{"q_lora_rank", nullptr}, {"attention_bias", false}});
  for (const size_t rank : {0, 1}) {
    EXPECT_EQ(stored(rank, "linear_qkv.weight"),
              whole("q_proj.weight") + whole("kv_a_proj_with_mqa.weight"));
  }
}

TEST_F(LatentFiles, MindSpeedsSplitFormHasThePartsOfHeadsApart) {
  write({.latent = LatentForm::kMindSpeedSplit});
  std::string nope, rope, keys, values;
  for (const int64_t head : {2, 3}) {  // of the second rank
    nope += rows("q_b_proj.weight", head * 10, 6, 20);
    rope += rows("q_b_proj.weight", head * 10 + 6, 4, 20);
    keys += rows("kv_b_proj.weight", head * 13, 6, 12);
    values += rows("kv_b_proj.weight", head * 13 + 6, 7, 12);
  }
  EXPECT_EQ(stored(1, "linear_qk_nope.weight"), nope);
  EXPECT_EQ(stored(1, "linear_qk_rope.weight"), rope);
  EXPECT_EQ(stored(1, "linear_kv_nope.weight"), keys);
  EXPECT_EQ(stored(1, "linear_v.weight"), values);
}

TEST_F(LatentFiles, MegatronsNamesAndTransformerEnginesPlacesOfNorms) {
  write({.latent = LatentForm::kMegatron});
  EXPECT_EQ(stored(1, "linear_q_down_proj.weight"), whole("q_a_proj.weight"));
  EXPECT_EQ(stored(1, "linear_kv_down_proj.weight"), whole("kv_a_proj_with_mqa.weight"));
  EXPECT_EQ(stored(1, "linear_q_up_proj.weight"), rows("q_b_proj.weight", 20, 20, 20));
  EXPECT_EQ(stored(1, "linear_kv_up_proj.weight"), rows("kv_b_proj.weight", 26, 26, 12));
  EXPECT_EQ(stored(1, "kv_layernorm.weight"), whole("kv_a_layernorm.weight"));
  ranks_.clear();
  write({.dialect = Dialect::kTransformerEngine, .latent = LatentForm::kMegatron});
  EXPECT_EQ(stored(0, "linear_q_up_proj.layer_norm_weight"), whole("q_a_layernorm.weight"));
  EXPECT_EQ(stored(0, "linear_kv_up_proj.layer_norm_weight"), whole("kv_a_layernorm.weight"));
}

TEST_F(LatentFiles, TheLegacyFormatHasNoPlaceForThem) {
  EXPECT_THAT(test::error_of<ModelError>([&] { write({.dialect = Dialect::kLegacy}); }),
              testing::HasSubstr("deepseek_v3 has latent attention"));
}

}  // namespace megatron_latent_test
}  // namespace danlu::weights::megatron
