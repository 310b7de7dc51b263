// Raw rows to training samples: open_or_build_samples.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "data/megatron/indexed_dataset.h"
#include "data/megatron/indexed_writer.h"
#include "data/megatron/instruction_dataset.h"
#include "data/preprocess.h"
#include "data/tokenized_dataset.h"
#include "preprocess_fakes.h"
#include "support/shared_data.h"
#include "support/throws.h"

namespace danlu::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SampleSpec sample_spec(const TestDirectory& directory, const std::string& dataset) {
  SampleSpec spec;
  spec.datasets = {dataset};
  spec.tokenizer = std::make_shared<ByteTokenizer>();
  spec.chat_encoder = std::make_shared<ByteChatEncoder>();
  spec.cache_dir = directory / "cache";
  spec.num_workers = 2;
  return spec;
}

TEST(OpenOrBuildSamples, TokenisesAlpacaRowsWithTheMaskOfTheTemplate) {
  const TestDirectory directory;
  directory.write("a.json", R"([{"instruction":"ab","input":"c","output":"d"},
                                {"instruction":"x","input":"","output":"yz"}])");
  const auto samples = open_or_build_samples(sample_spec(directory, directory / "a.json"));
  ASSERT_EQ(samples.train->size(), 2);
  const Sample first = samples.train->get(0);
  // u "ab\nc" a "d" </s>; every id is byte + 10.
  EXPECT_THAT(first.ids, ElementsAre('u' + 10, 'a' + 10, 'b' + 10, '\n' + 10, 'c' + 10, 'a' + 10,
                                     'd' + 10, 2));
  EXPECT_THAT(first.labels, ElementsAre(-100, -100, -100, -100, -100, -100, 'd' + 10, 2));
  EXPECT_THAT(first.segments, ElementsAre(0));
  EXPECT_EQ(samples.report.rows_kept, 2);
  EXPECT_EQ(samples.report.target_tokens, 2 + 3);
  EXPECT_THAT(samples.report.sample, HasSubstr("[LABELS] [-100 * 6]d<2>"));
}

std::string long_rows(int count) {
  std::string rows;
  for (int i = 0; i < count; ++i) {
    rows += fmt::format("{{\"instruction\":\"{}\",\"input\":\"\",\"output\":\"{}\"}}\n",
                        std::string(static_cast<size_t>(1 + i * 13 % 20), 'q'),
                        std::string(static_cast<size_t>(1 + i * 7 % 30), 'r'));
  }
  return rows;
}

int64_t count_tokens(const SampleSource& source) {
  int64_t sum = 0;
  for (int64_t i = 0; i < source.size(); ++i) {
    const Sample sample = source.get(i);
    EXPECT_EQ(static_cast<int64_t>(sample.ids.size()), source.length(i));
    sum += source.length(i);
  }
  return sum;
}

TEST(OpenOrBuildSamples, WorkThatAKillLeftBehindTheEntryIsRemoved) {
  const TestDirectory directory;
  directory.write("a.jsonl", long_rows(20));
  const SampleSpec spec = sample_spec(directory, directory / "a.jsonl");
  open_or_build_samples(spec);
  const fs::path cache = fs::path(directory / "cache") / "samples";
  const fs::path entry = fs::directory_iterator(cache)->path();
  fs::create_directory(entry.string() + ".building");
  write_file_atomic(entry.string() + ".building/0.tokens", "as large as the data");
  open_or_build_samples(spec);
  EXPECT_EQ(std::distance(fs::directory_iterator(cache), fs::directory_iterator()), 1);
}

TEST(OpenOrBuildSamples, TheSecondTimeItReadsTheCache) {
  const TestDirectory directory;
  directory.write("a.jsonl", long_rows(20));
  const SampleSpec spec = sample_spec(directory, directory / "a.jsonl");
  const auto first = open_or_build_samples(spec);
  SampleSpec other = spec;
  other.num_workers = 1;
  const auto second = open_or_build_samples(other);
  EXPECT_EQ(first.train->content_hash(), second.train->content_hash());
  EXPECT_EQ(first.report.text(), second.report.text());
  size_t entries = 0;
  for (const auto& entry : fs::directory_iterator(directory / "cache/samples")) {
    EXPECT_TRUE(entry.is_directory()) << entry.path();
    ++entries;
  }
  EXPECT_EQ(entries, 1u);
  other.max_length = 30;
  open_or_build_samples(other);
  other.truncation = Truncation::kLeft;
  open_or_build_samples(other);
  entries = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(directory / "cache/samples")) {
    ++entries;
  }
  EXPECT_EQ(entries, 3u);
}

