// cli/commands/convert_scores.h: reward models on their way between formats.
#pragma once
#include <optional>
#include <string>

#include "cli/commands/convert_plan.h"
#include "cli/commands/convert_request.h"

namespace danlu::cli {

/// Whether a source that is a reward model is opened as one: the target keeps its head.
bool keeps_scores(const ConvertRequest& request);

/// Errors: UsageError for --orm with a target that has no place for such a head.
void require_place_for_scores(const ConvertRequest& request);

/// Makes of a reward model what the target keeps: MindSpeed-LLM's rm_head, which has a bias, or
/// transformers' score, which has none. Nothing of other models. Errors: UsageError for --orm of a
/// model without such a head; ModelError for a head of several numbers, or a bias that would be
/// lost.
void convert_scores(const ConvertRequest& request, ConvertPlan& plan);

/// The type of a head's tensor: f32 in MindSpeed-LLM's format, whatever the model's type is. On its
/// way back it is the model's again, if that holds every number. Nothing: as of other tensors.
std::optional<DType> type_of_head(const ConvertRequest& request, const ConvertPlan& plan,
                                  const std::string& name);

}  // namespace danlu::cli
