// eval/benchmarks/task_names.h: which task somebody meant who names one that there is not.
#pragma once
#include <string>
#include <vector>

namespace danlu::eval {

/// Names of `known` that `name` may stand for, likeliest first, at most three; none: nothing is
/// like it. In this order: what differs in case and marks alone; what has all its words
/// ("bbh_navigate" in "bbh_fewshot_navigate"); a misspelling; what begins with it; what it begins
/// with.
std::vector<std::string> likely_names(const std::string& name,
                                      const std::vector<std::string>& known);

}  // namespace danlu::eval
