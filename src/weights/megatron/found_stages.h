// weights/megatron/found_stages.h: how the layers of a checkpoint are cut into pipeline stages, as
// its tensors' names say it. Converters and stripped files lack the arguments that would.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "weights/megatron/names.h"
#include "weights/megatron/split.h"
#include "weights/tensor_source.h"

namespace danlu::weights::megatron {

/// Local indices of the layers that a rank's file has tensors of, by chunk ("model" is 0).
using FoundChunks = std::map<int64_t, std::set<int64_t>>;

/// `tensors`: of one model_optim_rng.pt. `layer`: what stands before an index (Names::layer,
/// TowerNames::block). Chunks without such layers are found too, as empty sets.
FoundChunks find_chunks(const std::vector<TensorInfo>& tensors, const std::string& layer);

/// Local layers of each chunk of each stage; empty if indices leave gaps (no-op slots, adapters on
/// some layers only), or stages differ in their chunks.
using FoundStages = std::vector<std::vector<int64_t>>;

/// `ranks`: FoundChunks of every rank, by its pipeline rank.
FoundStages join_stages(const std::vector<std::pair<int64_t, FoundChunks>>& ranks, int64_t pp);

int64_t count_layers(const FoundStages& stages);

/// `split` with the stages of the files where it does not say how they are cut: a layer list where
/// their lengths differ, virtual stages where there are chunks. No no-op slots are supposed.
/// Errors: ModelError beginning with `where` for chunks of different lengths, which no setting of
/// Megatron's makes.
Split with_stages(Split split, const FoundStages& stages, const std::string& where);

/// `split` with MindSpeed-MM's lists as the files have them. `blocks`: the same of a vision tower.
/// Errors: ModelError beginning with `where` for indices that leave gaps.
Split with_lists(Split split, const FoundStages& layers, const FoundStages& blocks,
                 const std::string& where);

}  // namespace danlu::weights::megatron
