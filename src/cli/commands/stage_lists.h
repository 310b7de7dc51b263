// cli/commands/stage_lists.h: MindSpeed-MM's lists of layers for each stage of a pipeline, as
// flags.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/options.h"
#include "weights/megatron/split.h"

namespace danlu::cli {

/// [chunk][stage]. A flat list is of one chunk: "[1,10,10,7]" and "1,10,10,7" mean "[[1,10,10,7]]".
using StageLists = std::vector<std::vector<int64_t>>;

/// The value of the kList option `name`, whatever brackets, blanks and quotes a shell has left of
/// it; empty if it is not given. Errors: UsageError for anything but whole numbers, for chunks of
/// different lengths and for lists without a stage.
StageLists stage_lists(const Options& options, const std::string& name);

/// The lists that `layers_name` and `blocks_name` give, as a split; that of an unnamed one, pp = 1.
/// Errors: as stage_lists; UsageError for one list without the other, or of other lengths.
void put_stage_lists(const Options& options, const std::string& layers_name,
                     const std::string& blocks_name, weights::megatron::Split& split);

/// "[[1,10,10,7]]".
std::string stage_lists_text(const StageLists& lists);

}  // namespace danlu::cli
