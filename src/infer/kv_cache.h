// infer/kv_cache.h: keys and values of a changing set of sequences.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "models/causal_lm.h"
#include "ops/segments.h"

namespace danlu::infer {

using SequenceId = int64_t;

/// Sequences come, grow, fork and go independently. A forward pass is announced with begin(),
/// filled by the model through append(), and made permanent by end(). A single sequence is read
/// without copying. Not thread-safe.
class SequenceCache : public models::KvCache {
 public:
  SequenceCache(const arch::ModelConfig& config, at::ScalarType dtype, const at::Device& device);

  SequenceId add();
  /// A new sequence with the same content (copied), and room for so many further positions.
  SequenceId fork(SequenceId id, int64_t room = 0);
  void remove(SequenceId id);
  /// Forgets everything from position `length` on. REQUIRES: length <= this->length(id).
  void truncate(SequenceId id, int64_t length);
  int64_t length(SequenceId id) const;

  struct Growth {
    SequenceId id;
    int64_t num_new;  ///< tokens the next forward adds to it
  };
  /// Segments for a forward over these sequences, in this order.
  ops::Segments begin(const std::vector<Growth>& batch);
  void end();

  std::pair<at::Tensor, at::Tensor> append(int64_t layer, const at::Tensor& k_NKD,
                                           const at::Tensor& v_NKD) override;

 private:
  struct Layer {
    at::Tensor k_CKD, v_CKD;  ///< C: capacity
  };
  struct Sequence {
    int64_t length = 0;
    std::vector<Layer> layers;
  };
  at::Tensor copied(const at::Tensor& buffer_CKD, int64_t used, int64_t capacity) const;
  at::Tensor grown(const at::Tensor& buffer_CKD, int64_t used, int64_t needed) const;

  int64_t num_layers_, num_kv_heads_, head_dim_;
  at::ScalarType dtype_;
  at::Device device_;
  std::map<SequenceId, Sequence> sequences_;
  std::vector<Growth> batch_;
  SequenceId next_id_ = 0;
};

}  // namespace danlu::infer
