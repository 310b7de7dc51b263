#include "base/finite.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>

#include "base/error.h"

namespace danlu {
namespace {

/// Infinities and NaNs are the numbers whose exponent is all ones.
template <typename Bits>
size_t first_with_full_exponent(const std::byte* elements, size_t count, Bits exponent) {
  const auto is_full = [&](size_t i) {
    Bits bits;
    std::memcpy(&bits, elements + i * sizeof bits, sizeof bits);
    return (bits & exponent) == exponent;
  };
  constexpr size_t kBlock = 1024;  // a constant length: compilers vectorise it
  size_t at = 0;
  for (; at + kBlock <= count; at += kBlock) {
    Bits any = 0;
    for (size_t i = 0; i < kBlock; ++i) any |= static_cast<Bits>(is_full(at + i));
    if (any) break;
  }
  while (at < count && !is_full(at)) ++at;
  return at;
}

}  // namespace

double largest_finite(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 65504;
    case DType::kBF16:
      return bf16_to_float(0x7f7f);
    case DType::kF32:
      return std::numeric_limits<float>::max();
    case DType::kF64:
      return std::numeric_limits<double>::max();
    default:
      throw InternalError(fmt::format("[dtype] {} is not floating", dtype_name(dtype)));
  }
}

size_t first_non_finite(const void* elements, DType dtype, size_t count) {
  const auto* bytes = static_cast<const std::byte*>(elements);
  switch (dtype) {
    case DType::kF16:
      return first_with_full_exponent<uint16_t>(bytes, count, 0x7c00);
    case DType::kBF16:
      return first_with_full_exponent<uint16_t>(bytes, count, 0x7f80);
    case DType::kF32:
      return first_with_full_exponent<uint32_t>(bytes, count, 0x7f800000);
    case DType::kF64:
      return first_with_full_exponent<uint64_t>(bytes, count, 0x7ff0000000000000);
    default:
      throw InternalError(fmt::format("[dtype] {} is not floating", dtype_name(dtype)));
  }
}

}  // namespace danlu
