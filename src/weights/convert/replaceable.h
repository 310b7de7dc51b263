// weights/convert/replaceable.h: what --overwrite may replace as a whole.
#pragma once
#include <filesystem>
#include <set>
#include <string>

namespace danlu::weights {

/// Errors: UsageError for the directory this process runs in, and for mount points: a result is
/// renamed into its place.
void require_renamable(const std::filesystem::path& output);

/// Returns if replacing `output`, which may be missing, destroys nothing but a model or checkpoint:
/// a directory of the files that such have at their top, or (`is_file`) a GGUF or safetensors
/// file. `written`: further names that the caller writes at the top.
/// Errors: UsageError naming what is no part of one; as require_renamable.
void require_replaceable(const std::filesystem::path& output, bool is_file,
                         const std::set<std::string>& written = {});

}  // namespace danlu::weights
