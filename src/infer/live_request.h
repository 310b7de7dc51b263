// infer/live_request.h: a request while the engine answers it.
//
// Words of this room, and what other engines call them: a page is a block; a place
// (PrefixIndex::Place) names a block with all before it, as their hashes do; drafts and guesses are
// draft tokens of speculative decoding; a form is a grammar (structured output); the likeliest
// token is the argmax; a prompt that is whole cannot be chunked; a beginning is a prefix; preempted
// requests are recomputed.
#pragma once
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "infer/engine.h"
#include "infer/kv_cache.h"
#include "infer/prefix_index.h"
#include "parallel/group.h"

namespace danlu::infer {

/// The most urgent first: by priority, then by the turn of its group, then by age.
struct RequestRank {
  int64_t priority, turn;
  RequestHandle handle;
  auto operator<=>(const RequestRank&) const = default;
};

struct LiveRequest {
  RequestHandle handle;
  int64_t turn = 0;
  EngineRequest asked;
  std::vector<text::TokenId> seen;   ///< prompt and answer
  std::vector<text::TokenId> named;  ///< the same with pictures told apart
  std::shared_ptr<PromptPictures> pictures;
  int64_t limit;  ///< tokens that `seen` may have

  std::string root;  ///< PrefixIndex::root's key: texts of another never share pages with it
  std::vector<double> pooled;  ///< sums of hidden states, or the last one

  std::vector<text::TokenId> drafts;     ///< guesses that the next pass computes after `seen`
  std::vector<text::TokenId> predicted;  ///< what the model guesses after `seen`

  SequenceId sequence = -1;                ///< while it runs
  std::vector<PrefixIndex::Place> places;  ///< after its full pages that are in the index
  int64_t cached_tokens = 0;
  bool has_begun = false;    ///< was admitted before
  bool awaits_form = false;  ///< its form has not said yet which token may come next
  int64_t form_work = 0;     ///< what that has cost so far
  int64_t form_passes = 0;   ///< how many it has sat out for it since it last had a turn for that
  std::vector<TokenLogprobs> prompt_logprobs;

  RequestRank rank() const { return {asked.priority, turn, handle}; }
  /// Whether both are choices of one prompt.
  bool is_choice_beside(const LiveRequest& other) const {
    return asked.prompt_number != 0 && asked.prompt_number == other.asked.prompt_number &&
           asked.group == other.asked.group;
  }
  int64_t prompt_size() const { return std::ssize(asked.request.prompt); }
  int64_t answered() const { return std::ssize(seen) - prompt_size(); }
  /// With what the prompt has of it.
  std::span<const text::TokenId> answer() const {
    const Request& request = asked.request;
    return std::span(seen).subspan(request.prompt.size() - static_cast<size_t>(request.answered));
  }
  bool wants_prompt_logprobs() const { return asked.num_prompt_logprobs && answered() == 0; }
  /// Something is asked of each of the prompt's tokens: none may come from kept pages.
  bool reads_all() const { return wants_prompt_logprobs() || asked.pooling == Pooling::kMean; }
  /// Whether its next token needs nothing of the logits but the place of the largest.
  bool takes_likeliest() const;
  uint64_t adapter_id() const { return asked.adapter ? asked.adapter->id : 0; }
};

using LiveRequests = std::map<RequestRank, std::unique_ptr<LiveRequest>>;

/// Different adapters of `requests` and `one` together.
int64_t num_adapters(const LiveRequests& requests, const LiveRequest& one);

/// Whether `other` computes the page that `live` would compute next, behind the places `shared`
/// that both have: who waits for it shares it, too.
bool computes_next_page_of(const LiveRequest& other, const LiveRequest& live,
                           const std::vector<PrefixIndex::Place>& shared);

/// What became of a request in a pass.
struct DrawnToken {
  std::optional<text::TokenId> token;  ///< none and no error: nothing may come any more
  std::optional<TokenLogprobs> logprobs;
  std::exception_ptr error;
};
/// By the request's rules. Changes the logits.
DrawnToken draw(std::span<float> logits_V, const LiveRequest& live, at::ScalarType computed_in);

/// Whether it says that the model gave no numbers.
bool is_of_numbers(const std::exception_ptr& error);

/// Makes of each what rank 0 drew, or that nothing may come, or its failure. Collective over ranks
/// that draw for one model each: they see the same logits, but unlike processors may draw
/// otherwise.
void agree(const parallel::Group& group, std::vector<DrawnToken>& drawn);

/// The vector of a request that asked for one; empty where it is no number.
std::vector<float> mean_of_pooled(const LiveRequest& live);

/// Adds the hidden states [n, hidden] of a prompt's next tokens to what was pooled so far.
void pool_hidden(Pooling how, const at::Tensor& hidden_nH, std::vector<double>& pooled);

/// PrefixIndex::root's key. Longrope turns the keys of texts beyond its original context by other
/// frequencies, so that they share with such texts alone.
std::string root_of(const LiveRequest& live, const arch::ModelConfig& config);

/// Log-probabilities of the prompt's tokens behind the `tokens` from place `first` on, of which
/// the first one's logits are in `row`.
void note_prompt_logprobs(LiveRequest& live, int64_t first, const at::Tensor& logits_RV,
                          int64_t row, int64_t tokens);

/// Whether a text has keys in the cache that turn by other frequencies than the next pass: longrope
/// has others for texts beyond its original context. Hugging Face begins such a text anew, too.
bool outgrows_cache(const arch::ModelConfig& config, int64_t cached, int64_t length);

}  // namespace danlu::infer
