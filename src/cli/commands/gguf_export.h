// cli/commands/gguf_export.h: a model directory as the plan of a GGUF file: weights and tokenizer
// put together.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "text/gguf_vocabulary.h"
#include "weights/gguf/gguf_model.h"

namespace danlu::cli {

/// What --outtype names. REQUIRES: one of its choices.
weights::gguf::TensorType gguf_type_named(const std::string& name);

/// The plan of a file with the model's tensors, as `globals` describes them, and the tokenizer that
/// `tokenizer` is: a directory, or a GGUF file, whose keys are taken as they are. Notes of both are
/// in the plan. Errors: as weights::gguf::plan_model and text::read_gguf_vocabulary; UsageError for
/// a GGUF file without a tokenizer.
weights::gguf::ModelPlan plan_gguf(const arch::ModelConfig& config,
                                   const std::vector<weights::TensorInfo>& globals,
                                   const std::filesystem::path& tokenizer,
                                   const weights::gguf::ModelOptions& options);

}  // namespace danlu::cli
