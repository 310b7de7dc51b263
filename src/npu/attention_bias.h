// npu/attention_bias.h: ALiBi by CANN's operators, which know no bias for keys of other numbers
// than queries: as more dimensions of queries and keys.
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/attention.h"
#include "ops/segments.h"

namespace danlu::npu {

/// Queries and keys in `type`, with ALiBi as some dimensions more. The bias of a key is slope *
/// (its place - the query's), of which the second term is the same for all keys of a row: it is
/// left out, and the log of sums is off by it. The place and the slope over the scale are cut into
/// terms that `type` holds exactly, so that products, which add in f32, lose nothing.
class Biased {
 public:
  Biased(const at::Tensor& q_NQD, const at::Tensor& k_MKD, const ops::Spans& spans,
         const ops::AttentionOptions& options, at::ScalarType type);
  bool adds() const { return own_terms_QN_.defined(); }
  /// lse += factor * slope * the query's place, where there is a bias.
  void add_to_lse(const at::Tensor& lse_QN, double factor) const;

  at::Tensor q_NQD, k_MKD;

 private:
  at::Tensor own_terms_QN_;  ///< slope * the place of each query
};

}  // namespace danlu::npu
