// cli/engine/infer_vectors.h: `danlu infer` with a model that gives vectors of texts: rows get
// these in place of answers.
#pragma once
#include "base/options.h"
#include "cli/engine/load_for_inference.h"

namespace danlu::cli {

/// Whether texts become vectors: the line says so (--task_type embedding), or args.json of the
/// model's training, or, where it has none, sentence-transformers' files beside the model.
bool embeds_texts(const Options& options, const ModelLocation& where);

/// Vectors of --prompt, or of the rows of --dataset: to the screen, or to --output a row each with
/// its vector, of length one, in `response`; the row's own label is `labels`. Errors: as
/// settings::open_model; UsageError for a model whose files have another pooling than the last
/// token's; DataError if no row can be used.
int embed_texts(const Options& options, const ModelLocation& where);

}  // namespace danlu::cli
