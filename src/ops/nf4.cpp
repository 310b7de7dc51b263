#include "ops/nf4.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <cstring>

#include "device/parallel.h"
#include "ops/backend.h"
#include "ops/check.h"
#include "ops/kernels.h"
#include "ops/linear.h"
#include "ops/pointwise.h"

namespace danlu::ops {
namespace {

constexpr int64_t kPartBytes = 64;
/// Rows that are dense at a time where ATen multiplies.
constexpr int64_t kDenseRows = 256;

int64_t whole_parts(int64_t bytes) { return (bytes + kPartBytes - 1) / kPartBytes * kPartBytes; }

at::Tensor part_of(const at::Tensor& bytes, int64_t at, int64_t size, at::ScalarType type) {
  const at::Tensor part = bytes.narrow(0, at, size);
  return type == at::kByte ? part : part.clone().view(type);
}

/// What each index of any shape picks of a flat tensor.
at::Tensor numbers_at(const at::Tensor& flat, const at::Tensor& index) {
  return flat.index_select(0, index.reshape({-1})).view(index.sizes());
}

/// The factor of each slot [S] that `block_S` says the block of.
at::Tensor factors_of(const Nf4Matrix& weight, const at::Tensor& slot, const at::Tensor& block) {
  const Nf4Layout& layout = *weight.layout;
  if (!layout.form().doubly) {
    return numbers_at(
        part_of(weight.bytes, layout.factors_at(), 4 * layout.num_slots(), at::kFloat), slot);
  }
  const auto& numbers = nf4_factor_numbers();
  const at::Tensor map = at::tensor(at::ArrayRef<float>(numbers.data(), numbers.size()), at::kFloat)
                             .to(weight.bytes.device());
  const at::Tensor codes =
      numbers_at(part_of(weight.bytes, layout.factors_at(), layout.num_slots(), at::kByte), slot);
  const at::Tensor groups =
      part_of(weight.bytes, layout.groups_at(), 4 * layout.num_groups(), at::kFloat);
  const at::Tensor offset = part_of(weight.bytes, layout.offset_at(), 4, at::kFloat);
  return numbers_at(map, codes.to(at::kLong)) * numbers_at(groups, block.div(kNf4Group, "floor")) +
         offset;
}

struct HeldNf4 : torch::CustomClassHolder {
  Nf4Matrix weight;
};

const Backend* nf4_products_for(const at::Tensor& x) {
  const Backend* const table = fused_for(Work::kProducts, x);
  return table && table->nf4_product ? table : nullptr;
}

at::Tensor product_by_bands(const at::Tensor& x_NI, const Nf4Matrix& weight,
                            const at::Tensor& bias_O) {
  std::vector<at::Tensor> parts;
  for (int64_t row = 0; row < weight.layout->rows(); row += kDenseRows) {
    const int64_t count = std::min(kDenseRows, weight.layout->rows() - row);
    const at::Tensor bias = bias_O.defined() ? bias_O.narrow(0, row, count) : at::Tensor();
    parts.push_back(oracle::linear(x_NI, nf4_rows(weight, row, count, x_NI.scalar_type()), bias));
  }
  return parts.size() == 1 ? parts.front() : at::cat(parts, 1);
}

at::Tensor input_grad_by_bands(const at::Tensor& d_y_NO, const Nf4Matrix& weight) {
  const at::ScalarType wide = d_y_NO.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor sum_NI =
      at::zeros({d_y_NO.size(0), weight.layout->columns()}, d_y_NO.options().dtype(wide));
  for (int64_t row = 0; row < weight.layout->rows(); row += kDenseRows) {
    const int64_t count = std::min(kDenseRows, weight.layout->rows() - row);
    sum_NI.add_(
        matrix_product(d_y_NO.narrow(1, row, count).to(wide), nf4_rows(weight, row, count, wide)));
  }
  return sum_NI.to(d_y_NO.scalar_type());
}

at::Tensor nf4_product_of(const at::Tensor& x_NI, const Nf4Matrix& weight,
                          const at::Tensor& bias_O) {
  const Backend* const own = nf4_products_for(x_NI);
  return own ? own->nf4_product(x_NI, weight, bias_O) : product_by_bands(x_NI, weight, bias_O);
}

/// The weight is none of autograd's tensors: nothing is kept for the backward but its memory, which
/// a store may have taken back and filled again by then.
class Nf4Linear : public torch::autograd::Function<Nf4Linear> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x_NI,
                            const at::Tensor& bias_O, const c10::intrusive_ptr<HeldNf4>& held) {
    ctx->saved_data["weight"] = at::IValue::make_capsule(held);
    ctx->saved_data["x_grad"] = x_NI.requires_grad();
    ctx->saved_data["bias_grad"] = bias_O.requires_grad();
    return nf4_product_of(x_NI, held->weight, bias_O.numel() > 0 ? bias_O : at::Tensor());
  }
  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const auto capsule = ctx->saved_data["weight"].toCapsule();
    const Nf4Matrix& weight = static_cast<const HeldNf4&>(*capsule).weight;
    const at::Tensor& d_y_NO = grads[0];
    List result(3);
    if (ctx->saved_data["x_grad"].toBool()) {
      const Backend* const own = nf4_products_for(d_y_NO);
      result[0] = own ? own->nf4_input_grad(d_y_NO, weight) : input_grad_by_bands(d_y_NO, weight);
    }
    if (ctx->saved_data["bias_grad"].toBool())
      result[1] = column_sums(d_y_NO).to(d_y_NO.scalar_type());
    return result;
  }
};

}  // namespace

