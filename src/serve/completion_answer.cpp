#include "serve/completion_answer.h"

#include <utility>

namespace danlu::serve {
CompletionAnswer::CompletionAnswer(AnswerPlan plan, std::vector<std::string> echoes)
    : Answer(std::move(plan)), echoes_(std::move(echoes)), written_(choices().size()) {}

void CompletionAnswer::place(Written& written, std::string token, int64_t characters,
                             std::optional<api::ShownLogprobs> logprobs) const {
  written.tokens.push_back({std::move(token), written.offset, std::move(logprobs)});
  written.offset += characters;
}

/// Places are those in the echo, which has no token that its text did not name.
void CompletionAnswer::place_prompt(const Choice& choice, const std::string& echo,
                                    Written& written) const {
  const std::vector<text::TokenId>& prompt = prompt_of(choice);
  const text::Tokenizer& tokenizer = *plan().tokenizer;
  const bool shows_special = tokenizer.decode(prompt, /*skip_special=*/false) == echo;
  text::DecodeStream placing(plan().tokenizer, !shows_special);
  for (size_t i = 0; i < prompt.size(); ++i) {
    const bool is_known = i > 0 && i <= choice.prompt_logprobs.size();
    std::optional<api::ShownLogprobs> logprobs;
    if (is_known) logprobs = shown(choice.prompt_logprobs[i - 1], *plan().num_logprobs);
    place(written, api::spelled(shown(prompt[i])), num_characters(placing.push(prompt[i])),
          std::move(logprobs));
  }
  written.offset = num_characters(echo);
}

void CompletionAnswer::begin_choice(Choice& choice) {
  if (echoes_.empty()) return;
  Written& written = written_[choice.index];
  const std::string& echo = echoes_[choice.index / static_cast<size_t>(plan().num_choices)];
  if (plan().num_logprobs) place_prompt(choice, echo, written);
  if (streams()) {
    send(choice_json(choice, echo));
  } else {
    written.text = echo;
  }
}

void CompletionAnswer::take_piece(Choice& choice, const api::AnswerPiece& piece) {
  Written& written = written_[choice.index];
  for (api::ShownLogprobs& token : std::exchange(choice.logprobs, {})) {
    std::string shown = api::spelled(token.chosen);
    const int64_t characters = token.characters;
    place(written, std::move(shown), characters, std::move(token));
  }
  if (!streams()) {
    written.text += piece.content;
  } else if (!piece.content.empty() || !choice.finish_reason.empty()) {
    send(choice_json(choice, piece.content));
  }
}

Json CompletionAnswer::choice_json(Choice& choice, std::string text) {
  Json json = {{"index", choice.index}, {"text", std::move(text)}};
  json["logprobs"] = plan().num_logprobs ? api::completion_logprobs_json(
                                               std::exchange(written_[choice.index].tokens, {}),
                                               *plan().num_logprobs)
                                         : Json(nullptr);
  move_ids(choice, &json);
  if (!std::exchange(written_[choice.index].has_shown_prompt, true)) put_prompt_ids(choice, &json);
  json["finish_reason"] = choice.finish_reason.empty() ? Json(nullptr) : Json(choice.finish_reason);
  json["stop_reason"] = choice.stop_reason;
  return json;
}

Json CompletionAnswer::whole() {
  Json json = api::answer_json(plan().head, "text_completion");
  for (Choice& choice : choices()) {
    Json one = choice_json(choice, std::move(written_[choice.index].text));
    if (plan().num_prompt_logprobs) one["prompt_logprobs"] = prompt_logprobs_json(choice);
    json["choices"].push_back(std::move(one));
  }
  return json;
}

}  // namespace danlu::serve
