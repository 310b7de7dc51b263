// Weights in blocks of 8, 6 or 4 bits (ops/block_weight.h): codes are looked up, made dense a few
// bands at a time, and multiplied.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "npu/arithmetic.h"
#include "npu/constants.h"
#include "npu/operators.h"
#include "npu/table.h"
#include "ops/block_weight.h"

namespace danlu::npu {
namespace {

using ops::BlockWeight;

constexpr int64_t kRowsOfBand = ops::kBandRows, kGroup = kBlockGroup, kGroupsOfSuper = 8,
                  kHalfGroup = kGroup / 2;
/// Numbers that are dense at a time.
constexpr int64_t kDenseNumbers = int64_t{1} << 23;

/// What the parts of each byte stand for, `bits` each from the lowest on: [256, 8 / bits].
template <int bits>
at::Tensor parts_of_bytes() {
  constexpr int kParts = 8 / bits;
  const at::Tensor parts = at::empty({256, kParts}, at::kFloat);
  for (int byte = 0; byte < 256; ++byte) {
    for (int part = 0; part < kParts; ++part) {
      parts.data_ptr<float>()[byte * kParts + part] =
          static_cast<float>((byte >> (part * bits)) & ((1 << bits) - 1));
    }
  }
  return parts;
}
const at::Tensor& halves_of_byte(const at::Device& device) {
  static auto* const known = new Constant(&parts_of_bytes<4>);
  return known->on(device);
}
const at::Tensor& quarters_of_byte(const at::Device& device) {
  static auto* const known = new Constant(&parts_of_bytes<2>);
  return known->on(device);
}

/// The bytes of some bands, contiguous: [bands, groups (of supers: an eighth), bytes].
struct Bands {
  at::Tensor codes, scales, supers;
  int64_t count, groups;
};

/// `take`: what of a tensor whose first dimension are all bands.
template <typename Take>
Bands bands_of(const BlockWeight& weight, int64_t count, const Take& take) {
  const int64_t groups = weight.num_groups();
  const auto part = [&](const at::Tensor& all, int64_t of_groups) {
    return all.numel() == 0 ? all : take(all.view({weight.num_bands(), of_groups, -1}));
  };
  return {part(weight.codes(), groups), part(weight.scales(), groups),
          part(weight.supers(), groups / kGroupsOfSuper), count, groups};
}

/// `chunks` of 64 codes from byte `first` of each group on, by row: [bands, 16, groups, 4 ·
/// chunks].
at::Tensor by_row(const Bands& bands, int64_t first, int64_t chunks) {
  const at::Tensor bytes = bands.codes.narrow(2, first, 64 * chunks);
  const at::Tensor turned =
      fresh(bytes, {bands.count, kRowsOfBand, bands.groups, chunks, 4}, at::kByte);
  turned.copy_(bytes.unflatten(2, {chunks, kRowsOfBand, 4}).permute({0, 3, 1, 2, 4}));
  return turned.view({bands.count, kRowsOfBand, bands.groups, 4 * chunks});
}

/// The parts of each of `bytes` [bands, 16, groups, n], all first ones before all second ones.
at::Tensor parts_in_order(const at::Tensor& bytes, const at::Tensor& table) {
  const int64_t n = bytes.size(3), parts = table.size(1);
  const at::Tensor found = fresh(table, {bytes.numel(), parts}, at::kFloat);
  aclnn::index_select(View(table), int64_t{0}, View(cast(bytes.view({-1}), at::kInt)), View(found));
  return found.view({bytes.size(0), bytes.size(1), bytes.size(2), n, parts})
      .transpose(3, 4)
      .reshape({bytes.size(0), bytes.size(1), bytes.size(2), n * parts});
}

/// Codes less their zero, f32 [bands, 16, groups, 32].
at::Tensor codes_of(BlockType type, const Bands& bands) {
  const double zero = zero_code(type);
  if (type == BlockType::kQ8_0) return plus(cast(by_row(bands, 0, 8), at::kFloat), -zero);
  const at::Device device = bands.codes.device();
  const at::Tensor codes = parts_in_order(by_row(bands, 0, 4), halves_of_byte(device));
  if (type == BlockType::kQ6_K)
    add(codes, parts_in_order(by_row(bands, 256, 2), quarters_of_byte(device)), 16);
  return plus(codes, -zero);
}

/// 16 numbers of `type` from byte `first` of each group's `bytes` on, a row's each: f32 [bands, 16,
/// groups].
at::Tensor of_rows(const at::Tensor& bytes, at::ScalarType type, int64_t first) {
  const auto item = static_cast<int64_t>(c10::elementSize(type));
  const int64_t bands = bytes.size(0), groups = bytes.size(1), step = bytes.size(2) / item;
  const at::Tensor numbers = fresh(bytes, {bands, kRowsOfBand, groups}, at::kFloat);
  aclnn::inplace_copy(View(numbers), View(bytes, type, {bands, kRowsOfBand, groups},
                                          {groups * step, 1, step}, first / item));
  return numbers;
}

/// The same of each super for all its groups, `part` 0 or 1: F16.
at::Tensor of_supers(const Bands& bands, int64_t part) {
  const at::Tensor of_each = of_rows(bands.supers, at::kHalf, 2 * kRowsOfBand * part);
  const at::Tensor repeated =
      fresh(of_each, {bands.count, kRowsOfBand, bands.groups / kGroupsOfSuper, kGroupsOfSuper},
            at::kFloat);
  repeated.copy_(of_each.unsqueeze(3));
  return repeated.view({bands.count, kRowsOfBand, bands.groups});
}

/// All numbers of the bands, f32 [bands · 16, columns]; products in f32, from the left.
at::Tensor dense(BlockType type, const Bands& bands) {
  const at::Tensor codes = codes_of(type, bands);
  at::Tensor numbers;
  if (bands.supers.numel() == 0) {
    numbers = times(of_rows(bands.scales, at::kHalf, 0).unsqueeze(3), codes);
  } else if (type == BlockType::kQ4_K) {
    const at::Tensor scale = times(of_supers(bands, 0), of_rows(bands.scales, at::kChar, 0)),
                     offset =
                         times(of_supers(bands, 1), of_rows(bands.scales, at::kByte, kRowsOfBand));
    numbers = times(scale.unsqueeze(3), codes);
    add(numbers, offset.unsqueeze(3), -1);
  } else {
    numbers = fresh(codes);
    for (const int64_t half : {0, 1}) {
      const at::Tensor scale =
          times(of_supers(bands, 0), of_rows(bands.scales, at::kChar, half * kRowsOfBand));
      const auto part = [&](const at::Tensor& x) {
        return x.narrow(3, half * kHalfGroup, kHalfGroup);
      };
      aclnn::mul(View(scale.unsqueeze(3)), View(part(codes)), View(part(numbers)));
    }
  }
  return numbers.view({bands.count * kRowsOfBand, bands.groups * kGroup});
}

int64_t bands_at_a_time(const BlockWeight& weight) {
  return std::max<int64_t>(1, kDenseNumbers / (kRowsOfBand * weight.columns()));
}

at::Tensor block_product(const at::Tensor& x_NI, const ops::BlockFactor& factor) {
  const BlockWeight& weight = factor.weight;
  const at::ScalarType type = x_NI.scalar_type();
  const at::Tensor y_NO = fresh(x_NI, {x_NI.size(0), weight.rows()}, type);
  if (y_NO.numel() == 0) return y_NO;
  const int64_t step = bands_at_a_time(weight);
  for (int64_t band = 0; band < weight.num_bands(); band += step) {
    const int64_t bands = std::min(step, weight.num_bands() - band), row = band * kRowsOfBand,
                  rows = std::min(bands * kRowsOfBand, weight.rows() - row);
    const Bands here =
        bands_of(weight, bands, [&](const at::Tensor& all) { return all.narrow(0, band, bands); });
    const at::Tensor dense_OI = cast(dense(weight.type(), here).narrow(0, 0, rows), type);
    const at::Tensor bias =
        factor.bias_O.defined() ? factor.bias_O.narrow(0, row, rows) : at::Tensor();
    y_NO.narrow(1, row, rows).copy_(product(x_NI, dense_OI, bias, type));
  }
  return y_NO;
}

at::Tensor int64s_there(const std::vector<int64_t>& values, const at::Device& device) {
  const at::Tensor host = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), host.data_ptr<int64_t>());
  return host.to(device);
}

}  // namespace

