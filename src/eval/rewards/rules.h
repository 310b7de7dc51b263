// eval/rewards/rules.h: the rules behind the names of reward.h, as functions.
#pragma once
#include <string>

#include "eval/rewards/reward.h"

namespace danlu::eval {

/// 1 if the stated answer (scoring/answers_agree.h) agrees with the reference, else 0.
double accuracy_rule(const std::string& reference, const std::string& text);
/// 1 if the answer in the text's last \boxed agrees, -0.5 if not, -1 without one.
double boxed_rule(const std::string& reference, const std::string& text);
/// 1 if the last \boxed agrees, else 0.
double last_boxed_rule(const std::string& reference, const std::string& text);
/// 1 if thoughts and then an answer stand in their tags, and its \boxed agrees, else 0.
double tagged_boxed_rule(const std::string& reference, const std::string& text);
/// 1 if the last "Answer:" line of the last 300 characters agrees, else -1.
double answer_line_rule(const std::string& reference, const std::string& text);
/// 1 if the number after the last "####" of the last 300 characters agrees, else 0.
double gsm8k_rule(const std::string& reference, const std::string& text);
/// 1 if the letter that the text chooses is the reference's, else 0.
double choice_rule(const std::string& reference, const std::string& text);

/// 1 for <think>…</think> and then <answer>…</answer> and nothing else.
double format_rule(const std::string& text);
/// The same, with a line break allowed at the end.
double loose_format_rule(const std::string& text);
/// 1 for one <think>…</think>, one <answer>…</answer> and one \boxed in all, else -0.5.
double strict_format_rule(const std::string& text);
/// 1 for a text that begins with its only <think>…</think>.
double think_format_rule(const std::string& text);
/// 1 for <think>…</think>, "Action:" and "Action Input:".
double react_format_rule(const std::string& text);
/// A third for each word that begins a step ("Step 2:", "First,", a list), 1 at the most.
double steps_rule(const std::string& text);

/// From what short answers get to what long ones get, along half a cosine.
double cosine_rule(bool is_right, int64_t tokens, const RewardSettings& settings);
/// The penalty times the share of runs of words that were there before.
double repetition_rule(const std::string& text, const RewardSettings& settings);
/// 0 up to where the buffer begins, falling to -1 at the limit and on beyond it, as ms-swift's,
/// whose name it is. (The paper, arXiv 2503.14476, stops at -1.)
double overlong_rule(int64_t tokens, const RewardSettings& settings);

}  // namespace danlu::eval
