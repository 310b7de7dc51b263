#include "data/megatron/gpt_index.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/json.h"
#include "data/indexed_test_support.h"
#include "data/megatron/gpt_dataset.h"
#include "data/megatron/gpt_index_cache.h"
#include "data/megatron/md5.h"
#include "data/megatron/npy.h"
#include "data/megatron/python_json.h"
#include "support/shared_data.h"

namespace danlu::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Json& goldens() {
  static const Json kGoldens =
      read_json_file(fs::path(DANLU_SOURCE_DIR) / "tests/data/goldens/gpt_index.json");
  return kGoldens;
}

template <typename T>
std::string npy_md5(const std::vector<T>& values, int64_t columns = 0) {
  const auto count = static_cast<int64_t>(values.size());
  const std::string_view raw(reinterpret_cast<const char*>(values.data()),
                             values.size() * sizeof(T));
  return md5_hex(npy_header_of<T>({columns == 0 ? count : count / columns, columns}) +
                 std::string(raw));
}

const std::vector<int32_t> kSixDocuments{5, 0, 12, 7, 3, 9};

GptIndexOptions of_eight_tokens(int64_t num_samples) {
  GptIndexOptions options;
  options.sequence_length = 8;
  options.num_samples = num_samples;
  return options;
}

GptIndices six_documents(int64_t num_samples) {
  return build_gpt_indices(kSixDocuments, {0, 6}, of_eight_tokens(num_samples));
}

// Expected values: the helper of Megatron core_v0.8.0 with numpy.
TEST(GptIndex, AShortLastEpochIsShuffledOnItsOwn) {
  const GptIndices indices = six_documents(10);
  EXPECT_EQ(indices.num_epochs, 3);
  EXPECT_TRUE(indices.separate_last_epoch);
  EXPECT_THAT(indices.documents, ElementsAre(1, 2, 5, 2, 3, 4, 1, 0, 4, 5, 0, 3, 1, 0, 3, 2, 5, 4));
  EXPECT_THAT(indices.samples, ElementsAre(0, 0, 1, 8, 2, 4, 3, 3, 3, 11, 5, 0, 8, 0, 9, 5, 10, 4,
                                           13, 0, 14, 3, 15, 4, 16, 0, 16, 8));
  EXPECT_THAT(indices.shuffle, ElementsAre(3, 5, 2, 1, 6, 4, 7, 0, 12, 9, 11, 8, 10));
}

TEST(GptIndex, ALongLastEpochIsShuffledWithTheOthers) {
  const GptIndices indices = six_documents(12);
  EXPECT_FALSE(indices.separate_last_epoch);
  EXPECT_THAT(indices.documents, ElementsAre(5, 3, 5, 4, 1, 2, 0, 2, 4, 1, 1, 3, 2, 4, 0, 5, 0, 3));
  EXPECT_THAT(indices.samples, ElementsAre(0, 0, 0, 8, 2, 0, 2, 8, 5, 4, 6, 0, 7, 3, 7, 11, 11, 4,
                                           12, 5, 13, 1, 15, 1, 16, 0, 17, 3));
  EXPECT_THAT(indices.shuffle, ElementsAre(4, 7, 1, 10, 9, 3, 8, 12, 11, 5, 0, 2, 6));
}

TEST(GptIndex, KeepsAPartialLastSampleWhenAsked) {
  GptIndexOptions options;
  options.sequence_length = 16;
  options.drop_last_partial = false;
  const GptIndices indices =
      build_gpt_indices(std::vector<int32_t>{50, 30, 12, 70, 33, 9}, {0, 6}, options);
  EXPECT_THAT(indices.documents, ElementsAre(2, 1, 5, 0, 4, 3));
  EXPECT_EQ(indices.num_samples(), 13);
  EXPECT_EQ(indices.samples[26], 5);
  EXPECT_EQ(indices.samples[27], 69);
  EXPECT_THAT(indices.shuffle, ElementsAre(3, 10, 2, 12, 11, 5, 4, 0, 8, 6, 9, 7, 1));
}

