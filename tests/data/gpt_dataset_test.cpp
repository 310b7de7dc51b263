#include "data/megatron/gpt_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "data/indexed_test_support.h"
#include "data/megatron/instruction_dataset.h"

namespace danlu::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int32_t kEod = 9;

/// One document per row of `documents`, one epoch, S = 4, seed 1234.
class GptDatasetTest : public ::testing::Test {
 protected:
  GptDataset open(const std::vector<std::vector<int32_t>>& documents,
                  DatasetSplit split = DatasetSplit::kTrain) {
    write_documents(folder_ / "d", documents);
    options_.sequence_length = 4;
    options_.use_cache = false;
    const std::string prefix = (folder_ / "d").string();
    return GptDataset(options_, prefix, std::make_shared<const IndexedDataset>(prefix),
                      {0, static_cast<int64_t>(documents.size())}, split, std::nullopt);
  }
  ScratchFolder folder_;
  GptOptions options_;
};

TEST_F(GptDatasetTest, EachTokenIsFollowedByItsTargetAndTheLastIsSharedWithTheNextSample) {
  // One document of 1..13: three samples 1-5, 5-9, 9-13 in shuffled order.
  std::vector<int32_t> document(13);
  std::iota(document.begin(), document.end(), 1);
  const GptDataset dataset = open({document});
  ASSERT_EQ(dataset.size(), 3);
  std::vector<int32_t> firsts;
  for (int64_t i = 0; i < 3; ++i) {
    const Sample sample = dataset.get(i);
    ASSERT_EQ(sample.ids.size(), 4u);
    firsts.push_back(sample.ids[0]);
    for (size_t t = 0; t < 4; ++t) {
      EXPECT_EQ(sample.ids[t], sample.ids[0] + static_cast<int32_t>(t));
      EXPECT_EQ(sample.labels[t], sample.ids[t] + 1);
    }
    EXPECT_EQ(dataset.length(i), 4);
  }
  EXPECT_THAT(firsts, ::testing::UnorderedElementsAre(1, 5, 9));
}

TEST_F(GptDatasetTest, ASampleRunsOverShortAndEmptyDocuments) {
  const GptDataset dataset = open({{1, 1}, {}, {1}, {1, 1}});
  ASSERT_EQ(dataset.size(), 1);
  EXPECT_THAT(dataset.get(0).ids, ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(dataset.get(0).segments, ElementsAre(0));
}

TEST_F(GptDatasetTest, WithoutSwitchesEodIsAnOrdinaryToken) {
  options_.eod_id = kEod;
  const Sample sample = open({{1, kEod, 2, 3, 4}}).get(0);
  EXPECT_THAT(sample.labels, ElementsAre(kEod, 2, 3, 4));
  EXPECT_THAT(make_batch({sample}).positions, ElementsAre(0, 1, 2, 3));
}

TEST_F(GptDatasetTest, EodMaskLossDropsTheLossWhereTheInputIsEod) {
  options_.eod_id = kEod;
  options_.eod_mask_loss = true;
  const Sample sample = open({{1, kEod, 2, 3, kEod}}).get(0);
  EXPECT_THAT(sample.labels, ElementsAre(kEod, kIgnoreLabel, 3, kEod));
}

TEST_F(GptDatasetTest, ResettingAttentionStartsASegmentAfterEachEod) {
  options_.eod_id = kEod;
  options_.reset_attention_mask = true;
  const Batch batch = make_batch({open({{1, kEod, 2, kEod, 4}}).get(0)});
  EXPECT_THAT(batch.segment_starts, ElementsAre(0, 2, 4));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(batch.targets, ElementsAre(kEod, 2, kEod, 4));  // targets still cross the border
}

TEST_F(GptDatasetTest, ResettingPositionsLeavesAttentionAlone) {
  options_.eod_id = kEod;
  options_.reset_position_ids = true;
  const Batch batch = make_batch({open({{1, kEod, 2, 3, 4}}).get(0)});
  EXPECT_THAT(batch.segment_starts, ElementsAre(0, 4));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 0, 1));
}

TEST_F(GptDatasetTest, PaddingTokensCarryNoLossAndAreFedAsZero) {
  options_.pad_id = 7;
  const Sample sample = open({{1, 7, 2, 3, 7}}).get(0);
  EXPECT_THAT(sample.ids, ElementsAre(1, 0, 2, 3));
  EXPECT_THAT(sample.labels, ElementsAre(kIgnoreLabel, 2, 3, kIgnoreLabel));
}

