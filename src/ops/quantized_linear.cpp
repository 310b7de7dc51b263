#include "ops/quantized_linear.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "device/parallel.h"
#include "ops/check.h"
#include "ops/empty_cpu.h"
#include "ops/kernels_cpu.h"
#include "ops/nf4.h"
#include "ops/quantized_rows_cpu.h"
#include "ops/scratch_cpu.h"

namespace danlu::ops {
namespace quantized_detail {

using namespace cpu;

constexpr int64_t kGroup = kBlockGroup, kBand = kBandRows, kGroupsOfSuper = 8;
/// Rows of input for which a band is read once: their codes stay in the second-level cache.
constexpr int64_t kInputRows = 64;
/// The bytes of codes that a part of the work has at least.
constexpr int64_t kGrainBytes = int64_t{64} << 10;

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

/// Rows of input as codes, in one piece of memory.
struct Input {
  at::Tensor memory;
  QuantizedInput rows;
};

Input quantized_input(const at::Tensor& x_NI) {
  const int64_t n = x_NI.size(0), width = x_NI.size(1), groups = width / kGroup;
  const int64_t facts_bytes = groups * static_cast<int64_t>(sizeof(QuantizedInputBlock));
  Input input{empty_cpu({n * (facts_bytes + width)}, at::kByte), {}};
  auto* facts = reinterpret_cast<QuantizedInputBlock*>(input.memory.data_ptr<uint8_t>());
  auto* codes = reinterpret_cast<int8_t*>(input.memory.data_ptr<uint8_t>() + n * facts_bytes);
  input.rows = {codes, facts, as_size(width), as_size(groups)};
  device::parallel_for(
      0, n, std::max<int64_t>(1, (16 << 10) / width), [&](int64_t from, int64_t to) {
        static thread_local ScratchMemory memory;
        for (int64_t row = from; row < to; ++row) {
          const char* data = static_cast<const char*>(x_NI.data_ptr()) +
                             row * width * static_cast<int64_t>(x_NI.element_size());
          const float* numbers = reinterpret_cast<const float*>(data);
          if (x_NI.scalar_type() != at::kFloat) {
            float* const wide = memory.floats(as_size(width));
            widen(element_of(x_NI), 1, as_size(width), data, as_size(width), wide, as_size(width));
            numbers = wide;
          }
          quantize_input(numbers, as_size(width), codes + row * width, facts + row * groups);
        }
      });
  return input;
}

/// Adds the bias to columns [from, to) of f32 sums, and rounds them into `result` where that is of
/// another type.
void finish_columns(const at::Tensor& sums_NO, const at::Tensor& bias_O, const at::Tensor& result,
                    int64_t from, int64_t to) {
  const size_t count = as_size(to - from);
  const bool rounds = result.scalar_type() != at::kFloat;
  if (!rounds && !bias_O.defined()) return;
  static thread_local ScratchMemory memory;
  float* const bias = bias_O.defined() ? memory.floats(count) : nullptr;
  if (bias) {
    const char* data = static_cast<const char*>(bias_O.data_ptr()) +
                       from * static_cast<int64_t>(bias_O.element_size());
    widen(element_of(bias_O), 1, count, data, count, bias, count);
  }
  for (int64_t row = 0; row < sums_NO.size(0); ++row) {
    float* sums = sums_NO.data_ptr<float>() + row * sums_NO.size(1) + from;
    for (size_t i = 0; bias && i < count; ++i) sums[i] += bias[i];
    if (!rounds) continue;
    char* to_row = static_cast<char*>(result.data_ptr()) +
                   (row * result.size(1) + from) * static_cast<int64_t>(result.element_size());
    narrow(element_of(result), 1, count, sums, count, to_row, count);
  }
}

void check(const at::Tensor& x, const QuantizedWeight& weight, const at::Tensor& bias_O) {
  if (!multiplies_quantized(x.device().type())) {
    throw DeviceError(tr("[quantize] quantised weights are multiplied on the CPU only, got a "
                         "tensor on {}",
                         x.device().str()),
                      tr("--device cpu, or --quantize none"));
  }
  require(x.dim() >= 1 && x.size(-1) == weight.columns(), "quantized_linear", "x ", x.sizes(),
          " must end in I = ", weight.columns());
  require(!bias_O.defined() || (bias_O.dim() == 1 && bias_O.size(0) == weight.rows()),
          "quantized_linear", "bias must be [O] with O = ", weight.rows(), ", got ",
          bias_O.defined() ? bias_O.sizes() : at::IntArrayRef());
}

}  // namespace quantized_detail

bool multiplies_quantized(c10::DeviceType type) { return type == at::kCPU; }

int64_t BlockWeight::num_bands() const {
  return (rows_ + quantized_detail::kBand - 1) / quantized_detail::kBand;
}

BlockWeight::BlockWeight(BlockType type, int64_t rows, int64_t columns, const ReadRows& read_rows)
    : type_(type), rows_(rows), columns_(columns), groups_(columns / quantized_detail::kGroup) {
  using namespace quantized_detail;
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
    std::vector<std::byte> blocks(as_size(kBand) * row_bytes);
    for (int64_t band = begin; band < end; ++band) {
      const int64_t count = std::min(kBand, rows_ - band * kBand);
      read_rows(band * kBand, count, blocks.data());
      pack_band(band, blocks.data(), count);
    }
  });
}

