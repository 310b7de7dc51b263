#include "base/dtype.h"

#include <fmt/format.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstring>
#include <string>

#include "base/cpu_class.h"
#include "base/error.h"
#include "base/lower_case.h"

namespace danlu {
namespace {

struct DTypeFacts {
  DType dtype;
  std::string_view name;
  size_t size_bytes;
  std::array<std::string_view, 4> spellings;  ///< lower case, without "torch."
};

constexpr std::array<DTypeFacts, 13> kFacts{{
    {DType::kF32, "F32", 4, {"float32", "fp32", "float", ""}},
    {DType::kF64, "F64", 8, {"float64", "fp64", "double", ""}},
    {DType::kF16, "F16", 2, {"float16", "fp16", "half", ""}},
    {DType::kBF16, "BF16", 2, {"bfloat16", "", "", ""}},
    {DType::kI8, "I8", 1, {"int8", "", "", ""}},
    {DType::kU8, "U8", 1, {"uint8", "byte", "", ""}},
    {DType::kI16, "I16", 2, {"int16", "short", "", ""}},
    {DType::kI32, "I32", 4, {"int32", "int", "", ""}},
    {DType::kI64, "I64", 8, {"int64", "long", "", ""}},
    {DType::kBool, "BOOL", 1, {"bool", "", "", ""}},
    {DType::kU16, "U16", 2, {"uint16", "", "", ""}},
    {DType::kU32, "U32", 4, {"uint32", "", "", ""}},
    {DType::kU64, "U64", 8, {"uint64", "", "", ""}},
}};

const DTypeFacts& facts(DType dtype) {
  const size_t index = static_cast<size_t>(dtype);
  if (index >= kFacts.size()) throw InternalError(fmt::format("[dtype] no type number {}", index));
  return kFacts[index];
}

double load_as_double(const std::byte* at, DType dtype) {
  if (dtype == DType::kF64) {
    double value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return dtype == DType::kF16 ? f16_to_float(bits) : bf16_to_float(bits);
}

/// f64 to f32 rounding to odd: a second rounding to 16 bits is then the correct single rounding.
float narrow_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  if (!std::isfinite(value) || static_cast<double>(nearest) == value) return nearest;
  if (std::isinf(nearest)) {
    return std::copysign(std::bit_cast<float>(0x7f7fffffu), nearest);
  }
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (bits & 1u) return nearest;
  const bool too_large = std::abs(static_cast<double>(nearest)) > std::abs(value);
  return std::bit_cast<float>(too_large ? bits - 1 : bits + 1);
}

void store_from_double(double value, std::byte* at, DType dtype) {
  if (dtype == DType::kF64) {
    std::memcpy(at, &value, sizeof value);
  } else if (dtype == DType::kF32) {
    const float narrow = static_cast<float>(value);
    std::memcpy(at, &narrow, sizeof narrow);
  } else {
    const float narrow = narrow_to_odd(value);
    const uint16_t bits = dtype == DType::kF16 ? float_to_f16(narrow) : float_to_bf16(narrow);
    std::memcpy(at, &bits, sizeof bits);
  }
}

/// The two casts that loading and saving a model spend their time in, as loops compilers vectorise.
void bf16_to_f32_array(const std::byte* from, std::byte* to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, from + 2 * i, 2);
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    std::memcpy(to + 4 * i, &wide, 4);
  }
}

void f32_to_bf16_array(const std::byte* from, std::byte* to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    float value;
    std::memcpy(&value, from + 4 * i, 4);
    const uint16_t bits = float_to_bf16(value);
    std::memcpy(to + 2 * i, &bits, 2);
  }
}

/// Numbers between bfloat16 and half pass through F32 in pieces that stay in the first cache.
constexpr size_t kPiece = 1024;

void f32_to_f16_scalar(const float* from, std::byte* to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const uint16_t bits = float_to_f16(from[i]);
    std::memcpy(to + 2 * i, &bits, 2);
  }
}
void f16_to_f32_scalar(const std::byte* from, float* to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, from + 2 * i, 2);
    to[i] = f16_to_float(bits);
  }
}

