// train/report/step_record.h: the figures of one logged step, as every report shows them.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace danlu::train {

/// Means over the steps since the last record.
struct StepRecord {
  int64_t step = 0, total_steps = 0;
  double epoch = 0;
  double loss = 0, grad_norm = 0, lr = 0, loss_scale = 1;
  std::map<std::string, double> metrics = {};  ///< of the objective and of layers
  double elapsed_s = 0, remaining_s = 0;       ///< of this process
  double step_s = 0;                           ///< seconds a step
  double tokens_per_s = 0, samples_per_s = 0;
  double visual_tokens_per_s = 0;            ///< of tokens_per_s; 0: the rows hold no pictures
  double mfu = -1;                           ///< -1: peak unknown
  double data_wait = 0;                      ///< part of the time spent waiting for data
  std::map<std::string, double> times = {};  ///< seconds a step of what else its batches took
  uint64_t memory_bytes = 0;                 ///< as UsedMemory has it; 0: nobody counts it
  uint64_t host_memory_bytes = 0;            ///< where that is a device's: peak resident; else 0
  int64_t skipped_steps = 0;
};

}  // namespace danlu::train