void BlockWeight::pack_band(int64_t band, const std::byte* blocks, int64_t rows) {
  using namespace quantized_detail;
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
  using namespace quantized_detail;
  const size_t lane = as_size(row % kBand), place = as_size(row / kBand * groups_ + index);
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
    return i / of_band * quantized_detail::kBand + i % quantized_detail::kBand;
  }
  return std::nullopt;
}

void BlockWeight::read_row(int64_t row, float* numbers) const {
  using namespace quantized_detail;
  for (int64_t g = 0; g < groups_; ++g) numbers_of(type_, group_of(row, g), numbers + g * kGroup);
}

at::Tensor BlockWeight::dense_rows(int64_t first, int64_t count) const {
  at::Tensor result = at::empty({count, columns_}, at::TensorOptions(at::kFloat));
  device::parallel_for(0, count, 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      read_row(first + row, result.data_ptr<float>() + row * columns_);
  });
  return result;
}

QuantizedPtr quantized(BlockType type, const at::Tensor& weight_OI, const std::string& name) {
  using namespace quantized_detail;
  const at::Tensor weight = weight_OI.detach().contiguous();
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
  auto result = std::make_shared<BlockWeight>(type, weight.size(0), width, read_rows);
  if (!fits) {
    throw ModelError(tr("[quantize] {} holds a number beyond ±{:.0f}, for which {} has no scale",
                        name, largest, block_traits(type).name),
                     tr("--quantize none keeps it as it is"));
  }
  return result;
}

namespace quantized_detail {

/// One weight's part of a pass over rows of input.
class Product {
 public:
  Product(const at::Tensor& x_NI, const QuantizedFactor& factor)
      : weight_(dynamic_cast<const BlockWeight&>(factor.weight)),
        bias_(factor.bias_O.defined() ? factor.bias_O.contiguous() : factor.bias_O),
        rows_(x_NI.size(0)),
        width_(weight_.rows_),
        result_(empty_cpu({rows_, width_}, rounds(x_NI) ? x_NI.scalar_type() : at::kFloat)),
        sums_(result_.scalar_type() == at::kFloat ? result_
                                                  : empty_cpu({rows_, width_}, at::kFloat)),
        code_bytes_(static_cast<int64_t>(band_code_bytes(weight_.type_)) * weight_.groups_),
        scale_bytes_(static_cast<int64_t>(kBandScaleBytes) * weight_.groups_),
        super_bytes_(static_cast<int64_t>(band_super_bytes(weight_.type_)) *
                     (weight_.groups_ / kGroupsOfSuper)),
        codes_(weight_.codes_.data_ptr<uint8_t>()),
        scales_(weight_.scales_.data_ptr<uint8_t>()),
        supers_(weight_.supers_.data_ptr<uint8_t>()),
        to_(sums_.data_ptr<float>()) {}

  int64_t num_bands() const { return weight_.num_bands(); }
  /// The bytes of a band's codes.
  int64_t code_bytes() const { return code_bytes_; }

  void multiply(const QuantizedInput& input, int64_t begin, int64_t end) const {
    for (int64_t first = 0; first < rows_; first += kInputRows) {
      const int64_t rows = std::min(kInputRows, rows_ - first);
      const QuantizedInput here{input.codes + as_size(first) * input.codes_row,
                                input.facts + as_size(first) * input.facts_row, input.codes_row,
                                input.facts_row};
      for (int64_t band = begin; band < end; ++band) multiply(band, here, first, rows);
    }
    finish_columns(sums_, bias_, result_, begin * kBand, std::min(end * kBand, width_));
  }

  /// [..., O] for x [..., I], in x's type.
  at::Tensor result_like(const at::Tensor& x) const {
    const at::Tensor rounded = rounds(x) ? result_ : result_.to(x.scalar_type());
    if (x.dim() == 2) return rounded;
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = width_;
    return rounded.view(sizes);
  }

