// base/nearest_name.h: "did you mean …?" for flags, columns, tensors, models.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace danlu {

/// The candidate with the smallest edit distance to `word`, if it is near enough to be meant.
std::optional<std::string> nearest_name(std::string_view word,
                                        const std::vector<std::string>& candidates);

/// "did you mean DIR/modle? " for a path that is not there, after what lies beside it; else "".
std::string did_you_mean_path(const std::filesystem::path& path);

/// A hint for a directory that is no model: it names the models just below it, which `is_one` tells
/// (convert writes one into mg2hf); "" where there is none. Hidden ones and those past the first
/// 1000 entries are not looked at.
std::string hint_of_models_below(const std::filesystem::path& directory,
                                 const std::function<bool(const std::filesystem::path&)>& is_one);

}  // namespace danlu
