#include "ops/block_weight.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "device/parallel.h"
#include "ops/check.h"

namespace danlu::ops {
namespace {

constexpr int64_t kGroup = kBlockGroup, kGroupsOfSuper = 8;

size_t as_size(int64_t value) { return static_cast<size_t>(value); }

/// Where chunk `chunk` of row `lane` begins in a group's codes.
size_t chunk_at(size_t chunk, size_t lane) { return 64 * chunk + 4 * lane; }

void put_codes(BlockType type, const BlockGroup& group, size_t lane, uint8_t* to) {
  for (size_t i = 0; i < kBlockGroup; ++i) {
    const size_t chunk = i / 4,
                 place = chunk_at(type == BlockType::kQ8_0 ? chunk : chunk % 4, lane);
    const unsigned code = group.codes[i];
    if (type == BlockType::kQ8_0) {
      to[place + i % 4] = static_cast<uint8_t>(code);
      continue;
    }
    to[place + i % 4] |= static_cast<uint8_t>((code & 15u) << (chunk < 4 ? 0 : 4));
    if (type == BlockType::kQ6_K)
      to[256 + chunk_at(chunk % 2, lane) + i % 4] |=
          static_cast<uint8_t>((code >> 4) << (chunk / 2 * 2));
  }
}

uint8_t code_at(BlockType type, const uint8_t* codes, size_t lane, size_t i) {
  const size_t chunk = i / 4;
  if (type == BlockType::kQ8_0) return codes[chunk_at(chunk, lane) + i % 4];
  const unsigned nibble = (codes[chunk_at(chunk % 4, lane) + i % 4] >> (chunk < 4 ? 0 : 4)) & 15u;
  if (type != BlockType::kQ6_K) return static_cast<uint8_t>(nibble);
  const unsigned upper = (codes[256 + chunk_at(chunk % 2, lane) + i % 4] >> (chunk / 2 * 2)) & 3u;
  return static_cast<uint8_t>(nibble | upper << 4);
}

void put_half(uint16_t bits, size_t lane, uint8_t* to) {
  std::memcpy(to + 2 * lane, &bits, sizeof bits);
}
uint16_t half_at(const uint8_t* from, size_t lane) {
  uint16_t bits;
  std::memcpy(&bits, from + 2 * lane, sizeof bits);
  return bits;
}

}  // namespace

BlockWeight::BlockWeight(BlockType type, int64_t rows, int64_t columns, const ReadRows& read_rows)
    : type_(type), rows_(rows), columns_(columns), groups_(columns / kGroup) {
  if (!is_multiplied(type))
    throw InternalError("[quantized] such blocks are widened, not multiplied");
  const auto block = static_cast<int64_t>(block_traits(type).numbers);
  require(columns % block == 0, "quantized", "rows of ", columns, " numbers do not fill blocks of ",
          block);
  const auto memory = [&](int64_t groups, size_t bytes) {
    return at::empty({num_bands() * groups * static_cast<int64_t>(bytes)},
                     at::TensorOptions(at::kByte));
  };
  codes_ = memory(groups_, band_code_bytes(type));
  scales_ = memory(groups_, kBandScaleBytes);
  supers_ = memory(groups_ / kGroupsOfSuper, band_super_bytes(type));
  const size_t row_bytes = block_bytes(type, as_size(columns));
  device::parallel_for(0, num_bands(), 4, [&](int64_t begin, int64_t end) {
    std::vector<std::byte> blocks(as_size(kBandRows) * row_bytes);
    for (int64_t band = begin; band < end; ++band) {
      const int64_t count = std::min(kBandRows, rows_ - band * kBandRows);
      read_rows(band * kBandRows, count, blocks.data());
      pack_band(band, blocks.data(), count);
    }
  });
}

void BlockWeight::pack_band(int64_t band, const std::byte* blocks, int64_t rows) {
  const size_t row_bytes = block_bytes(type_, as_size(columns_)),
               code_bytes = band_code_bytes(type_), super_bytes = band_super_bytes(type_),
               groups = as_size(groups_);
  uint8_t* codes = codes_.data_ptr<uint8_t>() + as_size(band) * groups * code_bytes;
  uint8_t* scales = scales_.data_ptr<uint8_t>() + as_size(band) * groups * kBandScaleBytes;
  uint8_t* supers = supers_.data_ptr<uint8_t>() +
                    as_size(band) * (groups / as_size(kGroupsOfSuper)) * super_bytes;
  std::fill_n(codes, groups * code_bytes, uint8_t{0});
  std::fill_n(scales, groups * kBandScaleBytes, uint8_t{0});
  // Q8_0 and Q4_0 have none, and an empty tensor no address.
  std::fill_n(supers, groups / as_size(kGroupsOfSuper) * super_bytes, uint8_t{0});
  for (size_t lane = 0; lane < as_size(rows); ++lane) {
    for (size_t g = 0; g < groups; ++g) {
      const BlockGroup group = block_group(type_, blocks + lane * row_bytes, g);
      put_codes(type_, group, lane, codes + g * code_bytes);
      uint8_t* scale = scales + g * kBandScaleBytes;
      if (super_bytes == 0) {
        put_half(group.scale, lane, scale);
        continue;
      }
      scale[lane] = static_cast<uint8_t>(group.part_scale[0]);
      scale[16 + lane] =
          type_ == BlockType::kQ4_K ? group.offset[0] : static_cast<uint8_t>(group.part_scale[1]);
      uint8_t* super = supers + g / as_size(kGroupsOfSuper) * super_bytes;
      put_half(group.scale, lane, super);
      if (type_ == BlockType::kQ4_K) put_half(group.offset_scale, lane, super + 32);
    }
  }
}

BlockGroup BlockWeight::group_of(int64_t row, int64_t index) const {
  const size_t lane = as_size(row % kBandRows), place = as_size(row / kBandRows * groups_ + index);
  const uint8_t* codes = codes_.data_ptr<uint8_t>() + place * band_code_bytes(type_);
  const uint8_t* scale = scales_.data_ptr<uint8_t>() + place * kBandScaleBytes;
  BlockGroup group{.codes = {}, .scale = 0, .part_scale = {1, 1}, .offset_scale = 0, .offset = {}};
  for (size_t i = 0; i < kBlockGroup; ++i) group.codes[i] = code_at(type_, codes, lane, i);
  if (band_super_bytes(type_) == 0) {
    group.scale = half_at(scale, lane);
    return group;
  }
  const uint8_t* super = supers_.data_ptr<uint8_t>() + place / 8 * band_super_bytes(type_);
  group.scale = half_at(super, lane);
  group.part_scale[0] = group.part_scale[1] = static_cast<int8_t>(scale[lane]);
  if (type_ == BlockType::kQ4_K) {
    group.offset_scale = half_at(super + 32, lane);
    group.offset[0] = group.offset[1] = scale[16 + lane];
  } else {
    group.part_scale[1] = static_cast<int8_t>(scale[16 + lane]);
  }
  return group;
}

std::shared_ptr<const BlockWeight> BlockWeight::to(c10::Device device) const {
  auto moved = std::make_shared<BlockWeight>(*this);
  for (at::Tensor* bytes : {&moved->codes_, &moved->scales_, &moved->supers_})
    *bytes = bytes->to(device);
  return moved;
}

int64_t BlockWeight::size_bytes() const {
  return codes_.numel() + scales_.numel() + supers_.numel();
}

std::optional<int64_t> BlockWeight::row_without_scale() const {
  const at::Tensor& halves = supers_.numel() > 0 ? supers_ : scales_;
  const auto* bits = reinterpret_cast<const uint16_t*>(halves.data_ptr<uint8_t>());
  const int64_t count = halves.numel() / 2;
  for (int64_t i = 0; i < count; ++i) {
    if ((bits[i] & 0x7c00) != 0x7c00) continue;
    const int64_t of_band = count / num_bands();
    return i / of_band * kBandRows + i % kBandRows;
  }
  return std::nullopt;
}

void BlockWeight::read_row(int64_t row, float* numbers) const {
  for (int64_t g = 0; g < groups_; ++g) numbers_of(type_, group_of(row, g), numbers + g * kGroup);
}

at::Tensor BlockWeight::dense_rows(int64_t first, int64_t count) const {
  if (!codes_.device().is_cpu()) return to(at::kCPU)->dense_rows(first, count);
  at::Tensor result = at::empty({count, columns_}, at::TensorOptions(at::kFloat));
  device::parallel_for(0, count, 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      read_row(first + row, result.data_ptr<float>() + row * columns_);
  });
  return result;
}

QuantizedPtr quantized(BlockType type, const at::Tensor& weight_OI, const std::string& name) {
  const at::Tensor weight = weight_OI.detach().to(at::kCPU).contiguous();
  const int64_t width = weight.size(1);
  const float largest = largest_quantizable(type);
  std::atomic<bool> fits = true;
  const auto read_rows = [&](int64_t row, int64_t count, std::byte* blocks) {
    const at::Tensor wide = weight.narrow(0, row, count).to(at::kFloat);
    const float* numbers = wide.data_ptr<float>();
    // Written this way round so that NaN is found.
    if (!std::all_of(numbers, numbers + wide.numel(),
                     [&](float x) { return std::fabs(x) <= largest; })) {
      fits = false;
      return;
    }
    quantize(type, numbers, as_size(count * width), blocks);
  };
  const auto result = std::make_shared<BlockWeight>(type, weight.size(0), width, read_rows);
  if (!fits) {
    throw ModelError(tr("[quantize] {} holds a number beyond ±{:.0f}, for which {} has no scale",
                        name, largest, block_traits(type).name),
                     tr("--quantize none keeps it as it is"));
  }
  return result->to(weight_OI.device());
}

}  // namespace danlu::ops
