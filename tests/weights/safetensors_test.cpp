// Reading safetensors: what is legal is read, everything else is an error that says what and where.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/shared_data.h"
#include "support/throws.h"
#include "support/tiny_model.h"
#include "weights/bytes.h"
#include "weights/hf/safetensors_header.h"

namespace danlu::weights {
namespace {

using test::error_of;
using test::safetensors_bytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

SafetensorsHeader header_of(const std::string& bytes) {
  return parse_safetensors_header(test::as_bytes(bytes), "f");
}

std::string header_error(const std::string& bytes) {
  return error_of<ModelError>([&] { header_of(bytes); });
}

TEST(SafetensorsHeader, ReadsTensorsScalarsEmptyOnesAndMetadata) {
  const auto header = header_of(safetensors_bytes(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[],"data_offsets":[4,8]},)"
      R"("a":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]},"e":{"dtype":"I64","shape":[0,5],"data_offsets":[4,4]}}   )",
      "12345678"));
  ASSERT_EQ(header.entries.size(), 3u);
  EXPECT_EQ(header.entries[0].info.name, "a");
  EXPECT_EQ(header.entries[0].info.dtype, DType::kBF16);
  EXPECT_THAT(header.entries[0].info.shape, ElementsAre(2, 1));
  EXPECT_EQ(header.entries[1].info.name, "e");
  EXPECT_EQ(header.entries[2].info.name, "b");
  EXPECT_THAT(header.entries[2].info.shape, IsEmpty());
  EXPECT_EQ(header.metadata["format"], "pt");
}

TEST(SafetensorsHeader, AFileWithoutTensorsIsLegal) {
  EXPECT_TRUE(header_of(safetensors_bytes("{}", "")).entries.empty());
}

TEST(SafetensorsErrors, Lengths) {
  EXPECT_THAT(header_error("1234567"), HasSubstr("it has 7 bytes"));
  EXPECT_THAT(header_error(test::little_endian(100000001, 8) + "{}"),
              HasSubstr("100000001 bytes is beyond the limit"));
  EXPECT_THAT(header_error(test::little_endian(~uint64_t{0}, 8) + "{}"),
              HasSubstr("beyond the limit"));
  EXPECT_THAT(header_error(test::little_endian(3, 8) + "{}"),
              HasSubstr("the header needs 3 bytes, 2 follow"));
  EXPECT_THAT(header_error(test::little_endian(0, 8)), HasSubstr("must begin with {"));
  EXPECT_THAT(header_error(safetensors_bytes(" {}", "")), HasSubstr("must begin with {"));
  EXPECT_THAT(header_error(safetensors_bytes("{}", "x")),
              HasSubstr("describes 0 bytes of data, the file holds 1"));
}

TEST(SafetensorsErrors, Json) {
  EXPECT_THAT(header_error(safetensors_bytes("{\"a\":", "")), HasSubstr("not valid JSON"));
  EXPECT_THAT(header_error(safetensors_bytes("{\"\xff\":1}", "")), HasSubstr("not valid JSON"));
  EXPECT_THAT(header_error(safetensors_bytes("{\"a\":1}", "")),
              HasSubstr("a number stands where tensor a should have"));
  EXPECT_THAT(header_error(safetensors_bytes("{\"a\":[1]}", "")),
              HasSubstr("an array stands where tensor a"));
  EXPECT_THAT(header_error(safetensors_bytes("{\"__metadata__\":{\"k\":1}}", "")),
              HasSubstr("__metadata__ values must be strings"));
}

TEST(SafetensorsErrors, TensorEntries) {
  const auto entry = [](const std::string& fields) {
    return header_error(safetensors_bytes("{\"a\":{" + fields + "}}", "1234"));
  };
  const std::string dtype = R"("dtype":"F32")", shape = R"("shape":[1])",
                    offsets = R"("data_offsets":[0,4])";
  EXPECT_THAT(entry(shape + "," + offsets), HasSubstr("tensor a has no dtype"));
  EXPECT_THAT(entry(dtype + "," + offsets), HasSubstr("tensor a has no shape"));
  EXPECT_THAT(entry(dtype + "," + shape), HasSubstr("tensor a must have exactly two data_offsets"));
  EXPECT_THAT(entry(dtype + "," + shape + R"(,"data_offsets":[0])"),
              HasSubstr("exactly two data_offsets"));
  EXPECT_THAT(entry(dtype + "," + shape + R"(,"data_offsets":[0,4,4])"),
              HasSubstr("exactly two data_offsets"));
  EXPECT_THAT(entry(R"("dtype":"F33",)" + shape + "," + offsets), HasSubstr("unknown dtype F33"));
  EXPECT_THAT(entry(R"("dtype":"F8_E5M2","shape":[4],)" + offsets),
              HasSubstr("F8_E5M2, which Danlu does not read"));
  EXPECT_THAT(entry(dtype + R"(,"shape":[-1],)" + offsets), HasSubstr("the negative number -1"));
  EXPECT_THAT(entry(dtype + R"(,"shape":[1.0],)" + offsets), HasSubstr("the number 1.0"));
  EXPECT_THAT(entry(dtype + R"(,"shape":[99999999999999999999],)" + offsets),
              HasSubstr("the number 99999999999999999999"));
  EXPECT_THAT(entry(dtype + R"(,"shape":[4294967296,4294967296,4294967296],)" + offsets),
              HasSubstr("impossible shape"));
  EXPECT_THAT(entry(dtype + R"(,"shape":[2],)" + offsets),
              HasSubstr("F32 [2] takes 8 bytes, its data_offsets hold 4"));
  EXPECT_THAT(entry(dtype + "," + shape + R"(,"data_offsets":[4,0])"),
              HasSubstr("[4, 0] in the wrong order"));
  EXPECT_THAT(entry(dtype + "," + dtype + "," + shape + "," + offsets),
              HasSubstr("tensor a has a key twice"));
  EXPECT_THAT(entry(dtype + "," + shape + "," + offsets + R"(,"x":[1])"),
              HasSubstr("key other than"));
}

