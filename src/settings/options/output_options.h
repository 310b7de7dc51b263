// settings/options/output_options.h: what a run writes, when, and where to.
#pragma once
#include <string>

#include "base/options.h"
#include "settings/config.h"

namespace danlu::settings {

/// Runs of `model_name` stand side by side below Danlu's own output directory. Errors: UsageError
/// for trackers that are not built in.
OutputConfig output_from(const Options& options, const std::string& model_name);

/// Whether anything is to be evaluated: --eval_strategy no, HF's --do_eval false and Megatron's
/// --eval-iters 0 each say no.
bool evaluates(const Options& options);

}  // namespace danlu::settings
