// train/report/log_lines.h: a step or an evaluation as one line: for people, and as JSON for
// plotters.
#pragma once
#include <cstdint>
#include <string>

#include "base/json.h"
#include "train/report/step_record.h"

namespace danlu::train {

/// An evaluation over held-out data.
struct EvalRecord {
  int64_t step = 0, total_steps = 0;
  double epoch = 0, loss = 0;
  bool has_loss = true;      ///< false: what was held out was answered, and has a reward
  bool is_of_tokens = true;  ///< the loss is a cross-entropy, whose exponential says something
  std::map<std::string, double> metrics = {};
  int64_t num_samples = 0, num_batches = 0;  ///< 0: not counted
  double seconds = 0;
};

/// "3h 14m 25s", "2d 3h 14m 25s": the form ms-swift logs.
std::string spelled_duration(double seconds);

/// The superset of ms-swift's keys (2.x and 3.x) and ours. mfu and data_wait are shares of 1. Loss
/// and metrics keep 8 decimals. Figures that are not known are left out.
Json step_json(const StepRecord& record);
/// Only the keys that Hugging Face's Trainer logs.
Json hf_step_json(const StepRecord& record);
Json eval_json(const EvalRecord& record);

/// "step 600/22156  2.71%  loss 0.1001  acc 0.986  gnorm 0.178  lr 5.4e-05  mem 42.1/64.0GiB  3,120
/// tok/s (1,040/dev)  mfu 31.4%  data 0.3%  3h14m<4d20h" on one line. memory_limit_bytes 0: the
/// limit is not shown. num_devices 1: no figure per device. With pictures "3,120 tok/s = 2,080
/// visual + 1,040 text".
std::string step_line(const StepRecord& record, uint64_t memory_limit_bytes = 0,
                      int64_t num_devices = 1);
std::string eval_line(const EvalRecord& record);

}  // namespace danlu::train