#if defined(__x86_64__)
// The conversions round as the scalar ones do; eight with a NaN among them are left to those, for
// the processor changes a NaN's payload.
__attribute__((target("avx,f16c"))) void f32_to_f16_f16c(const float* from, std::byte* to,
                                                         size_t count) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 numbers = _mm256_loadu_ps(from + i);
    if (_mm256_movemask_ps(_mm256_cmp_ps(numbers, numbers, _CMP_UNORD_Q))) {
      f32_to_f16_scalar(from + i, to + 2 * i, 8);
    } else {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * i),
                       _mm256_cvtps_ph(numbers, _MM_FROUND_TO_NEAREST_INT));
    }
  }
  f32_to_f16_scalar(from + i, to + 2 * i, count - i);
}
__attribute__((target("avx,f16c"))) void f16_to_f32_f16c(const std::byte* from, float* to,
                                                         size_t count) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 numbers =
        _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * i)));
    if (_mm256_movemask_ps(_mm256_cmp_ps(numbers, numbers, _CMP_UNORD_Q))) {
      f16_to_f32_scalar(from + 2 * i, to + i, 8);
    } else {
      _mm256_storeu_ps(to + i, numbers);
    }
  }
  f16_to_f32_scalar(from + 2 * i, to + i, count - i);
}
bool has_f16c() { return cpu_class() >= CpuClass::kAvx2; }
void f32_to_f16_array(const float* from, std::byte* to, size_t count) {
  has_f16c() ? f32_to_f16_f16c(from, to, count) : f32_to_f16_scalar(from, to, count);
}
void f16_to_f32_array(const std::byte* from, float* to, size_t count) {
  has_f16c() ? f16_to_f32_f16c(from, to, count) : f16_to_f32_scalar(from, to, count);
}
#elif defined(__aarch64__)
// As above, four at a time.
void f32_to_f16_array(const float* from, std::byte* to, size_t count) {
  size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const float32x4_t numbers = vld1q_f32(from + i);
    if (vminvq_u32(vceqq_f32(numbers, numbers)) == 0) {
      f32_to_f16_scalar(from + i, to + 2 * i, 4);
    } else {
      const float16x4_t halves = vcvt_f16_f32(numbers);
      std::memcpy(to + 2 * i, &halves, sizeof halves);
    }
  }
  f32_to_f16_scalar(from + i, to + 2 * i, count - i);
}
void f16_to_f32_array(const std::byte* from, float* to, size_t count) {
  size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    float16x4_t halves;
    std::memcpy(&halves, from + 2 * i, sizeof halves);
    const float32x4_t numbers = vcvt_f32_f16(halves);
    if (vminvq_u32(vceqq_f32(numbers, numbers)) == 0) {
      f16_to_f32_scalar(from + 2 * i, to + i, 4);
    } else {
      vst1q_f32(to + i, numbers);
    }
  }
  f16_to_f32_scalar(from + 2 * i, to + i, count - i);
}
#else
void f32_to_f16_array(const float* from, std::byte* to, size_t count) {
  f32_to_f16_scalar(from, to, count);
}
void f16_to_f32_array(const std::byte* from, float* to, size_t count) {
  f16_to_f32_scalar(from, to, count);
}
#endif

/// Either of the two is F16, the other F32 or BF16.
void cast_halves(const std::byte* from, DType from_dtype, std::byte* to, DType to_dtype,
                 size_t count) {
  const size_t from_size = dtype_size_bytes(from_dtype), to_size = dtype_size_bytes(to_dtype);
  std::array<float, kPiece> piece;
  for (size_t i = 0; i < count; i += kPiece) {
    const size_t some = std::min(kPiece, count - i);
    auto* bytes = reinterpret_cast<std::byte*>(piece.data());
    if (from_dtype == DType::kF16) {
      f16_to_f32_array(from + i * from_size, piece.data(), some);
    } else if (from_dtype == DType::kBF16) {
      bf16_to_f32_array(from + i * from_size, bytes, some);
    } else {
      std::memcpy(bytes, from + i * from_size, some * from_size);
    }
    if (to_dtype == DType::kF16) {
      f32_to_f16_array(piece.data(), to + i * to_size, some);
    } else if (to_dtype == DType::kBF16) {
      f32_to_bf16_array(bytes, to + i * to_size, some);
    } else {
      std::memcpy(to + i * to_size, bytes, some * to_size);
    }
  }
}

}  // namespace

size_t dtype_size_bytes(DType dtype) { return facts(dtype).size_bytes; }
std::string_view dtype_name(DType dtype) { return facts(dtype).name; }

DType dtype_from_name(std::string_view name) {
  std::string wanted = lower_case(name);
  if (wanted.starts_with("torch.")) wanted = wanted.substr(6);
  for (const DTypeFacts& known : kFacts) {
    if (wanted == lower_case(known.name)) return known.dtype;
    for (const std::string_view spelling : known.spellings) {
      if (!spelling.empty() && wanted == spelling) return known.dtype;
    }
  }
  throw ModelError(tr("[dtype] unknown element type '{}'", name),
                   tr("known types: F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 BOOL"));
}

bool is_floating(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kF16 ||
         dtype == DType::kBF16;
}

uint16_t float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  // Rounding could carry a NaN's payload into infinity: NaN keeps its top bits and turns quiet.
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<uint16_t>(nan ? (bits >> 16) | 0x40u : rounded >> 16);
}

float bf16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t float_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  // 65520 and above round to infinity; 65519.99… rounds to the largest half.
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    // Below 2^-14 halves are multiples of 2^-24: adding 0.5 puts that unit at the last mantissa
    // bit, so that the FPU rounds to nearest even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

float f16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

void cast_elements(const void* from, DType from_dtype, void* to, DType to_dtype, size_t count) {
  if (from_dtype == to_dtype) {
    std::memmove(to, from, count * dtype_size_bytes(from_dtype));
    return;
  }
  if (!is_floating(from_dtype) || !is_floating(to_dtype)) {
    throw InternalError(fmt::format("[cast_elements] {} to {}: both must be floating",
                                    dtype_name(from_dtype), dtype_name(to_dtype)));
  }
  const auto* source = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  if (from_dtype == DType::kBF16 && to_dtype == DType::kF32) {
    return bf16_to_f32_array(source, target, count);
  }
  if (from_dtype == DType::kF32 && to_dtype == DType::kBF16) {
    return f32_to_bf16_array(source, target, count);
  }
  if (from_dtype != DType::kF64 && to_dtype != DType::kF64)
    return cast_halves(source, from_dtype, target, to_dtype, count);
  const size_t from_size = dtype_size_bytes(from_dtype), to_size = dtype_size_bytes(to_dtype);
  for (size_t i = 0; i < count; ++i) {
    store_from_double(load_as_double(source + i * from_size, from_dtype), target + i * to_size,
                      to_dtype);
  }
}

}  // namespace danlu
