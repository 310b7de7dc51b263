#include "ops/gemm_kernels_cpu.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstring>

#include "ops/vector_targets.h"

// This file is compiled once per instruction set by Highway (github.com/google/highway).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/gemm_kernels_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace danlu::ops::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<float, 16>;
using Vector = hn::Vec<Tag>;
using Bf16 = uint16_t;
using F16 = hwy::float16_t;

constexpr size_t kRows = 6;
// 6 x 4 sums fit into 32 registers, 6 x 2 into the 16 of AVX2 and SSE.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3
constexpr size_t kVectors = 2;
#else
constexpr size_t kVectors = 4;
#endif

size_t Columns() { return kVectors * hn::Lanes(Tag()); }

/// Another core may have read what lay here before: asks for the line before it is written.
HWY_INLINE void prefetch_to_write(const void* line) {
#if HWY_ARCH_X86
  asm volatile("prefetchw (%0)" : : "r"(line));  // without the instruction's bit it does nothing
#else
  __builtin_prefetch(line, /*rw=*/1);
#endif
}

// --- packing ----------------------------------------------------------------------------------

/// Two bf16 in a word, as they lie.
struct Pair {
  Bf16 first, second;
};

#if HWY_TARGET == HWY_SCALAR

HWY_INLINE uint32_t word_of(const float& value) {
  uint32_t word;
  std::memcpy(&word, &value, sizeof word);
  return word;
}
HWY_INLINE uint32_t word_of(const Bf16& value) { return static_cast<uint32_t>(value) << 16; }
HWY_INLINE uint32_t word_of(const F16& value) {
  return word_of(hn::GetLane(hn::PromoteTo(hn::Sisd<float>(), hn::Set(hn::Sisd<F16>(), value))));
}
HWY_INLINE uint32_t word_of(const Pair& pair) {
  return pair.first | static_cast<uint32_t>(pair.second) << 16;
}

/// k is contiguous in the source, columns in the panel. T: a word's worth of elements.
template <typename T>
HWY_INLINE void pack_turned(const char* data, size_t column_bytes, size_t k_bytes, size_t steps,
                            size_t count, size_t width, uint32_t* to) {
  for (size_t step = 0; step < steps; ++step) {
    const size_t at = step * sizeof(T);
    for (size_t j = 0; j < count; ++j) {
      T value{};
      std::memcpy(static_cast<void*>(&value), data + j * column_bytes + at,
                  std::min(sizeof(T), k_bytes - at));
      to[step * width + j] = word_of(value);
    }
    std::fill(to + step * width + count, to + (step + 1) * width, 0u);
  }
}

#else

using Four = hn::Full128<float>;
using FourWords = hn::Full128<uint32_t>;

/// Four words along k. f32 elements, or bf16 and f16 widened to them.
HWY_INLINE hn::Vec<FourWords> four_words(const float* from) {
  return hn::BitCast(FourWords(), hn::LoadU(Four(), from));
}
HWY_INLINE hn::Vec<FourWords> four_words(const Bf16* from) {
  const hn::Rebind<uint16_t, FourWords> halves;
  return hn::ShiftLeft<16>(hn::PromoteTo(FourWords(), hn::LoadU(halves, from)));
}
HWY_INLINE hn::Vec<FourWords> four_words(const F16* from) {
  const hn::Rebind<F16, Four> halves;
  return hn::BitCast(FourWords(), hn::PromoteTo(Four(), hn::LoadU(halves, from)));
}
HWY_INLINE hn::Vec<FourWords> four_words(const Pair* from) {
  return hn::LoadU(FourWords(), reinterpret_cast<const uint32_t*>(from));
}

template <typename T>
HWY_INLINE hn::Vec<FourWords> some_words(const T* from, size_t bytes) {
  T padded[4] = {};
  std::memcpy(static_cast<void*>(padded), from, bytes);
  return four_words(padded);
}

