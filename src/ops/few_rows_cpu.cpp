#include "ops/few_rows_cpu.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "base/cpu_class.h"
#include "device/parallel.h"
#include "ops/empty_cpu.h"
#include "ops/kernels_cpu.h"
#include "ops/prefetch_cpu.h"
#include "ops/scratch_cpu.h"
#include "ops/unsigned_of.h"

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>
#define DANLU_BF16_DOTS 1
#elif defined(__aarch64__)
#include <arm_neon.h>
#include <hwy/base.h>

#include <cstring>
#define DANLU_BF16_DOTS 1
#else
#define DANLU_BF16_DOTS 0
#endif

namespace danlu::ops::cpu {

#if DANLU_BF16_DOTS
namespace bf16_dots {

#if defined(__x86_64__)

HWY_PUSH_ATTRIBUTES("avx,avx2,fma,bmi,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")

constexpr size_t kLanes = 32;
using Sum = __m512;
using Numbers = __m512bh;

inline Numbers load(const uint16_t* from) { return (__m512bh)_mm512_loadu_si512(from); }
inline Numbers load_part(const uint16_t* from, size_t left) {
  const __mmask32 mask = left >= kLanes ? ~__mmask32{0} : (__mmask32{1} << left) - 1;
  return (__m512bh)_mm512_maskz_loadu_epi16(mask, from);
}
inline Sum zero() { return _mm512_setzero_ps(); }
inline Sum more(Sum sum, Numbers a, Numbers b) { return _mm512_dpbf16_ps(sum, a, b); }
inline Sum plus(Sum a, Sum b) { return _mm512_add_ps(a, b); }
inline float total(Sum sum) { return _mm512_reduce_add_ps(sum); }

#else

HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+bf16")

constexpr size_t kLanes = 8;
using Sum = float32x4_t;
using Numbers = bfloat16x8_t;

inline Numbers load(const uint16_t* from) { return vreinterpretq_bf16_u16(vld1q_u16(from)); }
inline Numbers load_part(const uint16_t* from, size_t left) {
  if (left >= kLanes) return load(from);
  uint16_t padded[kLanes] = {};
  std::memcpy(padded, from, left * sizeof *from);
  return load(padded);
}
inline Sum zero() { return vdupq_n_f32(0); }
inline Sum more(Sum sum, Numbers a, Numbers b) { return vbfdotq_f32(sum, a, b); }
inline Sum plus(Sum a, Sum b) { return vaddq_f32(a, b); }
inline float total(Sum sum) { return vaddvq_f32(sum); }

#endif

/// One row of w against kInputs of x, in kSums sums each: more than the latency of an addition.
/// Arguments are registers: a structure that is written and read again for each row would have the
/// next row wait for this one's memory.
template <size_t kInputs, size_t kSums, bool kAsks>
HWY_INLINE void dots(const uint16_t* x, const uint16_t* w, size_t width, float* y, size_t y_row) {
  Sum sums[kInputs][kSums];
  for (auto& of_input : sums)
    for (Sum& sum : of_input) sum = zero();
  size_t i = 0;
  for (; i + kSums * kLanes <= width; i += kSums * kLanes) {
    for (size_t s = 0; s < kSums; ++s) {
      const size_t at = i + s * kLanes;
      const Numbers row = load(w + at);
      ask_ahead<kAsks>(w + at);
      for (size_t n = 0; n < kInputs; ++n)
        sums[n][s] = more(sums[n][s], row, load(x + n * width + at));
    }
  }
  for (; i < width; i += kLanes) {
    const size_t left = width - i;
    const Numbers row = load_part(w + i, left);
    for (size_t n = 0; n < kInputs; ++n)
      sums[n][0] = more(sums[n][0], row, load_part(x + n * width + i, left));
  }
  for (size_t n = 0; n < kInputs; ++n) {
    for (size_t s = 1; s < kSums; ++s) sums[n][0] = plus(sums[n][0], sums[n][s]);
    y[n * y_row] = total(sums[n][0]);
  }
}

/// One row of w after the other: several at once would be as many streams through memory, each too
/// short to be fetched ahead (half the bandwidth, measured).
template <bool kAsks>
void rows(const uint16_t* x, size_t inputs, const uint16_t* w, size_t w_rows, size_t width,
          float* y, size_t y_row) {
  if (inputs == 1) {
    for (size_t row = 0; row < w_rows; ++row)
      dots<1, 4, kAsks>(x, w + row * width, width, y + row, y_row);
    return;
  }
  for (size_t row = 0; row < w_rows; ++row) {
    const uint16_t* w_row = w + row * width;
    size_t n = 0;
    if (inputs >= 4) {  // the others find what these have asked for
      dots<4, 2, kAsks>(x, w_row, width, y + row, y_row);
      n = 4;
    } else {
      dots<2, 4, kAsks>(x, w_row, width, y + row, y_row);
      n = 2;
    }
    for (; n + 4 <= inputs; n += 4)
      dots<4, 2, false>(x + n * width, w_row, width, y + n * y_row + row, y_row);
    for (; n + 2 <= inputs; n += 2)
      dots<2, 4, false>(x + n * width, w_row, width, y + n * y_row + row, y_row);
    if (n < inputs) dots<1, 4, false>(x + n * width, w_row, width, y + n * y_row + row, y_row);
  }
}

HWY_POP_ATTRIBUTES
}  // namespace bf16_dots
#endif

namespace {

bool takes_bf16_dots(at::ScalarType type) { return type == at::kBFloat16 && has_bf16_dots(); }

/// Above it packing the weight repays: more of both operands stays in registers. Measured on a Zen
/// 4 (32) and on an Emerald Rapids (32; as AVX-512 and AVX2 the others); see docs/decisions/ops.md.
int64_t most_rows(at::ScalarType type) {
  if (takes_bf16_dots(type)) return 32;
  return type == at::kFloat ? 16 : 24;
}

const char* row_at(const at::Tensor& x, int64_t row) {
  return static_cast<const char*>(x.data_ptr()) +
         row * x.size(1) * static_cast<int64_t>(x.element_size());
}

/// sums[n * stride + r] of rows [begin, end) of the weight. wide: x in f32, where it is needed.
void sums_of(const at::Tensor& x_NI, const float* wide, const at::Tensor& weight_OI, int64_t begin,
             int64_t end, float* sums, size_t stride) {
  const size_t width = unsigned_of(x_NI.size(1));
#if DANLU_BF16_DOTS
  if (takes_bf16_dots(weight_OI.scalar_type())) {
    const auto rows = asks_for_memory() ? &bf16_dots::rows<true> : &bf16_dots::rows<false>;
    rows(static_cast<const uint16_t*>(x_NI.data_ptr()), unsigned_of(x_NI.size(0)),
         reinterpret_cast<const uint16_t*>(row_at(weight_OI, begin)), unsigned_of(end - begin),
         width, sums, stride);
    return;
  }
#endif
  dot_rows({element_of(weight_OI), unsigned_of(x_NI.size(0)), unsigned_of(end - begin), width, wide,
            row_at(weight_OI, begin), sums, stride});
}

struct FewRowsProduct {
  at::Tensor weight_OI, bias_O, y_NO;  ///< contiguous, of one type
};

/// Columns [begin, end) of y; wide as sums_of's.
void multiply(const at::Tensor& x_NI, const float* wide, const FewRowsProduct& product,
              int64_t begin, int64_t end) {
  const auto& [weight_OI, bias_O, y_NO] = product;
  const size_t n = unsigned_of(x_NI.size(0)), count = unsigned_of(end - begin);
  const int64_t outputs = weight_OI.size(0);
  const Element element = element_of(weight_OI);
  if (element == Element::kF32 && !bias_O.defined()) {
    sums_of(x_NI, wide, weight_OI, begin, end, y_NO.data_ptr<float>() + begin,
            unsigned_of(outputs));
    return;
  }
  static thread_local ScratchMemory sum_memory, bias_memory;
  float* const sums = sum_memory.floats(n * count);
  float* const added = bias_O.defined() ? bias_memory.floats(count) : nullptr;
  sums_of(x_NI, wide, weight_OI, begin, end, sums, count);
  const auto item = static_cast<int64_t>(y_NO.element_size());
  if (added) {
    widen(element, 1, count, static_cast<const char*>(bias_O.data_ptr()) + begin * item, count,
          added, count);
  }
  for (size_t row = 0; row < n; ++row) {
    float* const own = sums + row * count;
    for (size_t i = 0; added && i < count; ++i) own[i] += added[i];
    char* const to =
        static_cast<char*>(y_NO.data_ptr()) + (static_cast<int64_t>(row) * outputs + begin) * item;
    narrow(element, 1, count, own, count, to, count);
  }
}

}  // namespace

bool takes_few_rows(const at::Tensor& x, const at::Tensor& weight_OI) {
  const int64_t rows = x.size(0);
  return rows > 0 && rows <= most_rows(weight_OI.scalar_type()) &&
         backend().takes(Work::kRows, weight_OI.scalar_type()) &&
         x.scalar_type() == weight_OI.scalar_type() && weight_OI.size(1) > 0;
}

std::vector<at::Tensor> few_rows_products(const at::Tensor& given_NI,
                                          std::span<const LinearFactor> factors) {
  const at::Tensor x_NI = given_NI.contiguous();
  const int64_t n = x_NI.size(0), width = x_NI.size(1);
  const float* x_wide = static_cast<const float*>(x_NI.data_ptr());
  if (x_NI.scalar_type() != at::kFloat && !takes_bf16_dots(x_NI.scalar_type())) {
    static thread_local ScratchMemory memory;  // aligned: few vectors of it lie in two lines
    const size_t count = unsigned_of(n * width);
    float* const wide = memory.floats(count);
    widen(element_of(x_NI), 1, count, x_NI.data_ptr(), count, wide, count);
    x_wide = wide;
  }
  std::vector<FewRowsProduct> products;
  std::vector<at::Tensor> results;
  for (const auto& [weight_OI, bias_O] : factors) {
    products.push_back({weight_OI.contiguous(),
                        bias_O.defined() ? bias_O.to(weight_OI.scalar_type()).contiguous() : bias_O,
                        empty_cpu({n, weight_OI.size(0)}, x_NI.scalar_type())});
    results.push_back(products.back().y_NO);
  }
  const int64_t grain = std::max<int64_t>(8, (int64_t{32} << 10) / width);
  device::parallel_ranges(
      products.size(), grain, [&](size_t i) { return products[i].weight_OI.size(0); },
      [&](size_t i, int64_t begin, int64_t end) {
        multiply(x_NI, x_wide, products[i], begin, end);
      });
  return results;
}

}  // namespace danlu::ops::cpu
