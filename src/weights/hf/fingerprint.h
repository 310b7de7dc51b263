// weights/hf/fingerprint.h: whether a model directory still holds the model it held.
#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

namespace danlu::weights {

/// A number that changes when config.json or a weight file of `directory` does: names, sizes and
/// evenly spaced samples of the contents (1 MiB of each file), so that 100 GB cost no more than a
/// moment. The place and the times of the files do not count. Errors: IoError.
uint64_t model_fingerprint(const std::filesystem::path& directory);
/// The same of these files: of checkpoints that are no Hugging Face directory.
uint64_t model_fingerprint(std::vector<std::filesystem::path> files);

}  // namespace danlu::weights
