// LLaVA's rows as MindSpeed-MM's.
#include "data/llava_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "preprocess_fakes.h"

namespace danlu::data {
namespace {

using ::testing::HasSubstr;

constexpr const char* kRows = R"([
 {"id": "0", "image": "a.jpg", "conversations": [
   {"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "A dog."}]},
 {"id": "1", "image": "gone.jpg", "conversations": [
   {"from": "human", "value": "<image>"}, {"from": "gpt", "value": "?"}]},
 {"id": "2", "conversations": [{"from": "human", "value": "你好"}, {"from": "gpt", "value": "好"}]}
])";

LlavaRowsSpec spec_in(const TestDirectory& directory) {
  LlavaRowsSpec spec;
  spec.input = directory / "in.json";
  spec.image_dir = directory / "pictures";
  spec.output = directory / "out/rows.json";
  return spec;
}

TEST(LlavaRows, BecomeImagesAndMessages) {
  const TestDirectory directory;
  directory.write("in.json", kRows);
  directory.write("pictures/a.jpg", "x");
  const PreprocessReport report = convert_llava_rows(spec_in(directory));
  EXPECT_EQ(report.rows_read, 3);
  EXPECT_EQ(report.rows_kept, 2);
  EXPECT_EQ(report.dropped.at(0).reason, "missing file");
  EXPECT_THAT(report.dropped[0].examples.at(0), HasSubstr("in.json:4: "));
  const Json expected =
      parse_json(R"([{"images": [")" + (directory / "pictures/a.jpg") + R"("], "messages": [
           {"role": "user", "content": "<image>\nWhat?"},
           {"role": "assistant", "content": "A dog."}]},
          {"images": [], "messages": [{"role": "user", "content": "你好"},
           {"role": "assistant", "content": "好"}]}])",
                 "test");
  EXPECT_EQ(read_json_file(directory / "out/rows.json"), expected);
}

TEST(LlavaRows, NeverReplaceWhatIsThere) {
  const TestDirectory directory;
  directory.write("in.json", kRows);
  directory.write("pictures/a.jpg", "x");
  directory.write("out/rows.json", "mine");
  EXPECT_THAT(error_text<UsageError>([&] { convert_llava_rows(spec_in(directory)); }),
              HasSubstr("rows.json"));
  EXPECT_EQ(read_file(directory / "out/rows.json"), "mine");
}

TEST(LlavaRows, AnUnknownRoleIsAnErrorAndLeavesNothing) {
  const TestDirectory directory;
  directory.write("in.json", R"([{"conversations": [{"from": "bird", "value": "tweet"}]}])");
  EXPECT_THAT(error_text<DataError>([&] { convert_llava_rows(spec_in(directory)); }),
              HasSubstr("in.json:1: the role \"bird\" is neither human nor gpt"));
  EXPECT_FALSE(fs::exists(directory / "out/rows.json"));
}

TEST(LlavaRows, MissingPicturesMayBeAnError) {
  const TestDirectory directory;
  directory.write("in.json", kRows);
  // Two of three rows: the wrong directory, most likely.
  LlavaRowsSpec spec = spec_in(directory);
  spec.max_dropped_ratio = 0.2;
  EXPECT_THAT(error_text<DataError>([&] { convert_llava_rows(spec); }),
              HasSubstr("2 of 3 rows would be dropped"));
  spec.strict = true;
  EXPECT_THAT(error_text<DataError>([&] { convert_llava_rows(spec); }),
              HasSubstr("in.json:2: there is no "));
  EXPECT_FALSE(fs::exists(directory / "out/rows.json"));
}

}  // namespace
}  // namespace danlu::data
