// settings/options/output_options.h: what a run writes, when, and where to.
#pragma once
#include <string>

#include "base/options.h"
#include "settings/config.h"

namespace danlu::settings {

/// Runs of `model_name` stand side by side below Danlu's own output directory. Errors: UsageError
/// for trackers that are not built in.
OutputConfig output_from(const Options& options, const std::string& model_name);

/// Whether the profile is one of ms-swift 3 and 4.
bool is_of_swift3(const Options& options);

/// Whether anything is to be evaluated: --eval_strategy no, HF's --do_eval false and Megatron's
/// --eval-iters 0 each say no, and so does ms-swift 3's --save_strategy no where --eval_strategy is
/// not given.
bool evaluates(const Options& options);

}  // namespace danlu::settings
