// GGUF files: read as llama.cpp wrote them, and refused where they break the format.
#include "weights/gguf/gguf_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/plain_gguf.h"
#include "support/shared_data.h"
#include "support/throws.h"
#include "support/tiny_model.h"

namespace danlu::weights::gguf {
namespace {

using test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// GGUF bytes, put together by hand.
struct Bytes {
  std::string text;
  template <typename T>
  Bytes& put(T value) {
    text.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Bytes& string(std::string_view content) {
    put<uint64_t>(content.size());
    text += content;
    return *this;
  }
  Bytes& start(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    text += "GGUF";
    return put(version).put(tensors).put(keys);
  }
  Bytes& tensor(std::string_view name, std::vector<uint64_t> dims, uint32_t type, uint64_t offset) {
    string(name).put(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) put(dim);
    return put(type).put(offset);
  }
  Bytes& pad(size_t alignment = 32) {
    while (text.size() % alignment != 0) text += '\0';
    return *this;
  }
};

Header header_of(const Bytes& bytes) {
  return parse_header(std::as_bytes(std::span(bytes.text)), "x.gguf");
}
std::string error(const Bytes& bytes) {
  return error_of<ModelError>([&] { header_of(bytes); });
}

TEST(GgufReader, MetadataOfEveryType) {
  Bytes bytes;
  bytes.start(0, 14);
  bytes.string("a.u8").put(0u).put<uint8_t>(255);
  bytes.string("a.i8").put(1u).put<int8_t>(-3);
  bytes.string("a.u16").put(2u).put<uint16_t>(65535);
  bytes.string("a.i16").put(3u).put<int16_t>(-5);
  bytes.string("a.u32").put(4u).put<uint32_t>(7);
  bytes.string("a.i32").put(5u).put<int32_t>(-7);
  bytes.string("a.f32").put(6u).put<float>(0.5f);
  bytes.string("a.bool").put(7u).put<uint8_t>(1);
  bytes.string("a.text").put(8u).string("Ġé");
  bytes.string("a.ids").put(9u).put(5u).put<uint64_t>(2).put<int32_t>(4).put<int32_t>(-4);
  bytes.string("a.words").put(9u).put(8u).put<uint64_t>(2).string("x").string("");
  bytes.string("a.u64").put(10u).put<uint64_t>(1).string("a.i64").put(11u).put<int64_t>(-1);
  bytes.string("a.f64").put(12u).put<double>(0.25);
  const Header header = header_of(bytes);
  const auto& m = header.metadata;
  EXPECT_EQ(header.version, 3u);
  EXPECT_EQ(std::get<uint8_t>(*find(m, "a.u8")), 255);
  EXPECT_EQ(std::get<int8_t>(*find(m, "a.i8")), -3);
  EXPECT_EQ(std::get<uint16_t>(*find(m, "a.u16")), 65535);
  EXPECT_EQ(std::get<int16_t>(*find(m, "a.i16")), -5);
  EXPECT_EQ(std::get<uint32_t>(*find(m, "a.u32")), 7u);
  EXPECT_EQ(std::get<int32_t>(*find(m, "a.i32")), -7);
  EXPECT_EQ(std::get<float>(*find(m, "a.f32")), 0.5f);
  EXPECT_TRUE(std::get<bool>(*find(m, "a.bool")));
  EXPECT_EQ(std::get<std::string>(*find(m, "a.text")), "Ġé");
  EXPECT_THAT(std::get<Array>(*find(m, "a.ids")).as<int32_t>(), ElementsAre(4, -4));
  EXPECT_TRUE(std::get<Array>(*find(m, "a.ids")).as<float>().empty());
  EXPECT_THAT(std::get<Array>(*find(m, "a.words")).strings, ElementsAre("x", ""));
  EXPECT_EQ(std::get<uint64_t>(*find(m, "a.u64")), 1u);
  EXPECT_EQ(std::get<int64_t>(*find(m, "a.i64")), -1);
  EXPECT_EQ(std::get<double>(*find(m, "a.f64")), 0.25);
  EXPECT_EQ(find(m, "b"), nullptr);
}

TEST(GgufReader, ASourceTellsDoublesAsTheyAreAndFloatsByTheirShortestText) {
  Bytes bytes;
  bytes.start(0, 4);
  bytes.string("least_f64").put(12u).put(5e-324);
  bytes.string("f64").put(12u).put(0.1 + 0.2);
  bytes.string("least_f32").put(6u).put(1e-45f);
  bytes.string("f32").put(6u).put(1e-6f);
  const test::TemporaryDirectory directory;
  write_file_atomic(directory / "x.gguf", bytes.pad().text);
  const Json told = open(directory / "x.gguf")->metadata();
  EXPECT_EQ(told["least_f64"], 5e-324);
  EXPECT_EQ(told["f64"], 0.30000000000000004);
  EXPECT_EQ(told["least_f32"], 1e-45);
  EXPECT_EQ(told["f32"], 1e-6);
}

TEST(GgufReader, ShapesAreReversedAndOffsetsAligned) {
  Bytes bytes;
  bytes.start(2, 1, 2);  // version 2 has the same layout
  bytes.string("general.alignment").put(4u).put<uint32_t>(64);
  bytes.tensor("w", {3, 2}, 0, 64).tensor("q", {32}, 8, 0).pad(64);
  const size_t data = bytes.text.size();
  bytes.text.resize(data + 64 + 24);
  const Header header = header_of(bytes);
  EXPECT_EQ(header.data_offset, data);
  EXPECT_THAT(header.tensors[0].shape, ElementsAre(2, 3));
  EXPECT_EQ(header.tensors[0].offset, data + 64);
  EXPECT_EQ(header.tensors[0].size_bytes, 24u);
  EXPECT_EQ(header.tensors[1].size_bytes, 34u);  // one block of 32
}

TEST(GgufReader, ReadsWhatLlamaCppWrote) {
  DANLU_REQUIRES_SHARED();
  const auto file = test::shared_dir() / "data" / "models" / "stories260K" / "stories260K.gguf";
  const auto source = open(file);
  const test::PlainGguf plain(file);
  ASSERT_EQ(source->tensors().size(), plain.tensors.size());
  for (const TensorInfo& info : source->tensors()) {
    EXPECT_EQ(info.shape, plain.tensors.at(info.name).shape);
    std::vector<float> numbers(static_cast<size_t>(info.num_elements()));
    source->read(info.name, std::as_writable_bytes(std::span(numbers)));
    EXPECT_EQ(numbers, plain.floats(info.name, numbers.size())) << info.name;
    EXPECT_EQ(source->mapped(info.name).size(), info.size_bytes());
  }
  EXPECT_EQ(source->metadata()["general.architecture"], "llama");
  EXPECT_EQ(source->metadata()["tokenizer.ggml.tokens"], "(512 of string)");
  EXPECT_EQ(source->metadata()["tensor types"]["F32"], 48);
  EXPECT_EQ(source->metadata()["llama.attention.layer_norm_rms_epsilon"].dump(), "1e-05");
}

TEST(GgufReader, Q8BlocksAreDecodedFromAnyElement) {
  const test::TemporaryDirectory directory;
  Bytes bytes;
  bytes.start(2, 0).tensor("q", {64}, 8, 0).tensor("k", {256}, 13, 96).pad();
  for (const uint16_t scale : {0x3800, 0x4000}) {  // 0.5 and 2
    bytes.put(scale);
    for (int i = 0; i < 32; ++i) bytes.put(static_cast<int8_t>(i - 16));
  }
  bytes.pad();
  bytes.text.resize(bytes.text.size() + 176);
  write_file_atomic(directory / "x.gguf", bytes.text);
  const auto source = open(directory / "x.gguf");
  EXPECT_EQ(source->find("q")->dtype, DType::kF32);
  std::vector<float> numbers(4);
  source->read_range("q", 30, 34, std::as_writable_bytes(std::span(numbers)));
  EXPECT_THAT(numbers, ElementsAre(7, 7.5, -32, -30));
  EXPECT_TRUE(source->mapped("q").empty());
  EXPECT_EQ(source->metadata()["tensor types"]["Q5_K"], 1);
  // A block of zeros, read as the other types are.
  std::vector<float> others(256, 1);
  source->read("k", std::as_writable_bytes(std::span(others)));
  EXPECT_EQ(others, std::vector<float>(256));
}

TEST(GgufReaderErrors, OtherVersionsAndByteOrders) {
  EXPECT_THAT(error(Bytes{"GGML"}), HasSubstr("x.gguf: not a GGUF file"));
  EXPECT_THAT(error(Bytes{"GG"}), HasSubstr("not a GGUF file"));
  EXPECT_THAT(error(Bytes().start(0, 0, 1)), HasSubstr("GGUF version 1; versions 2 and 3"));
  EXPECT_THAT(error(Bytes().start(0, 0, 3u << 24)), HasSubstr("a big-endian GGUF file"));
}

TEST(GgufReaderErrors, EveryCutIsFound) {
  Bytes whole;
  whole.start(1, 2).string("a.words").put(9u).put(8u).put<uint64_t>(1).string("word");
  whole.string("a.n").put(4u).put<uint32_t>(1).tensor("w", {2}, 0, 0).pad();
  whole.put(1.0f).put(2.0f);
  EXPECT_EQ(header_of(whole).tensors.size(), 1u);
  for (size_t size = 0; size < whole.text.size(); ++size)
    EXPECT_THAT(error(Bytes{whole.text.substr(0, size)}), HasSubstr("x.gguf: ")) << size;
}

TEST(GgufReaderErrors, CountsBeyondTheFileAreNotBelieved) {
  const uint64_t huge = uint64_t{1} << 62;
  EXPECT_THAT(error(Bytes().start(huge, 0)), HasSubstr("the file ends within the list of tensors"));
  EXPECT_THAT(error(Bytes().start(0, huge)), HasSubstr("the file ends within a metadata key"));
  EXPECT_THAT(error(Bytes().start(0, 1).string("a").put(9u).put(8u).put(huge)),
              HasSubstr("the file ends within a "));
  EXPECT_THAT(error(Bytes().start(0, 1).string("a").put(9u).put(12u).put(huge)),
              HasSubstr("the file ends within a "));
  EXPECT_THAT(error(Bytes().start(0, 1).put(huge)), HasSubstr("the file ends within a metadata"));
}

TEST(GgufReaderErrors, KeysAndValues) {
  EXPECT_THAT(error(Bytes().start(0, 1).string("").put(4u).put(1u)),
              HasSubstr("must be 1 to 65535 printable ASCII characters"));
  EXPECT_THAT(error(Bytes().start(0, 1).string("a\nb").put(4u).put(1u)), HasSubstr("\"a?b\""));
  EXPECT_THAT(error(Bytes().start(0, 2).string("a").put(4u).put(1u).string("a").put(4u).put(1u)),
              HasSubstr("metadata key a stands twice"));
  EXPECT_THAT(error(Bytes().start(0, 1).string("a").put(13u)),
              HasSubstr("metadata key a: no such value type 13"));
  EXPECT_THAT(error(Bytes().start(0, 1).string("a").put(7u).put<uint8_t>(2)),
              HasSubstr("a bool must be 0 or 1, got 2"));
  Bytes nested;
  nested.start(0, 1).string("a").put(9u);
  for (int depth = 0; depth < 5; ++depth) nested.put(9u).put<uint64_t>(1);
  nested.put(4u).put<uint64_t>(0);
  EXPECT_THAT(error(nested), HasSubstr("nested more than 4 deep"));
  for (const uint32_t alignment : {0u, 24u}) {
    EXPECT_THAT(error(Bytes().start(0, 1).string("general.alignment").put(4u).put(alignment)),
                HasSubstr("general.alignment must be a power of two"));
  }
}

TEST(GgufReaderErrors, Tensors) {
  const auto one = [](std::vector<uint64_t> dims, uint32_t type, uint64_t offset) {
    Bytes bytes;
    bytes.start(1, 0).tensor("w", std::move(dims), type, offset).pad();
    bytes.text.resize(bytes.text.size() + 64);
    return error(bytes);
  };
  EXPECT_THAT(one({1, 1, 1, 1, 1}, 0, 0), HasSubstr("tensor w: at most 4 dimensions, got 5"));
  EXPECT_THAT(one({1}, 4, 0), HasSubstr("tensor w: no such type 4"));
  EXPECT_THAT(one({uint64_t{1} << 40, uint64_t{1} << 40}, 0, 0), HasSubstr("more than 2^60"));
  EXPECT_THAT(one({31, 32}, 8, 0),
              HasSubstr("rows of 31 numbers are no multiple of Q8_0's block of 32"));
  EXPECT_THAT(one({1}, 0, 4), HasSubstr("begins at 4, which is no multiple of the alignment 32"));
  EXPECT_THAT(one({17}, 0, 0), HasSubstr("needs bytes 0 to 68 of the data, the file holds 64"));
  EXPECT_THAT(one({1}, 0, ~uint64_t{31}), HasSubstr("the file holds 64"));
  Bytes twice;
  twice.start(2, 0).tensor("w", {1}, 0, 0).tensor("w", {1}, 0, 32).pad();
  EXPECT_THAT(error(twice), HasSubstr("tensor w stands twice"));
  Bytes overlap;
  overlap.start(2, 0).tensor("a", {9}, 0, 0).tensor("b", {1}, 0, 32).pad();
  overlap.text.resize(overlap.text.size() + 64);
  EXPECT_THAT(error(overlap), HasSubstr("the data of tensors a and b overlap"));
}

}  // namespace
}  // namespace danlu::weights::gguf
