// infer/sampling.h: from logits to the next token.
#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace danlu::infer {

/// When a beam search with num_beams finished answers ends (HF's early_stopping).
enum class EarlyStopping {
  kHeuristic,  ///< false: once no running beam of its present length beats the worst of them
  kWhenFull,   ///< true: at once
  kNever,      ///< "never": once no running beam could beat it at any length it may still reach
};

/// Off-values: temperature 1, top_k 0, top_p 1, min_p 0, repetition_penalty 1.
struct SamplingParams {
  bool do_sample = false;           ///< false: greedy
  double temperature = 1.0;         ///< > 0
  int64_t top_k = 0;                ///< keep the k most likely
  double top_p = 1.0;               ///< keep the smallest set with at least this probability
  double min_p = 0.0;               ///< keep tokens with p >= min_p * p_max
  double repetition_penalty = 1.0;  ///< > 1 makes tokens seen before (prompt included) less likely
  int64_t num_beams = 1;
  double length_penalty = 1.0;  ///< beams: score = log-probability / length^length_penalty
  EarlyStopping early_stopping = EarlyStopping::kHeuristic;  ///< beams
  uint64_t seed = 0;

  /// Errors: UsageError naming the parameter, its range and the value.
  void validate() const;
};

/// Errors: NumericError if a logit is NaN or +inf, or if none is finite: no token could be chosen
/// from them. `computed_in`: the model's dtype, for the hint. Ask before process_logits, which
/// makes -inf of its own.
void require_usable_logits(std::span<const float> logits_V, at::ScalarType computed_in);

/// What helps a model, computed in this type, whose logits are no numbers.
std::string hint_of_unusable_logits(at::ScalarType computed_in);

/// Errors: UsageError unless `are_there`: the parameters left no probability in f32.
void require_probabilities(bool are_there, const SamplingParams& params);

/// Applies the penalty, then temperature, top-k, top-p, min-p, in the order of HF's `generate`.
/// logits_V: f32, changed in place; removed tokens become -inf. `seen`: prompt and answer so far.
/// The `least_kept` likeliest tokens stay, whatever top-k, top-p and min-p say.
void process_logits(std::span<float> logits_V, std::span<const int32_t> seen,
                    const SamplingParams& params, size_t least_kept = 1);

/// The next token. Greedy: the first largest logit. Sampling: one draw that depends on
/// (seed, stream, step) only, so a request gives the same answer alone and in a batch.
/// Errors: as require_usable_logits and require_probabilities.
int32_t sample_token(std::span<float> logits_V, std::span<const int32_t> seen,
                     const SamplingParams& params, uint64_t stream, uint64_t step,
                     at::ScalarType computed_in);

/// The model's own log-probability (natural logarithm): temperature 1, before anything is added,
/// and nothing removed but what an answer's form does not allow.
struct TokenLogprob {
  int32_t id;
  float logprob;
  int64_t rank = 1;  ///< one more than tokens that are likelier
};
struct TokenLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> likeliest;  ///< descending, ties by id
};
TokenLogprobs logprobs_of(std::span<const float> logits_V, int32_t chosen, int64_t num_likeliest);

/// Uniform in (0, 1), a pure function of its arguments.
double uniform_at(uint64_t seed, uint64_t stream, uint64_t step);

}  // namespace danlu::infer