std::vector<at::Tensor> block_products(const at::Tensor& x_NI,
                                       std::span<const ops::BlockFactor> factors) {
  std::vector<at::Tensor> results;
  results.reserve(factors.size());
  for (const ops::BlockFactor& factor : factors) results.push_back(block_product(x_NI, factor));
  return results;
}

at::Tensor block_rows(const BlockWeight& weight, const at::Tensor& ids_N, at::ScalarType type) {
  // Which bands hold them the host finds out.
  const at::Tensor ids = ids_N.to(at::kCPU);
  const int64_t count = ids.numel(), step = bands_at_a_time(weight);
  const at::Device device = weight.codes().device();
  const at::Tensor rows_NH = fresh(weight.codes(), {count, weight.columns()}, type);
  for (int64_t first = 0; first < count; first += step) {
    const int64_t some = std::min(step, count - first);
    std::vector<int64_t> bands, rows;
    for (int64_t i = 0; i < some; ++i) {
      const int64_t id = ids.data_ptr<int64_t>()[first + i];
      bands.push_back(id / kRowsOfBand);
      rows.push_back(i * kRowsOfBand + id % kRowsOfBand);  // each id has a band of its own now
    }
    const at::Tensor of_bands = int64s_there(bands, device);
    const Bands here = bands_of(weight, some, [&](const at::Tensor& all) {
      return take_rows(all.flatten(1), of_bands).view({some, all.size(1), all.size(2)});
    });
    rows_NH.narrow(0, first, some)
        .copy_(take_rows(dense(weight.type(), here), int64s_there(rows, device)));
  }
  return rows_NH;
}

}  // namespace danlu::npu
