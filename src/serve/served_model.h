// serve/served_model.h: the model as requests see it: what its words and limits are.
#pragma once
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/classify_request.h"
#include "api/completion_request.h"
#include "api/embedding_request.h"
#include "api/rank_request.h"
#include "api/reasoning.h"
#include "api/refusal.h"
#include "api/responses.h"
#include "arch/score_head.h"
#include "infer/engine.h"
#include "serve/constraints.h"
#include "serve/numbers_answer.h"
#include "serve/served_adapters.h"
#include "text/conversation.h"
#include "text/tool_format.h"

namespace danlu::serve {

/// Makes an encoder with these variables of the template, or of another template (null: the
/// model's own). Errors: as text::ChatEncoder::create.
using MakeEncoder = std::function<std::shared_ptr<const text::ChatEncoder>(
    const Json& arguments, const std::string* chat_template)>;

/// The prompt of a conversation, with its pictures, of max_tokens at most (0: no limit). Errors:
/// DataError of one that is broken; refuse_many_visual_tokens'.
using EncodeMedia = std::function<void(const text::ChatEncoder&, const text::Conversation&,
                                       int64_t max_tokens, infer::Request*)>;

/// Errors: Refusal where `count` pictures and videos take so many tokens that no prompt of
/// max_tokens holds them, and one of an answer.
void refuse_many_visual_tokens(int64_t max_tokens, int64_t count, int64_t tokens);

/// How a model with a head in place of the vocabulary's sorts texts, or rewards answers.
struct Judging {
  NumbersOf numbers_of = {};
  arch::LabelProblem problem = arch::LabelProblem::kNumbers;  ///< settled
  std::vector<std::string> names = {};                        ///< of the numbers
  /// How texts are written; null: as they stand, without a template.
  std::shared_ptr<const text::ChatEncoder> encoder = {};
};

/// How a model says how well a document goes with a query.
struct Ranking {
  /// A pair's number from the model's last hidden state.
  std::function<double(const std::vector<float>& hidden)> score_of = {};
  /// How a query and a document are written; null: one behind the other, without a template.
  std::shared_ptr<const text::ChatEncoder> encoder = {};
  bool activates = true;  ///< numbers go through the sigmoid, where a request does not say
};

struct ModelDescription {
  std::vector<std::string>
      names;  ///< at least one; answers say the one that a request named, else the first
  bool takes_any_name = false;  ///< the model answers requests of names that nobody has, too
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatEncoder> encoder;  ///< null: it completes text alone
  MakeEncoder make_encoder = {};
  EncodeMedia encode_media = {};             ///< of a model that sees pictures
  std::vector<text::TokenId> stop_ids = {};  ///< of files and tokenizer; templates have theirs
  infer::SamplingParams sampling = {};       ///< where a request does not say
  std::optional<int64_t> max_new_tokens = {};
  std::vector<std::string> stop = {};  ///< texts that end an answer, where a request names none
  int64_t max_model_len = 0;           ///< prompt and answer; 0: no limit
  std::string system = {};             ///< of conversations without a system message
  std::optional<text::ToolFormat> tool_format = {};
  bool leaves_calls = false;  ///< without a tool_format: calls are to stay in the text
  bool splits_reasoning = true;
  int64_t created_s = 0;
  std::vector<ServedAdapter> adapters = {};
  LoadAdapter load_adapter = {};        ///< empty: adapters are not loaded while serving
  TextVectors vectors = {};             ///< of embeddings
  int64_t vector_size = 0;              ///< numbers of a whole vector; 0: not known
  std::optional<Ranking> ranking = {};  ///< empty: it ranks nothing
  std::optional<Judging> judging = {};  ///< empty: it judges no texts
  bool completes = true;  ///< false: it has no head of the vocabulary, and gives numbers alone
};

/// 404.
api::Refusal unknown_model(const std::string& name);

/// What an engine is asked for one prompt, and what was found on the way.
struct BuiltPrompt {
  infer::Request request;
  std::string echo = {};  ///< of a chat that continues a message: that message
  api::Thought thought = api::Thought::kNone;
};

/// Thread-safe.
class ServedModel {
 public:
  explicit ServedModel(ModelDescription description);

