// arch/label_numbers.h: what the numbers of a head that sorts texts say.
#pragma once
#include <vector>

#include "arch/score_head.h"
#include "base/json.h"

namespace danlu::arch {

/// The probability of each class: of kClasses each for itself, else of all together. As
/// transformers' pipelines have them. REQUIRES: a settled problem other than kNumbers.
std::vector<double> label_probabilities(const std::vector<double>& numbers, LabelProblem problem);

/// The class; of kClasses a list of those that are likelier than not; of kNumbers the number, or of
/// several the list. REQUIRES: a settled problem, at least one number.
Json label_of(const std::vector<double>& numbers, LabelProblem problem);

}  // namespace danlu::arch
