// weights/hf/value_head.h: the file in which TRL and LLaMA-Factory keep the head of a reward model
// beside its decoder, or beside an adapter (arch::ScoreForm::kBeside).
#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "weights/tensor_source.h"

namespace danlu::weights {

/// What its names begin with in an adapter, where it is a module that is trained whole.
inline constexpr const char* kWholeModulePrefix = "base_model.model.";

/// Whether value_head.safetensors or value_head.bin lies in that directory.
bool has_value_head(const std::filesystem::path& directory);

/// `source` with the tensors of that file, under `prefix`; `source` itself where there is none.
/// Errors: as open_weights, and ModelError for a tensor that no such head has.
std::shared_ptr<const TensorSource> with_value_head(std::shared_ptr<const TensorSource> source,
                                                    const std::filesystem::path& directory,
                                                    const std::string& prefix = "");

}  // namespace danlu::weights
