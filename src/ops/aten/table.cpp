#include "ops/aten/table.h"

namespace danlu::ops::aten {
namespace {

bool takes_type(Work work, at::ScalarType type) {
  return work != Work::kDropout &&
         (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf);
}

Backend filled_aten() {
  Backend table;
  table.takes = &takes_type;
  table.product = &product;
  table.input_grad = &input_grad;
  table.weight_grad = &weight_grad;
  table.add_weight_grad = &add_weight_grad;
  table.add_product = &add_product;
  table.grouped_product = &grouped_product;
  table.grouped_input_grad = &grouped_input_grad;
  table.nf4_product = &nf4_product;
  table.nf4_input_grad = &nf4_input_grad;
  table.nf4_rows = &nf4_rows;
  table.block_products = &block_products;
  table.block_rows = &block_rows;
  table.rms_norm = &rms_norm;
  table.rms_norm_backward = &rms_norm_backward;
  table.rotary = &rotary;
  table.swiglu = &swiglu;
  table.swiglu_backward = &swiglu_backward;
  table.attention = &attention;
  table.attention_backward = &attention_backward;
  // Fewer are attended to where their keys are, all sequences at once.
  table.fewest_queries = 8;
  table.attention_over_pages = &attention_over_pages;
  table.store_in_pages = &store_in_pages;
  table.likeliest = &likeliest;
  table.add_rows = &add_rows;
  table.sums_of_squares = &sums_of_squares;
  table.all_finite = &all_finite;
  return table;
}

}  // namespace

const Backend& backend() {
  static const Backend table = filled_aten();
  return table;
}

}  // namespace danlu::ops::aten
