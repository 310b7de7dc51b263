// settings/options/media_flags.h: what the flags about pictures and videos say.
#pragma once
#include <filesystem>
#include <optional>

#include "base/options.h"
#include "data/media_settings.h"

namespace danlu::settings {

/// REQUIRES: the table has cli::media_options(). image_max_pixels and its like choose
/// LLaMA-Factory's rule, image_resolution and video_resolution MindSpeed-MM's, where --pre_resize
/// names none. Errors: UsageError (limits of two rules).
data::MediaFlags media_flags_from(const Options& options);

/// Nothing if the model in the directory reads text alone. Errors: those of both functions;
/// UsageError if it does and a flag about pictures was given.
std::optional<data::MediaSettings> media_settings_from(
    const Options& options, const std::filesystem::path& model_directory);

}  // namespace danlu::settings
