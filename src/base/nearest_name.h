// base/nearest_name.h: "did you mean …?" for flags, columns, tensors, models.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace danlu {

/// The candidate with the smallest edit distance to `word`, if it is near enough to be meant.
std::optional<std::string> nearest_name(std::string_view word,
                                        const std::vector<std::string>& candidates);

}  // namespace danlu
