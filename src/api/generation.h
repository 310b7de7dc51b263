// api/generation.h: what chats and completions have in common: how an answer is drawn and ends.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/fields.h"
#include "api/output_form.h"
#include "text/tokenizer.h"

namespace danlu::api {

/// What this server lets a request ask for.
struct RequestLimits {
  int64_t max_choices = 128;  ///< n
  int64_t max_logprobs = 20;  ///< for one token
  int64_t max_stop_strings = 64;
  /// The length of a completion that names none; none: as there is room for. 16 is OpenAI's.
  std::optional<int64_t> completion_tokens = 16;
  size_t max_tools = 128;
  bool trusts_templates = false;  ///< a request may bring its own chat template
  bool follows_priority = false;  ///< a request may say how urgent it is
};

/// Not set: the request does not say.
struct SamplingWish {
  std::optional<double> temperature = {};  ///< 0: the likeliest
  std::optional<bool> draws = {};          ///< false: the likeliest, whatever the temperature
  std::optional<double> top_p = {}, min_p = {}, repetition_penalty = {};
  std::optional<int64_t> top_k = {};  ///< 0: all
  std::optional<int64_t> seed = {};
  double presence_penalty = 0, frequency_penalty = 0;
  std::vector<std::pair<text::TokenId, float>> logit_bias = {};
  std::vector<text::TokenId> allowed_ids = {};  ///< empty: all
};

struct StreamWish {
  bool is_on = false;
  bool with_usage = false;          ///< in a chunk of its own at the end
  bool with_running_usage = false;  ///< in every chunk
};

struct GenerationWish {
  std::string model = {};  ///< "": the one that there is
  int64_t num_choices = 1;
  SamplingWish sampling = {};
  std::optional<int64_t> max_tokens = {};  ///< 0 only of a completion that echoes
  int64_t min_tokens = 0;
  std::optional<std::vector<std::string>> stop = {};  ///< empty list: none, whatever is usual
  bool includes_stop = false;
  std::vector<text::TokenId> stop_ids = {};
  bool ignores_eos = false;
  std::optional<int64_t> num_logprobs = {};  ///< likeliest tokens beside the chosen one
  std::optional<int64_t> num_prompt_logprobs = {};
  OutputForm form = {};
  StreamWish stream = {};
  bool skips_special = true;
  std::optional<bool> adds_special = {};  ///< BOS and the like, before a prompt's text
  bool returns_ids = false;
  bool wants_tokens_as_ids = false;             ///< logprobs name tokens "token_id:N"
  std::optional<int64_t> truncate_prompt = {};  ///< so many of its tokens; -1: what fits
  bool keeps_beginning = false;                 ///< of a prompt that is cut; else its end
  std::string salt = {};
  int64_t priority = 0;
  std::string request_id = {};
  /// Fields that nobody knows, and to each the one that may be meant; "": none.
  std::map<std::string, std::string> unread = {};
};

/// Fields of all kinds of requests. Errors: Refusal where priorities are not followed and it has
/// one, or the id is too long to be said in every chunk.
int64_t read_priority(Fields& fields, const RequestLimits& limits);
/// truncation_side: whether a prompt that is cut loses its end. Errors: Refusal.
bool read_keeps_beginning(Fields& fields, bool fallback);
std::string read_request_id(Fields& fields);

/// All of it but max_tokens, logprobs and `unread`, whose fields chats and completions name
/// differently. Errors: Refusal.
GenerationWish read_generation(Fields& fields, const RequestLimits& limits);

}  // namespace danlu::api
