// eval/rewards/code_reward.h: a reward of answers that are programs: their tests, in the sandbox.
#pragma once
#include <memory>
#include <string>

#include "eval/rewards/reward.h"

namespace danlu::eval {

/// 1 where the answer's program passes the tests of its row, else 0; no score where the row has
/// none. The program: the last block between fences (```), else the whole answer. The tests: the
/// row's `column`, or where that is "" `tests`, `test_list` or `test`, Python that raises an
/// exception where something is wrong, as text or a list of texts; with `entry_point` beside it
/// `test` is HumanEval's, and check(entry_point) follows it.
/// Errors: as CodeSandbox's constructor.
std::unique_ptr<Reward> make_code_reward(const RewardSettings& settings);

/// The program in an answer.
std::string program_in(const std::string& answer);

}  // namespace danlu::eval
