#include "base/dtype.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"

namespace danlu {
namespace {

/// The value of a 16-bit float by its definition: (-1)^s · 1.m · 2^(e-bias), or 0.m · 2^(1-bias).
double value_by_definition(uint16_t bits, int mantissa_bits) {
  const int exponent_bits = 15 - mantissa_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits >> 15) ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

struct Half {
  const char* name;
  int mantissa_bits;
  float (*widen)(uint16_t);
  uint16_t (*narrow)(float);
};

class SixteenBitFloat : public testing::TestWithParam<Half> {};
INSTANTIATE_TEST_SUITE_P(Types, SixteenBitFloat,
                         testing::Values(Half{"f16", 10, f16_to_float, float_to_f16},
                                         Half{"bf16", 7, bf16_to_float, float_to_bf16}),
                         [](const auto& info) { return info.param.name; });

TEST_P(SixteenBitFloat, EveryBitPatternWidensToItsDefinition) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const double expected = value_by_definition(bits, GetParam().mantissa_bits);
    const float got = GetParam().widen(bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
    } else {
      ASSERT_EQ(got, expected) << bits;
      ASSERT_EQ(std::signbit(got), std::signbit(expected)) << bits;
    }
  }
}

TEST_P(SixteenBitFloat, EveryValueSurvivesWideningAndNarrowing) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float wide = GetParam().widen(bits);
    const uint16_t back = GetParam().narrow(wide);
    if (std::isnan(wide)) {
      ASSERT_TRUE(std::isnan(GetParam().widen(back))) << bits;
    } else {
      ASSERT_EQ(back, bits);
    }
  }
}

TEST_P(SixteenBitFloat, RoundsToTheNearestNeighbourAndTiesToEven) {
  const uint16_t infinity = GetParam().narrow(std::numeric_limits<float>::infinity());
  // Between each pair of neighbours: the midpoint goes to the one with an even mantissa, one float
  // step beside it to the nearer one. The neighbour of the largest value is the first value that
  // the format cannot hold, as IEEE 754 has it.
  for (uint16_t bits = 0; bits < infinity; ++bits) {
    const double low = value_by_definition(bits, GetParam().mantissa_bits);
    double high = value_by_definition(bits + 1, GetParam().mantissa_bits);
    if (std::isinf(high)) {
      high = low + (low - value_by_definition(bits - 1, GetParam().mantissa_bits));
    }
    const float middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(static_cast<double>(middle), (low + high) / 2) << "a float holds every midpoint";
    const uint16_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(GetParam().narrow(middle), even) << bits;
    ASSERT_EQ(GetParam().narrow(std::nextafter(middle, 0.0f)), bits) << bits;
    ASSERT_EQ(GetParam().narrow(std::nextafter(middle, INFINITY)), bits + 1) << bits;
    ASSERT_EQ(GetParam().narrow(-middle), 0x8000 | even) << bits;
  }
}

TEST_P(SixteenBitFloat, EveryNaNStaysNaN) {
  // All exponents one, some mantissa bit set: also payloads that live only in the low bits.
  for (uint32_t mantissa = 1; mantissa < 0x800000; mantissa = mantissa * 2 + 1) {
    for (const uint32_t sign : {0u, 0x80000000u}) {
      const float nan = std::bit_cast<float>(sign | 0x7f800000u | mantissa);
      ASSERT_TRUE(std::isnan(GetParam().widen(GetParam().narrow(nan)))) << mantissa;
      const float lowest = std::bit_cast<float>(sign | 0x7f800000u | (mantissa & 1));
      ASSERT_TRUE(std::isnan(GetParam().widen(GetParam().narrow(lowest)))) << mantissa;
    }
  }
}