Nf4Layout::Nf4Layout(const Nf4Form& form, int64_t whole_rows, int64_t whole_columns,
                     std::vector<Nf4Rect> rects)
    : form_(form), whole_columns_(whole_columns), rects_(std::move(rects)) {
  columns_ = rects_.empty() ? whole_columns : rects_.front().cols;
  for (const Nf4Rect& rect : rects_) {
    require(rect.cols == columns_ && rect.row + rect.rows <= whole_rows &&
                rect.col + rect.cols <= whole_columns,
            "nf4", "a rectangle of ", rect.rows, " x ", rect.cols, " does not fit");
    rows_ += rect.rows;
    first_slots_.push_back(num_slots_);
    num_slots_ += slots_of(rect);
  }
  if (form_.doubly) {
    num_groups_ = nf4_blocks(nf4_blocks(whole_rows * whole_columns, form_.block), kNf4Group);
  }
  factors_at_ = whole_parts((rows_ * columns_ + 1) / 2);
  groups_at_ = factors_at_ + whole_parts(num_slots_ * (form_.doubly ? 1 : 4));
  size_bytes_ = form_.doubly ? whole_parts(offset_at() + 4) : groups_at_;
}

int64_t Nf4Layout::slots_of_row() const {
  const bool cuts_blocks =
      whole_columns_ % form_.block != 0 || rects_.front().col % form_.block != 0;
  const int64_t most = cuts_blocks ? columns_ + form_.block - 1 : columns_;
  return nf4_blocks(most, form_.block);
}

int64_t Nf4Layout::slots_of(const Nf4Rect& rect) const {
  if (rect.rows == 0 || rect.cols == 0) return 0;
  if (!is_whole_width()) return rect.rows * slots_of_row();
  const int64_t first = rect.row * whole_columns_, end = first + rect.rows * whole_columns_;
  return (end - 1) / form_.block - first / form_.block + 1;
}

Nf4Layout::Row Nf4Layout::row(int64_t row) const {
  size_t index = 0;
  while (row >= rects_[index].rows) row -= rects_[index++].rows;
  const Nf4Rect& rect = rects_[index];
  const int64_t first_number = (rect.row + row) * whole_columns_ + rect.col;
  const int64_t base = first_slots_[index];
  if (is_whole_width()) return {first_number, base - rect.row * whole_columns_ / form_.block};
  return {first_number, base + row * slots_of_row() - first_number / form_.block};
}

const Nf4Weight* nf4_of(const QuantizedWeight& weight) {
  return dynamic_cast<const Nf4Weight*>(&weight);
}

at::Tensor Nf4Weight::dense_rows(int64_t first, int64_t count) const {
  return nf4_rows(matrix_, first, count, at::kFloat);
}

Nf4Codes quantized_nf4(const at::Tensor& weight_OI, const Nf4Form& form) {
  const at::Tensor flat = weight_OI.detach().contiguous().view({-1});
  const int64_t count = flat.numel(), blocks = nf4_blocks(count, form.block);
  Nf4Codes whole;
  whole.codes.resize(static_cast<size_t>((count + 1) / 2));
  whole.factors.resize(static_cast<size_t>(blocks));
  device::parallel_for(0, blocks, 256, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * form.block, size = std::min(count, end * form.block) - first;
    const at::Tensor wide = flat.narrow(0, first, size).to(at::kFloat);
    quantize_nf4(wide.data_ptr<float>(), size, form.block, whole.codes.data() + first / 2,
                 whole.factors.data() + begin);
  });
  if (form.doubly) {
    whole.doubly = quantize_nf4_factors(whole.factors);
    whole.factors.clear();
  }
  return whole;
}

