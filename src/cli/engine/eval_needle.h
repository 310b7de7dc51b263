// cli/engine/eval_needle.h: NeedleBench as an exam: its items are made when they are asked.
#pragma once
#include <memory>

#include "cli/engine/eval_exam.h"

namespace danlu::cli {

/// `plan` outlives it. Errors: as eval::NeedleData and eval::NeedleSource; DataError without
/// --data_dir.
std::unique_ptr<Exam> make_needle_exam(const Options& options, const eval::Benchmark& benchmark,
                                       eval::Task task, const EvalPlan& plan);

}  // namespace danlu::cli