TEST(OpenOrBuildSamples, ADamagedCacheEntryIsBuiltAgain) {
  const TestDirectory directory;
  directory.write("a.jsonl", long_rows(20));
  const SampleSpec spec = sample_spec(directory, directory / "a.jsonl");
  const int64_t tokens = count_tokens(*open_or_build_samples(spec).train);
  fs::path manifest;
  for (const auto& entry : fs::recursive_directory_iterator(directory / "cache")) {
    if (entry.path().filename() == "manifest.json") manifest = entry.path();
  }
  const std::string good = read_file(manifest);
  for (const char* damaged : {"", "{\"report\": ", "[]", "{}", "{\"report\": 5}",
                              "{\"report\": {\"rows_read\": \"many\"}}"}) {
    write_file_atomic(manifest, damaged);
    EXPECT_EQ(count_tokens(*open_or_build_samples(spec).train), tokens) << damaged;
    EXPECT_EQ(read_file(manifest), good) << damaged;
  }
}

TEST(OpenOrBuildSamples, PacksEverySampleOnceWithItsSegments) {
  const TestDirectory directory;
  directory.write("a.jsonl", long_rows(500));
  SampleSpec spec = sample_spec(directory, directory / "a.jsonl");
  spec.max_length = 60;
  const auto plain = open_or_build_samples(spec);
  spec.pack_sequences = true;
  const auto packed = open_or_build_samples(spec);
  EXPECT_EQ(packed.num_train_rows, 500);
  EXPECT_LT(packed.train->size(), 400);
  EXPECT_EQ(count_tokens(*packed.train), count_tokens(*plain.train));
  std::multiset<std::vector<int32_t>> expected, found;
  for (int64_t i = 0; i < plain.train->size(); ++i) {
    Sample sample = plain.train->get(i);
    sample.ids.insert(sample.ids.end(), sample.labels.begin(), sample.labels.end());
    expected.insert(sample.ids);
  }
  for (int64_t i = 0; i < packed.train->size(); ++i) {
    const Sample sample = packed.train->get(i);
    EXPECT_LE(sample.ids.size(), 60u);
    for (size_t s = 0; s < sample.segments.size(); ++s) {
      const auto begin = sample.segments[s];
      const auto end = s + 1 < sample.segments.size() ? sample.segments[s + 1]
                                                      : static_cast<int32_t>(sample.ids.size());
      std::vector<int32_t> both(sample.ids.begin() + begin, sample.ids.begin() + end);
      both.insert(both.end(), sample.labels.begin() + begin, sample.labels.begin() + end);
      found.insert(both);
    }
  }
  EXPECT_EQ(found, expected);
  spec.max_length = 0;
  EXPECT_THAT(test::error_of<UsageError>([&] { open_or_build_samples(spec); }),
              HasSubstr("[pack_sequences] needs --max_length"));
}

TEST(OpenOrBuildSamples, SplitsAValidationPartOffBySeed) {
  const TestDirectory directory;
  directory.write("a.jsonl", long_rows(200));
  SampleSpec spec = sample_spec(directory, directory / "a.jsonl");
  const auto all = open_or_build_samples(spec);
  spec.val_ratio = 0.1;
  const auto split = open_or_build_samples(spec);
  EXPECT_EQ(split.val->size(), 20);
  EXPECT_EQ(split.train->size(), 180);
  EXPECT_EQ(count_tokens(*split.val) + count_tokens(*split.train), count_tokens(*all.train));
  spec.seed = 43;
  EXPECT_NE(open_or_build_samples(spec).val->content_hash(), split.val->content_hash());
  spec.val_ratio = 1;
  EXPECT_THAT(error_text<UsageError>([&] { open_or_build_samples(spec); }),
              HasSubstr("[val_ratio]"));
}

