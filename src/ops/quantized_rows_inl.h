// ops/quantized_rows_inl.h: products with quantised weights for one instruction set. No include
// guard: included once per instruction set, inside a namespace that has `Vectors`, whose functions
// are those of 16 lanes:
//   Ints, Floats, Bytes (64 codes: 4 columns of 16 rows)
//   load(p), low(b), high(b): codes, their lower and upper 4 bits
//   upper(b), joined(a, b): high(b) as kUpperFactor times as much, a + b / kUpperFactor: a shift a
//   group instead of one a load
//   with_high(nibbles, b, shift): 6-bit codes; two bits of b from `shift` on become the upper ones
//   signed_codes(b): what dot8 wants of Q8_0's codes; kZero8: what is then still too much in them
//   dot4(sum, codes < 128 or what upper gives, x4), dot8(sum, codes, x4): adds the products of each
//   row's 4 columns
//   ints(i), zero(), floats(f), to_floats(i), add(a, b, c) = a * b + c, mul(a, b)
//   subtract(a, b, c) = c - a * b
//   halves(p): 16 F16; unsigned16(p), signed16(p): bytes; store(f, p)

/// Sums over a group's columns: 0 … 15 in `dots`, 16 … 31 in `more` where scales differ, else all
/// in `dots`. Both come with what codes have too much taken off.
template <BlockType kType, int kRows, bool kAsks>
DANLU_ALWAYS_INLINE void group_dots(const uint8_t* codes, const int8_t* const (&x4)[kRows],
                                    Vectors::Ints (&dots)[kRows], Vectors::Ints (&more)[kRows]) {
  using V = Vectors;
  if constexpr (kType == BlockType::kQ8_0) {
    for (int chunk = 0; chunk < 8; ++chunk) {
      const auto b = V::signed_codes(V::load(codes + 64 * chunk));
      ask_ahead<kAsks>(codes + 64 * chunk);
      for (int r = 0; r < kRows; ++r) dots[r] = V::dot8(dots[r], b, x4[r] + 4 * chunk);
    }
    return;
  }
  constexpr bool kIs6 = kType == BlockType::kQ6_K;
  constexpr bool kIsScaled = !kIs6 && V::kUpperFactor > 1 && kRows <= 2;  // else it does not repay
  for (int chunk = 0; chunk < 4; ++chunk) {
    const auto b = V::load(codes + 64 * chunk);
    ask_ahead<kAsks>(codes + 64 * chunk);
    auto first = V::low(b), second = kIsScaled ? V::upper(b) : V::high(b);
    if constexpr (kIs6) {
      const auto upper = V::load(codes + 256 + 64 * (chunk % 2));
      if (chunk < 2) ask_ahead<kAsks>(codes + 256 + 64 * chunk);
      first = chunk < 2 ? V::template with_high<0>(first, upper)
                        : V::template with_high<2>(first, upper);
      second = chunk < 2 ? V::template with_high<4>(second, upper)
                         : V::template with_high<6>(second, upper);
    }
    for (int r = 0; r < kRows; ++r) {
      dots[r] = V::dot4(dots[r], first, x4[r] + 4 * chunk);
      auto& other = kIs6 || kIsScaled ? more[r] : dots[r];
      other = V::dot4(other, second, x4[r] + 16 + 4 * chunk);
    }
  }
  if constexpr (kIsScaled)
    for (int r = 0; r < kRows; ++r) dots[r] = V::joined(dots[r], more[r]);
}

/// What kRows rows of input have added up of a band.
template <int kRows>
struct BandSums {
  Vectors::Floats all[kRows], part[kRows], offsets[kRows];  ///< the latter two of a super-block
};

/// Adds a group of Q4_K or Q6_K: scales of bytes, F16 ones at the end of 8 groups.
template <BlockType kType, int kRows>
DANLU_ALWAYS_INLINE void add_group(const uint8_t* scales, const QuantizedInput& x, size_t block,
                                   const Vectors::Ints (&dots)[kRows],
                                   const Vectors::Ints (&more)[kRows], BandSums<kRows>& sums) {
  using V = Vectors;
  constexpr bool kIs6 = kType == BlockType::kQ6_K;
  const auto one = kIs6 ? V::signed16(scales) : V::unsigned16(scales);
  const auto two = kIs6 ? V::signed16(scales + 16) : V::unsigned16(scales + 16);
  for (int r = 0; r < kRows; ++r) {
    const QuantizedInputBlock& facts = x.facts[static_cast<size_t>(r) * x.facts_row + block];
    if constexpr (kIs6) {
      const auto both = V::add(one, V::to_floats(dots[r]), V::mul(two, V::to_floats(more[r])));
      sums.part[r] = V::add(both, V::floats(facts.scale), sums.part[r]);
    } else {
      const auto scaled = V::mul(V::to_floats(dots[r]), V::floats(facts.scale));
      sums.part[r] = V::add(one, scaled, sums.part[r]);
      const float sum = static_cast<float>(facts.sum[0] + facts.sum[1]) * facts.scale;
      sums.offsets[r] = V::add(two, V::floats(sum), sums.offsets[r]);
    }
  }
}

