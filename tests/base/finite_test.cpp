#include "base/finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"

namespace danlu {
namespace {

TEST(Finite, TheFirstInfinityOrNaNIsFoundWhereverItStands) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    const size_t item = dtype_size_bytes(dtype);
    const double largest = largest_finite(dtype);
    std::vector<std::byte> numbers(3000 * item);
    const auto set = [&](size_t at, double value) {
      cast_elements(&value, DType::kF64, numbers.data() + at * item, dtype, 1);
    };
    for (size_t i = 0; i < 3000; ++i) set(i, i % 2 ? largest : -largest);
    EXPECT_EQ(first_non_finite(numbers.data(), dtype, 3000), 3000u) << dtype_name(dtype);
    EXPECT_EQ(first_non_finite(numbers.data(), dtype, 0), 0u);
    for (const size_t at : {2999, 2048, 1024, 1023, 0}) {
      const double bad[] = {std::nan(""), std::numeric_limits<double>::infinity(),
                            -std::numeric_limits<double>::infinity()};
      set(at, bad[at % 3]);
      EXPECT_EQ(first_non_finite(numbers.data(), dtype, 3000), at) << dtype_name(dtype);
    }
  }
  EXPECT_THROW(first_non_finite(nullptr, DType::kI32, 0), InternalError);
}

TEST(Finite, TheLargestNumberIsTheLastOneThatACastKeeps) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
    const double largest = largest_finite(dtype), beyond = largest * 1.01;
    double back = 0;
    std::byte narrow[4];
    cast_elements(&largest, DType::kF64, narrow, dtype, 1);
    cast_elements(narrow, dtype, &back, DType::kF64, 1);
    EXPECT_EQ(back, largest);
    cast_elements(&beyond, DType::kF64, narrow, dtype, 1);
    EXPECT_EQ(first_non_finite(narrow, dtype, 1), 0u);
  }
}

}  // namespace
}  // namespace danlu