 private:
  static bool rounds(const at::Tensor& x) { return x.scalar_type() != at::kHalf || rounds_f16(); }

  void multiply(int64_t band, const QuantizedInput& input, int64_t first, int64_t rows) const {
    const QuantizedBand codes{codes_ + band * code_bytes_, scales_ + band * scale_bytes_,
                              supers_ + band * super_bytes_, as_size(weight_.groups_)};
    float* const to = to_ + first * width_ + band * kBand;
    const int64_t lanes = std::min(kBand, width_ - band * kBand);
    if (lanes == kBand) {
      multiply_band(weight_.type_, codes, input, as_size(rows), to, as_size(width_));
      return;
    }
    float whole[kInputRows * kBand];
    multiply_band(weight_.type_, codes, input, as_size(rows), whole, as_size(kBand));
    for (int64_t row = 0; row < rows; ++row)
      std::copy_n(whole + row * kBand, lanes, to + row * width_);
  }

  const BlockWeight& weight_;
  const at::Tensor bias_;
  const int64_t rows_, width_;
  const at::Tensor result_, sums_;
  const int64_t code_bytes_, scale_bytes_, super_bytes_;
  // A tensor checks what it is asked for: a band takes a microsecond.
  const uint8_t *const codes_, *const scales_, *const supers_;
  float* const to_;
};

}  // namespace quantized_detail

at::Tensor quantized_linear(const at::Tensor& x, const QuantizedWeight& weight,
                            const at::Tensor& bias_O) {
  return quantized_linears(x, {{weight, bias_O}}).front();
}

std::vector<at::Tensor> quantized_linears(const at::Tensor& x,
                                          const std::vector<QuantizedFactor>& factors) {
  using namespace quantized_detail;
  std::vector<at::Tensor> results;
  results.reserve(factors.size());
  if (std::any_of(factors.begin(), factors.end(),
                  [](const QuantizedFactor& factor) { return nf4_of(factor.weight) != nullptr; })) {
    for (const auto& [weight, bias_O] : factors) {
      const Nf4Weight* const nf4 = nf4_of(weight);
      results.push_back(nf4 ? nf4_linear(x, nf4->matrix(), bias_O)
                            : quantized_linear(x, weight, bias_O));
    }
    return results;
  }
  for (const auto& [weight, bias_O] : factors) quantized_detail::check(x, weight, bias_O);
  if (!fused_for(Work::kProducts, x)) {
    for (const auto& [weight, bias_O] : factors)
      results.push_back(oracle::quantized_linear(x, weight, bias_O).to(x.scalar_type()));
    return results;
  }
  const at::Tensor x_NI = (x.dim() == 2 ? x : x.reshape({-1, x.size(-1)})).contiguous();
  const Input input = quantized_input(x_NI);
  std::vector<Product> products;
  products.reserve(factors.size());
  int64_t band_bytes = 1;
  for (const QuantizedFactor& factor : factors) {
    products.emplace_back(x_NI, factor);
    band_bytes = std::max(band_bytes, products.back().code_bytes() * x_NI.size(0));
  }
  device::parallel_ranges(
      products.size(), std::max<int64_t>(1, kGrainBytes / band_bytes),
      [&](size_t i) { return products[i].num_bands(); },
      [&](size_t i, int64_t begin, int64_t end) { products[i].multiply(input.rows, begin, end); });
  for (const Product& product : products) results.push_back(product.result_like(x));
  return results;
}

at::Tensor oracle::quantized_linear(const at::Tensor& x, const QuantizedWeight& weight,
                                    const at::Tensor& bias_O) {
  quantized_detail::check(x, weight, bias_O);
  return at::linear(x.to(at::kDouble), weight.dense().to(at::kDouble),
                    bias_O.defined() ? bias_O.to(at::kDouble) : bias_O);
}

at::Tensor quantized_embedding(const at::Tensor& ids_N, const QuantizedWeight& quantized,
                               at::ScalarType type) {
  const auto& weight = dynamic_cast<const BlockWeight&>(quantized);
  const at::Tensor ids = ids_N.to(at::kCPU).contiguous();
  at::Tensor rows_NH = at::empty({ids.numel(), weight.columns()}, at::TensorOptions(at::kFloat));
  for (int64_t i = 0; i < ids.numel(); ++i) {
    const int64_t id = ids.data_ptr<int64_t>()[i];
    require(id >= 0 && id < weight.rows(), "embedding", "id ", id, " is outside the vocabulary of ",
            weight.rows());
    weight.read_row(id, rows_NH.data_ptr<float>() + i * weight.columns());
  }
  return rows_NH.to(type);
}

}  // namespace danlu::ops
