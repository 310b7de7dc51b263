// serve/chat_answer.h: the answer to POST /v1/chat/completions.
#pragma once
#include <string>
#include <vector>

#include "serve/answer.h"

namespace danlu::serve {

struct ChatWords {
  bool shows_reasoning = true;  ///< false: nor do log-probabilities and ids tell a thought
  std::string echo = {};        ///< stands before the answer
};

class ChatAnswer final : public Answer {
 public:
  ChatAnswer(AnswerPlan plan, ChatWords words);

 private:
  struct Message {
    std::string content, reasoning;
    std::vector<api::ParsedCall> calls = {};
  };
  void begin_choice(Choice& choice) override;
  void take_piece(Choice& choice, const api::AnswerPiece& piece) override;
  Json whole() override;
  const char* chunk_object() const override { return "chat.completion.chunk"; }
  void send_piece(Choice& choice, const api::AnswerPiece& piece);
  Json message_json(const Message& message) const;
  bool hides_tokens(const Choice& choice) const;
  void move_tokens(Choice& choice, Json* json) const;

  ChatWords words_;
  std::vector<Message> messages_;  ///< of a whole answer
};

}  // namespace danlu::serve
