// Rows with labels: their layouts, what a label may be, and the samples that they become.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "data/labelled_text.h"
#include "data/preprocess_run.h"
#include "data/tokenized_dataset.h"
#include "preprocess_fakes.h"

namespace danlu::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = LabelForm::Kind;

std::string numbers_text(const char* label, Kind kind, int64_t labels) {
  std::string problem, text;
  const auto numbers = label_numbers(Json::parse(label), {kind, labels}, &problem);
  if (!numbers) return problem;
  for (const float number : *numbers) text += (text.empty() ? "" : " ") + Json(number).dump();
  return text;
}

TEST(Labels, AreWhatTheProblemSays) {
  EXPECT_EQ(numbers_text("2", Kind::kClass, 3), "2.0");
  EXPECT_EQ(numbers_text("\"1\"", Kind::kClass, 3), "1.0");
  EXPECT_EQ(numbers_text("2.0", Kind::kClass, 3), "2.0");
  EXPECT_EQ(numbers_text("true", Kind::kClass, 2), "1.0");
  EXPECT_EQ(numbers_text("[2, 0]", Kind::kClasses, 4), "1.0 0.0 1.0 0.0");
  EXPECT_EQ(numbers_text("[]", Kind::kClasses, 2), "0.0 0.0");
  EXPECT_EQ(numbers_text("\"[1]\"", Kind::kClasses, 2), "0.0 1.0");
  EXPECT_EQ(numbers_text("-0.5", Kind::kNumbers, 1), "-0.5");
  EXPECT_EQ(numbers_text("[1, 2.5]", Kind::kNumbers, 2), "1.0 2.5");
  EXPECT_EQ(numbers_text("3", Kind::kClass, 3), "got 3, not a class from 0 to 2");
  EXPECT_EQ(numbers_text("-1", Kind::kClass, 3), "got -1, not a class from 0 to 2");
  EXPECT_EQ(numbers_text("0.5", Kind::kClass, 3), "got 0.5, not a class from 0 to 2");
  EXPECT_EQ(numbers_text("\"cat\"", Kind::kClass, 3), "got \"cat\", not a class from 0 to 2");
  EXPECT_EQ(numbers_text("1", Kind::kClasses, 2), "got 1, not a list of classes from 0 to 1");
  EXPECT_EQ(numbers_text("[0, 2]", Kind::kClasses, 2),
            "got [0,2], not a list of classes from 0 to 1");
  EXPECT_EQ(numbers_text("[1]", Kind::kNumbers, 2), "got [1], not 2 numbers");
  EXPECT_EQ(numbers_text("null", Kind::kNumbers, 1), "got null, not a number");
}

SampleSpec labelled_spec(const TestDirectory& directory, const std::string& dataset,
                         const LabelForm& form) {
  SampleSpec spec;
  spec.kind = SampleKind::kLabelled;
  spec.label_form = form;
  spec.datasets = {dataset};
  spec.tokenizer = std::make_shared<ByteTokenizer>();
  spec.chat_encoder = std::make_shared<ByteChatEncoder>();
  spec.cache_dir = directory / "cache";
  spec.num_workers = 2;
  return spec;
}

std::string text_of_ids(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += id >= 10 ? static_cast<char>(id - 10) : '$';
  return text;
}

TEST(LabelledSamples, OfEveryLayout) {
  const TestDirectory directory;
  const std::vector<std::string> layouts = {
      R"({"messages":[{"role":"user","content":"qq"}],"label":1})", R"({"query":"qq","label":1})",
      R"({"text":"qq","label":1})", R"({"instruction":"qq","input":"","label":1})"};
  for (size_t i = 0; i < layouts.size(); ++i) {
    SCOPED_TRACE(layouts[i]);
    const std::string name =
        directory.write("rows" + std::to_string(i) + ".jsonl", layouts[i] + "\n").string();
    const auto samples = open_or_build_samples(labelled_spec(directory, name, {Kind::kClass, 2}));
    ASSERT_EQ(samples.train->size(), 1);
    const Sample sample = samples.train->get(0);
    EXPECT_THAT(text_of_ids(sample.ids), HasSubstr("qq"));
    EXPECT_THAT(sample.segment_labels, ElementsAre(1.0F));
    EXPECT_TRUE(sample.labels_are_targets);
    EXPECT_EQ(sample.labels.back(), sample.ids.back());
    EXPECT_EQ(std::count(sample.labels.begin(), sample.labels.end(), kIgnoreLabel),
              std::ssize(sample.labels) - 1);
  }
}

