// ops/vectors_inl.h: f32, bf16 and f16 arrays as vectors of f32, for the instruction set that is
// being compiled (Highway includes it once for each). Internal to ops/row_kernels_cpu.cpp.
#if defined(DANLU_OPS_VECTORS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef DANLU_OPS_VECTORS_INL
#undef DANLU_OPS_VECTORS_INL
#else
#define DANLU_OPS_VECTORS_INL
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cstring>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace danlu::ops::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;
using Bf16 = uint16_t;
using Bf16Tag = hn::Rebind<uint16_t, Tag>;
using F16 = hwy::float16_t;
using F16Tag = hn::Rebind<F16, Tag>;

HWY_INLINE size_t lanes() { return hn::Lanes(Tag()); }

HWY_INLINE Vector load_whole(const float* from) { return hn::LoadU(Tag(), from); }
HWY_INLINE Vector load_whole(const Bf16* from) {
  const hn::RebindToUnsigned<Tag> as_bits;
  const auto bits = hn::PromoteTo(as_bits, hn::LoadU(Bf16Tag(), from));
  return hn::BitCast(Tag(), hn::ShiftLeft<16>(bits));
}

HWY_INLINE Vector load_whole(const F16* from) {
  return hn::PromoteTo(Tag(), hn::LoadU(F16Tag(), from));
}

/// Rounds to the nearest bf16, ties to even; a NaN stays one. As f32.
HWY_INLINE Vector to_bf16_grid(Vector value) {
  const hn::RebindToUnsigned<Tag> as_bits;
  const auto bits = hn::BitCast(as_bits, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(as_bits, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(as_bits, 0x7fff)));
  const auto kept = hn::And(rounded, hn::Set(as_bits, 0xffff0000u));
  return hn::IfThenElse(hn::IsNaN(value),
                        hn::Or(value, hn::BitCast(Tag(), hn::Set(as_bits, 0x7fc00000u))),
                        hn::BitCast(Tag(), kept));
}

HWY_INLINE void store_whole(Vector value, float* to) { hn::StoreU(value, Tag(), to); }
HWY_INLINE void store_whole(Vector value, Bf16* to) {
  const hn::RebindToSigned<Tag> as_signed;
  const hn::RebindToUnsigned<Tag> as_bits;
  const auto high = hn::ShiftRight<16>(hn::BitCast(as_bits, to_bf16_grid(value)));
  hn::StoreU(hn::DemoteTo(Bf16Tag(), hn::BitCast(as_signed, high)), Bf16Tag(), to);
}
HWY_INLINE void store_whole(Vector value, F16* to) {
  hn::StoreU(hn::DemoteTo(F16Tag(), value), F16Tag(), to);
}

/// What an element of type T holds of `value`.
template <typename T>
HWY_INLINE Vector rounded(Vector value) {
  if constexpr (std::is_same_v<T, Bf16>) return to_bf16_grid(value);
  if constexpr (std::is_same_v<T, F16>) return hn::PromoteTo(Tag(), hn::DemoteTo(F16Tag(), value));
  return value;
}

/// The last, incomplete vector of an array; missing lanes are zero.
template <typename T>
HWY_NOINLINE Vector load_part(const T* from, size_t left) {
  HWY_ALIGN T padded[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(padded, from, left * sizeof(T));
  return load_whole(padded);
}
template <typename T>
HWY_NOINLINE void store_part(Vector value, T* to, size_t left) {
  HWY_ALIGN T padded[HWY_MAX_BYTES / sizeof(float)];
  store_whole(value, padded);
  std::memcpy(to, padded, left * sizeof(T));
}
template <typename T>
HWY_INLINE Vector load(const T* from, size_t left) {
  return HWY_LIKELY(left >= lanes()) ? load_whole(from) : load_part(from, left);
}
template <typename T>
HWY_INLINE void store(Vector value, T* to, size_t left) {
  HWY_LIKELY(left >= lanes()) ? store_whole(value, to) : store_part(value, to, left);
}
HWY_INLINE float sum_of(Vector value) { return hn::GetLane(hn::SumOfLanes(Tag(), value)); }
HWY_INLINE Vector set(float value) { return hn::Set(Tag(), value); }
/// Highway's Exp makes 0 of a NaN and is defined up to 104; a NaN must reach the loss.
HWY_INLINE Vector exp_of(Vector value) {
  return hn::IfThenElse(hn::IsNaN(value), value, hn::Exp(Tag(), value));
}
HWY_INLINE Vector sigmoid(Vector value) {
  const Vector one = set(1.0f);
  const auto is_zero = hn::Lt(value, set(-88.0f));
  return hn::IfThenZeroElse(is_zero, hn::Div(one, hn::Add(one, exp_of(hn::Neg(value)))));
}

}  // namespace danlu::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