TEST(OpenOrBuildSamples, CutsByMegatronsSplitInFileOrder) {
  const TestDirectory directory;
  directory.write("a.jsonl", long_rows(20));
  SampleSpec spec = sample_spec(directory, directory / "a.jsonl");
  const auto all = open_or_build_samples(spec);
  spec.split_text = "80,15,5";
  spec.val_ratio = 0.5;
  const auto split = open_or_build_samples(spec);
  ASSERT_EQ(split.num_train_rows, 16);
  ASSERT_EQ(split.num_val_rows, 3);
  for (int64_t i = 0; i < 16; ++i) EXPECT_EQ(split.train->get(i).ids, all.train->get(i).ids);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(split.val->get(i).ids, all.train->get(16 + i).ids);
  spec.split_text = "100,0,0";
  EXPECT_EQ(open_or_build_samples(spec).num_train_rows, 20);
  EXPECT_EQ(open_or_build_samples(spec).val, nullptr);
  spec.split_text = "0,1,0";
  EXPECT_THAT(error_text<DataError>([&] { open_or_build_samples(spec); }),
              HasSubstr("--split 0,1,0: none of the 20 samples"));
  spec.val_datasets = spec.datasets;
  EXPECT_THAT(error_text<UsageError>([&] { open_or_build_samples(spec); }),
              HasSubstr("--split and --val_dataset"));
}

TEST(OpenOrBuildSamples, ReadsValidationDataOfItsOwn) {
  const TestDirectory directory;
  directory.write("a.jsonl", long_rows(5));
  directory.write("b.jsonl", long_rows(3));
  SampleSpec spec = sample_spec(directory, directory / "a.jsonl");
  spec.val_datasets = {directory / "b.jsonl"};
  spec.val_ratio = 0.5;
  const auto samples = open_or_build_samples(spec);
  EXPECT_EQ(samples.train->size(), 5);
  EXPECT_EQ(samples.val->size(), 3);
}

TEST(OpenOrBuildSamples, RowsThatValidationLosesAreCountedAndItsRowsAreNotLimited) {
  const TestDirectory directory;
  directory.write("a.jsonl", long_rows(5));
  directory.write("b.jsonl", long_rows(3) + "{\"instruction\":\"q\",\"input\":\"\"}\n");
  SampleSpec spec = sample_spec(directory, directory / "a.jsonl");
  spec.val_datasets = {directory / "b.jsonl"};
  spec.max_rows_of_all = 2;
  const auto samples = open_or_build_samples(spec);
  EXPECT_EQ(samples.train->size(), 2);
  EXPECT_EQ(samples.val->size(), 3) << "the limit is of training data";
  EXPECT_EQ(samples.report.rows_dropped(), 0);
  EXPECT_EQ(samples.val_report.rows_read, 4);
  EXPECT_EQ(samples.val_report.rows_dropped(), 1);
  ASSERT_EQ(samples.val_report.dropped.size(), 1u);
  EXPECT_THAT(samples.val_report.dropped[0].examples, ElementsAre(HasSubstr("b.jsonl:4")));
}

TEST(OpenOrBuildSamples, TakesAsManyRowsAsAreAskedForWhereTheyAreRepeated) {
  const TestDirectory directory;
  directory.write("a.jsonl", long_rows(5));
  SampleSpec spec = sample_spec(directory, directory / "a.jsonl#12");
  EXPECT_EQ(open_or_build_samples(spec).train->size(), 5);
  spec.choice_by_info = RowChoice::kDrawn;
  EXPECT_EQ(open_or_build_samples(spec).train->size(), 5) << "no dataset_info.json limits it";
  spec.choice = RowChoice::kDrawn;
  const auto drawn = open_or_build_samples(spec);
  EXPECT_EQ(drawn.train->size(), 12);
  EXPECT_EQ(drawn.report.rows_read, 12);
  spec.datasets = {directory / "a.jsonl#3"};
  const uint64_t hash = open_or_build_samples(spec).train->content_hash();
  EXPECT_EQ(open_or_build_samples(spec).train->content_hash(), hash);
  spec.seed += 1;
  EXPECT_NE(open_or_build_samples(spec).train->content_hash(), hash)
      << "another draw is no cached one";
  spec.datasets = {directory / "a.jsonl"};
  spec.max_rows_of_all = 20;
  EXPECT_EQ(open_or_build_samples(spec).train->size(), 5) << "a limit of all repeats nothing";
}