/// Columns [j, j + 4) of words, k contiguous in each: turned into rows of four.
template <typename T>
HWY_INLINE void turn_four(const T* const from[4], size_t bytes_left, size_t steps_left,
                          size_t width, uint32_t* to) {
  hn::Vec<FourWords> c0, c1, c2, c3;
  if (HWY_LIKELY(bytes_left >= 4 * sizeof(T))) {
    c0 = four_words(from[0]);
    c1 = four_words(from[1]);
    c2 = four_words(from[2]);
    c3 = four_words(from[3]);
  } else {
    c0 = some_words(from[0], bytes_left);
    c1 = some_words(from[1], bytes_left);
    c2 = some_words(from[2], bytes_left);
    c3 = some_words(from[3], bytes_left);
  }
  const hn::Full128<uint64_t> doubles;
  const auto low02 = hn::BitCast(doubles, hn::InterleaveLower(FourWords(), c0, c1)),
             low13 = hn::BitCast(doubles, hn::InterleaveLower(FourWords(), c2, c3)),
             high02 = hn::BitCast(doubles, hn::InterleaveUpper(FourWords(), c0, c1)),
             high13 = hn::BitCast(doubles, hn::InterleaveUpper(FourWords(), c2, c3));
  const hn::Vec<FourWords> rows[4] = {
      hn::BitCast(FourWords(), hn::InterleaveLower(doubles, low02, low13)),
      hn::BitCast(FourWords(), hn::InterleaveUpper(doubles, low02, low13)),
      hn::BitCast(FourWords(), hn::InterleaveLower(doubles, high02, high13)),
      hn::BitCast(FourWords(), hn::InterleaveUpper(doubles, high02, high13))};
  if (HWY_LIKELY(steps_left >= 4)) {
    HWY_UNROLL(4)
    for (size_t r = 0; r < 4; ++r) hn::StoreU(rows[r], FourWords(), to + r * width);
  } else {
    for (size_t r = 0; r < steps_left; ++r) hn::StoreU(rows[r], FourWords(), to + r * width);
  }
}

#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86

/// Four words of four columns, each `apart` bytes from the one before.
template <typename T>
HWY_INLINE hn::Vec<hn::Full512<uint32_t>> four_blocks(const char* column, size_t apart) {
  const auto words = [&](size_t i) {
    return four_words(reinterpret_cast<const T*>(column + i * apart));
  };
  const hn::Full256<uint32_t> halves;
  return hn::Combine(hn::Full512<uint32_t>(), hn::Combine(halves, words(3), words(2)),
                     hn::Combine(halves, words(1), words(0)));
}

/// turn_four of 16 columns at once, which fill lines of the panel.
template <typename T>
HWY_INLINE void turn_sixteen(const char* first, size_t column_bytes, size_t width, uint32_t* to) {
  const hn::Full512<uint32_t> words;
  const hn::Full512<uint64_t> doubles;
  const size_t apart = 4 * column_bytes;
  const auto c0 = four_blocks<T>(first, apart), c1 = four_blocks<T>(first + column_bytes, apart),
             c2 = four_blocks<T>(first + 2 * column_bytes, apart),
             c3 = four_blocks<T>(first + 3 * column_bytes, apart);
  const auto low02 = hn::BitCast(doubles, hn::InterleaveLower(words, c0, c1)),
             low13 = hn::BitCast(doubles, hn::InterleaveLower(words, c2, c3)),
             high02 = hn::BitCast(doubles, hn::InterleaveUpper(words, c0, c1)),
             high13 = hn::BitCast(doubles, hn::InterleaveUpper(words, c2, c3));
  hn::StoreU(hn::BitCast(words, hn::InterleaveLower(doubles, low02, low13)), words, to);
  hn::StoreU(hn::BitCast(words, hn::InterleaveUpper(doubles, low02, low13)), words, to + width);
  hn::StoreU(hn::BitCast(words, hn::InterleaveLower(doubles, high02, high13)), words,
             to + 2 * width);
  hn::StoreU(hn::BitCast(words, hn::InterleaveUpper(doubles, high02, high13)), words,
             to + 3 * width);
}

/// Steps of 16 columns, a multiple of four; asks for `ahead` meanwhile, where as many columns begin
/// that are wanted next, or nullptr.
template <typename T>
HWY_INLINE void turn_wide(const char* first, const char* ahead, size_t column_bytes, size_t steps,
                          size_t width, uint32_t* to) {
  constexpr size_t kStepsOfLine = 64 / sizeof(T);
  for (size_t step = 0; step < steps; step += 4) {
    if (ahead && step % kStepsOfLine == 0) {
      for (size_t i = 0; i < 16; ++i)
        __builtin_prefetch(ahead + i * column_bytes + step * sizeof(T), /*rw=*/0, 2);
    }
    turn_sixteen<T>(first + step * sizeof(T), column_bytes, width, to + step * width);
  }
}

#endif

