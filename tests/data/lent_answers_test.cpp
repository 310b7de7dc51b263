// KTO: whose answer a row is given to measure the drift by.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "data/tokenized_dataset.h"
#include "preprocess_fakes.h"

namespace danlu::data {
namespace {

using ::testing::HasSubstr;

// Pairs as rows: an answer to the same prompt is trained itself, and says nothing of the drift.
TEST(LentAnswers, TheSecondSegmentHasAnAnswerToAnotherPrompt) {
  const TestDirectory directory;
  const auto row = [](const char* prompt, const char* answer) {
    return fmt::format(R"({{"prompt":"{}","completion":"{}","label":true}})"
                       "\n",
                       prompt, answer);
  };
  const auto seconds = [&](const std::string& name, const std::string& rows) {
    directory.write(name, rows);
    SampleSpec spec;
    spec.kind = SampleKind::kUnpaired;
    spec.datasets = {directory / name};
    spec.tokenizer = std::make_shared<ByteTokenizer>();
    spec.chat_encoder = std::make_shared<ByteChatEncoder>();
    spec.cache_dir = directory / "cache";
    const auto source = open_or_build_samples(spec).train;
    std::string letters;
    for (int64_t i = 0; i < source->size(); ++i) {
      const Sample sample = source->get(i);
      letters += static_cast<char>(sample.ids[sample.ids.size() - 2] - 10);
      EXPECT_EQ(source->length(i), std::ssize(sample.ids)) << i;
    }
    return std::make_pair(letters, source->content_hash());
  };
  // The first row's prompt stands at the end, too.
  const auto pairs = seconds("a.jsonl", row("A", "a") + row("A", "b") + row("B", "c") +
                                            row("B", "d") + row("B", "e") + row("A", "f"));
  EXPECT_EQ(pairs.first, "eebbbe");
  const auto apart = seconds("b.jsonl", row("A", "a") + row("B", "b") + row("C", "c"));
  EXPECT_EQ(apart.first, "cab");
  testing::internal::CaptureStderr();
  EXPECT_EQ(seconds("c.jsonl", row("A", "a") + row("A", "b") + row("A", "c")).first, "cab");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("[kto] all 3 rows have one prompt: the drift"));
}

}  // namespace
}  // namespace danlu::data
