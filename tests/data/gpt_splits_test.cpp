// Splits and blends of odd sizes: members without a sample, lists typed wrongly, every sample read.
#include "data/megatron/gpt_splits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "data/batch_stream.h"
#include "data/indexed_test_support.h"
#include "data/megatron/blend.h"
#include "data/megatron/instruction_dataset.h"

namespace danlu::data {
namespace {

using ::testing::HasSubstr;

template <typename ErrorType, typename Call>
std::string hint_of(Call call) {
  try {
    call();
  } catch (const ErrorType& error) {
    return error.hint();
  }
  ADD_FAILURE() << "no error of this kind";
  return {};
}

class OddSplits : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.sequence_length = 8;
    options_.use_cache = false;
  }
  /// `count` documents of `length` tokens, all of them `token`.
  std::string write(const std::string& name, int count, int length, int32_t token = 1) {
    write_documents(folder_ / name, std::vector<std::vector<int32_t>>(
                                        static_cast<size_t>(count),
                                        std::vector<int32_t>(static_cast<size_t>(length), token)));
    return (folder_ / name).string();
  }
  std::array<std::shared_ptr<const SampleSource>, 3> open(std::vector<std::string> items,
                                                          const std::string& split,
                                                          SplitSizes sizes = {}) {
    options_.split_text = split;
    return open_gpt_splits({std::move(items), {}}, sizes, options_);
  }
  ScratchFolder folder_;
  GptOptions options_;
};

TEST_F(OddSplits, EverySampleOfEverySplitIsReadable) {
  std::mt19937 random(7);
  const auto below = [&](int bound) {
    return static_cast<int>(random() % static_cast<unsigned>(bound));
  };
  for (int round = 0; round < 60; ++round) {
    std::vector<std::string> items;
    const bool weighted = round % 3 == 2;
    for (int member = 0; member < 1 + below(3); ++member) {
      if (weighted) items.push_back(std::to_string(1 + below(9)));
      items.push_back(write("m" + std::to_string(member), 1 + below(40), 5 + below(40)));
    }
    SplitSizes sizes;
    if (weighted || below(2) == 0) sizes = {1 + below(200), 1 + below(60), 1 + below(60)};
    const auto splits = open(items, "80,10,10", sizes);
    for (size_t at = 0; at < splits.size(); ++at) {
      if (!splits[at]) continue;
      ASSERT_GT(splits[at]->size(), 0) << "round " << round << " split " << at;
      for (int64_t i = 0; i < splits[at]->size(); ++i) {
        ASSERT_EQ(splits[at]->length(i), 8);
        ASSERT_EQ(splits[at]->get(i).ids.size(), 8u);
      }
    }
  }
}

TEST_F(OddSplits, ASampleBeyondTheLastIsAnErrorNotACrash) {
  const auto blend = open({write("a", 30, 20), write("b", 30, 20)}, "90,10,0")[1];
  ASSERT_TRUE(blend);
  for (const int64_t index : {blend->size(), blend->size() + 1000000, int64_t{-1}}) {
    EXPECT_THROW(blend->length(index), InternalError) << index;
    EXPECT_THROW(blend->get(index), InternalError) << index;
  }
  const auto one = open({(folder_ / "a").string()}, "90,10,0")[1];
  EXPECT_THROW(one->length(one->size()), InternalError);
}

// An evaluation reads file order once, and the thread that reads ahead goes past the end.
TEST_F(OddSplits, ReadingAheadPastTheEndOfAnEvaluationHarmsNothing) {
  const auto samples = open({write("a", 30, 20), write("b", 60, 20)}, "90,10,0")[1];
  BatchStreamOptions options;
  options.micro_batch_size = 2;
  options.max_tokens_per_micro_batch = 16;
  BatchStream stream(samples, [](int64_t index) { return index; }, options);
  int64_t seen = 0;
  while (seen < samples->size()) {
    for (const Batch& batch : stream.next().micro_batches) seen += batch.num_samples;
  }
  EXPECT_EQ(seen, samples->size());
}

TEST_F(OddSplits, NoShareForTrainingIsAnError) {
  const std::string a = write("a", 30, 20), b = write("b", 30, 20);
  for (const char* split : {"0,100,0", "0.0,1.0", "0,0,1"}) {
    for (const std::vector<std::string>& items : {std::vector{a}, std::vector{a, b}}) {
      EXPECT_THAT(message_of<DataError>([&] { open(items, split); }),
                  HasSubstr(std::string("--split ") + split + ": the training split is empty"));
    }
  }
  EXPECT_THAT(hint_of<DataError>([&] { open({a}, "0,100,0"); }), HasSubstr("--split 99,1,0"));
  EXPECT_THAT(message_of<DataError>([&] { open_gpt_splits({{}, {{{}, {a}, {}}}}, {}, options_); }),
              HasSubstr("the training split is empty"));
}

