// npu/attention_sequences.h: spans of ops/segments.h as sequences that CANN's operators attend to.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/attention.h"
#include "ops/segments.h"

namespace danlu::npu {

/// Queries [q, q + q_len) meet keys [k, k + k_len): all of them, or what their group's kind says.
struct Sequence {
  int64_t q, q_len, k, k_len;
};

enum class Seen {
  kAll,
  kCausal,  ///< the last query sees all keys, and the one i before it all but the last i
  kBand,    ///< of the keys around that last one `before` before it and `behind` behind it
};

/// Sequences of one call.
struct SequenceGroup {
  Seen seen = Seen::kCausal;
  int64_t before = 0, behind = 0;
  std::vector<Sequence> sequences;

  bool has_one_length() const;        ///< as many queries each
  bool has_adjacent_queries() const;  ///< in their order, nothing between them
  bool has_adjacent_keys() const;
  /// Their queries of x_NQD, contiguous, one sequence after the other; x itself where it is that.
  at::Tensor packed_queries(const at::Tensor& x_NQD) const;
  at::Tensor packed_keys(const at::Tensor& x_MKD) const;
  /// And back: to where they came from.
  void unpack_queries(const at::Tensor& packed, const at::Tensor& x_NQD) const;
  void add_queries(const at::Tensor& packed, const at::Tensor& sum_NQD) const;
  void add_keys(const at::Tensor& packed, const at::Tensor& sum_MKD) const;
};

/// What queries of the spans see, in as few calls as possible: queries that see nothing are in
/// none. No sequence has more queries than keys unless it sees all.
std::vector<SequenceGroup> groups_of(const ops::Spans& spans, const ops::AttentionOptions& options);
int64_t num_queries(const std::vector<SequenceGroup>& groups);

}  // namespace danlu::npu
