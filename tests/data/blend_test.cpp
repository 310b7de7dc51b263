#include "data/megatron/blend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/json.h"
#include "data/indexed_test_support.h"
#include "data/megatron/gpt_splits.h"
#include "data/megatron/md5.h"
#include "data/megatron/npy.h"

namespace danlu::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
std::string npy_md5_of(const std::vector<T>& values) {
  const std::string_view raw(reinterpret_cast<const char*>(values.data()),
                             values.size() * sizeof(T));
  return md5_hex(npy_header_of<T>({static_cast<int64_t>(values.size()), 0}) + std::string(raw));
}

// Expected values of the first two: the helper of Megatron core_v0.8.0.
TEST(Blend, PicksTheDatasetFurthestBehindItsShare) {
  const BlendIndices blend = build_blend(std::vector<double>{.5, .3, .2}, 12);
  EXPECT_THAT(blend.dataset, ElementsAre(0, 1, 2, 0, 1, 0, 2, 0, 1, 0, 0, 1));
  EXPECT_THAT(blend.sample, ElementsAre(0, 0, 0, 1, 1, 2, 1, 3, 2, 4, 5, 3));
}

TEST(Blend, ExhaustiveSpendsEveryDatasetExactly) {
  const BlendIndices blend = build_exhaustive_blend(std::vector<int64_t>{4, 3, 2});
  EXPECT_THAT(blend.dataset, ElementsAre(0, 1, 2, 0, 1, 0, 2, 1, 0));
  EXPECT_THAT(blend.sample, ElementsAre(0, 0, 0, 1, 1, 2, 1, 2, 3));
}

TEST(Blend, EqualsNumpyForManyWeights) {
  const Json goldens =
      read_json_file(fs::path(DANLU_SOURCE_DIR) / "tests/data/goldens/gpt_index.json");
  for (const Json& golden : goldens["blends"]) {
    const auto weights = golden["weights"].get<std::vector<double>>();
    const std::vector<double> once = normalize_weights(weights), twice = normalize_weights(once);
    for (size_t i = 0; i < twice.size(); ++i) {
      EXPECT_EQ(twice[i], std::strtod(golden["shares"][i].get<std::string>().c_str(), nullptr))
          << i;
    }
    EXPECT_EQ(blend_sizes(once, golden["target"]), golden["sizes"].get<std::vector<int64_t>>());
    const BlendIndices blend = build_blend(twice, golden["size"]);
    EXPECT_EQ(npy_md5_of(blend.dataset), golden["dataset_npy"].get<std::string>());
    EXPECT_EQ(npy_md5_of(blend.sample), golden["sample_npy"].get<std::string>());
  }
}

TEST(Blend, ParsesPrefixesAndWeightedPrefixes) {
  EXPECT_EQ(parse_blend({"a"}), (BlendSpec{{"a"}, std::nullopt}));
  EXPECT_EQ(parse_blend({"a", "b"}), (BlendSpec{{"a", "b"}, std::nullopt}));
  EXPECT_EQ(parse_blend({"0.3", "a", "7e-1", " b "}), (BlendSpec{{"a", "b"}, {{0.3, 0.7}}}));
  EXPECT_EQ(parse_blend({"c", "a", "b"}), (BlendSpec{{"c", "a", "b"}, std::nullopt}));
  EXPECT_THAT(message_of<UsageError>([] { parse_blend({"0.3", "a", "c", "b"}); }),
              HasSubstr("1 of 2 items"));
  EXPECT_THAT(message_of<UsageError>([] { parse_blend({"0", "a", "1", "b"}); }),
              HasSubstr("weight 0 of a"));
  EXPECT_THAT(message_of<UsageError>([] { parse_blend({}); }), HasSubstr("no data set"));
}

class GptSplitsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::vector<int32_t>> a, b;
    for (int d = 0; d < 50; ++d) {
      a.emplace_back(10, 1);
      b.emplace_back(20, 2);
    }
    write_documents(folder_ / "a", a);
    write_documents(folder_ / "b", b);
    options_.sequence_length = 8;
    options_.split_text = "80,20,0";
    options_.cache_dir = folder_ / "cache";
  }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  ScratchFolder folder_;
  GptOptions options_;
};