TEST_F(OddSplits, AMemberWithoutAShareLeavesTheOthersTheirs) {
  const std::string a = write("a", 30, 20, 1), tiny = write("tiny", 1, 20, 2);
  for (const bool weighted : {false, true}) {
    const auto items = weighted ? std::vector<std::string>{"0.5", a, "0.5", tiny}
                                : std::vector<std::string>{a, tiny};
    const auto splits = open(items, "90,10,0", weighted ? SplitSizes{40, 7, 7} : SplitSizes{});
    ASSERT_TRUE(splits[1]) << weighted;
    EXPECT_GE(splits[1]->size(), 7);
    for (int64_t i = 0; i < splits[1]->size(); ++i) EXPECT_EQ(splits[1]->get(i).ids[0], 1);
  }
  EXPECT_FALSE(open({tiny, tiny}, "90,10,0")[1]);
}

TEST_F(OddSplits, AMemberTooShortForASampleIsLeftOutOfValidationAndRefusedInTraining) {
  const std::string a = write("a", 30, 20), crumbs = write("crumbs", 30, 1);
  const auto splits = open({a, crumbs}, "80,20,0");
  ASSERT_TRUE(splits[1]);
  EXPECT_EQ(splits[1]->size(), (6 * 20 - 1) / 8);  // six crumbs make no sample
  EXPECT_FALSE(open({crumbs}, "80,20,0")[1]);
  EXPECT_THAT(message_of<DataError>([&] { open({a, write("bit", 2, 2)}, "100,0,0"); }),
              HasSubstr("bit: the train split has no sample of 8 tokens"));
}

TEST_F(OddSplits, WeightsWithoutANumberOfSamplesSayWhichFlagGivesIt) {
  const std::string a = write("a", 30, 20), b = write("b", 30, 20);
  const auto call = [&] { open({"0.3", a, "0.7", b}, "90,10,0", {100, {}, {}}); };
  EXPECT_THAT(message_of<UsageError>(call), HasSubstr("number of valid samples"));
  EXPECT_THAT(hint_of<UsageError>(call), HasSubstr("--eval-iters N"));
  EXPECT_THAT(hint_of<UsageError>([&] { open({"0.3", a, "0.7", b}, "90,10,0"); }),
              HasSubstr("--train-iters N"));
}

TEST_F(OddSplits, AListInOneWordIsCutAtBlanks) {
  const std::string a = write("a", 3, 20), b = write("with blank", 3, 20);
  EXPECT_EQ(parse_blend({"0.3 " + a + "  0.7 " + a}), (BlendSpec{{a, a}, {{0.3, 0.7}}}));
  EXPECT_EQ(parse_blend({b}), (BlendSpec{{b}, std::nullopt}));
  EXPECT_EQ(parse_blend({"1", b}), (BlendSpec{{b}, {{1.0}}}));
}

TEST_F(OddSplits, ANumberOutOfPlaceIsNamed) {
  const std::string a = write("a", 3, 20), number = write("7", 3, 20);
  EXPECT_THAT(message_of<UsageError>([&] { parse_blend({"0.3", a, "0.7"}); }),
              HasSubstr("weights and prefixes alternate, item 1 is the number 0.3"));
  EXPECT_THAT(message_of<UsageError>([&] { parse_blend({a, "0.7"}); }),
              HasSubstr("weights and prefixes alternate, item 2 is the number 0.7"));
  EXPECT_EQ(parse_blend({number}), (BlendSpec{{number}, std::nullopt}));
}

TEST_F(OddSplits, AMissingPrefixIsAnErrorOfTheData) {
  const auto call = [&] { open({(folder_ / "nowhere").string()}, "90,10,0"); };
  EXPECT_THAT(message_of<DataError>(call), HasSubstr("nowhere.idx does not exist"));
  EXPECT_THAT(hint_of<DataError>(call), HasSubstr("danlu preprocess"));
  write("half", 3, 20);
  fs::remove(folder_ / "half.bin");
  EXPECT_THAT(message_of<DataError>([&] { open({(folder_ / "half").string()}, "90,10,0"); }),
              HasSubstr("half.bin does not exist"));
}

TEST_F(OddSplits, AnIdOfAnotherTokenizerIsNamedWithItsPlace) {
  write_documents(folder_ / "d", {{1, 1, 412, 1, 1, 1, 1, 1, 1}});
  options_.vocab_size = 400;
  const auto train = open({(folder_ / "d").string()}, "1,0,0")[0];
  const auto call = [&] { train->get(0); };
  EXPECT_THAT(message_of<DataError>(call),
              HasSubstr("d.bin: token 2 of sequence 0 is 412, not in the tokenizer's vocabulary: "
                        "ids are 0 to 399"));
  EXPECT_THAT(hint_of<DataError>(call), HasSubstr("danlu preprocess"));
}

}  // namespace
}  // namespace danlu::data
