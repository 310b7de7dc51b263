// Matrices of 8 bits with a factor for each block, as DeepSeek-V3's files hold them.
#include "weights/hf/block_scales.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/shared_data.h"
#include "support/temporary_directory.h"
#include "support/throws.h"
#include "weights/bytes.h"

namespace danlu::weights {
namespace block_scales_test {

using test::error_of;
using testing::HasSubstr;

std::filesystem::path golden() { return test::shared_dir() / "golden" / "moe" / "deepseek_v3_fp8"; }

std::vector<float> floats(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(BlockScales, MatricesEqualTheDequantisedOnesBitForBit) {
  DANLU_REQUIRES_SHARED();
  const auto model = open_weights(golden());
  const auto expected = open_safetensors(golden() / "golden.safetensors");
  const std::string prefix = "dequant.";
  size_t compared = 0;
  for (const TensorInfo& info : expected->tensors()) {
    if (!info.name.starts_with(prefix)) continue;
    const std::string name = info.name.substr(prefix.size());
    EXPECT_EQ(test::read_tensor(*model, name), test::read_tensor(*expected, info.name)) << name;
    EXPECT_EQ(model->find(name)->dtype, DType::kF32);
    EXPECT_EQ(model->storage(name).type, "F8_E4M3");
    EXPECT_TRUE(model->mapped(name).empty());
    ++compared;
  }
  EXPECT_EQ(compared, 2u);
  for (const TensorInfo& info : model->tensors()) EXPECT_FALSE(info.name.ends_with("_scale_inv"));
}

// The matrix is [200, 136]: its second row of blocks has 72 rows, its second column 8.
TEST(BlockScales, PartsOfAMatrixAreThoseOfTheWhole) {
  DANLU_REQUIRES_SHARED();
  const std::string name = "model.layers.0.mlp.gate_proj.weight";
  const auto model = open_weights(golden());
  const std::vector<float> whole = floats(test::read_tensor(*model, name));
  for (const Rect& rect : {Rect{0, 200, 0, 136}, Rect{120, 20, 100, 36}, Rect{127, 2, 127, 2},
                           Rect{130, 70, 128, 8}, Rect{5, 1, 3, 1}}) {
    const int64_t stride = rect.cols + 3;
    std::vector<float> part(static_cast<size_t>(rect.rows * stride), -1);
    model->read_rect(name, rect, reinterpret_cast<std::byte*>(part.data()), stride);
    for (int64_t r = 0; r < rect.rows; ++r) {
      for (int64_t c = 0; c < stride; ++c) {
        const float expected =
            c < rect.cols ? whole[static_cast<size_t>((rect.row + r) * 136 + rect.col + c)] : -1;
        ASSERT_EQ(part[static_cast<size_t>(r * stride + c)], expected) << r << ' ' << c;
      }
    }
  }
  const std::vector<float> range =
      floats(test::read_tensor_range(*model, name, 127 * 136 + 120, 130 * 136 + 5));
  for (size_t i = 0; i < range.size(); ++i) ASSERT_EQ(range[i], whole[127 * 136 + 120 + i]) << i;
}

class SmallFile : public testing::Test {
 protected:
  /// A file with a matrix of 8 bits and one of factors.
  std::shared_ptr<const TensorSource> open(const std::string& matrix, const std::string& factors,
                                           const std::string& name = "w_scale_inv") {
    const std::string header =
        R"({"w":{"dtype":"F8_E4M3","shape":)" + matrix + R"(,"data_offsets":[0,256]},")" + name +
        R"(":{"dtype":"F32","shape":)" + factors + R"(,"data_offsets":[256,264]}})";
    std::string data;
    for (int byte = 0; byte < 256; ++byte) data.push_back(static_cast<char>(byte));
    for (const float factor : {2.0f, 4.0f})
      data.append(reinterpret_cast<const char*>(&factor), sizeof factor);
    write_file_atomic(folder_ / "model.safetensors", test::safetensors_bytes(header, data));
    return open_weights(folder_.path());
  }
  const test::TemporaryDirectory folder_;
};

// OCP 8-bit floating point: 2^-9 is the smallest step, 448 the largest number.
TEST_F(SmallFile, EveryByteIsItsNumberTimesTheFactorOfItsBlock) {
  const auto source = open("[1,256]", "[1,2]");
  const std::vector<float> values = floats(test::read_tensor(*source, "w"));
  EXPECT_EQ(values[0x00], 0.0f);
  EXPECT_EQ(values[0x01], 2 * 0x1p-9f);
  EXPECT_EQ(values[0x07], 2 * 7 * 0x1p-9f);
  EXPECT_EQ(values[0x08], 2 * 0x1p-6f);
  EXPECT_EQ(values[0x38], 2 * 1.0f);
  EXPECT_EQ(values[0x3c], 2 * 1.5f);
  EXPECT_EQ(values[0x7e], 2 * 448.0f);
  EXPECT_TRUE(std::isnan(values[0x7f]));
  EXPECT_TRUE(std::signbit(values[0x80]));
  EXPECT_EQ(values[0xb8], 4 * -1.0f);
  EXPECT_EQ(values[0xfe], 4 * -448.0f);
}

// Qwen3's FP8 releases.
TEST_F(SmallFile, FactorsMayBeOfBf16) {
  const std::string header =
      R"({"w":{"dtype":"F8_E4M3","shape":[1,256],"data_offsets":[0,256]},)"
      R"("w_scale_inv":{"dtype":"BF16","shape":[1,2],"data_offsets":[256,260]}})";
  std::string data;
  for (int byte = 0; byte < 256; ++byte) data.push_back(static_cast<char>(byte));
  data += std::string("\x40\x3f\x80\x40", 4);  // 0.75 and 4
  write_file_atomic(folder_ / "model.safetensors", test::safetensors_bytes(header, data));
  const auto source = open_weights(folder_.path());
  const std::vector<float> values = floats(test::read_tensor(*source, "w"));
  EXPECT_EQ(values[0x38], 0.75f);
  EXPECT_EQ(values[0xb8], 4 * -1.0f);
}

TEST_F(SmallFile, FactorsThatDoNotFitAreRefusedByName) {
  EXPECT_THAT(error_of<ModelError>([&] { open("[1,256]", "[2,1]"); }),
              HasSubstr("w_scale_inv F32 [2, 1] does not fit w F8_E4M3 [1, 256]"));
  EXPECT_THAT(error_of<ModelError>([&] { open("[256]", "[1,2]"); }), HasSubstr("does not fit w"));
  EXPECT_THAT(error_of<ModelError>([&] { open("[1,256]", "[1,2]", "v_scale_inv"); }),
              HasSubstr("holds v_scale_inv, and there is no v"));
}

}  // namespace block_scales_test
}  // namespace danlu::weights
