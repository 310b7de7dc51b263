#include "train/rollouts/stop_words.h"

#include <algorithm>
#include <utility>

namespace danlu::train {

StopWords::StopWords(const std::shared_ptr<const text::Tokenizer>& tokenizer,
                     std::vector<std::string> words, const std::vector<infer::Request>& requests)
    : words_(std::move(words)) {
  for (const std::string& word : words_) longest_ = std::max(longest_, word.size());
  for (const infer::Request& request : requests) {
    Watched& answer = answers_.emplace_back(
        Watched{.text = text::DecodeStream(tokenizer, /*skip_special=*/false)});
    for (auto id = request.prompt.end() - request.answered; id != request.prompt.end(); ++id)
      completes(answer, *id);
  }
}

bool StopWords::completes(Watched& answer, text::TokenId id) const {
  std::string& end = answer.end;
  end += answer.text.push(id);
  const bool found = std::any_of(words_.begin(), words_.end(), [&](const std::string& word) {
    return end.find(word) != std::string::npos;
  });
  if (end.size() >= longest_) end.erase(0, end.size() - longest_ + 1);
  return found;
}

bool StopWords::goes_on(size_t index, text::TokenId id) {
  Watched& answer = answers_.at(index);
  answer.is_ended = completes(answer, id);
  return !answer.is_ended;
}

void StopWords::mark(std::vector<infer::Answer>& answers) const {
  for (size_t i = 0; i < answers.size(); ++i) {
    if (answers_.at(i).is_ended) answers[i].reason = infer::FinishReason::kStop;
  }
}

}  // namespace danlu::train