TEST(OpenOrBuildSamples, CutsAtTheEndAskedForAndDropsWhatLosesItsTargets) {
  const TestDirectory directory;
  // u qqq a rrr </s>: 9 tokens.
  directory.write("a.jsonl", R"({"instruction":"qqq","input":"","output":"rst"})");
  SampleSpec spec = sample_spec(directory, directory / "a.jsonl");
  spec.max_length = 6;
  spec.truncation = Truncation::kRight;
  EXPECT_THAT(open_or_build_samples(spec).train->get(0).ids,
              ElementsAre('u' + 10, 'q' + 10, 'q' + 10, 'q' + 10, 'a' + 10, 'r' + 10));
  spec.truncation = Truncation::kLeft;
  const auto left = open_or_build_samples(spec);
  EXPECT_THAT(left.train->get(0).labels, ElementsAre(-100, -100, 'r' + 10, 's' + 10, 't' + 10, 2));
  EXPECT_EQ(left.report.truncated[0].count, 1);
  spec.max_length = 4;
  spec.truncation = Truncation::kRight;
  EXPECT_THAT(error_text<DataError>([&] { open_or_build_samples(spec); }),
              HasSubstr("no token carries loss after truncation"));
}

/// What is left of rows within `limit` tokens, each turn's prompt and answer in shares.
std::string cut_in_shares(const std::string& row, int64_t limit) {
  const TestDirectory directory;
  directory.write("a.jsonl", row);
  SampleSpec spec = sample_spec(directory, directory / "a.jsonl");
  spec.max_length = limit;
  spec.truncation = Truncation::kShares;
  const Sample sample = open_or_build_samples(spec).train->get(0);
  std::string text;
  for (size_t i = 0; i < sample.ids.size(); ++i) {
    const std::string token =
        sample.ids[i] == 2 ? "." : std::string(1, static_cast<char>(sample.ids[i] - 10));
    text += sample.labels[i] == kIgnoreLabel ? token : "[" + token + "]";
  }
  return text;
}

// LLaMA-Factory's infer_seqlen: what is shorter than half of the limit stays whole.
TEST(OpenOrBuildSamples, PromptsGiveWayToAnswersInShares) {
  EXPECT_EQ(cut_in_shares(R"({"instruction":"qqqqqqqqqqqqqqqq","input":"","output":"rs"})", 8),
            "uqqqq[r][s][.]");
  EXPECT_EQ(cut_in_shares(R"({"instruction":"q","input":"","output":"rrrrrrrrrrrrrrrr"})", 8),
            "uqa[r][r][r][r][r]");
  // 10 and 10 of 8: 4 each.
  EXPECT_EQ(cut_in_shares(R"({"instruction":"qqqqqqqq","input":"","output":"rrrrrrrrr"})", 8),
            "uqqq[r][r][r][r]");
  const auto turns = [](const std::string& loss) {
    return R"({"messages":[{"role":"user","content":"qq"},{"role":"assistant","content":"r")" +
           loss +
           R"(},{"role":"user","content":"xxxxxxxxxxxx"},{"role":"assistant","content":"z"}]})";
  };
  // 4 and 2 of 10, then 14 and 2 of the 4 that are left: int(4 * 2 / 16) is 0.
  EXPECT_EQ(cut_in_shares(turns(""), 10), "uqqa[r][.]uxxx");
  // Where the last answer alone is learnt, it is the first to get its share.
  EXPECT_EQ(cut_in_shares(turns(R"(,"loss":false)"), 10), "uxxxxxxx[z][.]");
}

