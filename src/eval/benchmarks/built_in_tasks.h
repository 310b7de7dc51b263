// eval/benchmarks/built_in_tasks.h: the task files that come with the program, built into it.
#pragma once
#include <vector>

namespace danlu::eval {

struct BuiltInTask {
  const char* file;  ///< "mmlu.yaml"
  const char* text;
};

/// In the order in which lists show them.
const std::vector<BuiltInTask>& built_in_tasks();

}  // namespace danlu::eval
