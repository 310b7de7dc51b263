// infer/kv_cache.h: keys and values of a changing set of sequences.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <vector>

#include "models/causal_lm.h"
#include "ops/cached_attention.h"
#include "ops/segments.h"

namespace danlu::infer {

using SequenceId = int64_t;

/// Sequences come, grow, fork and go independently. A forward pass is announced with begin(),
/// filled and read by the model through attend(), and made permanent by end(). What sequences have
/// begun with is in pages that they share until one of them writes. Not thread-safe.
class SequenceCache : public models::KvCache {
 public:
  SequenceCache(const arch::ModelConfig& config, at::ScalarType dtype, const at::Device& device);

  SequenceId add();
  /// A new sequence with the same content, of which nothing is copied yet.
  SequenceId fork(SequenceId id);
  void remove(SequenceId id);
  /// Forgets everything from position `length` on. REQUIRES: length <= this->length(id).
  void truncate(SequenceId id, int64_t length);
  int64_t length(SequenceId id) const;
  /// Of all pages that sequences hold, those that several share once.
  int64_t size_bytes() const;

  struct Growth {
    SequenceId id;
    int64_t num_new;  ///< tokens the next forward adds to it
  };
  /// Segments for a forward over these sequences, in this order.
  ops::Segments begin(const std::vector<Growth>& batch);
  void end();

  at::Tensor attend(int64_t layer, const at::Tensor& q_NQD, const at::Tensor& k_NKD,
                    const at::Tensor& v_NKD, const ops::AttentionOptions& options) override;

 private:
  struct Sequence {
    int64_t length = 0;
    std::vector<at::Tensor> pages;  ///< ops/cached_attention.h
  };
  /// Pages of its own for positions [length, length + num_new).
  void make_room(Sequence& sequence, int64_t num_new);

  std::vector<int64_t> page_shape_;
  at::TensorOptions options_;
  std::map<SequenceId, Sequence> sequences_;
  std::vector<Growth> batch_;
  std::vector<ops::CachedSequence> growing_;  ///< of batch_
  SequenceId next_id_ = 0;
};

}  // namespace danlu::infer