TEST(SafetensorsErrors, Layout) {
  const auto two = [](const char* first, const char* second) {
    return header_error(
        safetensors_bytes(std::string(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)") + first +
                              R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}",
                          "123456789"));
  };
  EXPECT_THAT(two("[0,4]", "[5,9]"),
              HasSubstr("tensor b begins at byte 5, leaving a hole after the 4 bytes"));
  EXPECT_THAT(two("[0,4]", "[3,7]"), HasSubstr("tensor b begins at byte 3, inside the 4 bytes"));
  EXPECT_THAT(two("[0,4]", "[4,8]"), HasSubstr("describes 8 bytes of data, the file holds 9"));
  EXPECT_THAT(two("[1,5]", "[5,9]"), HasSubstr("tensor a begins at byte 1"));
}

TEST(SafetensorsErrors, DuplicateNames) {
  EXPECT_THAT(
      header_error(safetensors_bytes(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                                     R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                                     "")),
      HasSubstr("tensor a stands twice"));
}

TEST(SafetensorsSource, ReadsWholeTensorsRangesAndMappedBytes) {
  const test::TemporaryDirectory directory;
  write_file_atomic(
      directory / "x.safetensors",
      safetensors_bytes(R"({"v":{"dtype":"U16","shape":[2,3],"data_offsets":[0,12]}})",
                        "aabbccddeeff"));
  const auto source = open_safetensors(directory / "x.safetensors");
  EXPECT_EQ(test::read_tensor(*source, "v"), "aabbccddeeff");
  EXPECT_EQ(test::read_tensor_range(*source, "v", 1, 4), "bbccdd");
  EXPECT_EQ(test::read_tensor_range(*source, "v", 6, 6), "");
  EXPECT_EQ(source->mapped("v").size(), 12u);
  EXPECT_EQ(source->file_of("v"), directory / "x.safetensors");
  EXPECT_THAT(error_of<InternalError>([&] { test::read_tensor_range(*source, "v", 4, 7); }),
              HasSubstr("4..7 are outside v [2, 3]"));
  std::byte small[2];
  EXPECT_THAT(error_of<InternalError>([&] { source->read("v", small); }),
              HasSubstr("take 12 bytes, the buffer has 2"));
  EXPECT_THAT(error_of<ModelError>([&] { source->read("w", small); }),
              HasSubstr("no tensor w among its 1"));
}

TEST(SafetensorsSource, EveryTruncationOfARealFileIsAnError) {
  const test::TemporaryDirectory directory;
  test::write_tiny_model(directory / "m");
  const std::string whole = read_file(directory / "m" / "model.safetensors");
  for (size_t length = 0; length < whole.size(); length += 1 + whole.size() / 500) {
    EXPECT_THROW(header_of(whole.substr(0, length)), ModelError) << length;
  }
}

TEST(SafetensorsSource, RealFilesOfOtherWritersOpen) {
  DANLU_REQUIRES_SHARED();
  size_t opened = 0;
  for (const char* group : {"golden", "data/models"}) {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(test::shared_dir() / group)) {
      if (entry.path().extension() != ".safetensors") continue;
      const auto source = open_safetensors(entry.path());
      EXPECT_FALSE(source->tensors().empty()) << entry.path();
      for (const TensorInfo& info : source->tensors()) {
        const bool is_decoded = source->storage(info.name).type == "F8_E4M3";
        EXPECT_EQ(source->mapped(info.name).size(), is_decoded ? 0 : info.size_bytes());
      }
      ++opened;
    }
  }
  EXPECT_GE(opened, 20u);
}

}  // namespace
}  // namespace danlu::weights
