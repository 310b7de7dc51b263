// infer/kv_cache.h: keys and values of a changing set of sequences.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "infer/page_pool.h"
#include "models/causal_lm.h"
#include "ops/pages.h"
#include "ops/segments.h"

namespace danlu::infer {

using SequenceId = int64_t;

/// Pages as the layers of this rank's part of a model need them.
ops::PageShape page_shape_of(const models::CausalLM& model);

/// Sequences are added, grow, fork and are removed independently. begin() announces a forward pass,
/// the model writes and reads through attend(), and end() makes the new keys and values permanent.
/// Keys and values, or what a latent attention keeps, lie in pages of one pool. Sequences share the
/// pages of a common beginning until one of them writes there. What linear attention keeps of a
/// sequence is its own and not in pages: such a sequence begins with no pages, and is truncated to
/// nothing alone. Not thread-safe.
class SequenceCache : public models::KvCache {
 public:
  /// For what this rank holds of a model, with pages as its layers need them.
  explicit SequenceCache(const models::CausalLM& model, int64_t max_pages = 0);
  /// The same for a whole model.
  SequenceCache(const arch::ModelConfig& config, at::ScalarType dtype, const at::Device& device,
                int64_t max_pages = 0);
  /// max_pages: as PagePool's.
  SequenceCache(const ops::PageShape& shape, at::ScalarType dtype, const at::Device& device,
                int64_t max_pages);

  SequenceId add();
  /// One that begins with so many tokens in these pages, held or kept by the pool. A last one that
  /// is not full is kept, held by nobody, and kept no more.
  SequenceId add(std::span<const int32_t> pages, int64_t tokens);
  /// A new sequence with the same content; nothing is copied before one of them writes.
  SequenceId fork(SequenceId id);
  void remove(SequenceId id);
  /// Forgets everything from position `length` on. REQUIRES: length <= this->length(id).
  void truncate(SequenceId id, int64_t length);
  int64_t length(SequenceId id) const;
  /// Whether the page that the next token is written to is held by another sequence too.
  bool shares_page_begun(SequenceId id) const;
  const PagePool& pool() const { return pool_; }
  PagePool& pool() { return pool_; }
  /// In order.
  const std::vector<int32_t>& pages_of(SequenceId id) const { return sequences_.at(id).pages; }
  /// The bytes of all pages that sequences hold; a shared page counts once.
  int64_t size_bytes() const;

  struct Growth {
    SequenceId id;
    int64_t num_new;  ///< tokens the next forward adds to it
  };
  /// How many pages begin() would take from the pool: for tokens that do not fit into the
  /// sequences' last pages, and for copies of shared pages that are written to.
  int64_t pages_needed(const std::vector<Growth>& batch) const;
  /// Begins a forward over these sequences, in this order, and gives its segments. REQUIRES: none
  /// is listed twice. If the pool has too few pages for all of them, changes nothing and gives
  /// nothing; remove() and truncate() make room.
  std::optional<ops::Segments> begin_if_room(const std::vector<Growth>& batch);
  /// The same if there is room for certain, as without a limit. Errors: InternalError.
  ops::Segments begin(const std::vector<Growth>& batch);
  void end();

  /// Tokens of a sequence from place `first` on.
  struct Span {
    SequenceId id;
    int64_t first, count;
  };
  /// Begins a forward of a layer beside the model's own, as one that guesses further tokens: it
  /// writes its keys for tokens that the sequences have, or for some behind them. No sequence
  /// grows. REQUIRES: places that the sequences have were first written by the last forward, so
  /// that no other sequence shares their pages. Nothing: no pages are left for tokens behind the
  /// last.
  std::optional<ops::Segments> begin_again(const std::vector<Span>& batch);
  void end_again() { growing_ = {}; }

  at::Tensor attend(int64_t layer, const at::Tensor& q_NQD, const at::Tensor& k_NKD,
                    const at::Tensor& v_NKD, const ops::AttentionOptions& options) override;
  at::Tensor attend_latent(int64_t layer, const ops::LatentQueries& queries,
                           const ops::AttentionOptions& options) override;
  void with_state(int64_t layer, const ops::AdvanceState& advance) override;

 private:
  struct Sequence {
    int64_t length = 0;
    std::vector<int32_t> pages;  ///< of the pool, in order
    /// States of the layers of linear attention, after `length` tokens. Forks share them: a pass
    /// makes others.
    std::map<int64_t, ops::DeltaState> states = {};
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
