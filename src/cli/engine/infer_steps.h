// cli/engine/infer_steps.h: `danlu infer` with a model that judges steps: rows of steps, to which
// it gives scores in place of answers.
#pragma once
#include "base/options.h"
#include "cli/engine/load_for_inference.h"

namespace danlu::cli {

/// Whether steps are judged: the model has a head of classes for them, or the line names the tokens
/// that judge (--reward_tokens).
bool judges_steps(const Options& options, const ModelLocation& where);

/// Judges the steps of --prompt, or of the rows of --dataset: to the screen, or to --output a row
/// each with step_scores. Errors: as settings::open_model and data::StepTexts; DataError if no row
/// can be used.
int judge_steps(const Options& options, const ModelLocation& where);

}  // namespace danlu::cli
