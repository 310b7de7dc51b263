// settings/options/described_by_flags.h: the model that Megatron's flags describe, for a training
// that names none.
#pragma once
#include <filesystem>

#include "base/json.h"
#include "base/options.h"

namespace danlu::settings {

/// Whether the flags that no description is without are there: layers, width, heads.
bool describe_a_model(const Options& options);

/// Its config.json, with Megatron's defaults for what is not said. Rows of the vocabulary:
/// --vocab-size, else as many as `tokenizer` has ids. Errors: UsageError for what flags cannot
/// describe here (experts, a family that does not follow from them); as text::Tokenizer::load.
/// Source: Megatron-LM 0.8, megatron/training/arguments.py.
Json described_by_flags(const Options& options, const std::filesystem::path& tokenizer);

}  // namespace danlu::settings
