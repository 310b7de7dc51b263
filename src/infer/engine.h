// infer/engine.h: answers to requests that come and go: one packed pass over all of them a step.
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

/// What a prompt is asked for beside an answer: one vector of its hidden states after the final
/// norm.
enum class Pooling { kMean, kLast };

struct EngineRequest {
  Request request;
  /// With each token of the answer its log-probability and those of so many likeliest; none: none.
  std::optional<int64_t> num_logprobs = {};
  /// The same of the prompt's tokens, each after those before it.
  std::optional<int64_t> num_prompt_logprobs = {};
  /// Beginnings are shared with requests of the same salt and adapter alone.
  std::string salt = {};
  AdapterPtr adapter = {};  ///< of this engine's model; null: the model as it is
  /// There is no answer then but EngineOutput::embedding.
  std::optional<Pooling> pooling = {};
  int64_t priority = 0;  ///< lower is served earlier
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
};

struct EngineSettings {
  int64_t max_sequences = 128;        ///< that are answered at a time
  int64_t max_batched_tokens = 2048;  ///< of a pass; longer prompts are read in parts
  int64_t max_adapters = 0;           ///< different ones that are answered at a time; 0: any number
  int64_t max_pages = 0;              ///< of the cache, of ops::kPageTokens tokens; 0: no limit
  /// Each request by itself, its prompt whole: answers are equal to the bit whatever else is there,
  /// and several are not faster together than one after the other.
  bool deterministic = false;
  bool prefix_caching = true;  ///< what prompts begin with alike is computed once while kept
  /// Tokens that are guessed are computed with the one before them, and count as far as they are
  /// what would have been drawn: answers are the same, beyond rounding. Not where requests are read
  /// whole, nor of answers under a constraint.
  PromptLookup lookup = {};
  /// Instead, so many are guessed at a time by the model's layer that predicts further ahead, which
  /// its network must have; 0: none.
  int64_t predicted_tokens = 0;
};

class Followers;

/// running, waiting and pages_used are values of now; the others count since the engine was made.
struct EngineCounts {
  int64_t running = 0, waiting = 0;  ///< requests, now
  int64_t pages_used = 0;            ///< now, by requests
  int64_t prompt_tokens = 0, new_tokens = 0;
  int64_t prefix_queried = 0, prefix_hit = 0;  ///< tokens of prompts
  int64_t preemptions = 0;
  int64_t steps = 0;
  int64_t guessed = 0, guessed_right = 0;  ///< tokens
};

/// Not thread-safe: one thread adds, cancels and steps. What a request is answered does not depend
/// on what else is there, beyond rounding.
class Engine {
 public:
  /// followers: of rank 0 of those that hold parts of `model`; nullptr: it is whole. They answer no
  /// requests with pictures. REQUIRES: both outlive the engine, and `model` does not change while
  /// requests are there.
  Engine(const models::CausalLM& model, EngineSettings settings, Followers* followers = nullptr);
  ~Engine();

  /// Errors: as generate()'s; DataError if the pages could not hold the prompt and one token. An
  /// answer ends by kLength where the window or all pages are full.
  RequestHandle add(EngineRequest request);
  /// No output of it follows; its pages are free at once. A request that is over: nothing.
  void cancel(RequestHandle handle);
  bool has_work() const;
  /// One pass; the outputs of the requests that it gave a token or ended. A request whose logits
  /// are no numbers or whose picture cannot be read ends by kFailed and harms no other. Errors of
  /// the pass itself go out, and the engine is of no further use.
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
