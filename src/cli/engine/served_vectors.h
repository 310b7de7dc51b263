// cli/engine/served_vectors.h: how a served model, and adapters beside it, make vectors of texts.
#pragma once
#include <filesystem>

#include "base/options.h"
#include "serve/served_adapters.h"

namespace danlu::cli {

/// As the line says, else the training whose args.json is in `trained`, else the model's files.
/// Errors: those of text::read_record and read_json_file.
serve::TextVectors text_vectors(const Options& options, const std::filesystem::path& model,
                                const std::filesystem::path& trained);

}  // namespace danlu::cli