TEST(CastElements, DoubleToHalfRoundsOnceNotTwice) {
  // 1 + 2^-11 is halfway between the halves 1 and 1 + 2^-10; 2^-40 more must round up. By way of
  // f32 the 2^-40 is lost first and the tie would go down to 1.
  const double just_above = 1.0 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40);
  uint16_t half = 0;
  cast_elements(&just_above, DType::kF64, &half, DType::kF16, 1);
  EXPECT_EQ(f16_to_float(half), 1.0f + std::ldexp(1.0f, -10));
  const double below = 1.0 + std::ldexp(1.0, -8) - std::ldexp(1.0, -40);
  uint16_t brain = 0;
  cast_elements(&below, DType::kF64, &brain, DType::kBF16, 1);
  EXPECT_EQ(bf16_to_float(brain), 1.0f);
  const double huge = -1e300;
  cast_elements(&huge, DType::kF64, &half, DType::kF16, 1);
  EXPECT_EQ(f16_to_float(half), -INFINITY);
}

TEST(CastElements, CastsArraysBetweenAllFloatingTypes) {
  const std::vector<float> values = {0.0f, -0.0f, 1.5f, -2.25f, 65504.0f, INFINITY, 0.0078125f};
  for (const DType through : {DType::kF16, DType::kBF16, DType::kF64, DType::kF32}) {
    std::vector<std::byte> narrow(values.size() * dtype_size_bytes(through));
    std::vector<float> back(values.size());
    cast_elements(values.data(), DType::kF32, narrow.data(), through, values.size());
    cast_elements(narrow.data(), through, back.data(), DType::kF32, values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      if (through == DType::kBF16 && values[i] == 65504.0f) continue;  // needs 11 mantissa bits
      EXPECT_EQ(back[i], values[i]) << dtype_name(through) << " " << i;
    }
  }
}

TEST(CastElements, RefusesIntegers) {
  int32_t from = 1;
  float to = 0;
  EXPECT_THROW(cast_elements(&from, DType::kI32, &to, DType::kF32, 1), InternalError);
  int32_t copy = 0;
  cast_elements(&from, DType::kI32, &copy, DType::kI32, 1);
  EXPECT_EQ(copy, 1);
}

TEST(DTypeNames, AcceptTheSpellingsOfOtherSystems) {
  EXPECT_EQ(dtype_from_name("BF16"), DType::kBF16);
  EXPECT_EQ(dtype_from_name("bfloat16"), DType::kBF16);
  EXPECT_EQ(dtype_from_name("torch.bfloat16"), DType::kBF16);
  EXPECT_EQ(dtype_from_name("Half"), DType::kF16);
  EXPECT_EQ(dtype_from_name("fp32"), DType::kF32);
  EXPECT_EQ(dtype_from_name("torch.float"), DType::kF32);
  EXPECT_EQ(dtype_from_name("long"), DType::kI64);
  for (int i = 0; i < 13; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
  }
  try {
    dtype_from_name("float8_e4m3");
    FAIL();
  } catch (const ModelError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("float8_e4m3"));
  }
}

TEST(CastElements, LongRunsEqualOneByOneInEveryBit) {
  // All halves, NaNs and infinities among them, by runs whose ends fall anywhere.
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i * 40503u);
  for (const size_t count : {size_t{65536}, size_t{1031}, size_t{7}}) {
    std::vector<float> wide(count);
    cast_elements(halves.data(), DType::kF16, wide.data(), DType::kF32, count);
    std::vector<uint16_t> back(count), brain(count), from_brain(count);
    cast_elements(wide.data(), DType::kF32, back.data(), DType::kF16, count);
    cast_elements(halves.data(), DType::kF16, brain.data(), DType::kBF16, count);
    cast_elements(brain.data(), DType::kBF16, from_brain.data(), DType::kF16, count);
    for (size_t i = 0; i < count; ++i) {
      const float one = f16_to_float(halves[i]);
      ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(one)) << i;
      ASSERT_EQ(back[i], float_to_f16(one)) << i;
      ASSERT_EQ(brain[i], float_to_bf16(one)) << i;
      ASSERT_EQ(from_brain[i], float_to_f16(bf16_to_float(brain[i]))) << i;
    }
  }
}

}  // namespace
}  // namespace danlu
