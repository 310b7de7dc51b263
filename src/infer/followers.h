// infer/followers.h: ranks that hold parts of a model and compute what the engine of rank 0 does.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "infer/engine.h"
#include "infer/predicted_drafts.h"
#include "infer/step.h"
#include "parallel/bell.h"
#include "parallel/group.h"

namespace danlu::infer {

/// Rank 0 alone schedules and draws. A message before each pass says what its cache went through
/// since the last one, and what goes through the model; drawn tokens are in the next message. One
/// for each job, also of several engines one after the other.
class Followers {
 public:
  /// group: the ranks that hold parts of the model, rank 0 first. adapters: as follow()'s.
  Followers(const parallel::Group& group, parallel::World& world,
            std::vector<AdapterPtr> adapters = {});

  /// Followers make a SequenceCache of their own and do to it what is done to the first rank's.
  void begin_cache(int64_t max_pages, int64_t kept_pages);
  void add_sequence(std::span<const int32_t> pages, int64_t tokens);
  void fork_sequence(SequenceId id);
  void remove_sequence(SequenceId id);
  void truncate_sequence(SequenceId id, int64_t length);
  void keep_page(int32_t page, bool is_kept);
  /// Sends it all, with a pass that this rank computes next. Errors: InternalError for pictures and
  /// for adapters that were not named.
  void begin_pass(const std::vector<StepInput>& inputs);
  /// Sends it all, with the guesses at what follows that this rank computes next, of the last pass.
  void begin_prediction(const std::vector<PredictionInput>& inputs);
  /// No pass is to come for now: the others wait outside of exchanges.
  void rest();
  /// follow() ends.
  void end();

 private:
  void send();

  const parallel::Group& group_;
  parallel::Bell bell_;
  const std::vector<AdapterPtr> adapters_;
  std::vector<int64_t> message_;
  bool is_resting_ = true;
};

/// What the other ranks do until Followers::end. adapters: beside this rank's part of the model,
/// those of rank 0 in its order. Errors: those of the passes; CommError when a rank is gone.
void follow(const models::CausalLM& model, const parallel::Group& group, parallel::World& world,
            const std::vector<AdapterPtr>& adapters = {});

}  // namespace danlu::infer