TEST(OpenOrBuildSamples, TextsEndWithEosAndCanBeSplit) {
  const TestDirectory directory;
  directory.write("a.txt", "abcdefg\nhi\n");
  SampleSpec spec = sample_spec(directory, directory / "a.txt");
  EXPECT_EQ(open_or_build_samples(spec).train->get(1).ids.back(), 2);
  spec.max_length = 3;
  spec.truncation = Truncation::kSplit;
  const auto samples = open_or_build_samples(spec);
  // abc def g</s> | hi</s>
  ASSERT_EQ(samples.train->size(), 4);
  EXPECT_THAT(samples.train->get(2).ids, ElementsAre('g' + 10, 2));
  EXPECT_EQ(samples.train->get(2).labels, samples.train->get(2).ids);
}

TEST(OpenOrBuildSamples, SaysThatConversationsNeedATemplate) {
  const TestDirectory directory;
  directory.write("a.jsonl", long_rows(2));
  SampleSpec spec = sample_spec(directory, directory / "a.jsonl");
  spec.chat_encoder = nullptr;
  EXPECT_THAT(error_text<ModelError>([&] { open_or_build_samples(spec); }),
              HasSubstr("need a chat template"));
  try {
    open_or_build_samples(spec);
  } catch (const ModelError& error) {
    EXPECT_THAT(error.hint(), AllOf(HasSubstr("--template: "), HasSubstr("chatml")));
  }
}

TEST(OpenOrBuildSamples, OpensPreprocessedPrefixesBesideRawRows) {
  const TestDirectory directory;
  directory.write("a.jsonl", long_rows(30));
  PreprocessSpec neat;
  neat.inputs = {directory / "a.jsonl"};
  neat.output_prefix = directory / "neat";
  neat.pack = PackMode::kNeat;
  neat.seq_length = 80;
  neat.show_progress = false;
  SampleSpec spec = sample_spec(directory, directory / "a.jsonl");
  const auto tokenizer = spec.tokenizer;
  const auto encoder = spec.chat_encoder;
  const auto made = preprocess(neat, {[=] { return tokenizer; }, [=](auto) { return encoder; }});
  const auto raw = open_or_build_samples(spec);
  spec.datasets = {directory / "neat"};
  const auto packed = open_or_build_samples(spec);
  EXPECT_EQ(packed.train->size(), made.report.packed_sequences);
  int64_t tokens = 0, segments = 0;
  for (int64_t i = 0; i < packed.train->size(); ++i) {
    tokens += static_cast<int64_t>(packed.train->get(i).ids.size());
    segments += static_cast<int64_t>(packed.train->get(i).segments.size());
  }
  EXPECT_EQ(tokens, count_tokens(*raw.train));
  EXPECT_EQ(segments, 30);
  spec.datasets = {directory / "neat", directory / "a.jsonl"};
  EXPECT_EQ(open_or_build_samples(spec).train->size(), packed.train->size() + 30);
}

/// Instruction data as another program writes them, padded to equal length.
class TokenisedFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    // 3 tokens, 6 tokens with targets at the end, 7 with targets at the start, a pack of 2 + 4.
    write("input_ids", {{11, 12, 13, 0, 0, 0, 0},
                        {21, 22, 23, 24, 25, 26, 0},
                        {31, 32, 33, 34, 35, 36, 37},
                        {41, 42, 43, 44, 45, 46, 0}});
    write("attention_mask", {{1, 1, 1, 0, 0, 0, 0},
                             {1, 1, 1, 1, 1, 1, 0},
                             {1, 1, 1, 1, 1, 1, 1},
                             {1, 1, 2, 2, 2, 2, 0}});
    write("labels", {{-100, 12, 13, -100, -100, -100, -100},
                     {-100, -100, -100, -100, 25, 26, -100},
                     {-100, 32, 33, -100, -100, -100, -100},
                     {-100, 42, -100, 44, 45, 46, -100}});
    spec_ = sample_spec(directory_, directory_ / "d");
    spec_.max_length = 4;
  }
  void write(const char* field, const std::vector<std::vector<int32_t>>& rows) {
    IndexedWriter writer(instruction_field_prefix(directory_ / "d", field), TokenType::kI32);
    for (const auto& row : rows) writer.add_document(row);
    writer.commit();
  }
  TestDirectory directory_;
  SampleSpec spec_;
};

