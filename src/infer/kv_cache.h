// infer/kv_cache.h: keys and values of a changing set of sequences.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "infer/page_pool.h"
#include "models/causal_lm.h"
#include "ops/pages.h"
#include "ops/segments.h"

namespace danlu::infer {

using SequenceId = int64_t;

/// Sequences come, grow, fork and go independently. A forward pass is announced with begin(),
/// filled and read by the model through attend(), and made permanent by end(). What sequences have
/// begun with is in pages of one pool that they share until one of them writes. Not thread-safe.
class SequenceCache : public models::KvCache {
 public:
  /// Of a whole model.
  SequenceCache(const arch::ModelConfig& config, at::ScalarType dtype, const at::Device& device);
  /// max_pages: as PagePool's.
  SequenceCache(const ops::PageShape& shape, at::ScalarType dtype, const at::Device& device,
                int64_t max_pages);

  SequenceId add();
  /// A new sequence with the same content, of which nothing is copied yet.
  SequenceId fork(SequenceId id);
  void remove(SequenceId id);
  /// Forgets everything from position `length` on. REQUIRES: length <= this->length(id).
  void truncate(SequenceId id, int64_t length);
  int64_t length(SequenceId id) const;
  const PagePool& pool() const { return pool_; }
  /// Of all pages that sequences hold, those that several share once.
  int64_t size_bytes() const;

  struct Growth {
    SequenceId id;
    int64_t num_new;  ///< tokens the next forward adds to it
  };
  /// Pages that begin() would take: for tokens that the sequences' own have no room for, and a copy
  /// where one that others hold too is written to.
  int64_t pages_needed(const std::vector<Growth>& batch) const;
  /// Segments for a forward over these sequences, each once, in this order. Where the pool has too
  /// few pages for all of them: nothing, and nothing is changed; remove() or truncate() makes room.
  std::optional<ops::Segments> begin_if_room(const std::vector<Growth>& batch);
  /// The same. Errors: InternalError where there is no room, which only a limit makes possible.
  ops::Segments begin(const std::vector<Growth>& batch);
  void end();

  at::Tensor attend(int64_t layer, const at::Tensor& q_NQD, const at::Tensor& k_NKD,
                    const at::Tensor& v_NKD, const ops::AttentionOptions& options) override;

 private:
  struct Sequence {
    int64_t length = 0;
    std::vector<int32_t> pages;  ///< of the pool, in order
  };
  static std::optional<size_t> page_begun(const Sequence& sequence, int64_t num_new);
  /// Pages of its own for positions [length, length + num_new).
  void make_room(Sequence& sequence, int64_t num_new);

  at::Device device_;
  PagePool pool_;
  std::map<SequenceId, Sequence> sequences_;
  std::vector<Growth> batch_;
  ops::CachedSequences growing_;  ///< of batch_
  SequenceId next_id_ = 0;
};

}  // namespace danlu::infer
