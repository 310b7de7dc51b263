// data/sample_views.h: views on samples: packs of a source, several sources in a row.
#pragma once
#include <memory>
#include <vector>

#include "data/packing.h"
#include "data/sample_source.h"

namespace danlu::data {

/// Groups of samples of `base` as single samples; each keeps its segments. Nothing is padded.
std::shared_ptr<const SampleSource> packs_of(std::shared_ptr<const SampleSource> base, Packs packs);
/// One after the other. REQUIRES: not empty.
std::shared_ptr<const SampleSource> joined(std::vector<std::shared_ptr<const SampleSource>> parts);

}  // namespace danlu::data