template <BlockType kType, int kRows>
DANLU_ALWAYS_INLINE void end_super(const uint8_t* supers, BandSums<kRows>& sums) {
  using V = Vectors;
  const auto scale = V::halves(supers);
  for (int r = 0; r < kRows; ++r) {
    sums.all[r] = V::add(scale, sums.part[r], sums.all[r]);
    sums.part[r] = V::zero();
  }
  if constexpr (kType == BlockType::kQ4_K) {
    const auto offset_scale = V::halves(supers + 32);
    for (int r = 0; r < kRows; ++r) {
      sums.all[r] = V::subtract(offset_scale, sums.offsets[r], sums.all[r]);
      sums.offsets[r] = V::zero();
    }
  }
}

template <BlockType kType, int kRows, bool kAsks>
void quantized_band(const QuantizedBand& w, const QuantizedInput& x, float* y, size_t y_row) {
  using V = Vectors;
  constexpr bool kIs6 = kType == BlockType::kQ6_K;
  constexpr int kZero = kType == BlockType::kQ8_0 ? V::kZero8 : kType == BlockType::kQ4_0 ? 8 : 0;
  BandSums<kRows> sums;
  for (int r = 0; r < kRows; ++r) sums.all[r] = sums.part[r] = sums.offsets[r] = V::zero();
  const uint8_t *codes = w.codes, *scales = w.scales, *supers = w.supers;
  for (size_t block = 0; block < w.blocks; ++block) {
    V::Ints dots[kRows], more[kRows];
    const int8_t* x4[kRows];
    for (int r = 0; r < kRows; ++r) {
      const QuantizedInputBlock& facts = x.facts[static_cast<size_t>(r) * x.facts_row + block];
      x4[r] = x.codes + static_cast<size_t>(r) * x.codes_row + block * kBlockGroup;
      dots[r] = V::ints(kIs6 ? -32 * facts.sum[0] : -kZero * (facts.sum[0] + facts.sum[1]));
      more[r] = V::ints(kIs6 ? -32 * facts.sum[1] : 0);
    }
    group_dots<kType, kRows, kAsks>(codes, x4, dots, more);
    codes += band_code_bytes(kType);
    if constexpr (band_super_bytes(kType) == 0) {
      const auto scale = V::halves(scales);
      for (int r = 0; r < kRows; ++r) {
        const float d = x.facts[static_cast<size_t>(r) * x.facts_row + block].scale;
        sums.all[r] = V::add(V::mul(scale, V::floats(d)), V::to_floats(dots[r]), sums.all[r]);
      }
    } else {
      add_group<kType, kRows>(scales, x, block, dots, more, sums);
      if (block % 8 == 7) {
        end_super<kType, kRows>(supers, sums);
        supers += band_super_bytes(kType);
      }
    }
    scales += kBandScaleBytes;
  }
  for (int r = 0; r < kRows; ++r) V::store(sums.all[r], y + static_cast<size_t>(r) * y_row);
}

template <BlockType kType, bool kAsks>
void quantized_rows_of(const QuantizedBand& w, QuantizedInput x, size_t rows, float* y,
                       size_t y_row) {
  constexpr int kMost = Vectors::kRows;
  const auto done = [&](size_t count) {
    x.codes += count * x.codes_row;
    x.facts += count * x.facts_row;
    y += count * y_row;
    rows -= count;
  };
  if constexpr (kAsks) {
    if (rows >= kMost) {  // the others find what these have asked for
      quantized_band<kType, kMost, kAsks>(w, x, y, y_row);
      done(kMost);
      return quantized_rows_of<kType, false>(w, x, rows, y, y_row);
    }
  }
  for (; rows >= kMost; done(kMost)) quantized_band<kType, kMost, false>(w, x, y, y_row);
  if constexpr (kMost > 4)
    for (; rows >= 4; done(4)) quantized_band<kType, 4, kAsks>(w, x, y, y_row);
  if constexpr (kMost > 2)
    for (; rows >= 2; done(2)) quantized_band<kType, 2, kAsks>(w, x, y, y_row);
  for (; rows >= 1; done(1)) quantized_band<kType, 1, kAsks>(w, x, y, y_row);
}

template <BlockType kType>
void quantized_rows(const QuantizedBand& w, const QuantizedInput& x, size_t rows, float* y,
                    size_t y_row) {
  asks_for_memory() ? quantized_rows_of<kType, true>(w, x, rows, y, y_row)
                    : quantized_rows_of<kType, false>(w, x, rows, y, y_row);
}

void multiply_band(BlockType type, const QuantizedBand& w, const QuantizedInput& x, size_t rows,
                   float* y, size_t y_row) {
  switch (type) {
    case BlockType::kQ8_0:
      return quantized_rows<BlockType::kQ8_0>(w, x, rows, y, y_row);
    case BlockType::kQ4_0:
      return quantized_rows<BlockType::kQ4_0>(w, x, rows, y, y_row);
    case BlockType::kQ4_K:
      return quantized_rows<BlockType::kQ4_K>(w, x, rows, y, y_row);
    case BlockType::kQ6_K:
      return quantized_rows<BlockType::kQ6_K>(w, x, rows, y, y_row);
    default:  // QuantizedWeight holds no others
      return;
  }
}