/// k is contiguous in the source, columns in the panel. T: a word's worth of elements.
template <typename T>
HWY_INLINE void pack_turned(const char* data, size_t column_bytes, size_t k_bytes, size_t steps,
                            size_t count, size_t width, uint32_t* to) {
  // So many rows of the panel stay in the first cache while all columns pass. A column's stretch is
  // then too short to be fetched ahead by the processor: it takes twice the time without our word.
  // Into the second cache, as the first is full of the panel.
  constexpr size_t kChunk = 64, kAhead = 16, kStepsOfLine = 64 / sizeof(T);
  const size_t ahead_columns = std::min(kAhead, width);
  alignas(16) static const char kZeros[4 * sizeof(T)] = {};
  for (size_t chunk = 0; chunk < steps; chunk += kChunk) {
    const size_t end = std::min(steps, chunk + kChunk);
    const uint32_t* written_ahead = to + end * width;  // a line for each four by four words
    size_t j = 0;
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
    if ((end - chunk) % 4 == 0 && end * sizeof(T) <= k_bytes) {
      for (; j + 16 <= count; j += 16) {
        const bool goes_on = j + 32 <= count;
        const char* const ahead =
            data + (goes_on ? (j + 16) * column_bytes + chunk * sizeof(T) : end * sizeof(T));
        turn_wide<T>(data + j * column_bytes + chunk * sizeof(T),
                     goes_on || end < steps ? ahead : nullptr, column_bytes, end - chunk, width,
                     to + chunk * width + j);
      }
    }
#endif
    for (; j < width; j += 4) {
      const T* from[4];
      size_t further[4];
      for (size_t i = 0; i < 4; ++i) {
        const bool is_there = j + i < count;
        from[i] = reinterpret_cast<const T*>(
            is_there ? data + (j + i) * column_bytes + chunk * sizeof(T) : kZeros);
        further[i] = is_there ? 4 : 0;
      }
      const bool is_next = j + ahead_columns >= width;  // the next chunk's first columns
      const size_t column = is_next ? j + ahead_columns - width : j + ahead_columns;
      const size_t fetched =
          column < count && !(is_next && end == steps) ? std::min<size_t>(4, count - column) : 0;
      const char* ahead = data;
      if (fetched > 0) ahead += column * column_bytes + (is_next ? end : chunk) * sizeof(T);
      for (size_t step = chunk; step < end; step += 4) {
        if (step % kStepsOfLine == 0) {
          for (size_t i = 0; i < fetched; ++i)
            __builtin_prefetch(ahead + i * column_bytes, /*rw=*/0, 2);
          ahead += 64;
        }
        prefetch_to_write(written_ahead);
        written_ahead += 16;
        turn_four(from, k_bytes - step * sizeof(T), steps - step, width, to + step * width + j);
        for (size_t i = 0; i < 4; ++i) from[i] += further[i];
      }
    }
  }
}

#endif

HWY_INLINE Vector widened(const float* from) { return hn::LoadU(Tag(), from); }
HWY_INLINE Vector widened(const Bf16* from) {
  const hn::RebindToUnsigned<Tag> words;
  const hn::Rebind<uint16_t, Tag> halves;
  return hn::BitCast(Tag(), hn::ShiftLeft<16>(hn::PromoteTo(words, hn::LoadU(halves, from))));
}
HWY_INLINE Vector widened(const F16* from) {
  const hn::Rebind<F16, Tag> halves;
  return hn::PromoteTo(Tag(), hn::LoadU(halves, from));
}

/// Columns are contiguous in both; f32 arithmetic.
template <typename T>
HWY_INLINE void pack_rows(const T* data, size_t along, size_t k, size_t count, size_t width,
                          float* to) {
  const size_t lanes = hn::Lanes(Tag());
  for (size_t step = 0; step < k; ++step) {
    const T* from = data + step * along;
    float* row = to + step * width;
    size_t j = 0;
    for (; j + lanes <= count; j += lanes) hn::StoreU(widened(from + j), Tag(), row + j);
    if (j < count) {
      HWY_ALIGN T part[HWY_MAX_BYTES / sizeof(float)] = {};
      HWY_ALIGN float wide[HWY_MAX_BYTES / sizeof(float)];
      std::memcpy(static_cast<void*>(part), from + j, (count - j) * sizeof(T));
      hn::StoreU(widened(part), Tag(), wide);
      std::memcpy(row + j, wide, (count - j) * sizeof(float));
    }
    std::fill(row + count, row + width, 0.0f);
  }
}

