// train/options/deepspeed.h: DeepSpeed's configuration file: what one process can honour of it, and
// saying so.
#pragma once
#include <string>

#include "base/options.h"
#include "train/config.h"

namespace danlu::train {

/// `text`: a preset (default-zero2, zero3, …), a .json path, or JSON text. Keys may be written
/// twice (the last one wins, with a warning) and may be "auto". Batch sizes, clipping, precision,
/// loss scale, AdamW's numbers and the scheduler are taken over; sharding and offload are named as
/// ignored. A value that disagrees with a flag the user gave is an error showing both. Errors:
/// UsageError, IoError, DataError.
void apply_deepspeed(const std::string& text, const Options& options, TrainConfig& config);

}  // namespace danlu::train
