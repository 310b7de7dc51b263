#include "data/answer_cut.h"

#include <algorithm>
#include <utility>

#include "base/ignore_label.h"

namespace danlu::data {

AnswerShares shares_within(int64_t prompt, int64_t answer, int64_t limit) {
  AnswerShares shares;
  if (2 * answer < limit) {
    shares.answer = answer;
  } else if (2 * prompt < limit) {
    shares.answer = std::min(answer, limit - prompt);
  } else {
    shares.answer = limit * answer / (prompt + answer);
  }
  shares.prompt = std::min(prompt, limit - shares.answer);
  return shares;
}

int64_t prompt_length(const std::vector<int32_t>& labels) {
  return std::find_if(labels.begin(), labels.end(),
                      [](int32_t label) { return label != kIgnoreLabel; }) -
         labels.begin();
}

void cut_answer(const AnswerShares& shares, bool keep_prompt_end, std::vector<int32_t>* ids,
                std::vector<int32_t>* labels) {
  const int64_t prompt = prompt_length(*labels);
  const int64_t kept_answer = std::min<int64_t>(shares.answer, std::ssize(*ids) - prompt);
  const int64_t lost = std::max<int64_t>(0, prompt - shares.prompt);
  for (std::vector<int32_t>* values : {ids, labels}) {
    values->resize(static_cast<size_t>(prompt + kept_answer));
    const auto begin = values->begin() + (keep_prompt_end ? 0 : prompt - lost);
    values->erase(begin, begin + lost);
  }
}

namespace {

/// Where a turn's prompt and answer begin, and where it ends.
struct CutTurn {
  int64_t prompt = 0, answer = 0, end = 0;
  AnswerShares kept = {};
};

std::vector<CutTurn> turns_of(const std::vector<int32_t>& answers) {
  std::vector<CutTurn> turns;
  const int64_t size = std::ssize(answers);
  for (int64_t at = 0; at < size;) {
    CutTurn turn{.prompt = at};
    while (at < size && answers[static_cast<size_t>(at)] == kIgnoreLabel) ++at;
    turn.answer = at;
    while (at < size && answers[static_cast<size_t>(at)] != kIgnoreLabel) ++at;
    turn.end = at;
    turns.push_back(turn);
  }
  return turns;
}

/// Where several turns have answers, and only the last of these a target.
bool learns_last_alone(const std::vector<CutTurn>& turns, const std::vector<int32_t>& labels) {
  const auto last = std::find_if(turns.rbegin(), turns.rend(),
                                 [](const CutTurn& turn) { return turn.end > turn.answer; });
  return last != turns.rend() && last->prompt > 0 && prompt_length(labels) >= last->answer;
}

}  // namespace

void cut_turns(int64_t limit, const std::vector<int32_t>& answers, std::vector<int32_t>* ids,
               std::vector<int32_t>* labels) {
  std::vector<CutTurn> turns = turns_of(answers);
  const bool last_first = learns_last_alone(turns, *labels);
  int64_t left = limit;
  for (size_t i = 0; i < turns.size() && left > 0; ++i) {
    CutTurn& turn = turns[last_first ? turns.size() - 1 - i : i];
    turn.kept = shares_within(turn.answer - turn.prompt, turn.end - turn.answer, left);
    left -= turn.kept.prompt + turn.kept.answer;
  }
  for (std::vector<int32_t>* values : {ids, labels}) {
    std::vector<int32_t> kept;
    kept.reserve(static_cast<size_t>(limit));
    for (const CutTurn& turn : turns) {
      const auto prompt = values->begin() + turn.prompt, answer = values->begin() + turn.answer;
      kept.insert(kept.end(), prompt, prompt + turn.kept.prompt);
      kept.insert(kept.end(), answer, answer + turn.kept.answer);
    }
    *values = std::move(kept);
  }
}

}  // namespace danlu::data
