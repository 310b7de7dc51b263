// models/lora_targets.h: which modules get adapters, and with which rank: PEFT's matching rules.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "models/causal_lm.h"

namespace danlu::models {

/// Indices into `modules` (HF module paths) that `lora.targets` chooses and `lora.exclude`,
/// `lora.layers_to_transform` leave. "all-linear": all of them. A single target that is no plain name
/// is a regular expression that must match the whole path; else a module matches a target that equals
/// it or its end after a dot.
/// Errors: UsageError if a target matches nothing, with the module names that exist.
std::vector<size_t> match_targets(const LoraConfig& lora, const std::vector<std::string>& modules);

/// True if `pattern` (a name or a regular expression) matches the end of `module` after a dot, or all of it.
bool matches_end(const std::string& pattern, const std::string& module);

int64_t rank_of(const LoraConfig& lora, const std::string& module);
/// alpha / rank, or alpha / sqrt(rank), with the patterns of this module.
double scale_of(const LoraConfig& lora, const std::string& module);

/// Distinct last parts of the paths, sorted: "down_proj, gate_proj, …".
std::vector<std::string> last_names(const std::vector<std::string>& modules);

}  // namespace danlu::models
