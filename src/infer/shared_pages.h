// infer/shared_pages.h: the pages of the requests that run, and of beginnings that others may
// share.
#pragma once

#include <cstdint>
#include <vector>

#include "infer/engine.h"
#include "infer/followers.h"
#include "infer/kv_cache.h"
#include "infer/live_request.h"
#include "infer/prefix_index.h"

namespace danlu::infer {

/// One cache and the index of what its pages hold. Followers are told of every change of the cache.
/// Not thread-safe.
class SharedPages {
 public:
  /// Keeps references to `model` and `followers`; nullptr: this rank has the whole model.
  SharedPages(const models::CausalLM& model, const EngineSettings& settings, Followers* followers);
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;

  /// Whether requests may begin with what others have computed.
  bool shares() const { return is_shared_; }
  /// Whether sequences keep states of linear attention: what a wrong guess did to one cannot be
  /// undone.
  bool keeps_states() const { return keeps_states_; }

  SequenceCache& cache() { return cache_; }
  const SequenceCache& cache() const { return cache_; }
  int64_t length(const LiveRequest& live) const { return cache_.length(live.sequence); }
  /// Pages that no other sequence holds.
  int64_t own_pages(const LiveRequest& live) const;
  /// Pages of these that no sequence holds.
  int64_t idle_of(const std::vector<int32_t>& pages) const;

  /// What the prompt begins with; the last token is never of it, its logits are the answer's first.
  PrefixIndex::Found beginning_of(const LiveRequest& live) const;
  /// Whether one of `running` computes what `live` would compute next behind `beginning`.
  bool is_being_computed(const LiveRequest& live, const PrefixIndex::Found& beginning,
                         const LiveRequests& running) const;

  /// Gives the request a sequence that begins with what was found.
  void begin(LiveRequest& live, const PrefixIndex::Found& beginning);
  SequenceId fork(SequenceId sequence);
  void remove(SequenceId sequence);
  void truncate(SequenceId sequence, int64_t length);

  /// Lets others find the full pages of what a request has computed.
  void note_full_pages(LiveRequest& live);
  /// The same of what stands behind them, of a request that ends.
  void note_last_page(const LiveRequest& live);
  /// Nobody finds what the request has computed or begun with: numbers went wrong in it, and who
  /// shared its pages would fail as well, for as long as they are asked for.
  void discard(const LiveRequest& live);

 private:
  void keep(int32_t page, bool is_kept = true);

  Followers* const followers_;
  const bool keeps_states_, is_shared_, predicts_;
  PrefixIndex index_;  ///< outlives cache_, whose pool tells it what is lost
  SequenceCache cache_;
};

}  // namespace danlu::infer
