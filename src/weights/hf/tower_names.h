// weights/hf/tower_names.h: the two ways in which models with a vision tower name their tensors.
// The hub's files have "visual.…" and "model.…", transformers since 4.52 holds them, and some tools
// save them, as "model.visual.…" and "model.language_model.…". Danlu uses the hub's.
#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "arch/model_config.h"
#include "weights/tensor_source.h"

namespace danlu::weights {

/// "model.language_model.norm.weight" -> "model.norm.weight"; other names as they are. A name
/// within an adapter keeps its "base_model.model.".
std::string hub_name(const std::string& name);
/// The reverse, of a name of the hub's.
std::string newer_name(const std::string& name);
/// Whether a pattern is made for the newer names.
bool speaks_of_newer_names(const std::string& pattern);

/// `source`, its tensors under the hub's names, where `config` has a tower; names of both ways may
/// stand beside each other. The source itself where nothing changes. `path` begins messages.
/// Errors: ModelError where one tensor is there under both its names.
std::shared_ptr<const TensorSource> with_hub_names(std::shared_ptr<const TensorSource> source,
                                                   const arch::ModelConfig& config,
                                                   const std::filesystem::path& path);

}  // namespace danlu::weights
