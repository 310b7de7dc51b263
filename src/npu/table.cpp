#include "npu/table.h"

#include "npu/operators.h"

namespace danlu::npu {
namespace {

/// New tokens of a sequence from which on its keys are copied page by page and kept for a call.
constexpr int64_t kFewestQueries = 8;

bool takes_on_npu(ops::Work, at::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

/// By what this CANN has: ATen has no operators there at all.
bool lacks_on_npu(ops::Part part) {
  switch (part) {
    case ops::Part::kLayerNorms:
      return !aclnn::layer_norm.is_there() || !aclnn::layer_norm_backward.is_there();
    case ops::Part::kGelu:
      return !aclnn::gelu.is_there() || !aclnn::gelu_backward.is_there();
    case ops::Part::kSoftcaps:
      return !aclnn::tanh.is_there();
    case ops::Part::kPictures:
      return !aclnn::inplace_index_copy.is_there() || lacks_on_npu(ops::Part::kGelu) ||
             lacks_on_npu(ops::Part::kLayerNorms);
    case ops::Part::kLinearAttention:
      return true;
    case ops::Part::kOffsetNorms:
    case ops::Part::kChunks:
      return false;
  }
  return false;
}

/// The operator that reads pages where they lie takes one tensor of them, of halves.
bool wants_one_slab_on_npu(at::ScalarType type) {
  return (type == at::kHalf || type == at::kBFloat16) && aclnn::attention_of_blocks.is_there();
}

void fill_products(ops::Backend& table) {
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
}

void fill_layers(ops::Backend& table) {
  table.norm_head = &norm_head;
  table.norm_head_backward = &norm_head_backward;
  table.adapted_row_squares = &adapted_row_squares;
  table.stretch_factor = &stretch_factor;
  table.scale_columns = &scale_columns;
  table.stretch_grad = &stretch_grad;
  table.sigmoid = &sigmoid;
  table.sigmoid_backward = &sigmoid_backward;
  table.rms_norm = &rms_norm;
  table.rms_norm_backward = &rms_norm_backward;
  table.layer_norm = &layer_norm;
  table.layer_norm_backward = &layer_norm_backward;
  table.activation = &activation;
  table.activation_backward = &activation_backward;
  table.gated_activation = &gated_activation;
  table.gated_activation_backward = &gated_activation_backward;
  table.capped = &capped;
  table.through_cap = &through_cap;
  table.rotary = &rotary;
  table.rotary_table = &rotary_table;
  table.swiglu = &swiglu;
  table.swiglu_backward = &swiglu_backward;
  table.attention = &attention;
  table.attention_backward = &attention_backward;
  table.attention_delta = &attention_delta;
  table.merge = &merge;
  table.attention_over_pages = &attention_over_pages;
  table.wants_one_slab = &wants_one_slab_on_npu;
  table.fewest_queries = kFewestQueries;
  table.caps_scores = true;
  table.dropout = &dropout;
}

ops::Backend filled_for_npu() {
  ops::Backend table;
  table.has_aten = false;
  table.lacks = &lacks_on_npu;
  table.takes = &takes_on_npu;
  fill_products(table);
  fill_layers(table);
  table.cross_entropy = &cross_entropy;
  table.likeliest = &likeliest;
  table.largest_of_share = &largest_of_share;
  table.sums_of_share = &sums_of_share;
  table.place_of_largest = &place_of_largest;
  table.loss_of_share = &loss_of_share;
  table.divergence_sums = &divergence_sums;
  table.divergence_grad = &divergence_grad;
  table.larger_into = &larger_into;
  table.add_into = &add_into;
  table.add_to = &add_to;
  table.add_bias = &add_bias;
  table.scaled = &scaled;
  table.take_rows = &take_rows;
  table.add_rows = &add_rows;
  table.with_rows = &with_rows;
  table.scale_rows = &scale_rows;
  table.row_dots = &row_dots;
  table.column_sums = &column_sums;
  table.adamw_update = &adamw_update;
  table.split_master = &split_master;
  table.join_master = &join_master;
  table.sums_of_squares = &sums_of_squares;
  table.all_finite = &all_finite;
  return table;
}

}  // namespace

const ops::Backend& table() {
  static const ops::Backend one = filled_for_npu();
  return one;
}

}  // namespace danlu::npu
