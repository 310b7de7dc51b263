// NF4 as bitsandbytes makes and stores it, bit for bit (shared/golden/rl/nf4).
#include "base/nf4.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"
#include "support/throws.h"
#include "weights/bytes.h"
#include "weights/hf/nf4_tensors.h"

namespace danlu::weights {
namespace nf4_test {

using test::error_of;
using testing::HasSubstr;

std::filesystem::path golden() { return test::shared_dir() / "golden" / "rl" / "nf4"; }

template <typename T>
std::vector<T> values(const TensorSource& source, const std::string& name) {
  const std::string bytes = test::read_tensor(source, name);
  std::vector<T> numbers(bytes.size() / sizeof(T));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

/// A tensor of any floating type, as f32.
std::vector<float> wide(const TensorSource& source, const std::string& name) {
  const DType dtype = source.find(name)->dtype;
  if (dtype == DType::kF32) return values<float>(source, name);
  std::vector<float> numbers;
  for (const uint16_t bits : values<uint16_t>(source, name))
    numbers.push_back(dtype == DType::kBF16 ? bf16_to_float(bits) : f16_to_float(bits));
  return numbers;
}

const char* const kCases[] = {"plain", "tail", "single",   "zeros_outlier", "ties",
                              "bf16",  "fp16", "block128", "many_blocks"};

float rounded(float value, DType dtype) {
  if (dtype == DType::kBF16) return bf16_to_float(float_to_bf16(value));
  return dtype == DType::kF16 ? f16_to_float(float_to_f16(value)) : value;
}

TEST(Nf4Quantiser, EqualsBitsandbytesBitForBit) {
  DANLU_REQUIRES_SHARED();
  const auto all = open_safetensors(golden() / "golden.safetensors");
  EXPECT_EQ(values<float>(*all, "code"),
            std::vector<float>(kNf4Numbers.begin(), kNf4Numbers.end()));
  const auto& map = nf4_factor_numbers();
  EXPECT_EQ(values<float>(*all, "dynamic_map_u8"), std::vector<float>(map.begin(), map.end()));
  for (const std::string name : kCases) {
    SCOPED_TRACE(name);
    const std::vector<float> numbers = wide(*all, name + ".input");
    const DType dtype = all->find(name + ".input")->dtype;
    const auto count = static_cast<int64_t>(numbers.size());
    const int64_t block = name == "block128" ? 128 : 64;
    Nf4Codes made;
    made.codes.resize((numbers.size() + 1) / 2);
    made.factors.resize(static_cast<size_t>(nf4_blocks(count, block)));
    quantize_nf4(numbers.data(), count, block, made.codes.data(), made.factors.data());
    EXPECT_EQ(made.codes, values<uint8_t>(*all, name + ".packed"));
    EXPECT_EQ(made.factors, values<float>(*all, name + ".absmax"));
    const auto expect_numbers = [&](const std::string& of) {
      const std::vector<float> expected = wide(*all, name + of);
      for (int64_t i = 0; i < count; ++i)
        ASSERT_EQ(
            rounded(kNf4Numbers[nf4_code(made.codes.data(), i)] * made.factor(i / block), dtype),
            expected[static_cast<size_t>(i)])
            << of << " " << i;
    };
    expect_numbers(".dequant");
    made.doubly = quantize_nf4_factors(made.factors);
    EXPECT_EQ(made.doubly.codes, values<uint8_t>(*all, name + ".dq.absmax_u8"));
    EXPECT_EQ(made.doubly.groups, values<float>(*all, name + ".dq.nested_absmax"));
    EXPECT_EQ(made.doubly.offset, values<float>(*all, name + ".dq.offset").front());
    expect_numbers(".dq.dequant");
  }
}

class Nf4Directory : public testing::TestWithParam<const char*> {
 protected:
  std::filesystem::path directory() const { return golden() / GetParam(); }
};

TEST_P(Nf4Directory, GivesTheDequantisedModel) {
  DANLU_REQUIRES_SHARED();
  const auto model = open_weights(directory());
  const auto expected = open_safetensors(directory() / "dequantized.safetensors");
  int64_t in_nf4 = 0;
  for (const TensorInfo& info : expected->tensors()) {
    ASSERT_NE(model->find(info.name), nullptr) << info.name;
    EXPECT_EQ(model->find(info.name)->dtype, info.dtype);
    EXPECT_EQ(model->find(info.name)->shape, info.shape);
    EXPECT_EQ(test::read_tensor(*model, info.name), test::read_tensor(*expected, info.name))
        << info.name;
    if (!model->nf4_form(info.name)) continue;
    ++in_nf4;
    EXPECT_EQ(model->storage(info.name).type, "NF4");
    const int64_t count = info.num_elements();
    EXPECT_EQ(test::read_tensor_range(*model, info.name, 67, count - 3),
              test::read_tensor_range(*expected, info.name, 67, count - 3));
  }
  EXPECT_EQ(in_nf4, 14);
  EXPECT_EQ(count_nf4(*model), 14);
  for (const TensorInfo& info : model->tensors())
    EXPECT_EQ(info.name.find("absmax"), std::string::npos) << info.name;
}

/// What is quantised here is what bitsandbytes wrote; what was stored passes through.
TEST_P(Nf4Directory, IsWrittenBitForBit) {
  DANLU_REQUIRES_SHARED();
  const auto stored = open_stored_weights(directory());
  const auto model = open_weights(directory());
  const arch::ModelConfig config = arch::load_model_config(directory());
  const std::vector<std::string> names = names_in_nf4(config);
  ASSERT_EQ(names.size(), 14u);
  const Nf4Form form = *model->nf4_form(names.front());
  const auto originals = open_safetensors(directory() / "original_linears.safetensors");
  std::vector<std::string> of_originals;
  for (const TensorInfo& info : originals->tensors()) of_originals.push_back(info.name);
  for (const auto& written : {as_nf4(model, names, form), as_nf4(originals, of_originals, form)}) {
    size_t compared = 0;
    for (const TensorInfo& info : written->tensors()) {
      const TensorInfo* const there = stored->find(info.name);
      ASSERT_NE(there, nullptr) << info.name;
      EXPECT_EQ(there->dtype, info.dtype) << info.name;
      EXPECT_EQ(there->shape, info.shape) << info.name;
      EXPECT_EQ(test::read_tensor(*written, info.name), test::read_tensor(*stored, info.name))
          << info.name;
      ++compared;
    }
    EXPECT_GE(compared, 14u * (form.doubly ? 6 : 4));
  }
  EXPECT_EQ(nf4_config(form, config)["bnb_4bit_use_double_quant"], form.doubly);
  EXPECT_EQ(nf4_config(form, config),
            read_json_file(directory() / "config.json")["quantization_config"]);
}

INSTANTIATE_TEST_SUITE_P(Golden, Nf4Directory,
                         testing::Values("ckpt_bf16_double", "ckpt_f32_plain"),
                         [](const auto& info) { return std::string(info.param); });

/// One file of the named tensors: type, shape and bytes of each.
using Tensors = std::map<std::string, std::pair<TensorInfo, std::string>>;

Tensors stored_matrix() {
  const auto stored = open_stored_weights(golden() / "ckpt_bf16_double");
  Tensors tensors;
  for (const TensorInfo& info : stored->tensors()) {
    if (info.name.starts_with("model.layers.0.mlp.down_proj."))
      tensors[info.name] = {info, test::read_tensor(*stored, info.name)};
  }
  return tensors;
}

std::string error_of_opening(const Tensors& tensors) {
  const test::TemporaryDirectory directory;
  std::vector<TensorInfo> infos;
  for (const auto& [name, tensor] : tensors) {
    infos.push_back(tensor.first);
    infos.back().name = name;
  }
  save_safetensors(directory.path(), infos, [&](size_t index) {
    const std::string& bytes = tensors.at(infos[index].name).second;
    return std::as_bytes(std::span(bytes));
  });
  return error_of([&] { open_weights(directory.path()); });
}

TEST(Nf4Files, WhatIsNotInThatFormIsSaid) {
  DANLU_REQUIRES_SHARED();
  const std::string name = "model.layers.0.mlp.down_proj.weight";
  Tensors tensors = stored_matrix();
  tensors.erase(name + ".absmax");
  EXPECT_THAT(error_of_opening(tensors), HasSubstr("absmax is missing"));
  tensors = stored_matrix();
  tensors.at(name + ".quant_map").second[5] ^= 1;
  EXPECT_THAT(error_of_opening(tensors), HasSubstr("quant_map has other numbers"));
  tensors = stored_matrix();
  tensors.erase(name);
  EXPECT_THAT(error_of_opening(tensors), HasSubstr("there is no " + name));
  tensors = stored_matrix();
  auto state = tensors.extract(name + ".quant_state.bitsandbytes__nf4");
  state.key() = name + ".quant_state.bitsandbytes__fp4";
  tensors.insert(std::move(state));
  EXPECT_THAT(error_of_opening(tensors), HasSubstr("in bitsandbytes' fp4"));
}

TEST(Nf4Files, ConfigurationsOfOtherTypesAreRefused) {
  DANLU_REQUIRES_SHARED();
  const Json config = read_json_file(golden() / "ckpt_f32_plain" / "config.json");
  const auto refusal = [&](const char* key, const Json& value) {
    Json changed = config;
    changed["quantization_config"][key] = value;
    return error_of([&] { arch::parse_model_config(changed, "test"); });
  };
  EXPECT_THAT(refusal("bnb_4bit_quant_type", "fp4"), HasSubstr("got \"fp4\" in \"uint8\""));
  EXPECT_THAT(refusal("bnb_4bit_quant_type", nullptr), HasSubstr("got \"fp4\""));
  EXPECT_THAT(refusal("load_in_4bit", false), HasSubstr("bitsandbytes) are not supported"));
  EXPECT_THAT(refusal("bnb_4bit_quant_storage", "bfloat16"), HasSubstr("in \"bfloat16\""));
}

}  // namespace nf4_test
}  // namespace danlu::weights
