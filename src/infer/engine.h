// infer/engine.h: answers requests that come and go. A step packs them into one pass if it can.
#pragma once
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "infer/generate.h"
#include "infer/prompt_lookup.h"
#include "layers/lora.h"
#include "models/causal_lm.h"

namespace danlu::infer {

/// Names a request while the engine lives; never given twice.
using RequestHandle = int64_t;

/// An adapter beside the model (models::load_beside); requests that use it keep it.
using AdapterPtr = layers::AdapterSetPtr;

/// How a prompt's hidden states after the final norm become one vector: as their mean, or as that
/// of the last token or of the first; an encoder's head reads the first, whatever is asked.
enum class Pooling { kMean, kLast, kFirst };

struct EngineRequest {
  Request request;
  /// How many of the likeliest tokens are reported beside each answer token, with log-probabilities
  /// of all of them; not set: no log-probabilities.
  std::optional<int64_t> num_logprobs = {};
  /// The same for each token of the prompt but the first, given the tokens before it.
  std::optional<int64_t> num_prompt_logprobs = {};
  /// Cached prefixes are shared only among requests of the same salt and adapter.
  std::string salt = {};
  AdapterPtr adapter = {};  ///< of this engine's model; null: the model as it is
  /// If set, no tokens are drawn, and the one output has EngineOutput::embedding.
  std::optional<Pooling> pooling = {};
  int64_t priority = 0;  ///< lower is served earlier
  /// What came together has one number, other than 0: among requests of one priority groups take
  /// turns (infer/turns.h). 0: it came alone.
  uint64_t group = 0;
  /// Requests of a group with the same number here, other than 0, are choices: they differ in
  /// Request::stream and in their own copies of a constraint alone. Their prompt is read once for
  /// all that there is room for by then. 0: none is beside it.
  int64_t prompt_number = 0;
  /// Instead of a drawn token it gives the logits behind its text, and lives until the next step:
  /// fork() goes on with it.
  bool gives_logits = false;
};

/// What a step gave one request.
struct EngineOutput {
  RequestHandle handle;
  std::optional<text::TokenId> token = {};  ///< new, no stop token
  std::optional<TokenLogprobs> logprobs = {};
  /// With the first token: of the prompt's tokens but the first.
  std::vector<TokenLogprobs> prompt_logprobs = {};
  int64_t cached_tokens = 0;  ///< of the prompt, that were not computed again
  /// The request is over; nothing of it follows.
  std::optional<FinishReason> finished = {};
  std::optional<text::TokenId> stopped_by = {};  ///< of kStop
  std::exception_ptr error = {};                 ///< of kFailed
  /// [hidden], as the model gives it, of a request with `pooling`; `finished` is kStop.
  std::vector<float> embedding = {};
  /// The logits of the ids that a request with gives_logits may answer with.
  std::vector<float> logits = {};
};

struct EngineSettings {
  int64_t max_sequences = 128;        ///< that are answered at a time
  int64_t max_batched_tokens = 2048;  ///< of a pass; longer prompts are read in parts
  int64_t max_adapters = 0;           ///< different ones that are answered at a time; 0: any number
  int64_t max_pages = 0;              ///< of the cache, of ops::kPageTokens tokens; 0: no limit
  /// Where there is no limit: pages that requests leave are kept for those to come, while they and
  /// the pages of requests that run are at most so many (PagePool::keep_up_to).
  int64_t kept_pages = 0;
  /// Each request has passes of its own, with its whole prompt in one. Answers are then equal to
  /// the bit whatever other requests there are, and take as long as one after the other.
  bool deterministic = false;
  /// What prompts begin with alike is computed once while kept. Not in encoders, whose tokens see
  /// what follows them.
  bool prefix_caching = true;
  /// What the forms of answers may cost a step, in units of TokenConstraint::prepare; a request
  /// whose next token needs more sits passes out until it is known what may come. 0: no limit, and
  /// no pass is sat out.
  int64_t form_work = 0;
  /// Speculative decoding by prompt lookup. A guessed token is kept only if the sampler would have
  /// drawn it, so answers stay the same, beyond rounding. Deterministic and longrope engines do not
  /// guess, nor do requests with pictures or a constraint.
  PromptLookup lookup = {};
  /// Tokens guessed at a time by the model's own prediction layer (MTP) instead of `lookup`; 0:
  /// none. REQUIRES, if above 0: the network has such a layer, and no other rank an engine of its
  /// own for a part of the model.
  int64_t predicted_tokens = 0;
};

class Followers;

/// running, waiting and pages_used are values of now; the others count since the engine was made.
struct EngineCounts {
  int64_t running = 0, waiting = 0;            ///< requests, now
  int64_t pages_used = 0;                      ///< now, by requests
  int64_t prompt_tokens = 0, new_tokens = 0;   ///< new ones with those that ended answers
  int64_t prefix_queried = 0, prefix_hit = 0;  ///< tokens of prompts
  int64_t preemptions = 0;
  int64_t steps = 0;
  int64_t guessed = 0, guessed_right = 0;  ///< tokens
};

/// Not thread-safe: one thread adds, cancels and steps. What a request is answered does not depend
/// on what else is there, beyond rounding.
class Engine {
 public:
  /// followers: the other ranks that hold parts of `model`, if this is their rank 0; requests with
  /// pictures are then an error. nullptr: this rank has the whole model, or each rank of the tensor
  /// axis has an engine of its own. REQUIRES: `model` and `followers` outlive the engine, and
  /// `model` does not change while there are requests.
  Engine(const models::CausalLM& model, EngineSettings settings, Followers* followers = nullptr);
  ~Engine();

  /// Errors: as generate()'s; DataError if the pages could not hold the prompt and one token. An
  /// answer ends by kLength where the window or all pages are full.
  RequestHandle add(EngineRequest request);
  /// A request of its own that goes on with `next` behind the text of one that gave its logits in
  /// the last step. REQUIRES: no limit of pages.
  RequestHandle fork(RequestHandle from, text::TokenId next);
  /// No step that follows has an output of it, and its pages are free at once; outputs that the
  /// last step has returned stay. A request that is over: nothing.
  void cancel(RequestHandle handle);
  void cancel_all();
  bool has_work() const;
  /// Computes one pass, or several if requests are deterministic or an adapter needs its own.
  /// Returns the outputs of requests that got a token or ended. A request whose logits are not
  /// numbers or whose picture cannot be read ends with kFailed and harms no other. Throws the
  /// errors of a pass itself; the engine must not be used after that.
  std::vector<EngineOutput> step();
  /// Requests of which the last step was the first to compute anything.
  const std::vector<RequestHandle>& begun() const;
  EngineCounts counts() const;
  const EngineSettings& settings() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace danlu::infer
