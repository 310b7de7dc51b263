#include "data/answer_cut.h"

#include <algorithm>

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

}  // namespace danlu::data
