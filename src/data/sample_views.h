// data/sample_views.h: views on samples: packs of a source, several sources in a row.
#pragma once
#include <memory>
#include <vector>

#include "data/packing.h"
#include "data/sample_source.h"

namespace danlu::data {

/// Groups of samples of `base` as single samples; each keeps its segments and their values. Nothing
/// is padded.
std::shared_ptr<const SampleSource> packs_of(std::shared_ptr<const SampleSource> base, Packs packs);
/// All samples of `parts`, one part after the other. REQUIRES: not empty.
std::shared_ptr<const SampleSource> joined(std::vector<std::shared_ptr<const SampleSource>> parts);

/// Makes samples of SampleKind::kUnpaired from samples of one segment with one value. Each gets a
/// second segment of value 0: its prompt with the answer of the nearest sample before it, in a
/// circle, whose prompt is another; where all prompts are one, which a warning says, of the sample
/// before. Where that is longer than `max_length` (0: any), prompt and answer are cut as
/// shares_within says. Reads every sample once.
std::shared_ptr<const SampleSource> with_previous_answers(std::shared_ptr<const SampleSource> base,
                                                          int64_t max_length, bool keep_prompt_end);

}  // namespace danlu::data
