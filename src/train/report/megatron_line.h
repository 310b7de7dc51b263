// train/report/megatron_line.h: a step as Megatron-LM and MindSpeed print it, for scripts that read
// their logs.
#pragma once
#include <cstdint>
#include <ctime>
#include <string>

#include "train/report/step_record.h"

namespace danlu::train {

/// Megatron's line of an iteration, in the order of its fields, which scripts cut at ':' and '|':
/// time, iteration, consumed samples, milliseconds an iteration, learning rate, global batch size,
/// lm loss, metrics, loss scale, grad norm, skipped and NaN iterations. In the local time zone.
std::string megatron_step_line(const StepRecord& record, int64_t samples_of_step, std::time_t now);

}  // namespace danlu::train
