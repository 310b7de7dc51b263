#include "arch/label_numbers.h"

#include <algorithm>
#include <cmath>

namespace danlu::arch {

std::vector<double> label_probabilities(const std::vector<double>& numbers, LabelProblem problem) {
  std::vector<double> made = numbers;
  if (problem == LabelProblem::kClasses) {
    for (double& number : made) number = 1 / (1 + std::exp(-number));
    return made;
  }
  const double largest = *std::max_element(made.begin(), made.end());
  double sum = 0;
  for (double& number : made) sum += number = std::exp(number - largest);
  for (double& number : made) number /= sum;
  return made;
}

Json label_of(const std::vector<double>& numbers, LabelProblem problem) {
  if (problem == LabelProblem::kNumbers)
    return numbers.size() == 1 ? Json(numbers.front()) : Json(numbers);
  if (problem == LabelProblem::kOneClass)
    return std::max_element(numbers.begin(), numbers.end()) - numbers.begin();
  Json classes = Json::array();
  for (size_t i = 0; i < numbers.size(); ++i)
    if (numbers[i] > 0) classes.push_back(i);
  return classes;
}

}  // namespace danlu::arch
