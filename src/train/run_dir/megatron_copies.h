// train/run_dir/megatron_copies.h: checkpoints again in Megatron's own format, for Megatron-LM and
// MindSpeed-LLM to go on from (--save_format mcore).
#pragma once
#include <filesystem>
#include <future>

#include "settings/config.h"

namespace danlu::train {

/// RUN/megatron/iter_<step>/… and the tracker beside it, cut as the run's own ranks are: made from
/// a checkpoint that is whole, in a thread. One that is being made is waited for before the next
/// one begins. Not thread-safe.
class MegatronCopies {
 public:
  /// Which outlives it; makes nothing where it does not ask for them.
  explicit MegatronCopies(const settings::TrainConfig& config) : config_(config) {}
  ~MegatronCopies() { wait(); }
  MegatronCopies(const MegatronCopies&) = delete;
  MegatronCopies& operator=(const MegatronCopies&) = delete;

  /// Of RUN/checkpoint-<step>, which stays until wait() returns.
  void begin(const std::filesystem::path& checkpoint, int64_t step);
  /// The same where RUN/megatron is not of that step: the run was killed before it was written.
  void catch_up(const std::filesystem::path& checkpoint, int64_t step);
  /// Until what was begun is there. One that failed is told as a warning: the checkpoint is whole.
  void wait();

 private:
  const settings::TrainConfig& config_;
  bool is_told_ = false;  ///< how others go on from the copies; of the one thread that makes them
  std::future<void> work_;
};

}  // namespace danlu::train
