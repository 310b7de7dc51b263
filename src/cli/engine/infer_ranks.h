// cli/engine/infer_ranks.h: `danlu infer` on models that rank documents.
#pragma once
#include "base/options.h"
#include "cli/engine/load_for_inference.h"

namespace danlu::cli {

/// Scores the documents of the rows of data sets, each with its query: a row for each, with its
/// `documents` and their `scores`, and `response`, the score of a row's only document, or with
/// `error`. Rows with negative texts give mrr and ndcg, as trainings measure them. where.ranks_by
/// is set. Errors: UsageError without --dataset; those of load_text_judge and of readers of
/// data sets; DataError where no row can be ranked.
int rank_rows(const Options& options, const ModelLocation& where);

}  // namespace danlu::cli
