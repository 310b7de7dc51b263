// settings/options/media_flags.h: what the flags about pictures and videos say.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "data/media_settings.h"
#include "settings/config.h"

namespace danlu::settings {

/// REQUIRES: the table has cli::media_options(). image_max_pixels and its like choose
/// LLaMA-Factory's rule, image_resolution and video_resolution MindSpeed-MM's, where --pre_resize
/// names none. Errors: UsageError (limits of two rules).
data::MediaFlags media_flags_from(const Options& options);

/// Where the processor of pictures lies: with the weights, or with the tokenizer if these are of a
/// format that has none.
std::filesystem::path processor_directory(const TrainConfig& config);

/// data::media_settings_of, and fetching from the domains that are allowed.
std::optional<data::MediaSettings> fetching_media_settings(
    const std::filesystem::path& model_directory, const data::MediaFlags& flags);

/// All options about pictures and videos.
std::vector<const char*> media_flag_names();

/// The options among them that were given.
std::vector<std::string> given_media_flags(const Options& options);

/// With the flags of a run's args.json that say what its pictures became, where the line is silent:
/// what was tuned on small pictures is asked about small ones. Says so. `record`: the run's
/// directory. Web addresses and places of files are the line's own.
Options with_recorded_media(const Options& options, const Json& run_args,
                            const std::filesystem::path& record);

/// Nothing if the model in the directory reads text alone, with a notice of the flags that then
/// have no effect. Errors: those of media_flags_from and data::media_settings_of.
std::optional<data::MediaSettings> media_settings_from(
    const Options& options, const std::filesystem::path& model_directory);

}  // namespace danlu::settings
