// Weights in NF4: codes and factors are looked up, a band of rows at a time, and multiplied.
#include "base/nf4.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "npu/arithmetic.h"
#include "npu/constants.h"
#include "npu/copies.h"
#include "npu/operators.h"
#include "npu/table.h"

namespace danlu::npu {
namespace {

constexpr int64_t kBandRows = 1024;

template <typename Numbers>
at::Tensor on_host(const Numbers& numbers) {
  const at::Tensor host = at::empty({static_cast<int64_t>(numbers.size())}, at::kFloat);
  std::copy(numbers.begin(), numbers.end(), host.data_ptr<float>());
  return host;
}
at::Tensor indices_there(const std::vector<int64_t>& indices, const at::Tensor& like) {
  const at::Tensor host = at::empty({static_cast<int64_t>(indices.size())}, at::kLong);
  std::copy(indices.begin(), indices.end(), host.data_ptr<int64_t>());
  return host.to(like.device());
}

/// The two numbers that each byte stands for, the upper half's first: [256, 2].
const at::Tensor& pairs_of_byte(const at::Device& device) {
  static auto* const known = new Constant([] {
    std::vector<float> pairs;
    for (size_t byte = 0; byte < 256; ++byte) {
      pairs.push_back(kNf4Numbers[byte / 16]);
      pairs.push_back(kNf4Numbers[byte % 16]);
    }
    return on_host(pairs).view({256, 2});
  });
  return known->on(device);
}

/// What a byte of a factor that is quantised itself stands for.
const at::Tensor& factor_of_byte(const at::Device& device) {
  static auto* const known = new Constant([] { return on_host(nf4_factor_numbers()); });
  return known->on(device);
}

at::Tensor rows_at(const at::Tensor& table, const at::Tensor& index_n) {
  return take_rows(table, cast(index_n, at::kLong));
}

at::Tensor floats_at(const at::Tensor& bytes, int64_t at, int64_t count) {
  const at::Tensor floats = fresh(bytes, {count}, at::kFloat);
  if (count > 0)
    copy_bytes(bytes.device().index(), floats.data_ptr(), bytes.data_ptr<uint8_t>() + at,
               static_cast<size_t>(4 * count));
  return floats;
}

/// The factors of some rows in order: each one's slot and block. `are_whole` says whether they can
/// be applied to whole rows at a time.
struct Factors {
  std::vector<int64_t> slots, blocks;
  bool are_in_order = true;  ///< the slots follow each other, and so do the blocks
  bool are_whole = true;     ///< each is for a whole block, and a row has the same number of them
};
Factors factors_of_rows(const ops::Nf4Layout& layout, int64_t first, int64_t count) {
  Factors found;
  const int64_t block = layout.form().block;
  for (int64_t row = first; row < first + count; ++row) {
    layout.for_each_run(row, 0, layout.columns(),
                        [&](int64_t, int64_t length, int64_t slot, int64_t number) {
                          found.are_whole = found.are_whole && length == block;
                          found.slots.push_back(slot);
                          found.blocks.push_back(number);
                        });
  }
  for (size_t i = 1; i < found.slots.size(); ++i) {
    if (found.slots[i] != found.slots[i - 1] + 1 || found.blocks[i] != found.blocks[i - 1] + 1)
      found.are_in_order = false;
  }
  if (found.are_whole) return found;
  // One entry for each number: a cut goes through blocks.
  Factors each{{}, {}, false, false};
  for (int64_t row = first; row < first + count; ++row) {
    layout.for_each_run(
        row, 0, layout.columns(), [&](int64_t, int64_t length, int64_t slot, int64_t number) {
          each.slots.insert(each.slots.end(), static_cast<size_t>(length), slot);
          each.blocks.insert(each.blocks.end(), static_cast<size_t>(length), number);
        });
  }
  return each;
}

at::Tensor doubly_quantised(const ops::Nf4Matrix& weight, const Factors& factors,
                            const at::Tensor& codes) {
  const ops::Nf4Layout& layout = *weight.layout;
  const at::Tensor& map = factor_of_byte(weight.bytes.device());
  std::vector<int64_t> groups = factors.blocks;
  for (int64_t& group : groups) group /= kNf4Group;
  const at::Tensor of_group =
      rows_at(floats_at(weight.bytes, layout.groups_at(), layout.num_groups()),
              indices_there(groups, weight.bytes));
  const at::Tensor result = times(rows_at(map, codes), of_group);
  add(result, floats_at(weight.bytes, layout.offset_at(), 1));
  return result;
}

/// One for each slot of `factors`.
at::Tensor factors_there(const ops::Nf4Matrix& weight, const Factors& factors) {
  const ops::Nf4Layout& layout = *weight.layout;
  const auto count = static_cast<int64_t>(factors.slots.size());
  const auto of_slots = [&](const at::Tensor& all) {
    return factors.are_in_order ? all.narrow(0, factors.slots.front(), count)
                                : rows_at(all, indices_there(factors.slots, weight.bytes));
  };
  if (layout.form().doubly) {
    const at::Tensor codes = weight.bytes.narrow(0, layout.factors_at(), layout.num_slots());
    return doubly_quantised(weight, factors, of_slots(codes));
  }
  return of_slots(floats_at(weight.bytes, layout.factors_at(), layout.num_slots()));
}

template <typename Visit>
void each_band(const ops::Nf4Matrix& weight, const Visit& visit) {
  const int64_t rows = weight.layout->rows();
  for (int64_t row = 0; row < rows; row += kBandRows) visit(row, std::min(kBandRows, rows - row));
}

}  // namespace

at::Tensor nf4_rows(const ops::Nf4Matrix& weight, int64_t first, int64_t count,
                    at::ScalarType type) {
  const ops::Nf4Layout& layout = *weight.layout;
  const int64_t columns = layout.columns(), begin = first * columns, size = count * columns;
  if (size == 0) return fresh(weight.bytes, {count, columns}, type);
  const at::Tensor bytes = weight.bytes.narrow(0, begin / 2, (begin + size + 1) / 2 - begin / 2);
  const at::Tensor numbers =
      rows_at(pairs_of_byte(weight.bytes.device()), bytes).view({-1}).narrow(0, begin % 2, size);
  const Factors factors = factors_of_rows(layout, first, count);
  const at::Tensor there = factors_there(weight, factors);
  const at::Tensor rows =
      factors.are_whole
          ? times(numbers.view({there.numel(), layout.form().block}), there.view({-1, 1}))
          : times(numbers, there);
  return cast(cast(rows.view({count, columns}), layout.form().type), type);
}

at::Tensor nf4_product(const at::Tensor& x_NI, const ops::Nf4Matrix& weight,
                       const at::Tensor& bias_O) {
  const at::Tensor y_NO = fresh(x_NI, {x_NI.size(0), weight.layout->rows()}, x_NI.scalar_type());
  each_band(weight, [&](int64_t row, int64_t count) {
    const at::Tensor bias = bias_O.defined() ? bias_O.narrow(0, row, count) : at::Tensor();
    y_NO.narrow(1, row, count)
        .copy_(product(x_NI, npu::nf4_rows(weight, row, count, x_NI.scalar_type()), bias,
                       x_NI.scalar_type()));
  });
  return y_NO;
}

at::Tensor nf4_input_grad(const at::Tensor& d_y_NO, const ops::Nf4Matrix& weight) {
  const at::ScalarType type = d_y_NO.scalar_type();
  const at::Tensor sum_NI =
      fresh(d_y_NO, {d_y_NO.size(0), weight.layout->columns()}, at::kFloat).zero_();
  each_band(weight, [&](int64_t row, int64_t count) {
    add_product(d_y_NO.narrow(1, row, count), npu::nf4_rows(weight, row, count, type).t(), sum_NI);
  });
  return cast(sum_NI, type);
}

}  // namespace danlu::npu
