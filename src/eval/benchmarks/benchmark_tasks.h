// eval/benchmarks/benchmark_tasks.h: the keys of a task file that say how a task is asked and
// scored.
#pragma once
#include <string>

#include "base/json.h"
#include "eval/benchmarks/checked_object.h"
#include "eval/task.h"

namespace danlu::eval {

/// Whether a key says how a task is asked; others say what a benchmark is.
bool is_task_key(const std::string& key);

/// Makes all of them known, whatever they hold.
void ignore_task_keys(CheckedObject& keys);

/// A task from its keys, the names with {subject} still in them. `origin` begins messages.
/// Errors: as parse_benchmark.
Task parse_task(const Json& keys, const std::string& origin);

}  // namespace danlu::eval