  const ModelDescription& description() const { return model_; }
  const Constraints& constraints() const { return constraints_; }
  /// Errors of all: api::Refusal; DataError and ModelError of templates and pictures.
  /// 404 for a name that is neither its own nor an adapter's, unless it takes any; "" is its first.
  void require_name(const std::string& name) const;
  /// The adapter that requests of this name want: null where it is the base model's name. Errors:
  /// as require_name.
  infer::AdapterPtr adapter_named(const std::string& name) const;
  ServedAdapters& adapters() { return adapters_; }
  /// One card for each name of the base model, then one for each adapter.
  std::vector<api::ModelCard> cards() const;
  BuiltPrompt chat_prompt(const api::ChatRequest& request) const;
  BuiltPrompt completion_prompt(const api::CompletionRequest& request,
                                const api::Prompt& prompt) const;
  std::vector<text::TokenId> tokenize(const api::TokenizeRequest& request) const;
  /// One request for each input.
  std::vector<infer::EngineRequest> embedding_requests(const api::EmbeddingRequest& request) const;
  /// To how many numbers the request's vectors are cut; 0: they stay whole. Errors: Refusal for a
  /// size that the model or adapter was not trained for.
  size_t vector_size(const api::EmbeddingRequest& request) const;
  /// One request for each pair. Errors: Refusal where the model does not rank.
  std::vector<infer::EngineRequest> rank_requests(const api::RankRequest& request) const;
  /// One request for each text. Errors: Refusal where the model judges none.
  std::vector<infer::EngineRequest> judging_requests(const api::ClassifyRequest& request) const;
  /// Errors: Refusal where the model gives numbers alone.
  void require_words() const;
  /// Errors: Refusal where a chat may call its tools and nothing knows how it writes calls.
  void require_known_calls(const api::ChatRequest& request) const;
  /// The requests of n choices, with sampling, rules, lengths and stops. seed: where the wish has
  /// none. prompt_number: of the request's prompts this is the first, the second, …
  std::vector<infer::EngineRequest> engine_requests(
      const api::GenerationWish& wish, infer::Request prompt, uint64_t seed,
      const std::shared_ptr<text::TokenConstraint>& constraint, int64_t prompt_number = 1) const;

 private:
  /// arguments: the request's, over those of the adapter that it names.
  std::shared_ptr<const text::ChatEncoder> encoder_for(const Json& arguments,
                                                       const AdapterPrompt& own,
                                                       const std::string* chat_template) const;
  /// Words of the adapter of this name; else of the base model.
  AdapterPrompt prompt_of(const std::string& name) const;
  void refuse_long_text(size_t bytes, const std::optional<int64_t>& truncate,
                        const char* param) const;
  /// How many tokens of a prompt the request's truncate_prompt leaves; none: all. for_answer:
  /// tokens that must have room after it.
  std::optional<int64_t> most_tokens(const std::optional<int64_t>& truncate,
                                     int64_t for_answer) const;
  /// Cuts the prompt to so many, at its end (keeps_beginning) or its beginning.
  void fit_prompt(const std::optional<int64_t>& most, bool keeps_beginning,
                  infer::Request* request) const;
  /// A text that becomes a vector, as ids. encoder: of the model or adapter, whose messages are
  /// `system` and the text; null: it stands as it is.
  std::vector<text::TokenId> embedded_tokens(const api::EmbeddingRequest& request,
                                             const std::string& text,
                                             const text::ChatEncoder* encoder,
                                             const std::string& system) const;
  std::vector<text::TokenId> judged_tokens(
      const std::variant<std::string, std::vector<text::TokenId>, text::Conversation>& input,
      const std::optional<int64_t>& truncate) const;
  /// The tokens of a pair, of whose document as much is left out as the request's truncate_prompt
  /// asks for.
  std::vector<text::TokenId> pair_tokens(const api::RankRequest& request, size_t pair) const;
  void require_length(const std::vector<text::TokenId>& ids, const char* param) const;
  int64_t room_for_answer(const api::GenerationWish& wish, int64_t prompt_tokens) const;
  void check_ids(const std::vector<text::TokenId>& ids, const char* param) const;
  infer::SamplingParams sampling_of(const api::SamplingWish& wish, uint64_t seed) const;

  ModelDescription model_;
  Constraints constraints_;
  ServedAdapters adapters_;
  mutable std::once_flag named_otherwise_;  ///< a request had a name that nobody has
  mutable std::mutex mutex_;
  /// Encoders for variables that requests gave, the last used first.
  mutable std::list<std::pair<std::string, std::shared_ptr<const text::ChatEncoder>>> encoders_;
};

}  // namespace danlu::serve
