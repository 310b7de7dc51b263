// arch/text_part.h: files of a model that sees pictures, of which a family reads the text part.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "arch/model_config.h"

namespace danlu::arch {

struct TextPart {
  std::string begins;               ///< what stands before the names of the text part's tensors
  std::vector<std::string> others;  ///< how names of the other parts begin
  std::string instead = {};         ///< what stands there in the text model's own files
};

/// How such files of the config's family name tensors; nothing: none are read.
std::optional<TextPart> text_part_of(const ModelConfig& config);

}  // namespace danlu::arch