TEST(GptIndex, EqualsNumpyOnRandomConfigurationsToTheByteOfTheCacheFiles) {
  for (const Json& golden : goldens()["orders"]) {
    SCOPED_TRACE(golden.dump());
    GptIndexOptions options;
    options.sequence_length = golden["sequence_length"];
    options.num_samples = json_get<int64_t>(golden, "num_samples");
    options.seed = golden["seed"];
    options.add_extra_token = golden["extra"] == 1;
    options.drop_last_partial = golden["drop"];
    const auto lengths = golden["lengths"].get<std::vector<int32_t>>();
    const GptIndices indices =
        build_gpt_indices(lengths, {golden["first"], golden["last"]}, options);
    EXPECT_EQ(indices.num_epochs, golden["epochs"]);
    EXPECT_EQ(indices.separate_last_epoch, golden["separate"]);
    ASSERT_EQ(indices.num_samples(), golden["total"]);
    EXPECT_EQ(npy_md5(indices.documents), golden["documents_npy"].get<std::string>());
    EXPECT_EQ(npy_md5(indices.samples, 2), golden["samples_npy"].get<std::string>());
    EXPECT_EQ(npy_md5(std::vector<uint32_t>(indices.shuffle.begin(), indices.shuffle.end())),
              golden["shuffle_npy"].get<std::string>());
    const auto view =
        open_gpt_indices(std::nullopt, lengths, {golden["first"], golden["last"]}, options);
    EXPECT_EQ(find_misfit(*view, lengths, {golden["first"], golden["last"]}, options), "");
  }
}

TEST(GptIndex, APartialSampleMayEndInAnEmptyDocument) {
  GptIndexOptions options;
  options.sequence_length = 4;
  options.drop_last_partial = false;
  for (const uint32_t seed : {1u, 2u, 3u, 4u, 5u, 6u}) {
    options.seed = seed;
    for (const std::vector<int32_t>& lengths :
         {std::vector<int32_t>{7, 0, 0, 0}, std::vector<int32_t>{4, 0, 0},
          std::vector<int32_t>{5}}) {
      const IdRange all{0, static_cast<int64_t>(lengths.size())};
      const auto view = open_gpt_indices(std::nullopt, lengths, all, options);
      EXPECT_EQ(find_misfit(*view, lengths, all, options), "") << seed;
    }
  }
}

TEST(GptIndex, RefusesSequencesWithoutTokens) {
  GptIndexOptions options;
  options.sequence_length = 4;
  EXPECT_THAT(message_of<DataError>(
                  [&] { build_gpt_indices(std::vector<int32_t>{0, 0, 5}, {0, 2}, options); }),
              HasSubstr("sequences [0, 2) hold no token"));
}

void expect_equals_cache(const GptIndices& indices, const std::string& stem, bool has_documents) {
  const NpyFile samples(stem + "_sample_idx.npy"), shuffle(stem + "_shuffle_idx.npy");
  ASSERT_EQ(samples.shape().rows, indices.num_samples() + 1);
  ASSERT_EQ(shuffle.shape().rows, indices.num_samples());
  int64_t different = 0;
  for (int64_t i = 0; i < samples.shape().size(); ++i) {
    different += samples.at(i) != indices.samples[static_cast<size_t>(i)];
  }
  for (int64_t i = 0; i < shuffle.shape().rows; ++i) {
    different += shuffle.at(i) != indices.shuffle[static_cast<size_t>(i)];
  }
  if (has_documents) {
    const NpyFile documents(stem + "_doc_idx.npy");
    ASSERT_EQ(documents.shape().rows, static_cast<int64_t>(indices.documents.size()));
    for (int64_t i = 0; i < documents.shape().rows; ++i) {
      different += documents.at(i) != indices.documents[static_cast<size_t>(i)];
    }
  }
  EXPECT_EQ(different, 0);
}

