// settings/options/deepspeed.h: DeepSpeed's configuration file: what one process can honour of it,
// and saying so.
#pragma once
#include <optional>
#include <string>

#include "base/options.h"
#include "settings/config.h"

namespace danlu::settings {

/// `config` with what a file says. `text`: a preset (default-zero2, zero3, …), a .json path, or
/// JSON text. Keys may be written twice (the last one wins, with a warning) and may be "auto".
/// Batch sizes, clipping, precision, loss scale, AdamW's numbers and the scheduler are taken over,
/// what else the file says is named. A value that disagrees with a flag the user gave is an error
/// showing both. Errors: UsageError, IoError, DataError.
TrainConfig with_deepspeed(const std::string& text, const Options& options, TrainConfig config);

/// The stage of ZeRO that it asks for, if it names one. Errors: as with_deepspeed.
std::optional<int64_t> deepspeed_stage(const std::string& text);

}  // namespace danlu::settings
