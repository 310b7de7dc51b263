// infer/generate.h: answers from a model: batched, streamed, or by beam search.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "infer/logit_rules.h"
#include "infer/prompt_pictures.h"
#include "infer/sampling.h"
#include "infer/speculation.h"
#include "models/causal_lm.h"
#include "text/tokenizer.h"

namespace danlu::infer {

/// kFailed: something went wrong with this request alone: a picture that cannot be read, logits
/// that are no numbers, a form that fits in too many ways, too little memory to draw.
enum class FinishReason { kStop, kLength, kCancelled, kFailed };

/// "stop", "length", "cancelled", "error"
const char* name_of(FinishReason reason);

struct Request {
  std::vector<text::TokenId> prompt;  ///< not empty
  /// In order. A picture's placeholders stand in `prompt`, one for each visual token.
  std::vector<PromptPicture> pictures = {};
  SamplingParams sampling;
  /// Tokens at the prompt's end that are this answer's already: rules and draws go on behind them,
  /// as if it were one request.
  int64_t answered = 0;
  int64_t max_new_tokens = 512;         ///< beyond those
  std::vector<text::TokenId> stop_ids;  ///< an answer ends before any of these
  int64_t num_tokens =
      0;                ///< answer with ids below this only (a vocabulary is often padded); 0: any
  uint64_t stream = 0;  ///< separates the random draws of requests with one seed
  LogitRules rules = {};
};

struct Answer {
  std::vector<text::TokenId> ids;  ///< without the stop token
  FinishReason reason = FinishReason::kLength;
  std::string problem = {};  ///< of kFailed: why
  /// The stop token, of kStop; nothing where on_token's owner ended the answer by its text.
  std::optional<text::TokenId> stopped_by = {};
};

/// Called for every new token of request `index`; false cancels that request.
using OnToken = std::function<bool(size_t index, text::TokenId id)>;

/// Called with a finished answer, as soon as it is: not in the order of the requests.
using OnAnswer = std::function<void(size_t index, const Answer& answer)>;

/// Asked between steps; true ends everything that is not finished (FinishReason::kCancelled).
using IsCancelled = std::function<bool()>;

class Engine;
class Followers;

/// Counts of one generate call.
struct GenerationStats {
  int64_t prompt_tokens = 0, new_tokens = 0;
  int64_t guessed = 0, guessed_right = 0;
  double prefill_s = 0, decode_s = 0;
};

/// Answers all requests, at most `batch_size` at a time; a finished one makes room for the next.
/// on_answer is told of each that ended by itself or by on_token. The answer to a request does not
/// depend on what else is in the batch, beyond rounding of the arithmetic. Errors: DataError if a
/// prompt is empty, holds an id outside the vocabulary, does not fit the model's window, or has
/// other placeholders than pictures; NumericError if the model gives logits that are not numbers.
/// followers: as Engine's. pass_tokens: of a pass, at most; 0: prompts are read whole. speculation:
/// as EngineSettings says.
std::vector<Answer> generate(const models::CausalLM& model, const std::vector<Request>& requests,
                             int64_t batch_size, const OnToken& on_token = {},
                             GenerationStats* stats = nullptr, const IsCancelled& is_cancelled = {},
                             const OnAnswer& on_answer = {}, Followers* followers = nullptr,
                             int64_t pass_tokens = 0, const Speculation& speculation = {});

/// Beam search over one request (sampling.num_beams >= 2), scored as HF's beam search:
/// log-probability divided by length^length_penalty, max(2, 1 + stop ids) * num_beams candidates a
/// step, ended as transformers does since 4.51. With do_sample, candidates are drawn without
/// replacement, then ranked by score. Rules of logits have no effect. Errors: as generate; those of
/// PromptPicture::pixels. followers: as Engine's.
Answer beam_search(const models::CausalLM& model, const Request& request,
                   GenerationStats* stats = nullptr, const IsCancelled& is_cancelled = {},
                   Followers* followers = nullptr);

/// A conversation: an engine that keeps what was computed, as many tokens as the window has. A call
/// goes on with what it has in common with those before, of ids and of what pictures show.
class Session {
 public:
  /// followers: as Engine's; speculation: as of generate(). REQUIRES: model and followers outlive
  /// it.
  explicit Session(const models::CausalLM& model, Followers* followers = nullptr,
                   const Speculation& speculation = {});
  ~Session();
  /// Errors: as beam_search's.
  Answer answer(const Request& request, const OnToken& on_token = {},
                GenerationStats* stats = nullptr);

 private:
  const models::CausalLM& model_;
  Followers* const followers_;
  const Speculation speculation_;
  std::unique_ptr<Engine> engine_;
};

/// Sampling defaults, stop ids and lengths of a model directory's generation_config.json
/// (config.json's eos otherwise); an empty directory holds none. Keys of HF that would change
/// answers and are not built in are named in warnings; keys that HF does not know are ignored, as
/// there.
struct GenerationDefaults {
  SamplingParams sampling;
  std::optional<int64_t> max_new_tokens;
  std::vector<text::TokenId> stop_ids;
  bool has_top_k = false;           ///< the file names one; else `sampling` has Hugging Face's 50
  bool has_no_temperature = false;  ///< the file's is 0: `sampling` does not sample
};
/// What a server takes where a request says nothing, as vLLM does: the numbers that the file has,
/// and none of Hugging Face's. `do_sample` of a file is for generate(); temperature 0 holds.
SamplingParams sampling_of_server(const GenerationDefaults& defaults);
/// As ms-swift's deploy takes them: `do_sample` of the file holds, without it the likeliest token,
/// and Hugging Face's top_k is there for requests that draw.
SamplingParams sampling_of_swift(const GenerationDefaults& defaults);
GenerationDefaults load_generation_defaults(const arch::ModelConfig& model,
                                            const std::filesystem::path& directory);
/// The same from `json`, a generation_config that stands in another file. Its eos_token_id replaces
/// the model's.
GenerationDefaults generation_defaults_of(const arch::ModelConfig& model, const Json& json,
                                          const std::filesystem::path& file);

/// Throws what generate() would throw for this prompt. Window: config.max_positions (0 =
/// unlimited).
void check_prompt(const arch::ModelConfig& config, const std::vector<text::TokenId>& prompt,
                  const std::vector<PromptPicture>& pictures = {});

}  // namespace danlu::infer