TEST_F(GptDatasetTest, AKeptPartialSampleIsShorterNotPadded) {
  options_.drop_last_partial_validation_sample = false;
  std::vector<int32_t> document(7);
  std::iota(document.begin(), document.end(), 1);
  const GptDataset dataset = open({document}, DatasetSplit::kValid);
  ASSERT_EQ(dataset.size(), 2);
  std::vector<int64_t> lengths{dataset.length(0), dataset.length(1)};
  EXPECT_THAT(lengths, ::testing::UnorderedElementsAre(4, 2));
  for (int64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(static_cast<int64_t>(dataset.get(i).ids.size()), dataset.length(i));
    EXPECT_EQ(make_batch({dataset.get(i)}).num_targets, dataset.length(i));
  }
}

TEST_F(GptDatasetTest, TheSwitchesNeedAnEodToken) {
  options_.eod_mask_loss = true;
  EXPECT_THAT(message_of<UsageError>([&] { open({{1, 2, 3, 4, 5}}); }),
              HasSubstr("--eod-mask-loss"));
}

TEST_F(GptDatasetTest, TheCacheLiesWhereMegatronLooksForIt) {
  write_documents(folder_ / "d", {{1, 2, 3, 4, 5, 6, 7, 8, 9}});
  const std::string prefix = (folder_ / "d").string();
  options_.sequence_length = 4;
  options_.split_text = "1,0,0";
  const auto tokens = std::make_shared<const IndexedDataset>(prefix);
  const GptDataset first(options_, prefix, tokens, {0, 1}, DatasetSplit::kTrain, 2);
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder_ / "d/cache/GPTDataset_indices")) {
    files += entry.path().filename().string().find("-GPTDataset-train-") == 32;
  }
  EXPECT_EQ(files, 4u);
  const GptDataset second(options_, prefix, tokens, {0, 1}, DatasetSplit::kTrain, 2);
  EXPECT_EQ(second.window(0), first.window(0));
  EXPECT_EQ(second.content_hash(), first.content_hash());
}

TEST_F(GptDatasetTest, TheContentIsNeitherWhereItLiesNorHowMuchIsDrawn) {
  const auto hash_of = [&](const char* name, std::vector<int32_t> document, int64_t samples) {
    write_documents(folder_ / name, {std::move(document)});
    const std::string prefix = (folder_ / name).string();
    return GptDataset(options_, prefix, std::make_shared<const IndexedDataset>(prefix), {0, 1},
                      DatasetSplit::kTrain, samples)
        .content_hash();
  };
  options_.sequence_length = 4;
  options_.split_text = "1,0,0";
  options_.tokenizer = {{"tokenizer_path", "here"}};
  const uint64_t hash = hash_of("d", {1, 2, 3, 4, 5, 6, 7, 8, 9}, 2);
  options_.tokenizer = {{"tokenizer_path", "there"}};
  EXPECT_EQ(hash_of("e", {1, 2, 3, 4, 5, 6, 7, 8, 9}, 6), hash);
  EXPECT_NE(hash_of("f", {1, 2, 3, 4, 5, 6, 7, 8, 8}, 2), hash);
  options_.seed += 1;
  EXPECT_NE(hash_of("g", {1, 2, 3, 4, 5, 6, 7, 8, 9}, 2), hash);
}

/// Several sets of documents under one prefix, one after the other.
class GptCacheOfRewrittenData : public ::testing::Test {
 protected:
  /// Every sample of an epoch of `documents`, cached below `cache`.
  std::vector<std::vector<int32_t>> windows(const std::vector<std::vector<int32_t>>& documents,
                                            const fs::path& cache) {
    const std::string prefix = (folder_ / "d").string();
    write_documents(prefix, documents);
    GptOptions options;
    options.sequence_length = 4;
    options.split_text = "1,0,0";
    options.cache_dir = cache;
    options.use_cache = !cache.empty();
    options.cache_by_content = by_content_;
    const GptDataset dataset(options, prefix, std::make_shared<const IndexedDataset>(prefix),
                             {0, static_cast<int64_t>(documents.size())}, DatasetSplit::kTrain,
                             std::nullopt);
    std::vector<std::vector<int32_t>> samples;
    for (int64_t i = 0; i < dataset.size(); ++i) samples.push_back(dataset.window(i));
    return samples;
  }
  /// Folders below `cache` that hold a sample order.
  size_t num_orders(const fs::path& cache) const {
    size_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(cache)) {
      count += entry.path().string().ends_with("shuffle_index.npy");
    }
    return count;
  }
  ScratchFolder folder_;
  bool by_content_ = false;
  // As many documents in each; of 21, 21 (cut elsewhere) and 33 tokens.
  const std::vector<std::vector<int32_t>> first_{{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13},
                                                 {21, 22, 23, 24, 25, 26, 27, 28}},
      moved_{{1, 2, 3}, {4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21}},
      longer_{std::vector<int32_t>(13, 5), std::vector<int32_t>(20, 6)};
};

