// base/option_elements.h: the elements of a list as a user writes them. Internal to base.
#pragma once
#include <string>
#include <vector>

#include "base/options.h"

namespace danlu::option_text {

/// split_list, but for an element that takes the rest of its word (OptionSpec::takes_rest_behind).
std::vector<std::string> elements_of(const OptionSpec& spec, const std::string& text);

}  // namespace danlu::option_text
