// weights/hf/wrapped_names.h: files whose tensors have the names of a model inside a wrapper:
// torch.compile's, FSDP's, DDP's, or PEFT's inside a program.
#pragma once
#include <filesystem>
#include <memory>

#include "weights/tensor_source.h"

namespace danlu::weights {

/// `source`, its tensors under the names that the model itself has: without parts that only
/// wrappers put there (_orig_mod, _fsdp_wrapped_module, …; module at the beginning), which a notice
/// says; the source itself where there are none. `path` begins messages.
/// Errors: ModelError where two tensors would have one name.
std::shared_ptr<const TensorSource> without_wrappers(std::shared_ptr<const TensorSource> source,
                                                     const std::filesystem::path& path);

/// The same of an adapter, which inside a program has a name ("lora_A.default.weight") that PEFT
/// leaves out of its files. Errors: also ModelError for adapters of several names in one file.
std::shared_ptr<const TensorSource> as_adapter_file(std::shared_ptr<const TensorSource> source,
                                                    const std::filesystem::path& path);

}  // namespace danlu::weights
