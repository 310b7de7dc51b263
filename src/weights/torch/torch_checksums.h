// weights/torch/torch_checksums.h: whether the bytes of a torch file are those that were written.
#pragma once
#include <filesystem>

namespace danlu::weights::torch_file {

/// Reads every record of a zip container and compares its CRC-32; the legacy container has none and
/// passes. Memory stays small. Errors: ModelError naming the first record that differs; IoError.
void check_torch_checksums(const std::filesystem::path& file);

}  // namespace danlu::weights::torch_file