// Caches written by a real Megatron-DeepSpeed run: --split 998,1,1, the older split rule, and a
// last epoch shuffled on its own up to 95 % of its samples.
TEST(GptIndex, EqualsTheCachesOfARealRun) {
  DANLU_REQUIRES_SHARED();
  const std::string prefix =
      (test::shared_dir() / "data/megatron_indexed/bigscience/data/zhihu_100000_text_document")
          .string();
  const IndexedDataset dataset(prefix, IndexedDataset::Open::kIndexOnly);
  const auto ranges = legacy_split_ranges("998,1,1", dataset.num_sequences());
  GptIndexOptions options;
  options.sequence_length = 2048;
  options.seed = 42;
  options.separate_last_epoch_below = 0.95;
  const std::vector<int32_t> lengths = dataset.lengths();
  for (const DatasetSplit split : {DatasetSplit::kValid, DatasetSplit::kTest}) {
    options.num_samples = 768;
    expect_equals_cache(build_gpt_indices(lengths, ranges[static_cast<size_t>(split)], options),
                        fmt::format("{}_{}_indexmap_768ns_2048sl_42s", prefix, split_name(split)),
                        true);
  }
  options.num_samples = 220000;
  expect_equals_cache(build_gpt_indices(lengths, ranges[0], options),
                      prefix + "_train_indexmap_220000ns_2048sl_42s", false);
}

TEST(Splits, EqualPythonsRoundingInBothRules) {
  for (const Json& golden : goldens()["splits"]) {
    SCOPED_TRACE(golden.dump());
    const std::string text = golden["text"];
    const int64_t count = golden["count"];
    const SplitMatrix matrix = parse_split(text);
    const auto legacy = legacy_split_ranges(text, count);
    for (const DatasetSplit split : kSplits) {
      const auto at = static_cast<size_t>(split);
      const Json& want = golden["ranges"][at];
      const auto range = split_range(matrix, split, count);
      ASSERT_EQ(range.has_value(), !want.is_null());
      if (range) {
        EXPECT_EQ(*range, (IdRange{want[0], want[1]}));
      }
      EXPECT_EQ(legacy[at], (IdRange{golden["legacy"][at], golden["legacy"][at + 1]}));
    }
  }
}

TEST(Splits, RefusesTextsThatAreNoSplit) {
  for (const char* text : {"", "a,b", "1,2,3,4", "0,0,0", "1.2.3"}) {
    EXPECT_THAT(message_of<UsageError>([&] { parse_split(text); }), HasSubstr("--split")) << text;
  }
}