TEST_F(TokenisedFiles, LongSamplesAreDroppedAndCounted) {
  EXPECT_THAT(error_text<DataError>([&] { open_or_build_samples(spec_); }),
              HasSubstr("3 of 4 rows would be dropped"));
  spec_.max_dropped_ratio = 0.75;
  const auto samples = open_or_build_samples(spec_);
  ASSERT_EQ(samples.train->size(), 1);
  EXPECT_THAT(samples.train->get(0).ids, ElementsAre(11, 12, 13));
  EXPECT_LE(samples.train->length(0), 4);
  EXPECT_EQ(samples.report.rows_read, 4);
  EXPECT_EQ(samples.report.rows_kept, 1);
  ASSERT_EQ(samples.report.dropped.size(), 1u);
  EXPECT_EQ(samples.report.dropped[0].reason, "longer than 4 tokens");
  EXPECT_EQ(samples.report.dropped[0].count, 3);
  EXPECT_THAT(samples.report.dropped[0].examples[0], HasSubstr("d: sample 1: 6 tokens"));
  ASSERT_EQ(samples.tokenised_beforehand.size(), 1u);
  EXPECT_EQ(samples.tokenised_beforehand[0].prefix, directory_ / "d");
  EXPECT_EQ(samples.tokenised_beforehand[0].recorded_template, RecordedTemplate{});
}

TEST_F(TokenisedFiles, LongSamplesAreCutAtTheEndAskedFor) {
  spec_.truncation = Truncation::kRight;
  const auto right = open_or_build_samples(spec_);
  ASSERT_EQ(right.train->size(), 3);  // the second loses its targets
  EXPECT_THAT(right.train->get(1).ids, ElementsAre(31, 32, 33, 34));
  EXPECT_THAT(right.train->get(2).segments, ElementsAre(0, 2));
  EXPECT_EQ(right.report.truncated[0].count, 2);
  EXPECT_EQ(right.report.dropped[0].reason, "no token carries loss after truncation");

  spec_.truncation = Truncation::kLeft;
  const auto left = open_or_build_samples(spec_);
  ASSERT_EQ(left.train->size(), 3);  // the third loses its targets
  EXPECT_THAT(left.train->get(1).ids, ElementsAre(23, 24, 25, 26));
  EXPECT_THAT(left.train->get(1).labels, ElementsAre(-100, -100, 25, 26));
  EXPECT_THAT(left.train->get(2).ids, ElementsAre(43, 44, 45, 46));
  EXPECT_THAT(left.train->get(2).segments, ElementsAre(0));
  EXPECT_NE(left.train->content_hash(), right.train->content_hash());
  for (int64_t i = 0; i < 3; ++i) EXPECT_LE(left.train->length(i), 4);

  spec_.max_length = 5;
  EXPECT_THAT(open_or_build_samples(spec_).train->get(2).segments, ElementsAre(0, 1));
}

TEST_F(TokenisedFiles, AreLeftAsTheyAreWhereAllFit) {
  spec_.max_length = 7;
  const auto samples = open_or_build_samples(spec_);
  EXPECT_EQ(samples.train->size(), 4);
  EXPECT_TRUE(samples.report.dropped.empty());
  spec_.max_length = 0;
  EXPECT_EQ(open_or_build_samples(spec_).train->content_hash(), samples.train->content_hash());
}

TEST_F(TokenisedFiles, OfWhichNoneFitsAreAnError) {
  spec_.max_length = 2;
  EXPECT_THAT(error_text<DataError>([&] { open_or_build_samples(spec_); }),
              HasSubstr("none of the 4 samples is left: longer than 2 tokens"));
  spec_.max_length = 4;
  spec_.strict = true;
  EXPECT_THAT(error_text<DataError>([&] { open_or_build_samples(spec_); }),
              HasSubstr("d: sample 1: 6 tokens: longer than 4 tokens"));
}

