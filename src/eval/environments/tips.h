// eval/environments/tips.h: ms-swift's environments that tell a model once that it was wrong.
#pragma once
#include <memory>
#include <string>

#include "eval/environments/environment.h"

namespace danlu::eval {

/// Where the answer is wrong by the rule "accuracy", its message goes on, from before "<answer>" or
/// "</think>", as if the model had seen it itself (math_tip_trick).
std::unique_ptr<Environment> make_doubt(const std::string& reference_column);
/// Where it is wrong, a message of the user says so (thinking_tips_scheduler).
std::unique_ptr<Environment> make_tip(const std::string& reference_column);

}  // namespace danlu::eval
