// weights/megatron/group_check.h: whether a file's optimizer groups its parameters as the layout
// supposes, and its settings are of the kinds they must be.
#pragma once
#include <string>
#include <vector>

#include "weights/convert/optimizer_state.h"
#include "weights/megatron/optimizer_layout.h"
#include "weights/torch/py_value.h"

namespace danlu::weights::megatron {

/// `optimizer`: as in model_optim_rng.pt, a dict or a list of them; `members`: of the same rank.
/// Parameters are numbered group by group, so other groups would silently be other parameters.
/// Errors: ModelError beginning with `where`: another number of optimizers, groups or parameters in
/// a group; another weight decay; a learning rate of their own for embedding and head
/// (--decoupled-lr).
void check_groups(const torch_file::PyValue& optimizer, const std::vector<RankOptimizer>& members,
                  const std::string& where);

/// Whether settings, wherever they come from, are of the kinds that readers take them for: groups
/// are objects whose multipliers are numbers and whose flags are true or false, the scheduler is an
/// object. Errors: ModelError beginning with `where`.
void check_settings(const OptimizerSettings& settings, const std::string& where);

/// The part of check_settings for one group; `name`: "groups[0]".
void check_group_kinds(const Json& group, const std::string& where, const std::string& name);

}  // namespace danlu::weights::megatron
