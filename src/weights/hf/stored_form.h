// weights/hf/stored_form.h: parameters out of files that hold them in another form, and into them:
// experts stacked (arch/stacked_experts.h), matrices turned over (arch/turned_matrices.h).
#pragma once
#include <memory>
#include <vector>

#include "arch/model_config.h"
#include "weights/layout.h"

namespace danlu::weights {

/// `source`, read from files of a model, with tensors as arch::parameters_of describes them. The
/// source itself where the family's files have them so. Matrices in NF4 and of GPTQ lie
/// the right way round.
/// Errors: as with_single_experts.
std::shared_ptr<const TensorSource> as_parameters(std::shared_ptr<const TensorSource> source,
                                                  const arch::ModelConfig& config);

/// How files of the family hold `globals`: a whole tensor each, in their order, but for experts
/// that the family stacks. All of them belong to file 0. A stacked tensor has a section for each
/// expert, and the type of the first expert's part.
std::vector<StoredTensor> stored_in_files(const arch::ModelConfig& config,
                                          const std::vector<TensorInfo>& globals);

/// The same of an adapter's tensors in PEFT's files, under PEFT's names: weights of turned matrices
/// that modules_to_save asks for lie as in the model's files. A and B lie as those of others.
/// Whether the base is in NF4 changes nothing.
std::shared_ptr<const TensorSource> as_adapter_parameters(
    std::shared_ptr<const TensorSource> source, const arch::ModelConfig& config);

/// How PEFT's files hold an adapter's `globals`; all of them belong to file 0.
std::vector<StoredTensor> stored_in_adapter(const arch::ModelConfig& config,
                                            const std::vector<TensorInfo>& globals);

}  // namespace danlu::weights
