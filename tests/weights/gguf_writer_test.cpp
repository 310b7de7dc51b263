// GGUF files as they are planned: byte for byte, and read back.
#include "weights/gguf/gguf_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/throws.h"
#include "weights/gguf/gguf_reader.h"

namespace danlu::weights::gguf {
namespace {

using test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The file's bytes with zeros where tensors go.
std::string bytes_of(const PlannedFile& plan) {
  std::string bytes(plan.size_bytes, '\0');
  for (const PlacedBytes& placed : plan.known)
    bytes.replace(placed.offset, placed.bytes.size(), placed.bytes);
  return bytes;
}
Header written_header(const std::string& bytes) {
  return parse_header(std::as_bytes(std::span(bytes)), "written");
}

TEST(GgufWriter, ASmallFileByteForByte) {
  using namespace std::string_literals;
  const PlannedFile plan = plan_file({{"a", uint32_t{5}}}, {{"w", {2, 3}, TensorType::kF16}});
  const std::string expected = "GGUF"s + "\3\0\0\0"s + "\1\0\0\0\0\0\0\0"s +
                               "\1\0\0\0\0\0\0\0"s +  // 1 tensor, 1 key
                               "\1\0\0\0\0\0\0\0a"s + "\4\0\0\0"s + "\5\0\0\0"s +  // uint32 a = 5
                               "\1\0\0\0\0\0\0\0w"s + "\2\0\0\0"s +                // 2 dimensions,
                               "\3\0\0\0\0\0\0\0"s + "\2\0\0\0\0\0\0\0"s +  // the last one first
                               "\1\0\0\0"s + "\0\0\0\0\0\0\0\0"s;           // F16 at 0
  EXPECT_EQ(plan.known[0].bytes, expected);
  EXPECT_EQ(expected.size(), 82u);
  EXPECT_THAT(plan.tensor_offsets, ElementsAre(96));  // the next multiple of 32
  EXPECT_EQ(plan.size_bytes, 96u + 32);               // 12 bytes, padded
  EXPECT_FALSE(plan.seal);
}

TEST(GgufWriter, EveryKindOfValueIsReadBack) {
  const Metadata metadata = {{"u8", uint8_t{1}},
                             {"i8", int8_t{-1}},
                             {"u16", uint16_t{2}},
                             {"i16", int16_t{-2}},
                             {"u32", uint32_t{3}},
                             {"i32", int32_t{-3}},
                             {"f32", 1.5f},
                             {"yes", true},
                             {"no", false},
                             {"text", std::string("丹炉")},
                             {"u64", uint64_t{4}},
                             {"i64", int64_t{-4}},
                             {"f64", 2.5},
                             {"ids", number_array(std::vector<int32_t>{1, -2})},
                             {"scores", number_array(std::vector<float>{0.5f})},
                             {"words", string_array({"a", "", "b c"})},
                             {"none", string_array({})}};
  const std::string bytes = bytes_of(plan_file(metadata, {}));
  const Header header = written_header(bytes);
  ASSERT_EQ(header.metadata.size(), metadata.size());
  for (size_t i = 0; i < metadata.size(); ++i) {
    EXPECT_EQ(header.metadata[i].first, metadata[i].first);
    ASSERT_EQ(header.metadata[i].second.index(), metadata[i].second.index()) << metadata[i].first;
  }
  EXPECT_EQ(std::get<std::string>(*find(header.metadata, "text")), "丹炉");
  EXPECT_EQ(std::get<double>(*find(header.metadata, "f64")), 2.5);
  EXPECT_FALSE(std::get<bool>(*find(header.metadata, "no")));
  EXPECT_THAT(std::get<Array>(*find(header.metadata, "ids")).as<int32_t>(), ElementsAre(1, -2));
  EXPECT_THAT(std::get<Array>(*find(header.metadata, "words")).strings,
              ElementsAre("a", "", "b c"));
  EXPECT_EQ(std::get<Array>(*find(header.metadata, "none")).element, kString);
}

TEST(GgufWriter, ConstantsStandBehindTheOthersWithTheirBytes) {
  const float numbers[] = {1, 2, 3};
  ConstantTensor constant{{"c", {3}, TensorType::kF32},
                          std::string(reinterpret_cast<const char*>(numbers), 12)};
  const PlannedFile plan =
      plan_file({}, {{"a", {1, 32}, TensorType::kQ8_0}, {"b", {2}, TensorType::kF32}}, {constant});
  const std::string bytes = bytes_of(plan);
  const Header header = written_header(bytes);
  ASSERT_EQ(header.tensors.size(), 3u);
  ASSERT_EQ(plan.tensor_offsets.size(), 2u);
  EXPECT_EQ(header.tensors[0].offset, plan.tensor_offsets[0]);
  EXPECT_EQ(header.tensors[0].size_bytes, 34u);
  EXPECT_EQ(header.tensors[1].offset, plan.tensor_offsets[0] + 64);  // 34 bytes, padded
  EXPECT_EQ(header.tensors[2].offset, plan.tensor_offsets[0] + 96);
  EXPECT_EQ(bytes.substr(header.tensors[2].offset, 12), constant.bytes);
}

TEST(GgufWriter, WhatLlamaCppWouldRefuseIsABug) {
  const auto error = [](const std::vector<PlannedTensor>& tensors) {
    return error_of<InternalError>([&] { plan_file({}, tensors); });
  };
  EXPECT_THAT(error({{std::string(64, 'n'), {1}}}), HasSubstr("a name has 1 to 63 bytes"));
  EXPECT_THAT(error({{"w", {1}}, {"w", {1}}}), HasSubstr("w: stands twice"));
  EXPECT_THAT(error({{"w", {32, 31}, TensorType::kQ8_0}}), HasSubstr("rows of 31 do not fill"));
}

}  // namespace
}  // namespace danlu::weights::gguf
