#include "settings/model_source.h"

#include <fmt/format.h>

namespace danlu::settings {
namespace model_source_detail {

namespace fs = std::filesystem;

weights::CheckpointSource described_only(const ModelSource& source) {
  weights::CheckpointSource opened{.format = weights::Format::kHuggingFace, .path = source.path};
  opened.companions = source.path;
  for (const fs::path& directory : {source.fallback_dir, source.path, source.config_dir}) {
    if (!directory.empty() && fs::exists(directory / "config.json")) opened.companions = directory;
  }
  opened.config = arch::load_model_config(opened.companions);
  return opened;
}

}  // namespace model_source_detail

weights::CheckpointSource open_model(const ModelSource& source) {
  if (source.from_scratch) return model_source_detail::described_only(source);
  return weights::open_checkpoint_source(source.path, {.config_dir = source.config_dir,
                                                       .fallback_dir = source.fallback_dir,
                                                       .iteration = source.iteration,
                                                       .all_tensors = true,
                                                       .lora_alpha = source.adapter_alpha});
}

std::string describe_weights(const ModelSource& source, const weights::CheckpointSource& opened,
                             uint64_t seed) {
  return source.from_scratch ? fmt::format("random (seed {})", seed)
                             : fmt::format("{}: {}", opened.description, source.path.string());
}

bool holds_no_weights(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return true;
  return std::filesystem::is_directory(path, error) && !weights::detect_format(path) &&
         weights::weights_like_in(path).empty();
}

}  // namespace danlu::settings
