// train/report/planned_memory.h: what a run will need of memory, known before its weights are read,
// and what it needed.
#pragma once
#include <string>
#include <vector>

#include "device/memory.h"
#include "parallel/ranks.h"
#include "plan/memory.h"
#include "train/prepare_data.h"
#include "train/step.h"

namespace danlu::train {

/// The run as danlu plan sees it, on this device. No pass of the run holds more tokens; `longest`:
/// of a sample.
plan::Request plan_request(const TrainConfig& config, const arch::ModelConfig& model,
                           int64_t longest, const at::Device& device);

/// "memory: weights 988 MB + gradients 2.0 GB + optimizer 4.9 GB + activations 1.1 GB + working
/// 0.2 GB = 9.2 GB; 20.1 GB available": of the stage whose ranks need the most, each.
/// available_bytes 0: unknown, left out.
std::string memory_line(const plan::Request& request, uint64_t available_bytes);

/// What each stage's ranks hold, line by line, for --dry_run.
std::string memory_table(const plan::Request& request);

struct ChosenRecompute {
  settings::RecomputeFlags flags;
  std::string why;  ///< one line for the user
};
/// --recompute auto: the least recomputation that fits into `available_bytes`, which are the same
/// on all ranks. Errors: UsageError where they are 0, unknown.
ChosenRecompute choose_recompute(const TrainConfig& config, const plan::Request& request,
                                 uint64_t available_bytes);

/// Errors: MemoryError (exit 6) where a rank will need more than is available (0: unknown), with
/// the nearest that fits; adapters have nothing to adapt in a model made from_scratch.
void require_memory(const TrainConfig& config, const plan::Request& request,
                    uint64_t available_bytes);

/// "; its allocator held 14.0 GB", and whether it ran short: what a line about memory ends with.
std::string allocator_words(const device::AllocatorFigures& figures);

/// Bytes of a rank as they are, beside those planned.
class CountedMemory {
 public:
  /// Counting begins, where the device's memory is counted; before the model is there.
  explicit CountedMemory(const at::Device& device);
  /// All that stays is there, and no step has been taken.
  void begin_step(const TrainState& state);
  /// After so many steps. Collective: writes RUN/memory.json on rank 0 and says how the plan
  /// compares.
  void end_step(int64_t steps, const plan::Request& request, const TrainState& state,
                const Ranks& ranks, const std::filesystem::path& run_dir);

 private:
  at::Device device_;
  bool counts_ = false;
  int64_t weights_ = 0, gradients_ = 0, optimizer_ = 0, before_ = 0;
};

}  // namespace danlu::train
