// cli/engine/sorting.h: models whose head sorts texts, or gives numbers for them.
#pragma once
#include "arch/score_head.h"
#include "base/options.h"
#include "cli/engine/load_for_inference.h"

namespace danlu::cli {

/// Whether texts are sorted: the line says so (--task_type, --problem_type), or config.json or
/// args.json of the model's training.
bool sorts_texts(const Options& options, const ModelLocation& where);

/// The head with which such a model is opened, as the line, its training or its files have it.
/// Errors: UsageError where the line says that texts are sorted, and the model talks; those of
/// head_in.
arch::ScoreHead sorting_head(const Options& options, const ModelLocation& where);

}  // namespace danlu::cli