void cut_nf4(const Nf4Codes& whole, const Nf4Layout& layout, uint8_t* bytes) {
  std::memset(bytes, 0, static_cast<size_t>(layout.size_bytes()));
  const bool doubly = layout.form().doubly;
  const auto put = [&](int64_t at, const void* from, size_t size) {
    if (size > 0) std::memcpy(bytes + at, from, size);
  };
  for (int64_t row = 0; row < layout.rows(); ++row) {
    const int64_t from = layout.row(row).first_number, to = row * layout.columns();
    if (from % 2 == 0 && to % 2 == 0 && layout.columns() % 2 == 0) {
      put(to / 2, whole.codes.data() + from / 2, static_cast<size_t>(layout.columns() / 2));
    } else {
      for (int64_t i = 0; i < layout.columns(); ++i)
        bytes[(to + i) / 2] |= static_cast<uint8_t>(nf4_code(whole.codes.data(), from + i)
                                                    << ((to + i) % 2 == 0 ? 4 : 0));
    }
    layout.for_each_run(row, 0, layout.columns(), [&](int64_t, int64_t, int64_t slot, int64_t b) {
      const auto block = static_cast<size_t>(b);
      if (doubly) {
        bytes[layout.factors_at() + slot] = whole.doubly.codes[block];
      } else {
        put(layout.factors_at() + 4 * slot, &whole.factors[block], 4);
      }
    });
  }
  if (!doubly) return;
  put(layout.groups_at(), whole.doubly.groups.data(), 4 * whole.doubly.groups.size());
  put(layout.offset_at(), &whole.doubly.offset, 4);
}

at::Tensor nf4_rows(const Nf4Matrix& weight, int64_t first, int64_t count, at::ScalarType type) {
  const at::NoGradGuard no_grad;
  const Backend& table = backend_of(weight.bytes.device().type());
  const bool is_fused = kernels() == Kernels::kFused && table.nf4_rows && table.takes &&
                        table.takes(Work::kProducts, type);
  return is_fused ? table.nf4_rows(weight, first, count, type)
                  : oracle::nf4_rows(weight, first, count, type);
}

at::Tensor oracle::nf4_rows(const Nf4Matrix& weight, int64_t first, int64_t count,
                            at::ScalarType type) {
  const Nf4Layout& layout = *weight.layout;
  const int64_t columns = layout.columns(), block = layout.form().block;
  const auto options = weight.bytes.options().dtype(at::kLong);
  std::vector<int64_t> numbers, lesses;
  for (int64_t row = first; row < first + count; ++row) {
    const Nf4Layout::Row here = layout.row(row);
    numbers.push_back(here.first_number);
    lesses.push_back(here.slot_less_block);
  }
  const auto column = [&](const std::vector<int64_t>& of) {
    return at::tensor(of, at::kLong).to(weight.bytes.device()).view({-1, 1});
  };
  const at::Tensor block_RI = (column(numbers) + at::arange(columns, options)).div(block, "floor");
  const at::Tensor factor_RI = factors_of(weight, block_RI + column(lesses), block_RI);
  // Two codes to a byte, and the first may be the second of its byte.
  const int64_t begin = first * columns, size = count * columns;
  const at::Tensor bytes =
      weight.bytes.narrow(0, begin / 2, (begin + size + 1) / 2 - begin / 2).to(at::kLong);
  const at::Tensor codes = at::stack({bytes.div(16, "floor"), bytes.remainder(16)}, 1)
                               .view({-1})
                               .narrow(0, begin % 2, size);
  const at::Tensor table =
      at::tensor(at::ArrayRef<float>(kNf4Numbers.data(), kNf4Numbers.size()), at::kFloat)
          .to(weight.bytes.device());
  return (numbers_at(table, codes).view({count, columns}) * factor_RI)
      .to(layout.form().type)
      .to(type);
}

at::Tensor nf4_linear(const at::Tensor& x, const Nf4Matrix& weight, const at::Tensor& bias_O) {
  const Nf4Layout& layout = *weight.layout;
  require(x.dim() >= 1 && x.size(-1) == layout.columns(), "nf4_linear", "x ", x.sizes(),
          " must end in I = ", layout.columns());
  require(!bias_O.defined() || (bias_O.dim() == 1 && bias_O.size(0) == layout.rows()), "nf4_linear",
          "bias must be [O] with O = ", layout.rows());
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = layout.rows();
  const at::Tensor x_NI = x.dim() == 2 ? x : x.reshape({-1, layout.columns()});
  if (!at::GradMode::is_enabled()) return nf4_product_of(x_NI, weight, bias_O).view(sizes);
  // libtorch 1.13 takes no undefined tensors here: nothing is a bias of length 0.
  const at::Tensor bias = bias_O.defined() ? bias_O : at::empty({0}, x.options());
  auto held = c10::make_intrusive<HeldNf4>();
  held->weight = weight;
  return Nf4Linear::apply(x_NI, bias, held).view(sizes);
}

}  // namespace danlu::ops
