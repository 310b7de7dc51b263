// The CPU's table.
#include "ops/backend.h"
#include "ops/kernels_cpu.h"
#include "ops/products_cpu.h"
#include "ops/quantized_linear_cpu.h"

namespace danlu::ops::cpu {
namespace {

bool takes(Work work, at::ScalarType type) {
  if (type == at::kFloat || type == at::kBFloat16) return true;
  if (work == Work::kDropout) return type == at::kHalf || type == at::kDouble;
  // Highway's emulation of f16 truncates; products go round it.
  return type == at::kHalf && (work == Work::kProducts || rounds_f16());
}

Backend filled_cpu() {
  Backend table;
  table.takes = &takes;
  table.product = &product;
  table.input_grad = &input_grad;
  table.weight_grad = &weight_grad;
  table.add_weight_grad = &add_weight_grad;
  table.add_product = &add_product;
  table.nf4_product = &nf4_product;
  table.nf4_input_grad = &nf4_input_grad;
  table.nf4_rows = &nf4_rows;
  table.block_products = &block_products;
  table.block_rows = &block_rows;
  table.grouped_product = &grouped_product;
  table.grouped_input_grad = &grouped_input_grad;
  table.rms_norm = &rms_norm;
  table.rms_norm_backward = &rms_norm_backward;
  table.column_sums = &column_sums;
  table.rotary_table = &rotary_table;
  table.rotary = &rotary;
  table.swiglu = &swiglu;
  table.swiglu_backward = &swiglu_backward;
  table.attention = &attention;
  table.attention_backward = &attention_backward;
  // Keys are copied first, which a few queries against a long cache do not repay.
  table.fewest_queries = 8;
  table.dropout = &dropout;
  table.cross_entropy = &cross_entropy;
  table.attention_over_pages = &attention_over_pages;
  table.store_in_pages = &store_in_pages;
  table.products = &products;
  table.add = &add;
  table.add_to = &add_to;
  table.adamw_update = &adamw_update;
  table.split_master = &split_master;
  table.join_master = &join_master;
  table.sums_of_squares = &sums_of_squares;
  table.all_finite = &all_finite;
  table.gated_delta = &gated_delta;
  table.gated_delta_backward = &gated_delta_backward;
  // What is left empty is a loop of ATen's own on a CPU, which would be no faster here.
  return table;
}

}  // namespace

const Backend& backend() {
  static const Backend table = filled_cpu();
  return table;
}

}  // namespace danlu::ops::cpu
