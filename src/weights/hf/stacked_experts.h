// weights/hf/stacked_experts.h: each expert's tensors out of files that hold a layer's experts in
// two (arch/stacked_experts.h), and into them.
#pragma once
#include <memory>
#include <vector>

#include "arch/model_config.h"
#include "weights/layout.h"

namespace danlu::weights {

/// `source` with each expert's tensors in place of the stacked ones, under the names that
/// arch::parameters_of gives them. The source itself where the family does not stack them, or where
/// they are each expert's own already. A layer of which a stacked tensor is missing lacks its
/// experts' tensors then. Errors: ModelError for a stacked tensor of another shape.
std::shared_ptr<const TensorSource> with_single_experts(std::shared_ptr<const TensorSource> source,
                                                        const arch::ModelConfig& config);

/// How files of the family hold `globals`: a whole tensor each, in their order, but for experts
/// that the family stacks. All of them belong to file 0. A stacked tensor has a section for each
/// expert, and the type of the first expert's part.
std::vector<StoredTensor> stacked_in_files(const arch::ModelConfig& config,
                                           const std::vector<TensorInfo>& globals);

}  // namespace danlu::weights
