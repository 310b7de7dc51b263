// eval/rewards/program_reward.h: a reward that a program of the user gives, over a pipe.
#pragma once
#include <memory>
#include <string>

#include "eval/rewards/reward.h"

namespace danlu::eval {

/// As make_reward("program:" + command). Errors: UsageError if the command is empty.
std::unique_ptr<Reward> make_program_reward(const std::string& command, int64_t timeout_ms);

}  // namespace danlu::eval