TEST_F(GptSplitsTest, OneDatasetIsCutBySplit) {
  const auto splits = open_gpt_splits({{path("a")}, {}}, {100, 5, 5}, options_);
  // 40 documents of 10 tokens, S = 8: (3·400 - 1) / 8 = 149 samples in the 3 epochs 100 samples
  // need.
  ASSERT_TRUE(splits[0]);
  EXPECT_EQ(splits[0]->size(), 149);
  ASSERT_TRUE(splits[1]);
  EXPECT_EQ(splits[1]->size(), 12);  // 10 documents, one epoch: 99 / 8
  EXPECT_FALSE(splits[2]);
}

TEST_F(GptSplitsTest, WeightsDecideHowOftenADatasetIsSeen) {
  const auto splits =
      open_gpt_splits({{"0.25", path("a"), "0.75", path("b")}, {}}, {100, 8, 0}, options_);
  ASSERT_TRUE(splits[0]);
  EXPECT_EQ(splits[0]->size(), 26 + 76);  // ceil(25·1.005) + ceil(75·1.005)
  int64_t from_b = 0;
  for (int64_t i = 0; i < 100; ++i) from_b += splits[0]->get(i).ids[0] == 2;
  EXPECT_EQ(from_b, 75);
  size_t blend_files = 0;
  for (const auto& entry : fs::directory_iterator(folder_ / "cache")) {
    blend_files +=
        entry.path().filename().string().find("-BlendedDataset-train-") != std::string::npos;
  }
  EXPECT_EQ(blend_files, 3u);
  const auto again =
      open_gpt_splits({{"0.25", path("a"), "0.75", path("b")}, {}}, {100, 8, 0}, options_);
  EXPECT_EQ(again[0]->content_hash(), splits[0]->content_hash());
}

TEST_F(GptSplitsTest, ADamagedBlendIsBuiltAgain) {
  const GptDataPaths paths{{"0.25", path("a"), "0.75", path("b")}, {}};
  const auto firsts = [&] {
    const auto train = open_gpt_splits(paths, {100, 8, 0}, options_)[0];
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < train->size(); ++i) ids.push_back(train->get(i).ids[0]);
    return ids;
  };
  const std::vector<int32_t> whole = firsts();
  for (const char* kind : {"-BlendedDataset-train-dataset_index.npy",
                           "-BlendedDataset-train-dataset_sample_index.npy"}) {
    for (const auto& entry : fs::directory_iterator(folder_ / "cache")) {
      if (!entry.path().string().ends_with(kind)) continue;
      const std::vector<int64_t> wild(102, 3000), few(7, 0);
      write_npy<int64_t>(entry.path(), wild, {102, 0});
      EXPECT_EQ(firsts(), whole) << kind;
      write_npy<int64_t>(entry.path(), few, {7, 0});
      EXPECT_EQ(firsts(), whole) << kind;
    }
  }
}

TEST_F(GptSplitsTest, WithoutWeightsAndSizesEverythingIsSeenOnce) {
  const auto splits = open_gpt_splits({{path("a"), path("b")}, {}}, {}, options_);
  EXPECT_EQ(splits[0]->size(), 399 / 8 + 799 / 8);
}

TEST_F(GptSplitsTest, SplitsMayHaveDatasetsOfTheirOwn) {
  const auto splits = open_gpt_splits({{}, {{{path("a")}, {path("b")}, {}}}}, {}, options_);
  EXPECT_EQ(splits[0]->size(), 499 / 8);
  EXPECT_EQ(splits[1]->size(), 999 / 8);
  EXPECT_FALSE(splits[2]);
}

TEST_F(GptSplitsTest, RefusesContradictingPaths) {
  EXPECT_THAT(message_of<UsageError>(
                  [&] { open_gpt_splits({{path("a")}, {{{path("b")}, {}, {}}}}, {}, options_); }),
              HasSubstr("exclude each other"));
  EXPECT_THAT(message_of<UsageError>([&] { open_gpt_splits({}, {}, options_); }),
              HasSubstr("no data set"));
}

TEST(GptSplits, CountsSamplesAsMegatronDoes) {
  const SplitSizes sizes = gpt_split_sizes(0, 1000, 300, 10, 16);
  EXPECT_EQ(sizes, (SplitSizes{16000, 4 * 10 * 16, 160}));
  EXPECT_EQ(gpt_split_sizes(77, 1000, 300, 10, 16)[0], 77);
}

}  // namespace
}  // namespace danlu::data
