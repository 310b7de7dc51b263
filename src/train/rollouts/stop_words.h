// train/rollouts/stop_words.h: ends answers behind words of their text.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "infer/generate.h"
#include "text/tokenizer.h"

namespace danlu::train {

/// The answers to some requests while they are drawn. One whose text has a word, special tokens
/// included, ends behind the token that completes it. Where an answer goes on, its text begins with
/// what it has.
class StopWords {
 public:
  StopWords(const std::shared_ptr<const text::Tokenizer>& tokenizer, std::vector<std::string> words,
            const std::vector<infer::Request>& requests);

  /// infer::OnToken: whether the answer goes on behind this token.
  bool goes_on(size_t index, text::TokenId id);
  /// Answers that a word ended: FinishReason::kStop, without a stop token.
  void mark(std::vector<infer::Answer>& answers) const;

 private:
  struct Watched {
    text::DecodeStream text;
    std::string end = {};  ///< so much of it as a word could begin in
    bool is_ended = false;
  };
  bool completes(Watched& answer, text::TokenId id) const;

  std::vector<std::string> words_;
  size_t longest_ = 0;  ///< bytes
  std::vector<Watched> answers_;
};

/// infer::generate() with answers that these words end too; generate: calls it with the OnToken
/// that it is given, which may be empty.
template <typename Generate>
std::vector<infer::Answer> with_stop_words(const std::shared_ptr<const text::Tokenizer>& tokenizer,
                                           const std::vector<std::string>& words,
                                           const std::vector<infer::Request>& requests,
                                           const Generate& generate) {
  if (words.empty()) return generate(infer::OnToken());
  StopWords watched(tokenizer, words, requests);
  std::vector<infer::Answer> answers = generate(
      infer::OnToken([&](size_t index, text::TokenId id) { return watched.goes_on(index, id); }));
  watched.mark(answers);
  return answers;
}

}  // namespace danlu::train
