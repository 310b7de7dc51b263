// cli/engine/served_numbers.h: what a served model says in numbers: how well documents go with a
// query, what a text is of.
#pragma once
#include "base/options.h"
#include "cli/engine/load_for_inference.h"
#include "serve/served_model.h"

namespace danlu::cli {

/// How the model at `where` is to be opened that ranks, sorts or rewards. Errors: those of the
/// readers and of sorting_head.
void find_number_head(const Options& options, ModelLocation* where);

/// Gives `model` its ranking and judging, where `where` was found to have them. Collective over the
/// tensor axis. Errors: those of score_reader and judging_encoder.
void take_numbers(const Options& options, const ModelLocation& where, const InferenceModel& loaded,
                  serve::ModelDescription* model);

}  // namespace danlu::cli