TEST(LabelledSamples, WithoutATemplateMessagesAreOneText) {
  const TestDirectory directory;
  const fs::path name = directory.write(
      "rows.jsonl",
      R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"ab"},)"
      R"({"role":"assistant","content":"cd"}],"label":0})"
      "\n");
  SampleSpec spec =
      labelled_spec(directory, name.string(), {Kind::kClass, 2, /*without_template=*/true});
  spec.chat_encoder = nullptr;
  EXPECT_THAT(text_of_ids(open_or_build_samples(spec).train->get(0).ids), HasSubstr("abcd"));
}

TEST(LabelledSamples, PacksAndBatchesKeepTheirLabels) {
  const TestDirectory directory;
  std::string rows;
  for (int i = 0; i < 6; ++i)
    rows += Json{{"text", std::string(static_cast<size_t>(3 + i), 'x')},
                 {"label", Json::array({i % 2, 2})}}
                .dump() +
            "\n";
  SampleSpec spec =
      labelled_spec(directory, directory.write("rows.jsonl", rows).string(), {Kind::kClasses, 3});
  spec.pack_sequences = true;
  spec.max_length = 64;
  const auto samples = open_or_build_samples(spec);
  ASSERT_EQ(samples.train->size(), 1);
  const Batch batch = make_batch({samples.train->get(0)});
  ASSERT_EQ(batch.segment_starts.size(), 7u);
  ASSERT_EQ(batch.segment_labels.size(), 18u);
  int32_t shortest = batch.segment_starts[6];
  for (size_t s = 0; s < 6; ++s)
    shortest = std::min(shortest, batch.segment_starts[s + 1] - batch.segment_starts[s]);
  for (size_t s = 0; s < 6; ++s) {
    const int32_t longer = batch.segment_starts[s + 1] - batch.segment_starts[s] - shortest;
    const std::vector<float> label(batch.segment_labels.begin() + static_cast<int64_t>(3 * s),
                                   batch.segment_labels.begin() + static_cast<int64_t>(3 * s + 3));
    // Row i has i letters more than the first, and the classes i % 2 and 2.
    EXPECT_EQ(label,
              longer % 2 == 0 ? (std::vector<float>{1, 0, 1}) : (std::vector<float>{0, 1, 1}));
  }
  EXPECT_EQ(part_of(batch, {{0, 4}}).segment_labels, batch.segment_labels);
}

TEST(LabelledSamples, RowsWithoutOrWithOtherLabelsAreDroppedAndCounted) {
  const TestDirectory directory;
  const fs::path name = directory.write("rows.jsonl",
                                        "{\"query\":\"a\",\"label\":0}\n{\"query\":\"b\"}\n"
                                        "{\"query\":\"c\",\"label\":7}\n"
                                        "{\"query\":\"d\",\"label\":1}\n");
  SampleSpec spec = labelled_spec(directory, name.string(), {Kind::kClass, 2});
  spec.max_dropped_ratio = 1;
  const auto samples = open_or_build_samples(spec);
  EXPECT_EQ(samples.train->size(), 2);
  EXPECT_EQ(samples.report.rows_dropped(), 2);
  // Other labels are other samples, though the rows are the same.
  spec.label_form.labels = 8;
  EXPECT_EQ(open_or_build_samples(spec).train->size(), 3);
}

}  // namespace
}  // namespace danlu::data
