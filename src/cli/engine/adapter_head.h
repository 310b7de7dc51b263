// cli/engine/adapter_head.h: the head that adapters bring beside their low-rank
// matrices.
#pragma once
#include <filesystem>
#include <optional>

#include "arch/score_head.h"
#include "base/json.h"

namespace danlu::cli {

/// The head that adapters of a reward model, a judge of steps or a classifier bring into the
/// model's files; nothing: they are of a model that talks, or have it in a file of its own. What a
/// classifier's labels are is in args.json beside them. Errors: ModelError where the head is
/// missing.
std::optional<arch::ScoreHead> head_in(const std::filesystem::path& adapters);

/// What the labels of a classifier are by args.json of its training; nothing: it trained none.
std::optional<arch::LabelProblem> recorded_problem(const Json& run_args);

}  // namespace danlu::cli
