// train/run_dir/megatron_copies.h: checkpoints again in Megatron's own format, for Megatron-LM and
// MindSpeed-LLM to go on from (--save_format mcore).
#pragma once
#include <atomic>
#include <deque>
#include <filesystem>
#include <mutex>
#include <vector>

#include "parallel/background.h"
#include "settings/config.h"

namespace danlu::train {

/// RUN/megatron/iter_<step>/… and the tracker beside it, cut as the run's own ranks are: made from
/// checkpoints that are whole, one after the other, in a thread beside the training. Where an
/// exception ends it, what is being made is given up. Not thread-safe.
class MegatronCopies {
 public:
  /// Which outlives it; makes nothing where it does not ask for them.
  explicit MegatronCopies(const settings::TrainConfig& config);
  MegatronCopies(const MegatronCopies&) = delete;
  MegatronCopies& operator=(const MegatronCopies&) = delete;

  /// Begins the copy of RUN/checkpoint-<step>, which stays as long as sources() names it. Does not
  /// wait.
  void begin(const std::filesystem::path& checkpoint, int64_t step);
  /// Checkpoints that are being read, or will be.
  std::vector<std::filesystem::path> sources() const;
  /// The same for the run's whole checkpoints that RUN/megatron does not hold, so that it ends with
  /// the newest: the run was killed before they were written.
  void catch_up();
  /// Until what was begun is there. One that failed is told as a warning: the checkpoint is whole.
  void wait();

 private:
  void make(const std::filesystem::path& checkpoint, int64_t step);

  const settings::TrainConfig& config_;
  bool is_told_ = false;  ///< how others go on from the copies; of the one thread that makes them
  std::atomic<bool> is_given_up_ = false;
  mutable std::mutex mutex_;
  std::deque<std::filesystem::path> sources_;
  parallel::Background::Job last_;
  parallel::Background thread_;
};

}  // namespace danlu::train
