// cli/engine/infer_labels.h: `danlu infer` with a model that sorts texts: rows get labels in place
// of answers.
#pragma once
#include "base/options.h"
#include "cli/engine/load_for_inference.h"

namespace danlu::cli {

/// Sorts --prompt, or the rows of --dataset: to the screen, or to --output a row each with its
/// label in `response`, and `probabilities`, or `numbers` of a regression; the row's own label is
/// `labels`. Errors: as settings::open_model; DataError if no row can be used.
int label_texts(const Options& options, const ModelLocation& where);

}  // namespace danlu::cli
