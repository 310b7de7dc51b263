// cli/commands/convert_scores.h: reward models on their way between formats.
#pragma once
#include "cli/commands/convert_plan.h"
#include "cli/commands/convert_request.h"

namespace danlu::cli {

/// Whether a source that is a reward model is opened as one: the target keeps its head.
bool keeps_scores(const ConvertRequest& request);

/// Makes of a reward model what the target keeps: MindSpeed-LLM's rm_head, which has a bias, or
/// transformers' score, which has none. Nothing of other models. Errors: UsageError for --orm of a
/// model without such a head; ModelError for a head of several numbers, or a bias that would be
/// lost.
void convert_scores(const ConvertRequest& request, ConvertPlan& plan);

/// The tensors of the head, which MindSpeed-LLM computes in f32 whatever the model's type is; none
/// unless the target is its format.
bool is_wide_head(const ConvertRequest& request, const ConvertPlan& plan, const std::string& name);

}  // namespace danlu::cli
