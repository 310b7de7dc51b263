// How many rows are held out: a share of them, or a number.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/tokenized_dataset.h"
#include "preprocess_fakes.h"
#include "support/throws.h"

namespace danlu::data {
namespace {

SampleSpec spec_of_ten(const TestDirectory& directory) {
  std::string rows;
  for (char c = 'a'; c < 'a' + 10; ++c)
    rows += std::string(R"({"instruction":"x","input":"","output":")") + c + "\"}\n";
  directory.write("ten.jsonl", rows);
  SampleSpec spec;
  spec.datasets = {directory / "ten.jsonl"};
  spec.tokenizer = std::make_shared<ByteTokenizer>();
  spec.chat_encoder = std::make_shared<ByteChatEncoder>();
  spec.cache_dir = directory / "cache";
  spec.num_workers = 1;
  return spec;
}

TEST(HeldOutRows, AreAShareOrANumber) {
  const TestDirectory directory;
  SampleSpec spec = spec_of_ten(directory);
  spec.val_ratio = 0.2;
  EXPECT_EQ(open_or_build_samples(spec).val->size(), 2);
  spec.val_ratio = 0;
  spec.val_rows = 3;
  const TrainValSamples samples = open_or_build_samples(spec);
  EXPECT_EQ(samples.val->size(), 3);
  EXPECT_EQ(samples.train->size(), 7);
}

TEST(HeldOutRows, LeaveSomeForTraining) {
  const TestDirectory directory;
  SampleSpec spec = spec_of_ten(directory);
  spec.val_rows = 10;
  EXPECT_THAT(test::error_of<DataError>([&] { open_or_build_samples(spec); }),
              testing::HasSubstr("10 samples are to be held out of 10"));
}

}  // namespace
}  // namespace danlu::data
