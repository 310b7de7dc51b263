#include "ops/quantized_linear_cpu.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

#include "device/parallel.h"
#include "ops/check.h"
#include "ops/empty_cpu.h"
#include "ops/kernels_cpu.h"
#include "ops/quantized_rows_cpu.h"
#include "ops/scratch_cpu.h"

namespace danlu::ops::cpu {
namespace {

constexpr int64_t kGroup = kBlockGroup, kGroupsOfSuper = 8;
/// Rows of input for which a band is read once: their codes stay in the second-level cache.
constexpr int64_t kInputRows = 64;
/// The bytes of codes that a part of the work has at least.
constexpr int64_t kGrainBytes = int64_t{64} << 10;

size_t as_size(int64_t value) { return static_cast<size_t>(value); }

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

/// One weight's part of a pass over rows of input.
class Product {
 public:
  Product(const at::Tensor& x_NI, const BlockFactor& factor)
      : weight_(factor.weight),
        bias_(factor.bias_O.defined() ? factor.bias_O.contiguous() : factor.bias_O),
        rows_(x_NI.size(0)),
        width_(weight_.rows()),
        result_(empty_cpu({rows_, width_}, rounds(x_NI) ? x_NI.scalar_type() : at::kFloat)),
        sums_(result_.scalar_type() == at::kFloat ? result_
                                                  : empty_cpu({rows_, width_}, at::kFloat)),
        code_bytes_(static_cast<int64_t>(band_code_bytes(weight_.type())) * weight_.num_groups()),
        scale_bytes_(static_cast<int64_t>(kBandScaleBytes) * weight_.num_groups()),
        super_bytes_(static_cast<int64_t>(band_super_bytes(weight_.type())) *
                     (weight_.num_groups() / kGroupsOfSuper)),
        codes_(weight_.codes().data_ptr<uint8_t>()),
        scales_(weight_.scales().data_ptr<uint8_t>()),
        supers_(weight_.supers().data_ptr<uint8_t>()),
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
    finish_columns(sums_, bias_, result_, begin * kBandRows, std::min(end * kBandRows, width_));
  }

  /// In x's type.
  at::Tensor result(const at::Tensor& x_NI) const {
    return rounds(x_NI) ? result_ : result_.to(x_NI.scalar_type());
  }

 private:
  static bool rounds(const at::Tensor& x) { return x.scalar_type() != at::kHalf || rounds_f16(); }

  void multiply(int64_t band, const QuantizedInput& input, int64_t first, int64_t rows) const {
    const QuantizedBand codes{codes_ + band * code_bytes_, scales_ + band * scale_bytes_,
                              supers_ + band * super_bytes_, as_size(weight_.num_groups())};
    float* const to = to_ + first * width_ + band * kBandRows;
    const int64_t lanes = std::min(kBandRows, width_ - band * kBandRows);
    if (lanes == kBandRows) {
      multiply_band(weight_.type(), codes, input, as_size(rows), to, as_size(width_));
      return;
    }
    float whole[kInputRows * kBandRows];
    multiply_band(weight_.type(), codes, input, as_size(rows), whole, as_size(kBandRows));
    for (int64_t row = 0; row < rows; ++row)
      std::copy_n(whole + row * kBandRows, lanes, to + row * width_);
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

}  // namespace

std::vector<at::Tensor> block_products(const at::Tensor& x_NI,
                                       std::span<const BlockFactor> factors) {
  const Input input = quantized_input(x_NI);
  std::vector<Product> products;
  products.reserve(factors.size());
  int64_t band_bytes = 1;
  for (const BlockFactor& factor : factors) {
    products.emplace_back(x_NI, factor);
    band_bytes = std::max(band_bytes, products.back().code_bytes() * x_NI.size(0));
  }
  device::parallel_ranges(
      products.size(), std::max<int64_t>(1, kGrainBytes / band_bytes),
      [&](size_t i) { return products[i].num_bands(); },
      [&](size_t i, int64_t begin, int64_t end) { products[i].multiply(input.rows, begin, end); });
  std::vector<at::Tensor> results;
  for (const Product& product : products) results.push_back(product.result(x_NI));
  return results;
}

at::Tensor block_rows(const BlockWeight& weight, const at::Tensor& ids_N, at::ScalarType type) {
  at::Tensor rows_NH = at::empty({ids_N.numel(), weight.columns()}, at::TensorOptions(at::kFloat));
  for (int64_t i = 0; i < ids_N.numel(); ++i) {
    const int64_t id = ids_N.data_ptr<int64_t>()[i];
    require(id >= 0 && id < weight.rows(), "embedding", "id ", id, " is outside the vocabulary of ",
            weight.rows());
    weight.read_row(id, rows_NH.data_ptr<float>() + i * weight.columns());
  }
  return rows_NH.to(type);
}

}  // namespace danlu::ops::cpu