/// The same for bf16 arithmetic: two rows are interleaved.
HWY_INLINE void pack_row_pairs(const Bf16* data, size_t along, size_t k, size_t count, size_t width,
                               uint32_t* to) {
  const hn::RebindToUnsigned<Tag> words;
  const hn::Rebind<uint16_t, Tag> halves;
  const size_t lanes = hn::Lanes(words);
  for (size_t step = 0; 2 * step < k; ++step) {
    const Bf16* first = data + 2 * step * along;
    const bool has_second = 2 * step + 1 < k;
    const Bf16* second = has_second ? first + along : first;
    uint32_t* row = to + step * width;
    size_t j = 0;
    for (; has_second && j + lanes <= count; j += lanes) {
      const auto low = hn::PromoteTo(words, hn::LoadU(halves, first + j)),
                 high = hn::PromoteTo(words, hn::LoadU(halves, second + j));
      hn::StoreU(hn::Or(low, hn::ShiftLeft<16>(high)), words, row + j);
    }
    for (; j < count; ++j)
      row[j] = first[j] | (has_second ? static_cast<uint32_t>(second[j]) << 16 : 0u);
    std::fill(row + j, row + width, 0u);
  }
}

void Pack(Arithmetic arithmetic, const Factor& f, size_t k, size_t count, size_t width, void* to) {
  auto* const words = static_cast<uint32_t*>(to);
  const size_t steps = (k + step_of(arithmetic) - 1) / step_of(arithmetic);
  std::fill(words + steps * width, words + steps_of(arithmetic, k) * width, 0u);
  const auto turned = [&]<typename T>(const T*, size_t element) {
    pack_turned<T>(static_cast<const char*>(f.data), f.across * element, k * element, steps, count,
                   width, words);
  };
  const auto rows = [&]<typename T>(const T* data) {
    pack_rows(data, f.along, k, count, width, static_cast<float*>(to));
  };
  const bool is_turned = f.along == 1;
  if (arithmetic != Arithmetic::kF32) {
    const auto* data = static_cast<const Bf16*>(f.data);
    is_turned ? turned(static_cast<const Pair*>(nullptr), sizeof(Bf16))
              : pack_row_pairs(data, f.along, k, count, width, words);
    return;
  }
  const auto either = [&]<typename T>(const T* data) {
    is_turned ? turned(data, sizeof(T)) : rows(data);
  };
  switch (f.element) {
    case Element::kF32:
      return either(static_cast<const float*>(f.data));
    case Element::kBF16:
      return either(static_cast<const Bf16*>(f.data));
    case Element::kF16:
      return either(static_cast<const F16*>(f.data));
  }
}

// --- the product of a tile --------------------------------------------------------------------

template <size_t kTileRows, size_t kUsed>
using Sums = Vector[kTileRows][kUsed];

/// sums += a column of `left` times kUsed vectors of a row of the panel.
template <size_t kTileRows, size_t kUsed>
HWY_INLINE void add_step(const TileProduct& p, const char* left, const float* panel,
                         Sums<kTileRows, kUsed>& sums) {
  Vector right[kUsed];
  HWY_UNROLL(4)
  for (size_t v = 0; v < kUsed; ++v) right[v] = hn::LoadU(Tag(), panel + v * hn::Lanes(Tag()));
  HWY_UNROLL(12)
  for (size_t r = 0; r < kTileRows; ++r) {
    float value;
    std::memcpy(&value, left + r * p.left_row, sizeof value);
    const Vector spread = hn::Set(Tag(), value);
    HWY_UNROLL(4)
    for (size_t v = 0; v < kUsed; ++v) sums[r][v] = hn::MulAdd(spread, right[v], sums[r][v]);
  }
}

/// Asks for lines of the next panel, evenly while a tile is computed.
struct Ahead {
  const char* line;
  size_t bytes;  ///< from one request to the next
};
constexpr size_t kStepsARequest = 4;

