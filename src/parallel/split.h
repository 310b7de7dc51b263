// parallel/split.h: how a parameter is cut over tensor-parallel ranks, stated by layers as data.
#pragma once

namespace danlu::parallel {

enum class Split {
  kReplicated,  ///< every rank holds all of it
  kRows,        ///< dim 0 in equal blocks: outputs are local
  kColumns,     ///< dim 1 in equal blocks: outputs are partial sums
  kKvGroups,    ///< dim 0, whole KV groups (a group's query heads stay with its key and value)
};

}  // namespace danlu::parallel