TEST_F(GptCacheOfRewrittenData, IsNeverUsedForTheOtherData) {
  for (const bool by_content : {false, true}) {
    by_content_ = by_content;
    const fs::path cache = folder_ / (by_content ? "shared" : "megatrons");
    windows(first_, cache);
    for (const auto& documents : {moved_, longer_, first_}) {
      EXPECT_EQ(windows(documents, cache), windows(documents, "")) << "by content " << by_content;
    }
  }
}

TEST_F(GptCacheOfRewrittenData, KeepsOneOrderForEachContentWhereTheCacheIsShared) {
  by_content_ = true;
  for (const auto& documents : {first_, moved_, first_, moved_}) windows(documents, folder_ / "c");
  EXPECT_EQ(num_orders(folder_ / "c"), 2u);
  by_content_ = false;
  for (const auto& documents : {first_, moved_}) windows(documents, folder_ / "m");
  EXPECT_EQ(num_orders(folder_ / "m"), 1u);
}

void write_field(const fs::path& prefix, const char* field,
                 const std::vector<std::vector<int32_t>>& rows) {
  write_documents(instruction_field_prefix(prefix.string(), field), rows);
}

TEST(InstructionDataset, MaskValuesCutSegmentsAndPaddingIsLeftOut) {
  const ScratchFolder folder;
  write_field(folder / "a", "input_ids", {{1, 2, 3, 4, 5, 0, 0}, {6, 7}});
  write_field(folder / "a", "attention_mask", {{1, 1, 2, 2, 2, 0, 0}, {1, 1}});
  write_field(folder / "a", "labels", {{-100, 2, -100, 4, 5, -100, -100}, {-100, 7}});
  const InstructionDataset dataset((folder / "a").string());
  ASSERT_EQ(dataset.size(), 2);
  const Sample sample = dataset.get(0);
  EXPECT_THAT(sample.ids, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(sample.labels, ElementsAre(-100, 2, -100, 4, 5));
  EXPECT_THAT(sample.segments, ElementsAre(0, 2));
}

TEST(InstructionDataset, SamplesOfPacksEndBehindTheirTokenWhereNoMaskSaysIt) {
  const ScratchFolder folder;
  write_field(folder / "a", "input_ids", {{1, 9, 3, 4, 9, 5, 0}, {6, 9, 7}});
  write_field(folder / "a", "attention_mask", {{1, 1, 1, 1, 1, 1, 0}, {1, 1, 2}});
  write_field(folder / "a", "labels", {{-100, 9, -100, 4, 9, 5, -100}, {-100, 9, 7}});
  const std::string prefix = (folder / "a").string();
  const InstructionDataset whole(prefix), cut(prefix, SegmentEnds{9, true}),
      running(prefix, SegmentEnds{9, false});
  EXPECT_THAT(whole.get(0).segments, ElementsAre(0));
  EXPECT_THAT(cut.get(0).segments, ElementsAre(0, 2, 5));
  EXPECT_THAT(cut.get(0).position_starts, testing::IsEmpty()) << "at the segments";
  EXPECT_THAT(running.get(0).segments, ElementsAre(0, 2, 5));
  EXPECT_THAT(running.get(0).position_starts, ElementsAre(0));
  EXPECT_THAT(cut.get(1).segments, ElementsAre(0, 2)) << "its mask has two values";
  // What was learnt otherwise is other data to a run that goes on.
  EXPECT_NE(whole.content_hash(), cut.content_hash());
  EXPECT_NE(running.content_hash(), cut.content_hash());
}

TEST(InstructionDataset, NamesTheFileThatDoesNotFit) {
  const ScratchFolder folder;
  write_field(folder / "a", "input_ids", {{1, 2}, {3}});
  write_field(folder / "a", "attention_mask", {{1, 1}, {1}});
  write_field(folder / "a", "labels", {{1}, {3}});
  EXPECT_THAT(message_of<DataError>([&] { InstructionDataset dataset((folder / "a").string()); }),
              HasSubstr("a_packed_labels_document.idx: sample 0 has 1 values"));
}

}  // namespace
}  // namespace danlu::data
