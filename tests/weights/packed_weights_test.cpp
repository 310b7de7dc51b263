// Matrices as GPTQ, AWQ and compressed-tensors pack them, bit for bit against PyTorch's arithmetic.
#include "weights/hf/packed_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "support/temporary_directory.h"
#include "support/throws.h"
#include "weights/bytes.h"
#include "weights/hf/gptq_files.h"
#include "weights/python_torch.h"

namespace danlu::weights {
namespace packed_weights_test {

using test::error_of;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> names_of(const TensorSource& source) {
  std::vector<std::string> names;
  for (const TensorInfo& info : source.tensors()) names.push_back(info.name);
  return names;
}

/// Rectangles that begin and end within words, groups and blocks.
void expect_parts(const TensorSource& source, const std::string& whole) {
  const TensorInfo& info = *source.find("x.weight");
  const int64_t rows = info.shape[0], cols = info.shape[1];
  const size_t item = dtype_size_bytes(info.dtype);
  for (const Rect& rect : {Rect{0, rows, 0, cols}, Rect{3, rows - 4, 5, cols - 6},
                           Rect{rows - 1, 1, cols - 1, 1}, Rect{1, 2, 11, 9}, Rect{7, 2, 0, 20}}) {
    if (rect.row + rect.rows > rows || rect.col + rect.cols > cols) continue;
    const int64_t stride = rect.cols + 3;
    std::string part(static_cast<size_t>(rect.rows * stride) * item, '\x55');
    source.read_rect("x.weight", rect, reinterpret_cast<std::byte*>(part.data()), stride);
    for (int64_t r = 0; r < rect.rows; ++r) {
      const auto length = static_cast<size_t>(rect.cols) * item;
      EXPECT_EQ(part.substr(static_cast<size_t>(r * stride) * item, length),
                whole.substr(static_cast<size_t>((rect.row + r) * cols + rect.col) * item, length))
          << rect.row + r << ' ' << rect.col;
    }
  }
  const int64_t begin = cols / 2 + 1, end = 2 * cols + 5;
  EXPECT_EQ(
      test::read_tensor_range(source, "x.weight", begin, end),
      whole.substr(static_cast<size_t>(begin) * item, static_cast<size_t>(end - begin) * item));
}

TEST(PackedWeights, NumbersEqualThoseOfTheirLibrariesBitForBit) {
  DANLU_REQUIRES_PYTHON_TORCH();
  const test::TemporaryDirectory directory;
  ASSERT_EQ(test::run_python(python, "write_packed.py", directory.path().string()), 0);
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    SCOPED_TRACE(entry.path().filename());
    const auto source = open_weights(entry.path());
    const auto expected = open_safetensors(entry.path() / "expected.safetensors");
    ASSERT_THAT(names_of(*source), ElementsAre("lm_head.weight", "x.weight"));
    const TensorInfo& info = *source->find("x.weight");
    ASSERT_EQ(info.shape, expected->find("x.weight")->shape);
    ASSERT_EQ(info.dtype, expected->find("x.weight")->dtype);
    const std::string whole = test::read_tensor(*expected, "x.weight");
    EXPECT_EQ(test::read_tensor(*source, "x.weight"), whole);
    EXPECT_EQ(test::read_tensor(*source, "lm_head.weight"),
              test::read_tensor(*expected, "lm_head.weight"));
    EXPECT_TRUE(source->mapped("x.weight").empty());
    EXPECT_LT(source->storage("x.weight").size_bytes, info.size_bytes());
    expect_parts(*source, whole);
    ++compared;
  }
  EXPECT_EQ(compared, 16);
}

/// Files of tensors of zeros, whose shapes alone count.
class Shapes : public testing::Test {
 protected:
  struct Part {
    std::string dtype;
    std::vector<int64_t> shape;
  };
  std::shared_ptr<const TensorSource> open(const std::map<std::string, Part>& parts,
                                           const std::string& config = kGptq) {
    Json header = Json::object();
    std::string data;
    for (const auto& [name, part] : parts) {
      size_t size = part.dtype == "I32" ? 4 : part.dtype == "F8_E4M3" ? 1 : 2;
      for (const int64_t n : part.shape) size *= static_cast<size_t>(n);
      header[name] = {{"dtype", part.dtype},
                      {"shape", part.shape},
                      {"data_offsets", {data.size(), data.size() + size}}};
      data.append(size, fill_);
    }
    write_file_atomic(folder_ / "model.safetensors", test::safetensors_bytes(header.dump(), data));
    write_file_atomic(folder_ / "config.json", config);
    return open_weights(folder_.path());
  }
  std::string error(std::map<std::string, Part> parts, const std::string& config = kGptq) {
    return error_of<ModelError>([&] { (void)open(parts, config); });
  }
  static constexpr const char* kGptq =
      R"({"quantization_config":{"quant_method":"gptq","bits":4,"group_size":16}})";
  static constexpr const char* kAwq =
      R"({"quantization_config":{"quant_method":"awq","bits":4,"group_size":16}})";
  std::map<std::string, Part> gptq_{{"x.qweight", {"I32", {4, 16}}},
                                    {"x.qzeros", {"I32", {2, 2}}},
                                    {"x.scales", {"F16", {2, 16}}},
                                    {"x.g_idx", {"I32", {32}}}};
  char fill_ = 0;
  const test::TemporaryDirectory folder_;
};

TEST_F(Shapes, PartsThatDoNotFitAreRefusedByName) {
  EXPECT_NO_THROW(open(gptq_));
  auto parts = gptq_;
  parts.erase("x.scales");
  EXPECT_THAT(error(parts), HasSubstr("x.scales is missing"));
  parts = gptq_;
  parts["x.qzeros"].shape = {2, 3};
  EXPECT_THAT(error(parts), HasSubstr("x.qzeros is I32 [2, 3], expected I32 [2, 2]"));
  parts = gptq_;
  parts["x.scales"].dtype = "I16";
  EXPECT_THAT(error(parts), HasSubstr("x.scales is I16 [2, 16], expected F16, BF16 or F32"));
  parts = gptq_;
  parts["x.g_idx"].shape = {20};
  EXPECT_THAT(error(parts), HasSubstr("6 bits; 2, 3, 4 and 8 are read"));
  parts = gptq_;
  parts["x.weight"] = {"F16", {16, 32}};
  EXPECT_THAT(error(parts), HasSubstr("x.weight is there as well"));
  EXPECT_THAT(error(gptq_, "{}"), HasSubstr("says gptq or awq"));
  parts = {{"x.qweight", {"I32", {32, 2}}},
           {"x.qzeros", {"I32", {2, 2}}},
           {"x.scales", {"F16", {4, 16}}}};
  EXPECT_THAT(error(parts, kAwq), HasSubstr("x.scales is F16 [4, 16], expected F16, BF16 or F32 "
                                            "[2, 16]"));
  parts = {{"x.weight_packed", {"I32", {4, 4}}}, {"x.weight_scale", {"BF16", {4, 2}}}};
  EXPECT_THAT(error(parts), HasSubstr("x.weight_shape is missing"));
  parts = {{"x.weight", {"F8_E4M3", {4, 4}}}, {"x.weight_scale", {"BF16", {3, 2}}}};
  EXPECT_THAT(error(parts), HasSubstr("x.weight_scale is BF16 [3, 2], expected F16, BF16 or F32 "
                                      "[1, 1]"));
}

TEST_F(Shapes, AGroupThatIsNotThereIsRefused) {
  fill_ = 1;  // 0x01010101
  const auto source = open(gptq_);
  EXPECT_THAT(error_of<ModelError>([&] { (void)test::read_tensor(*source, "x.weight"); }),
              HasSubstr("x.g_idx has group 16843009 at element 0, of 2 groups"));
}

// GPTQ's own file of settings, from before they stood in config.json.
TEST_F(Shapes, SettingsMayLieInAFileOfTheirOwn) {
  write_file_atomic(folder_ / "quantize_config.json", R"({"bits":4,"group_size":16})");
  const auto source = open(gptq_, "{}");
  EXPECT_EQ(source->storage("x.weight").type, "GPTQ 4 bits");
  EXPECT_EQ(packed_text(*source), "1 x GPTQ 4 bits");
  EXPECT_TRUE(is_packed_linear(*source, "x.weight"));
}

TEST_F(Shapes, OtherVersionsOfAwqAreRefused) {
  const std::string gemv =
      R"({"quantization_config":{"quant_method":"awq","bits":4,"version":"gemv"}})";
  EXPECT_THAT(error(gptq_, gemv), HasSubstr("version GEMM and of 4 bits, got gemv and 4"));
}

/// Codes 0, 1, 2 … of a matrix, packed and read again.
TEST(PackedWeights, WhatIsPackedIsRead) {
  for (const int64_t bits : {2, 3, 4, 8}) {
    for (const bool less_one : {true, false}) {
      SCOPED_TRACE(std::to_string(bits) + (less_one ? " gptq" : " gptq_v2"));
      const int64_t rows = 32, cols = 64, groups = 3, most = int64_t{1} << bits;
      std::vector<uint8_t> codes, zeros;
      std::vector<float> scales, expected;
      std::vector<int32_t> order;
      for (int64_t c = 0; c < cols; ++c) order.push_back(static_cast<int32_t>(c * 7 % groups));
      for (int64_t i = 0; i < rows * cols; ++i)
        codes.push_back(static_cast<uint8_t>((i * 37 + i / 11) % most));
      for (int64_t i = 0; i < groups * rows; ++i) {
        zeros.push_back(static_cast<uint8_t>(i * 5 % most));
        scales.push_back(static_cast<float>(i + 1) / 64);
      }
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          const auto place = static_cast<size_t>(order[static_cast<size_t>(c)] * rows + r);
          const float number = (static_cast<float>(codes[static_cast<size_t>(r * cols + c)]) -
                                static_cast<float>(zeros[place])) *
                               scales[place];
          expected.push_back(f16_to_float(float_to_f16(number)));
        }
      }
      const GptqTensors made = pack_gptq(rows, cols, bits, codes, scales, zeros, order, less_one);
      const test::TemporaryDirectory folder;
      const std::vector<std::span<const std::byte>> parts = {
          std::as_bytes(std::span(made.g_idx)), std::as_bytes(std::span(made.qweight)),
          std::as_bytes(std::span(made.qzeros)), std::as_bytes(std::span(made.scales))};
      save_safetensors(folder.path(),
                       {{"x.g_idx", DType::kI32, {cols}},
                        {"x.qweight", DType::kI32, {cols * bits / 32, rows}},
                        {"x.qzeros", DType::kI32, {groups, rows * bits / 32}},
                        {"x.scales", DType::kF16, {groups, rows}}},
                       TensorBytes([&](size_t index) { return parts[index]; }));
      const Json said = {{"quant_method", "gptq"},
                         {"bits", bits},
                         {"checkpoint_format", less_one ? "gptq" : "gptq_v2"}};
      write_json_file(folder / "config.json", {{"quantization_config", said}});
      const auto source = open_weights(folder.path());
      const std::string bytes = test::read_tensor(*source, "x.weight");
      std::vector<float> numbers(expected.size());
      cast_elements(bytes.data(), DType::kF16, numbers.data(), DType::kF32, numbers.size());
      EXPECT_EQ(numbers, expected);
    }
  }
}

}  // namespace packed_weights_test
}  // namespace danlu::weights
