// Weights in blocks (ops/block_weight.h), made dense a few bands at a time.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "ops/aten/table.h"
#include "ops/block_weight.h"

namespace danlu::ops::aten {
namespace {

constexpr int64_t kGroup = kBlockGroup, kGroupsOfSuper = 8, kHalfGroup = kGroup / 2;

/// The bytes of some bands, each [bands, groups (of supers: an eighth), bytes].
struct Bands {
  at::Tensor codes, scales, supers;
};

/// `take`: what of a tensor whose first dimension are all bands.
template <typename Take>
Bands bands_of(const BlockWeight& weight, const Take& take) {
  const auto part = [&](const at::Tensor& all, int64_t groups) {
    return take(all.view({weight.num_bands(), groups, -1}));
  };
  const int64_t groups = weight.num_groups();
  return {part(weight.codes(), groups), part(weight.scales(), groups),
          weight.supers().numel() > 0 ? part(weight.supers(), groups / kGroupsOfSuper)
                                      : weight.supers()};
}

/// Chunks of codes [bands, groups, chunks · 64 bytes] by row: [bands, 16, groups, 4 · chunks].
at::Tensor by_row(const at::Tensor& bytes) {
  const int64_t bands = bytes.size(0), groups = bytes.size(1), chunks = bytes.size(2) / 64;
  return bytes.reshape({bands, groups, chunks, kBandRows, 4})
      .permute({0, 3, 1, 2, 4})
      .reshape({bands, kBandRows, groups, 4 * chunks});
}

/// What `shift` lowest bits of bytes are followed by, `bits` of them.
at::Tensor bits_of(const at::Tensor& bytes, int64_t shift, int64_t bits) {
  return bytes.bitwise_right_shift(shift).bitwise_and_((int64_t{1} << bits) - 1);
}

/// Codes less their zero, f32 [bands, 16, groups, 32].
at::Tensor codes_of(BlockType type, const at::Tensor& bytes) {
  if (type == BlockType::kQ8_0) return by_row(bytes).to(at::kFloat).sub_(zero_code(type));
  const at::Tensor nibbles = by_row(bytes.narrow(2, 0, 256));
  at::Tensor codes = at::cat({bits_of(nibbles, 0, 4), bits_of(nibbles, 4, 4)}, 3);
  if (type == BlockType::kQ6_K) {
    const at::Tensor uppers = by_row(bytes.narrow(2, 256, 128));
    codes += at::cat({bits_of(uppers, 0, 2), bits_of(uppers, 2, 2), bits_of(uppers, 4, 2),
                      bits_of(uppers, 6, 2)},
                     3)
                 .mul_(16);
  }
  return codes.to(at::kFloat).sub_(zero_code(type));
}

/// [bands, groups, rows] as [bands, 16, groups, 1].
at::Tensor beside_codes(const at::Tensor& of_rows) {
  return of_rows.to(at::kFloat).permute({0, 2, 1}).unsqueeze(3);
}
at::Tensor halves(const at::Tensor& bytes) { return bytes.contiguous().view(at::kHalf); }

/// Half `part` of a super's F16 for each of its groups, [bands, 16, groups, 1].
at::Tensor super_factors(const Bands& bands, int64_t part) {
  return beside_codes(halves(bands.supers.narrow(2, 2 * kBandRows * part, 2 * kBandRows))
                          .repeat_interleave(kGroupsOfSuper, 1));
}

/// All numbers of the bands, f32 [bands · 16, columns]; products in f32, from the left.
at::Tensor dense(BlockType type, const Bands& bands) {
  const at::Tensor codes = codes_of(type, bands.codes);
  const auto scale_bytes = [&](int64_t part) {
    return bands.scales.narrow(2, kBandRows * part, kBandRows).contiguous();
  };
  at::Tensor numbers;
  if (bands.supers.numel() == 0) {
    numbers = beside_codes(halves(bands.scales)) * codes;
  } else if (type == BlockType::kQ4_K) {
    numbers = super_factors(bands, 0) * beside_codes(scale_bytes(0).view(at::kChar)) * codes -
              super_factors(bands, 1) * beside_codes(scale_bytes(1));
  } else {
    const at::Tensor scale = super_factors(bands, 0);
    const auto part = [&](int64_t half) {
      return scale * beside_codes(scale_bytes(half).view(at::kChar)) *
             codes.narrow(3, half * kHalfGroup, kHalfGroup);
    };
    numbers = at::cat({part(0), part(1)}, 3);
  }
  return numbers.reshape({codes.size(0) * kBandRows, codes.size(2) * kGroup});
}

/// Bands that are dense at a time.
int64_t bands_at_a_time(const BlockWeight& weight) {
  return std::max<int64_t>(1, kWideNumbers / (kBandRows * weight.columns()));
}

at::Tensor dense_bands(const BlockWeight& weight, int64_t band, int64_t bands,
                       at::ScalarType type) {
  const Bands here =
      bands_of(weight, [&](const at::Tensor& all) { return all.narrow(0, band, bands); });
  return dense(weight.type(), here).to(type);
}

}  // namespace

at::Tensor block_product(const at::Tensor& x_NI, const BlockFactor& factor, DenseBands dense) {
  const BlockWeight& weight = factor.weight;
  const Backend& table = backend_of(x_NI.device().type());
  const at::ScalarType type = x_NI.scalar_type();
  const at::Tensor y_NO = at::empty({x_NI.size(0), weight.rows()}, x_NI.options());
  const int64_t step = bands_at_a_time(weight);
  for (int64_t band = 0; band < weight.num_bands(); band += step) {
    const int64_t bands = std::min(step, weight.num_bands() - band), row = band * kBandRows,
                  rows = std::min(bands * kBandRows, weight.rows() - row);
    const at::Tensor dense_OI = dense(weight, band, bands, type).narrow(0, 0, rows);
    const at::Tensor bias =
        factor.bias_O.defined() ? factor.bias_O.narrow(0, row, rows) : at::Tensor();
    y_NO.narrow(1, row, rows).copy_(table.product(x_NI, dense_OI, bias, type));
  }
  return y_NO;
}

std::vector<at::Tensor> block_products(const at::Tensor& x_NI,
                                       std::span<const BlockFactor> factors) {
  std::vector<at::Tensor> results;
  results.reserve(factors.size());
  for (const BlockFactor& factor : factors)
    results.push_back(block_product(x_NI, factor, &dense_bands));
  return results;
}

at::Tensor block_rows(const BlockWeight& weight, const at::Tensor& ids_N, at::ScalarType type) {
  const int64_t count = ids_N.numel(), step = bands_at_a_time(weight);
  const at::Tensor rows_NH = at::empty({count, weight.columns()}, ids_N.options().dtype(type));
  for (int64_t first = 0; first < count; first += step) {
    const int64_t some = std::min(step, count - first);
    const at::Tensor ids = ids_N.narrow(0, first, some), band = ids.bitwise_right_shift(4);
    const Bands here =
        bands_of(weight, [&](const at::Tensor& all) { return all.index_select(0, band); });
    // Each id has a band of its own now.
    const at::Tensor row =
        at::arange(some, ids_N.options()).mul_(kBandRows).add_(ids.bitwise_and(kBandRows - 1));
    rows_NH.narrow(0, first, some).copy_(dense(weight.type(), here).index_select(0, row));
  }
  return rows_NH;
}

}  // namespace danlu::ops::aten
