// base/dtype.h: element types of tensors on disk, and casts between the floating ones.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace danlu {

/// Values are stored in no file; add at the end.
enum class DType : uint8_t {
  kF32,
  kF64,
  kF16,
  kBF16,
  kI8,
  kU8,
  kI16,
  kI32,
  kI64,
  kBool,
  kU16,
  kU32,
  kU64
};

size_t dtype_size_bytes(DType dtype);
/// safetensors' spelling: "F32", "BF16", "I64", …
std::string_view dtype_name(DType dtype);
/// Accepts safetensors' ("BF16"), torch's ("bfloat16", "torch.bfloat16") and short ("bf16", "fp32",
/// "half") spellings, any case. Errors: ModelError naming the text.
DType dtype_from_name(std::string_view name);
bool is_floating(DType dtype);

/// IEEE half and bfloat16, round to nearest even; NaN stays NaN.
uint16_t float_to_bf16(float value);
float bf16_to_float(uint16_t bits);
uint16_t float_to_f16(float value);
float f16_to_float(uint16_t bits);

/// Casts `count` elements between floating types (source and target must not overlap unless equal).
/// Errors: InternalError if either is not floating and they differ.
void cast_elements(const void* from, DType from_dtype, void* to, DType to_dtype, size_t count);

}  // namespace danlu