template <size_t kTileRows, size_t kUsed, bool kAsks>
HWY_INLINE void multiply_rows(const TileProduct& p, const char* left, float* c, Ahead& ahead) {
  const size_t columns = kVectors * hn::Lanes(Tag());
  Sums<kTileRows, kUsed> sums;
  HWY_UNROLL(12)
  for (size_t r = 0; r < kTileRows; ++r) {
    HWY_UNROLL(4)
    for (size_t v = 0; v < kUsed; ++v) {
      sums[r][v] = hn::Zero(Tag());
      if constexpr (kAsks) __builtin_prefetch(c + r * p.c_row + v * hn::Lanes(Tag()), /*rw=*/1);
    }
  }
  const auto* panel = static_cast<const float*>(p.panel);
  size_t step = 0;
  for (; step + kStepsARequest <= p.steps; step += kStepsARequest) {
    if constexpr (kAsks) {
      __builtin_prefetch(ahead.line, /*rw=*/0, /*second cache*/ 2);
      ahead.line += ahead.bytes;
    }
    HWY_UNROLL(4)
    for (size_t i = 0; i < kStepsARequest; ++i) {
      add_step<kTileRows, kUsed>(p, left, panel, sums);
      panel += columns;
      left += p.left_step;
    }
  }
  for (; step < p.steps; ++step) {
    add_step<kTileRows, kUsed>(p, left, panel, sums);
    panel += columns;
    left += p.left_step;
  }
  HWY_UNROLL(12)
  for (size_t r = 0; r < kTileRows; ++r) {
    HWY_UNROLL(4)
    for (size_t v = 0; v < kUsed; ++v) {
      float* to = c + r * p.c_row + v * hn::Lanes(Tag());
      hn::StoreU(p.add ? hn::Add(hn::LoadU(Tag(), to), sums[r][v]) : sums[r][v], Tag(), to);
    }
  }
}

template <size_t kUsed, bool kAsks>
void multiply_all_rows(const TileProduct& p) {
  const char* left = static_cast<const char*>(p.left);
  float* c = p.c;
  size_t rows = p.rows;
  const size_t requests = (rows + kRows - 1) / kRows * (p.steps / kStepsARequest);
  Ahead ahead{static_cast<const char*>(p.next), p.next_bytes / std::max<size_t>(1, requests)};
  const auto next = [&]<size_t kCount>() {
    multiply_rows<kCount, kUsed, kAsks>(p, left, c, ahead);
    left += kCount * p.left_row;
    c += kCount * p.c_row;
    rows -= kCount;
  };
  // With few vectors more rows are taken at once, or each sum would wait for its last addition.
  if constexpr (kUsed < kVectors)
    while (rows >= 2 * kRows) next.template operator()<2 * kRows>();
  while (rows >= kRows) next.template operator()<kRows>();
  switch (rows) {
    case 1:
      return next.template operator()<1>();
    case 2:
      return next.template operator()<2>();
    case 3:
      return next.template operator()<3>();
    case 4:
      return next.template operator()<4>();
    case 5:
      return next.template operator()<5>();
    default:
      return;
  }
}

void MultiplyTile(const TileProduct& p) {
  const size_t lanes = hn::Lanes(Tag());
  const size_t vectors = p.columns == 0 ? kVectors : (p.columns + lanes - 1) / lanes;
  if (vectors == 1) return multiply_all_rows<1, false>(p);
  if (vectors == 2 && kVectors > 2) return multiply_all_rows<2, false>(p);
  p.next ? multiply_all_rows<kVectors, true>(p) : multiply_all_rows<kVectors, false>(p);
}

}  // namespace danlu::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace danlu::ops::cpu {

HWY_EXPORT(Columns);
HWY_EXPORT(Pack);
HWY_EXPORT(MultiplyTile);

size_t panel_columns(Arithmetic arithmetic) {
  vector_target();  // closes the targets above the class in use
  if (arithmetic == Arithmetic::kAmx) return amx_panel_columns();
  return arithmetic == Arithmetic::kBF16 ? bf16_panel_columns() : HWY_DYNAMIC_DISPATCH(Columns)();
}
void pack(Arithmetic arithmetic, const Factor& factor, size_t k, size_t count, size_t width,
          void* to) {
  HWY_DYNAMIC_DISPATCH(Pack)(arithmetic, factor, k, count, width, to);
}
void multiply_tile(Arithmetic arithmetic, const TileProduct& product) {
  switch (arithmetic) {
    case Arithmetic::kF32:
      return HWY_DYNAMIC_DISPATCH(MultiplyTile)(product);
    case Arithmetic::kBF16:
      return multiply_bf16_tile(product);
    case Arithmetic::kAmx:
      return multiply_amx_tile(product);
  }
}

}  // namespace danlu::ops::cpu
#endif