TEST_F(TokenisedFiles, AnIdOfAnotherTokenizerIsNamedWithItsPlace) {
  write("input_ids", {{11, 12, 13, 0, 0, 0, 0},
                      {21, 22, 23, 24, 412, 26, 0},
                      {31, 32, 33, 34, 35, 36, 37},
                      {41, 42, 43, 44, 45, 46, 0}});
  spec_.max_length = 7;
  const auto samples = open_or_build_samples(spec_);
  EXPECT_THAT(error_text<DataError>([&] { samples.train->get(1); }),
              HasSubstr("d_packed_input_ids_document.bin: token 4 of sequence 1 is 412, not in the "
                        "tokenizer's vocabulary: ids are 0 to 265"));
}

TEST_F(TokenisedFiles, AreCountedBesideRows) {
  directory_.write("a.jsonl", long_rows(5));
  spec_.datasets.push_back(directory_ / "a.jsonl");
  spec_.max_length = 100;
  const auto samples = open_or_build_samples(spec_);
  EXPECT_EQ(samples.report.rows_read, 9);
  EXPECT_EQ(samples.report.rows_kept, 9);
  EXPECT_EQ(samples.report.lengths.count, 9);
  EXPECT_EQ(samples.tokenised_beforehand.size(), 1u);
}

TEST(OpenOrBuildTexts, MakesAMegatronDataSetOnce) {
  const TestDirectory directory;
  directory.write("a.txt", "ab\nc\n");
  SampleSpec spec = sample_spec(directory, directory / "a.txt");
  PreprocessReport report;
  const auto prefixes = open_or_build_texts(spec, &report);
  ASSERT_EQ(prefixes.size(), 1u);
  const IndexedDataset dataset(prefixes[0]);
  EXPECT_THAT(dataset.tokens(0), ElementsAre('a' + 10, 'b' + 10, 2));
  EXPECT_EQ(report.rows_kept, 2);
  EXPECT_EQ(open_or_build_texts(spec, &report), prefixes);
  spec.datasets = {prefixes[0].string()};
  EXPECT_EQ(open_or_build_texts(spec, &report), prefixes);
}

TEST(OpenOrBuildTexts, EveryFilesRowsAreCountedAndLimitedTogether) {
  const TestDirectory directory;
  directory.write("a.jsonl", "{\"text\":\"ab\",\"more\":1}\n{\"text\":\"\"}\n{\"text\":\"c\"}\n");
  directory.write("b.jsonl", "{\"text\":\"d\"}\n{\"text\":\"e\"}\n{\"text\":\"f\"}\n");
  directory.write("c.jsonl", "{\"text\":\"g\"}\n");
  SampleSpec spec = sample_spec(directory, directory / "a.jsonl");
  for (const char* other : {"b.jsonl", "c.jsonl"}) spec.datasets.push_back(directory / other);
  PreprocessReport report;
  EXPECT_EQ(open_or_build_texts(spec, &report).size(), 3u);
  EXPECT_EQ(report.rows_read, 7);
  EXPECT_EQ(report.rows_dropped(), 1);
  EXPECT_EQ(report.datasets.size(), 3u);
  spec.max_rows_of_all = 5;
  PreprocessReport limited;
  const auto prefixes = open_or_build_texts(spec, &limited);
  EXPECT_EQ(limited.rows_read, 5);
  ASSERT_EQ(prefixes.size(), 2u) << "nothing is left for the third";
  EXPECT_EQ(
      IndexedDataset(prefixes[0]).num_documents() + IndexedDataset(prefixes[1]).num_documents(), 4);
}

TEST(OpenOrBuildSamples, ReadsAllOfAlpacaAndDropsOnlyEmptyAndLongRows) {
  DANLU_REQUIRES_SHARED();
  const TestDirectory directory;
  const auto file = test::unpacked("instruct") / "alpaca_data.json";
  SampleSpec spec = sample_spec(directory, file.string());
  spec.max_length = 0;
  const auto samples = open_or_build_samples(spec);
  EXPECT_EQ(samples.report.rows_read, 52002);
  // 28 rows of the published file have an empty output.
  EXPECT_EQ(samples.train->size(), 52002 - 28);
  ASSERT_EQ(samples.report.dropped.size(), 1u);
  EXPECT_EQ(samples.report.dropped[0].reason, "empty answer");
}

}  // namespace
}  // namespace danlu::data
