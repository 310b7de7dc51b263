// train/report/shown_sample.h: a decoded sample cut to what a terminal has room for.
#pragma once
#include <string>

namespace danlu::train {

/// `sample`: as data::describe_sample made it, the input and its labels. Of each the first lines
/// and the last, of a long line its two ends: five lines at most, none of more than 400 characters
/// or so. Without a line break at its end.
std::string shown_sample(const std::string& sample);

}  // namespace danlu::train
