#include "base/gguf_format.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>

namespace danlu::gguf {
namespace {

struct NumberedType {
  uint32_t number;
  TypeTraits traits;
};

constexpr TypeTraits blocks_of(BlockType type) {
  const BlockTraits& traits = block_traits(type);
  return {
      traits.name, static_cast<uint32_t>(traits.numbers), static_cast<uint32_t>(traits.bytes), {}};
}

/// Blocks of 256 numbers are the "K" and "IQ" kinds'. Types that llama.cpp has withdrawn are left
/// out: no reader knows their layout any more.
constexpr std::array<NumberedType, 32> kTypes = {{
    {0, {"F32", 1, 4, DType::kF32}},    {1, {"F16", 1, 2, DType::kF16}},
    {2, blocks_of(BlockType::kQ4_0)},   {3, blocks_of(BlockType::kQ4_1)},
    {6, blocks_of(BlockType::kQ5_0)},   {7, blocks_of(BlockType::kQ5_1)},
    {8, blocks_of(BlockType::kQ8_0)},   {9, {"Q8_1", 32, 36, {}}},
    {10, blocks_of(BlockType::kQ2_K)},  {11, blocks_of(BlockType::kQ3_K)},
    {12, blocks_of(BlockType::kQ4_K)},  {13, blocks_of(BlockType::kQ5_K)},
    {14, blocks_of(BlockType::kQ6_K)},  {15, {"Q8_K", 256, 292, {}}},
    {16, {"IQ2_XXS", 256, 66, {}}},     {17, {"IQ2_XS", 256, 74, {}}},
    {18, {"IQ3_XXS", 256, 98, {}}},     {19, {"IQ1_S", 256, 50, {}}},
    {20, {"IQ4_NL", 32, 18, {}}},       {21, {"IQ3_S", 256, 110, {}}},
    {22, {"IQ2_S", 256, 82, {}}},       {23, {"IQ4_XS", 256, 136, {}}},
    {24, {"I8", 1, 1, DType::kI8}},     {25, {"I16", 1, 2, DType::kI16}},
    {26, {"I32", 1, 4, DType::kI32}},   {27, {"I64", 1, 8, DType::kI64}},
    {28, {"F64", 1, 8, DType::kF64}},   {29, {"IQ1_M", 256, 56, {}}},
    {30, {"BF16", 1, 2, DType::kBF16}}, {34, {"TQ1_0", 256, 54, {}}},
    {35, {"TQ2_0", 256, 66, {}}},       {39, {"MXFP4", 32, 17, {}}},
}};

}  // namespace

const TypeTraits* type_traits(uint32_t type) {
  const auto it = std::find_if(kTypes.begin(), kTypes.end(),
                               [&](const NumberedType& t) { return t.number == type; });
  return it == kTypes.end() ? nullptr : &it->traits;
}

std::optional<BlockType> block_type(uint32_t type) {
  const TypeTraits* traits = type_traits(type);
  for (size_t i = 0; traits && i < std::size(kBlockTraits); ++i) {
    if (kBlockTraits[i].name == traits->name) return static_cast<BlockType>(i);
  }
  return std::nullopt;
}

const Value* find(const Metadata& metadata, std::string_view key) {
  for (const auto& [name, value] : metadata) {
    if (name == key) return &value;
  }
  return nullptr;
}

size_t number_bytes(uint32_t value_type) {
  constexpr std::array<uint8_t, kNumValueTypes> kBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return value_type < kNumValueTypes ? kBytes[value_type] : 0;
}

double shortest_double(float value) {
  char text[32];
  const char* const end = std::to_chars(text, text + sizeof text, value).ptr;
  double number = 0;
  std::from_chars(text, end, number);
  return number;
}

Array string_array(std::vector<std::string> strings) {
  Array array{.element = kString, .count = strings.size()};
  array.strings = std::move(strings);
  return array;
}

}  // namespace danlu::gguf
