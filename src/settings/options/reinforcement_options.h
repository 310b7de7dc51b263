// settings/options/reinforcement_options.h: how answers are drawn, judged and learnt from, out of a
// training line.
#pragma once
#include <string>
#include <vector>

#include "base/options.h"
#include "settings/reinforcement.h"

namespace danlu::settings {

/// name: grpo or ppo. Errors: UsageError where no reward is named, or weights are not of every
/// reward.
Reinforcement reinforcement_from(const std::string& name, const Options& options);

/// The rewards' part of it. Errors: the same.
void take_rewards(const Options& options, Reinforcement& told);

/// What ends answers beside tokens. Errors: UsageError for an empty word.
std::vector<std::string> stop_words_from(const Options& options);

/// The options that it reads for an objective of that name.
std::vector<std::string> reinforcement_flags(const std::string& name);

/// How the model draws an answer to each prompt, where no reward judges it.
Reinforcement drawing_from(const Options& options);

}  // namespace danlu::settings
