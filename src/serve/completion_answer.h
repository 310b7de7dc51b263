// serve/completion_answer.h: the answer to POST /v1/completions.
#pragma once
#include <string>
#include <vector>

#include "serve/answer.h"

namespace danlu::serve {

class CompletionAnswer final : public Answer {
 public:
  /// echoes: of each prompt, where it stands before the answer; else empty.
  CompletionAnswer(AnswerPlan plan, std::vector<std::string> echoes);

 private:
  struct Written {
    std::string text = {};                         ///< of a whole answer, all of it
    std::vector<api::PlacedLogprobs> tokens = {};  ///< not sent yet
    int64_t offset = 0;                            ///< characters that they gave so far
    bool has_shown_prompt = false;                 ///< its ids
  };
  void begin_choice(Choice& choice) override;
  void take_piece(Choice& choice, const api::AnswerPiece& piece) override;
  Json whole() override;
  const char* chunk_object() const override { return "text_completion"; }
  void place(Written& written, std::string token, int64_t characters,
             std::optional<api::ShownLogprobs> logprobs) const;
  void place_prompt(const Choice& choice, const std::string& echo, Written& written) const;
  Json choice_json(Choice& choice, std::string text);

  std::vector<std::string> echoes_;
  std::vector<Written> written_;  ///< of each choice
};

}  // namespace danlu::serve
