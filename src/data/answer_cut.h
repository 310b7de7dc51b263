// data/answer_cut.h: prompts with answers that are too long: how much stays of each.
#pragma once
#include <cstdint>
#include <vector>

namespace danlu::data {

/// Tokens of a prompt and of an answer.
struct AnswerShares {
  int64_t prompt = 0, answer = 0;
};

/// What stays of a prompt and the longest answer to it within `limit` tokens: the shorter of the
/// two stays whole where it takes less than half of the limit; else both are cut in proportion. At
/// least one token of the prompt stays. REQUIRES: limit >= 2. Source  LLaMA-Factory, MindSpeed-LLM.
AnswerShares shares_within(int64_t prompt, int64_t answer, int64_t limit);

/// Tokens before the first one that carries loss; all of them if none does.
int64_t prompt_length(const std::vector<int32_t>& labels);

/// Leaves of one prompt with answer no more than `shares`: the beginning of the answer, and of the
/// prompt the beginning or, with keep_prompt_end, the end.
void cut_answer(const AnswerShares& shares, bool keep_prompt_end, std::vector<int32_t>* ids,
                std::vector<int32_t>* labels);

/// Cuts a conversation within `limit` tokens: its turns, a prompt with its answer each, get in
/// order what those before them left, in the shares of shares_within; those for which nothing is
/// left are gone. Where the last answer alone is a target, the last turn comes first. `answers`:
/// the labels with every answer a target. REQUIRES: equal lengths. Source  LLaMA-Factory's
/// supervised.py, MindSpeed-LLM's --neat-pack.
void cut_turns(int64_t limit, const std::vector<int32_t>& answers, std::vector<int32_t>* ids,
               std::vector<int32_t>* labels);

}  // namespace danlu::data
