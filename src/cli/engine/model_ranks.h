// cli/engine/model_ranks.h: the processes that hold parts of one model and answer together.
#pragma once
#include "base/options.h"
#include "parallel/ranks.h"

namespace danlu::cli {

/// --tensor_parallel_size of them, this one alone where that is 1. Others than rank 0 say errors
/// alone from here on. Errors: UsageError where another number of processes was started; those of
/// parallel::Ranks.
parallel::Ranks model_ranks(const Options& options);

}  // namespace danlu::cli
