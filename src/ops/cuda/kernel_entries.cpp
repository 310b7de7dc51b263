// The kernels of this folder as entries of a table: tensors in, tensors out.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "ops/aten/table.h"
#include "ops/block_weight.h"
#include "ops/cuda/entries.h"
#include "ops/dropout_threshold.h"

namespace danlu::ops::cuda {
namespace {

Type type_of(at::ScalarType type) {
  if (type == at::kFloat) return Type::kF32;
  if (type == at::kBFloat16) return Type::kBF16;
  if (type == at::kHalf) return Type::kF16;
  throw InternalError("[cuda] kernels were given a tensor of another type than they take");
}
Type type_of(const at::Tensor& x) { return type_of(x.scalar_type()); }

bool kernels_take(Work, at::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

at::Tensor empty_of(at::IntArrayRef sizes, const at::Tensor& like, at::ScalarType type) {
  return at::empty(sizes, like.options().dtype(type));
}

/// For as long as it lives a tensor's device is the current one, and `stream` this thread's there.
struct OnDevice {
  explicit OnDevice(const at::Tensor& tensor)
      : guard(tensor.device()), stream(current_stream(tensor.device())) {}
  c10::DeviceGuard guard;
  Stream stream;
};

NormResult own_rms_norm(const at::Tensor& x, const at::Tensor& weight_D, double eps) {
  const OnDevice on(x);
  const int64_t dim = x.size(-1), rows = x.numel() / std::max<int64_t>(1, dim);
  NormResult result{at::empty_like(x), empty_of({rows}, x, at::kFloat)};
  rms_norm(type_of(x), x.data_ptr(), weight_D.data_ptr(), static_cast<float>(eps), rows, dim,
           result.y.data_ptr(), result.rstd.data_ptr<float>(), on.stream);
  return result;
}

NormGrads own_rms_norm_backward(const at::Tensor& x, const at::Tensor& weight_D,
                                const at::Tensor& rstd, const at::Tensor& given_dy, bool x_grad,
                                bool weight_grad) {
  const OnDevice on(x);
  const int64_t dim = x.size(-1), rows = x.numel() / std::max<int64_t>(1, dim);
  const at::Tensor dy = given_dy.contiguous();
  NormGrads grads;
  if (x_grad) {
    grads.x = at::empty_like(x);
    rms_norm_input_grad(type_of(x), x.data_ptr(), weight_D.data_ptr(), rstd.data_ptr<float>(),
                        dy.data_ptr(), rows, dim, grads.x.data_ptr(), on.stream);
  }
  if (weight_grad) {
    const at::Tensor sums = empty_of({weight_grad_parts(rows), dim}, x, at::kFloat);
    rms_norm_weight_grad(type_of(x), x.data_ptr(), rstd.data_ptr<float>(), dy.data_ptr(), rows, dim,
                         sums.data_ptr<float>(), on.stream);
    grads.weight_D = sums.sum(0);
  }
  return grads;
}

at::Tensor own_rotary(const at::Tensor& given, const RotaryTable& table, bool inverse) {
  const OnDevice on(given);
  const at::Tensor x_NQD = given.stride(2) == 1 ? given : given.contiguous();
  const at::Tensor y_NQD = at::empty(x_NQD.sizes(), x_NQD.options());
  const RotaryShape shape{x_NQD.size(0), x_NQD.size(1), x_NQD.size(2) / 2, x_NQD.stride(0),
                          x_NQD.stride(1)};
  rotary(type_of(x_NQD), x_NQD.data_ptr(), table.cos_NE.data_ptr<float>(),
         table.sin_NE.data_ptr<float>(), shape, inverse, y_NQD.data_ptr(), on.stream);
  return y_NQD;
}

at::Tensor own_swiglu(const at::Tensor& gate, const at::Tensor& up) {
  const OnDevice on(gate);
  const at::Tensor y = at::empty_like(gate);
  swiglu(type_of(gate), gate.data_ptr(), up.data_ptr(), gate.numel(), y.data_ptr(), on.stream);
  return y;
}

SwigluGrads own_swiglu_backward(const at::Tensor& gate, const at::Tensor& up,
                                const at::Tensor& given_dy) {
  const OnDevice on(gate);
  const at::Tensor dy = given_dy.contiguous();
  SwigluGrads grads{at::empty_like(gate), at::empty_like(up)};
  swiglu_backward(type_of(gate), gate.data_ptr(), up.data_ptr(), dy.data_ptr(), gate.numel(),
                  grads.gate.data_ptr(), grads.up.data_ptr(), on.stream);
  return grads;
}

at::Tensor own_dropout(const at::Tensor& given, double p, const at::Tensor& keys_N, uint64_t salt,
                       int64_t first_column) {
  const OnDevice on(given);
  const at::Tensor x_NI = given.contiguous(), keys = keys_N.contiguous();
  const at::Tensor y_NI = at::empty_like(x_NI);
  dropout(type_of(x_NI), x_NI.data_ptr(), keys.data_ptr<int64_t>(), salt, dropout_threshold(p),
          static_cast<float>(1.0 / (1.0 - p)), x_NI.size(0), x_NI.size(1), first_column,
          y_NI.data_ptr(), on.stream);
  return y_NI;
}

void own_cross_entropy(const CrossEntropyChunk& chunk) {
  const OnDevice on(chunk.logits_CV);
  const int64_t rows = chunk.logits_CV.size(0);
  const at::Tensor losses = empty_of({rows}, chunk.logits_CV, at::kFloat),
                   correct = empty_of({rows}, chunk.logits_CV, at::kLong),
                   targets = chunk.targets_C.contiguous();
  cross_entropy(type_of(chunk.logits_CV), chunk.logits_CV.data_ptr(), targets.data_ptr<int64_t>(),
                {rows, chunk.logits_CV.size(1), static_cast<float>(chunk.z_weight),
                 static_cast<float>(chunk.grad_scale), chunk.make_grad},
                losses.data_ptr<float>(), correct.data_ptr<int64_t>(), on.stream);
  at::Tensor(chunk.sum).add_(losses.sum());
  at::Tensor(chunk.correct).add_(correct.sum());
}

void own_adamw_update(const AdamWState& state, const std::vector<Chunk>& chunks,
                      std::span<const AdamWScalars> scalars) {
  const OnDevice on(state.exp_avg);
  const auto floats = [](const at::Tensor& x) {
    return x.defined() ? x.data_ptr<float>() : nullptr;
  };
  const bool is_split = state.low.defined();
  const AdamWTensors tensors{is_split ? nullptr : floats(state.master),
                             floats(state.exp_avg),
                             floats(state.exp_avg_sq),
                             floats(state.grad),
                             state.weight.defined() ? state.weight.data_ptr() : nullptr,
                             is_split ? state.low.data_ptr<int16_t>() : nullptr};
  const Type type = state.weight.defined() ? type_of(state.weight) : Type::kF32;
  for (size_t i = 0; i < chunks.size();) {
    // Neighbours that one rule updates are one range: fewer kernels.
    Range at = chunks[i].at;
    const AdamWScalars& s = scalars[chunks[i].index];
    for (const size_t index = chunks[i++].index;
         i < chunks.size() && chunks[i].index == index && chunks[i].at.begin == at.end; ++i)
      at.end = chunks[i].at.end;
    adamw(type, tensors,
          {s.beta1, s.beta2, s.one_minus_beta1, s.one_minus_beta2, s.eps, s.step_size,
           s.inv_sqrt_bias2, s.keep, s.grad_scale},
          at.begin, at.end, on.stream);
  }
}

uint16_t* bits_of(const at::Tensor& bf16) { return static_cast<uint16_t*>(bf16.data_ptr()); }

void own_split_master(const at::Tensor& master, const at::Tensor& weight, const at::Tensor& low) {
  const OnDevice on(master);
  split_master(master.data_ptr<float>(), bits_of(weight), low.data_ptr<int16_t>(), master.numel(),
               on.stream);
}

at::Tensor own_join_master(const at::Tensor& weight, const at::Tensor& low) {
  const OnDevice on(weight);
  const at::Tensor master = empty_of(weight.sizes(), weight, at::kFloat);
  join_master(bits_of(weight), low.data_ptr<int16_t>(), master.data_ptr<float>(), master.numel(),
              on.stream);
  return master;
}

// ---- pages ----

PageSlabs slabs_of(const Pages& pages, int64_t layer) {
  PageSlabs slabs{};
  for (size_t s = 0; s < pages.slabs.size(); ++s) {
    const at::Tensor& slab = pages.slabs[s];
    slabs.at[s] = static_cast<char*>(slab.data_ptr()) +
                  layer * pages.shape.layer_elements() * static_cast<int64_t>(slab.element_size());
  }
  slabs.per_slab = pages.per_slab;
  slabs.page_elements = pages.shape.elements();
  slabs.heads = static_cast<int32_t>(pages.shape.heads);
  slabs.key_dim = static_cast<int32_t>(pages.shape.key_dim);
  slabs.value_dim = static_cast<int32_t>(pages.shape.value_dim);
  return slabs;
}

/// Calls visit(tokens, first row) for as many new tokens as a kernel takes at a time.
template <typename Visit>
void for_each_token_group(const CachedSequences& sequences, const Visit& visit) {
  PageTokens tokens{};
  int64_t first = 0;
  const auto flush = [&] {
    if (tokens.count > 0) visit(tokens, first);
    first += tokens.count;
    tokens.count = 0;
  };
  for (int64_t s = 0; s < sequences.count(); ++s) {
    const int64_t length = sequences.lengths[static_cast<size_t>(s)];
    for (int64_t place = length - sequences.num_new[static_cast<size_t>(s)]; place < length;
         ++place) {
      tokens.sequence[tokens.count] = static_cast<int32_t>(s);
      tokens.place[tokens.count] = static_cast<int32_t>(place);
      if (++tokens.count == kMostTokens) flush();
    }
  }
  flush();
}

bool has_few_slabs(const Pages& pages) {
  return static_cast<int64_t>(pages.slabs.size()) <= kMostSlabs;
}

void own_store_in_pages(const at::Tensor& k_NKD, const at::Tensor& v_NKD, const Pages& pages,
                        const CachedSequences& sequences, int64_t layer) {
  // Pages are of any type, and rows are moved as they are.
  const bool is_known = kernels_take(Work::kRows, k_NKD.scalar_type());
  if (!has_few_slabs(pages) || !is_known)
    return aten::store_in_pages(k_NKD, v_NKD, pages, sequences, layer);
  const OnDevice on(k_NKD);
  const PageSlabs slabs = slabs_of(pages, layer);
  for_each_token_group(sequences, [&](const PageTokens& tokens, int64_t first) {
    const at::Tensor k = k_NKD.narrow(0, first, tokens.count).contiguous(),
                     v = v_NKD.narrow(0, first, tokens.count).contiguous();
    store_in_pages(type_of(k), k.data_ptr(), v.data_ptr(), slabs, tokens,
                   sequences.tables_BP.data_ptr<int32_t>(), sequences.tables_BP.size(1), on.stream);
  });
}

at::Tensor own_attention_over_pages(const at::Tensor& given, const Pages& pages,
                                    const CachedSequences& sequences, int64_t layer,
                                    const AttentionOptions& options) {
  // Wider heads than any model's do not fit the memory that a block shares.
  constexpr int64_t kWidestHead = 640;
  if (!has_few_slabs(pages) || pages.shape.key_dim > kWidestHead ||
      pages.shape.value_dim > kWidestHead)
    return aten::attention_over_pages(given, pages, sequences, layer, options);
  const OnDevice on(given);
  const at::Tensor q_NQD = given.contiguous();
  const at::Tensor slopes =
      options.alibi_slopes_Q.defined()
          ? options.alibi_slopes_Q.to(q_NQD.options().dtype(at::kFloat)).contiguous()
          : at::Tensor();
  const PageSlabs slabs = slabs_of(pages, layer);
  const int64_t out_dim = pages.shape.value_dim > 0 ? pages.shape.value_dim : pages.shape.key_dim;
  const at::Tensor out_NQD = at::empty({q_NQD.size(0), q_NQD.size(1), out_dim}, q_NQD.options());
  const PageQueries queries{static_cast<int32_t>(q_NQD.size(1)), static_cast<float>(options.scale),
                            options.window, slopes.defined() ? slopes.data_ptr<float>() : nullptr};
  for_each_token_group(sequences, [&](const PageTokens& tokens, int64_t first) {
    const at::Tensor workspace =
        empty_of({page_workspace(slabs, tokens, queries)}, q_NQD, at::kFloat);
    attention_over_pages(type_of(q_NQD), q_NQD.narrow(0, first, tokens.count).data_ptr(), slabs,
                         tokens, queries, sequences.tables_BP.data_ptr<int32_t>(),
                         sequences.tables_BP.size(1), workspace.data_ptr<float>(),
                         out_NQD.narrow(0, first, tokens.count).data_ptr(), on.stream);
  });
  return out_NQD;
}

// ---- NF4 ----

Nf4Tables nf4_tables() {
  Nf4Tables tables;
  std::copy(kNf4Numbers.begin(), kNf4Numbers.end(), tables.numbers);
  std::copy(nf4_factor_numbers().begin(), nf4_factor_numbers().end(), tables.factors);
  return tables;
}

/// Rows [begin, end), all of one rectangle.
Nf4Rows rows_of(const Nf4Matrix& weight, int64_t begin, int64_t end, int64_t rect_rows_end) {
  const Nf4Layout& layout = *weight.layout;
  const Nf4Layout::Row row = layout.row(begin);
  const int64_t block = layout.form().block;
  const auto* const bytes = weight.bytes.data_ptr<uint8_t>();
  const auto floats = [&](int64_t at) { return reinterpret_cast<const float*>(bytes + at); };
  Nf4Rows rows{};
  rows.codes = bytes + layout.codes_at();
  rows.first_code = begin * layout.columns();
  rows.rows = end - begin;
  rows.columns = layout.columns();
  rows.whole_columns = layout.whole_columns();
  rows.first_number = row.first_number;
  rows.first_slot = row.slot_less_block + row.first_number / block;
  if (layout.columns() != layout.whole_columns()) {
    rows.slots_of_row = 1;
    if (begin + 1 < rect_rows_end) {
      const Nf4Layout::Row next = layout.row(begin + 1);
      rows.slots_of_row = next.slot_less_block + next.first_number / block - rows.first_slot;
    }
  }
  rows.block = block;
  if (layout.form().doubly) {
    rows.factor_codes = bytes + layout.factors_at();
    rows.groups = floats(layout.groups_at());
    rows.offset = floats(layout.offset_at());
  } else {
    rows.factors = floats(layout.factors_at());
  }
  rows.rounds_to_bf16 = layout.form().type == at::kBFloat16;
  rows.rounds_to_f16 = layout.form().type == at::kHalf;
  return rows;
}

const Nf4Tables& own_nf4_tables() {
  static const Nf4Tables tables = nf4_tables();
  return tables;
}

at::Tensor own_nf4_rows(const Nf4Matrix& weight, int64_t first, int64_t count,
                        at::ScalarType type) {
  const OnDevice on(weight.bytes);
  const Nf4Layout& layout = *weight.layout;
  const at::Tensor rows_RI = empty_of({count, layout.columns()}, weight.bytes, type);
  int64_t rect_begin = 0;
  for (const Nf4Rect& rect : layout.rects()) {
    const int64_t rect_end = rect_begin + rect.rows, begin = std::max(first, rect_begin),
                  end = std::min(first + count, rect_end);
    rect_begin = rect_end;
    if (begin >= end || layout.columns() == 0) continue;
    nf4_rows(type_of(type), rows_of(weight, begin, end, rect_end), own_nf4_tables(),
             rows_RI.narrow(0, begin - first, end - begin).data_ptr(), on.stream);
  }
  return rows_RI;
}

/// So many rows are multiplied with quantised weights as they are: codes that are read twice are
/// fewer bytes than numbers of 16 bits that are written and read.
constexpr int64_t kMostKernelRows = 2 * kMostFewRows;

/// Calls visit(first, count) for as many rows as a kernel takes at a time.
template <typename Visit>
void for_each_few(int64_t rows, const Visit& visit) {
  for (int64_t first = 0; first < rows; first += kMostFewRows)
    visit(first, std::min<int64_t>(kMostFewRows, rows - first));
}

/// Contiguous. Its rows are multiples of 4 numbers, but a view may begin anywhere.
at::Tensor aligned(const at::Tensor& given_NI) {
  const at::Tensor x_NI = given_NI.contiguous();
  const auto address = reinterpret_cast<uintptr_t>(x_NI.data_ptr());
  return address % (4 * x_NI.element_size()) == 0 ? x_NI : x_NI.clone();
}

/// As the kernels read it.
at::Tensor bias_beside(const at::Tensor& x_NI, const at::Tensor& bias_O) {
  return bias_O.defined() ? bias_O.to(x_NI.scalar_type()).contiguous() : bias_O;
}

at::Tensor own_nf4_product(const at::Tensor& given_NI, const Nf4Matrix& weight,
                           const at::Tensor& given_bias_O) {
  const Nf4Layout& layout = *weight.layout;
  const int64_t columns = layout.columns(), block = layout.form().block;
  const at::Tensor bias_O = bias_beside(given_NI, given_bias_O);
  const bool is_of_whole_blocks = columns == layout.whole_columns() && columns % block == 0;
  if (given_NI.size(0) > kMostKernelRows || !is_of_whole_blocks || block < 8 ||
      !std::has_single_bit(static_cast<uint64_t>(block)) || layout.codes_at() % 4 != 0)
    return aten::nf4_product(given_NI, weight, bias_O);
  const OnDevice on(given_NI);
  const at::Tensor x_NI = aligned(given_NI);
  const at::Tensor y_NO = at::empty({x_NI.size(0), layout.rows()}, x_NI.options());
  int64_t row = 0;
  for (const Nf4Rect& rect : layout.rects()) {
    if (rect.rows == 0) continue;
    const int64_t end = row + rect.rows;
    const Nf4Rows rows = rows_of(weight, row, end, end);
    const void* const bias =
        bias_O.defined() ? bias_O.narrow(0, row, rect.rows).data_ptr() : nullptr;
    for_each_few(x_NI.size(0), [&](int64_t first, int64_t count) {
      nf4_product(type_of(x_NI), rows, own_nf4_tables(), x_NI.narrow(0, first, count).data_ptr(),
                  count, bias, y_NO.narrow(0, first, count).narrow(1, row, rect.rows).data_ptr(),
                  layout.rows(), on.stream);
    });
    row = end;
  }
  return y_NO;
}

// ---- weights in blocks ----

BlockKind kind_of(BlockType type) {
  if (type == BlockType::kQ8_0) return BlockKind::kQ8_0;
  if (type == BlockType::kQ4_0) return BlockKind::kQ4_0;
  if (type == BlockType::kQ4_K) return BlockKind::kQ4_K;
  if (type == BlockType::kQ6_K) return BlockKind::kQ6_K;
  throw InternalError("[cuda] kernels were given blocks of another type than they take");
}

BlockBands bands_from(const BlockWeight& weight, int64_t band, int64_t rows) {
  const auto bytes_from = [&](const at::Tensor& all) {
    return all.data_ptr<uint8_t>() + band * (all.numel() / weight.num_bands());
  };
  return {kind_of(weight.type()),
          bytes_from(weight.codes()),
          bytes_from(weight.scales()),
          weight.supers().numel() > 0 ? bytes_from(weight.supers()) : nullptr,
          rows,
          weight.columns()};
}

at::Tensor own_dense_bands(const BlockWeight& weight, int64_t band, int64_t bands,
                           at::ScalarType type) {
  const OnDevice on(weight.codes());
  const int64_t rows = std::min(bands * kBandRows, weight.rows() - band * kBandRows);
  const at::Tensor rows_OI = empty_of({rows, weight.columns()}, weight.codes(), type);
  block_numbers(type_of(type), bands_from(weight, band, rows), rows_OI.data_ptr(), on.stream);
  return rows_OI;
}

at::Tensor own_block_product(const at::Tensor& given_NI, const BlockFactor& factor) {
  const BlockWeight& weight = factor.weight;
  const at::Tensor bias_O = bias_beside(given_NI, factor.bias_O);
  if (given_NI.size(0) > kMostKernelRows || weight.rows() == 0)
    return aten::block_product(given_NI, {weight, bias_O}, &own_dense_bands);
  const OnDevice on(given_NI);
  const at::Tensor x_NI = aligned(given_NI);
  const at::Tensor y_NO = at::empty({x_NI.size(0), weight.rows()}, x_NI.options());
  for_each_few(x_NI.size(0), [&](int64_t first, int64_t count) {
    block_product(type_of(x_NI), bands_from(weight, 0, weight.rows()),
                  x_NI.narrow(0, first, count).data_ptr(), count,
                  bias_O.defined() ? bias_O.data_ptr() : nullptr,
                  y_NO.narrow(0, first, count).data_ptr(), on.stream);
  });
  return y_NO;
}

std::vector<at::Tensor> own_block_products(const at::Tensor& x_NI,
                                           std::span<const BlockFactor> factors) {
  std::vector<at::Tensor> results;
  results.reserve(factors.size());
  for (const BlockFactor& factor : factors) results.push_back(own_block_product(x_NI, factor));
  return results;
}

}  // namespace

void add_kernels(Backend& table) {
  table.takes = &kernels_take;
  table.rms_norm = &own_rms_norm;
  table.rms_norm_backward = &own_rms_norm_backward;
  table.rotary = &own_rotary;
  table.swiglu = &own_swiglu;
  table.swiglu_backward = &own_swiglu_backward;
  table.dropout = &own_dropout;
  table.cross_entropy = &own_cross_entropy;
  table.adamw_update = &own_adamw_update;
  table.split_master = &own_split_master;
  table.join_master = &own_join_master;
  table.store_in_pages = &own_store_in_pages;
  table.attention_over_pages = &own_attention_over_pages;
  table.nf4_rows = &own_nf4_rows;
  table.nf4_product = &own_nf4_product;
  table.block_products = &own_block_products;
}

}  // namespace danlu::ops::cuda
