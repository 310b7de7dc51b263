// train/rollouts/row_prompt.h: what of a row a policy answers itself.
#pragma once
#include <cstdint>
#include <vector>

#include "data/sample_source.h"

namespace danlu::train {

/// The tokens before the row's last answer, which is its last run of tokens that are learnt; empty
/// where it begins with that, all of them where nothing is learnt.
std::vector<int32_t> prompt_of(const data::Sample& row);

/// The most tokens of such a prompt; of many rows, of some that are spread evenly. Errors: as
/// SampleSource::get.
int64_t longest_prompt(const data::SampleSource& rows);

}  // namespace danlu::train