TEST(Md5, EqualsTheVectorsOfItsSpecification) {
  EXPECT_EQ(md5_hex(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(md5_hex("message digest"), "f96b697d7cb7938d525a2f31aaf161d0");
  EXPECT_EQ(
      md5_hex("12345678901234567890123456789012345678901234567890123456789012345678901234567890"),
      "57edf4a22be3c955ac49da2e2107b67a");
}

TEST(PythonJson, WritesFloatsAsRepr) {
  for (const Json& golden : goldens()["floats"]) {
    const double value = std::strtod(golden[0].get<std::string>().c_str(), nullptr);
    EXPECT_EQ(python_float(value), golden[1].get<std::string>());
  }
}

TEST(GptCache, NamesFilesAsPythonDoes) {
  for (const Json& golden : goldens()["identities"]) {
    GptOptions options;
    options.sequence_length = 4096;
    options.split_text = golden["split"];
    options.tokenizer = golden["tokenizer"];
    const std::string text = python_json(gpt_identity(options, golden["path"], DatasetSplit::kTrain,
                                                      json_get<int64_t>(golden, "num_samples")));
    EXPECT_EQ(text, golden["text"].get<std::string>());
    EXPECT_EQ(md5_hex(text), golden["md5"].get<std::string>());
  }
}

/// Six documents, cached in a scratch folder.
class GptCacheFiles : public ::testing::Test {
 protected:
  std::unique_ptr<GptIndexView> open(int64_t num_samples,
                                     std::span<const int32_t> lengths = kSixDocuments) {
    return open_gpt_indices(name_, lengths, {0, 6}, of_eight_tokens(num_samples));
  }
  fs::path file(const char* kind) const { return folder_ / ("cache/x-" + std::string(kind)); }
  ScratchFolder folder_;
  const GptCacheName name_{folder_ / "cache", "x", "{}"};
};

TEST_F(GptCacheFiles, MapsWhatItSaved) {
  open(10);
  const auto written = fs::last_write_time(file("shuffle_index.npy"));
  const auto mapped = open(10);
  EXPECT_EQ(fs::last_write_time(file("shuffle_index.npy")), written);
  const GptIndices want = six_documents(10);
  ASSERT_EQ(mapped->num_samples(), want.num_samples());
  EXPECT_EQ(mapped->document(1), 2);
  EXPECT_EQ(mapped->row(13), std::pair(want.samples[26], want.samples[27]));
  EXPECT_EQ(mapped->shuffled(12), 10);
}

TEST_F(GptCacheFiles, IsBuiltAgainWhereAFileIsMissingOrDamaged) {
  const GptIndices want = six_documents(10);
  const auto expect_whole = [&] {
    const auto view = open(10);
    EXPECT_EQ(view->num_samples(), want.num_samples());
    EXPECT_EQ(view->document(1), want.documents[1]);
    EXPECT_EQ(find_misfit(*view, kSixDocuments, {0, 6}, of_eight_tokens(10)), "");
    EXPECT_GT(fs::file_size(file("sample_index.npy")), 150u) << "the cache must be mended too";
  };
  open(10);
  fs::resize_file(file("sample_index.npy"), 150);
  expect_whole();
  fs::remove(file("sample_index.npy"));
  expect_whole();
}

TEST_F(GptCacheFiles, SaysWhatDoesNotFitTheData) {
  const auto fault_of = [&](auto change) {
    GptIndices indices = six_documents(10);
    change(indices);
    save_gpt_indices(name_, indices);
    ::testing::internal::CaptureStderr();
    open(10);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(fault_of([](GptIndices&) {}), "");
  EXPECT_THAT(fault_of([](GptIndices& i) { i.documents[2] = 6; }),
              HasSubstr("document 2 is sequence 6, not in [0, 6)"));
  EXPECT_THAT(fault_of([](GptIndices& i) { i.documents[2] = -1; }), HasSubstr("sequence -1"));
  EXPECT_THAT(fault_of([](GptIndices& i) { i.documents.push_back(2); }),
              HasSubstr("13 samples, the data make 14"));
  EXPECT_THAT(fault_of([](GptIndices& i) { i.samples[6] = 99; }),
              HasSubstr("sample 2 ends at token 3 of document 99"));
  EXPECT_THAT(fault_of([](GptIndices& i) { i.samples[5] = 1; }),
              HasSubstr("sample 1 has 5 tokens"));
  EXPECT_THAT(fault_of([](GptIndices& i) { i.shuffle[3] = 13; }),
              HasSubstr("shuffle entry 3 is 13"));
}

TEST(Npy, RefusesWhatIsNoArrayOfIntegers) {
  const ScratchFolder folder;
  const auto error_for = [&](const std::string& content) {
    write_file_atomic(folder / "a.npy", content);
    return message_of<DataError>([&] { NpyFile file(folder / "a.npy"); });
  };
  const auto with_header = [](std::string header) {
    const auto size = static_cast<uint16_t>(header.size());
    return std::string("\x93NUMPY\x01\x00", 8) +
           std::string(reinterpret_cast<const char*>(&size), 2) + header;
  };
  EXPECT_THAT(error_for(""), HasSubstr("not a .npy file"));
  EXPECT_THAT(error_for(with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n") +
                        "abcd"),
              HasSubstr("integers"));
  EXPECT_THAT(error_for(with_header("{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }\n") +
                        "abcd"),
              HasSubstr("has 1 values, its header promises more"));
  EXPECT_THAT(
      error_for(with_header("{'descr': '<i4', 'fortran_order': False, 'shape': (4, 0), }\n")),
      HasSubstr("rows without columns"));
}

}  // namespace
}  // namespace danlu::data
