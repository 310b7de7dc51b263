// cli/commands/inspect_model.h: the parts of `danlu inspect` that speak of models.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "arch/model_config.h"
#include "weights/tensor_source.h"

namespace danlu::cli {

/// One line on stdout: a label in a column, then text.
void print_line(std::string_view label, const std::string& text);
void print_title(const std::filesystem::path& path, std::string_view kind);
/// What a GGUF file holds of a tokenizer and a template.
void print_gguf_tokenizer(const std::filesystem::path& file);

/// Family, parameters, shape, attention, end tokens.
void print_config(const arch::ModelConfig& config);
/// Totals, metadata and the table of tensors.
void print_weights(const weights::TensorSource& source, bool every_tensor);

/// A Hugging Face directory. Errors: ModelError, IoError for weights that cannot be opened.
void inspect_model(const std::filesystem::path& directory, bool every_tensor);
/// A Megatron checkpoint: what its args and files say; as a model where config.json is there.
void inspect_megatron(const std::filesystem::path& path, bool every_tensor);
/// A native checkpoint.
void inspect_native(const std::filesystem::path& directory, bool every_tensor);
/// The state of an optimizer, where a training checkpoint keeps it; false: there is no such thing.
bool inspect_state(const std::filesystem::path& directory, bool every_tensor);

}  // namespace danlu::cli
