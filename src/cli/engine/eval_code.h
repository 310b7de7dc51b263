// cli/engine/eval_code.h: benchmarks whose answers are programs.
#pragma once
#include <memory>

#include "cli/engine/eval_exam.h"

namespace danlu::cli {

/// Its answers are executed in a sandbox, which is tried at once. `plan` outlives it.
/// Errors: as eval::CodeSandbox.
std::unique_ptr<Exam> make_code_exam(const Options& options, eval::Task task, eval::TaskRows rows,
                                     const EvalPlan& plan);

}  // namespace danlu::cli
