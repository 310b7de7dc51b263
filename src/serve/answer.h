// serve/answer.h: the answer to one request: outputs of the engine into the words of the protocol.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "api/answer_reader.h"
#include "api/generation.h"
#include "api/responses.h"
#include "http/exchange.h"
#include "serve/engine_loop.h"

namespace danlu::serve {

/// A request's answer as the protocol sees it: n choices for each prompt, the first prompt's first.
struct AnswerPlan {
  http::ExchangePtr exchange;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  api::AnswerHead head;
  api::StreamWish stream;
  int64_t num_choices = 1;
  std::vector<std::vector<text::TokenId>> prompts;  ///< one for each
  std::optional<int64_t> num_logprobs = {};
  std::optional<int64_t> num_prompt_logprobs = {};  ///< to be shown by themselves
  std::vector<text::TokenId> stop_ids = {};  ///< that the request named: stop_reason says which
  api::AnswerReaderSettings reader = {};
  bool continues_text = false;  ///< an answer goes on with its prompt's text
  bool returns_ids = false, wants_tokens_as_ids = false;
  bool drops_answer = false;  ///< the prompt alone is asked about
  bool names_call = false;    ///< the request names the function: a call is then no reason to end

  const std::vector<text::TokenId>& prompt_of(size_t choice) const {
    return prompts[choice / static_cast<size_t>(num_choices)];
  }
};

/// Used on the engine's thread.
class Answer : public Receiver {
 public:
  explicit Answer(AnswerPlan plan);

  void on_accepted() override;
  Heard on_output(size_t index, const infer::EngineOutput& output) override;
  void on_failed(const Error& why, Blame blame) override;

 protected:
  struct Choice {
    Choice(size_t number, const AnswerPlan& plan);
    size_t index;
    api::AnswerReader reader;
    text::DecodeStream placing;  ///< the same text, of which nothing is held back for a stop string
    std::vector<api::ShownLogprobs> logprobs = {};  ///< not sent yet
    std::vector<text::TokenId> ids = {};            ///< not sent yet
    std::vector<infer::TokenLogprobs> prompt_logprobs = {};
    std::string finish_reason = {};  ///< "": goes on
    Json stop_reason = nullptr;
    int64_t cached_tokens = 0,
            num_tokens = 0;  ///< the second: new ones, with the one that ended it
    bool has_begun = false;
  };

  /// What a stream begins with for `choice`; nothing for most.
  virtual void begin_choice(Choice& choice) = 0;
  /// choice.finish_reason is set in the last one. A stream sends it, a whole answer keeps it.
  virtual void take_piece(Choice& choice, const api::AnswerPiece& piece) = 0;
  /// All choices of a whole answer, with everything but usage.
  virtual Json whole() = 0;
  virtual const char* chunk_object() const = 0;

  const AnswerPlan& plan() const { return plan_; }
  bool streams() const { return plan_.stream.is_on; }
  const std::vector<text::TokenId>& prompt_of(const Choice& choice) const {
    return plan_.prompt_of(choice.index);
  }
  std::vector<Choice>& choices() { return choices_; }
  /// One event with one choice; beside: further members of the chunk.
  void send(Json choice, Json beside = Json::object());
  /// What it spells inside a text.
  api::ShownToken shown(text::TokenId id, double logprob = 0) const;
  /// With the `most` likeliest.
  api::ShownLogprobs shown(const infer::TokenLogprobs& logprobs, int64_t most) const;
  /// vLLM's: null, then for each further token of the prompt its id and the likeliest with theirs.
  Json prompt_logprobs_json(const Choice& choice) const;
  /// What has gathered in choice.ids, for `json` of a choice, where it was asked for.
  void move_ids(Choice& choice, Json* json) const;
  /// The prompt's, for `json`, where ids were asked for.
  void put_prompt_ids(const Choice& choice, Json* json) const;

 private:
  api::ShownToken spelling_of(text::TokenId id) const;
  /// What its token tells: of the one that ends an answer ids and log-probabilities, and its text
  /// where the request wants what ended it.
  api::AnswerPiece taken(Choice& choice, const infer::EngineOutput& output) const;
  void end_choice(Choice& choice, const infer::EngineOutput& output);
  void complete();
  api::Usage usage() const;

  AnswerPlan plan_;
  std::vector<Choice> choices_;
  size_t num_over_ = 0;
  bool is_gone_ = false, is_over_ = false;
  /// Tokens that were shown: log-probabilities of a long prompt name each many times.
  mutable std::unordered_map<text::TokenId, api::ShownToken> shown_;
};

/// Characters of UTF-8.
int64_t num_characters(std::string_view text);

/// Why an output failed.
Error error_of(const infer::EngineOutput& output);
int status_of(Blame blame);
Blame blame_for(const Error& why);

/// A refusal, or another error, as an answer.
http::Response response_of(int status, const Json& json);
/// As http::AccessSettings::refusal.
http::Response access_refusal(int status, const std::string& message, const std::string& code);

}  // namespace danlu::serve
