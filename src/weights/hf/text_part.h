// weights/hf/text_part.h: files of a model that sees pictures, of which the text part is read:
// "language_model.model.norm.weight" is "model.norm.weight", and the tower stays where it is.
#pragma once
#include <filesystem>
#include <memory>

#include "arch/model_config.h"
#include "weights/tensor_source.h"

namespace danlu::weights {

/// `source`, its tensors under the names of the text model alone, where config's family knows such
/// files (arch/text_part.h): a notice says what is left out. The source itself where no name
/// begins so. `path` begins messages.
std::shared_ptr<const TensorSource> with_text_part(std::shared_ptr<const TensorSource> source,
                                                   const arch::ModelConfig& config,
                                                   const std::filesystem::path& path);

}  // namespace danlu::weights
