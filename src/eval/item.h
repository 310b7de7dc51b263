// eval/item.h: what a benchmark asks of a model, and what came back: the seam between tasks, which
// make items, the runner, which has their calls answered, and scoring.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace danlu::eval {

enum class CallKind {
  kLikelihood,  ///< log-probability of `continuation` after `context`
  kRolling,     ///< log-probability of the whole of `continuation`, in windows; no context
  kGeneration,  ///< text after `context`
};

/// How a text is generated.
struct GenerationRules {
  std::vector<std::string> until;  ///< the text ends before the first of these; the model's own
                                   ///< end-of-text ids end it too
  int64_t max_tokens = 256;
  bool do_sample = false;
  bool says_sampling = false;  ///< do_sample was given, which a temperature does not change
  double temperature = 1.0, top_p = 1.0;
  int64_t top_k = 0;
  int64_t num_beams = 1;
  double repetition_penalty = 1.0;  ///< of greedy answers too, as infer::Sampling has it
};

/// Settles it as lm-eval does: a temperature alone switches sampling on, zero switches it off; what
/// is not drawn has no temperature.
inline void settle_sampling(GenerationRules& rules, bool says_temperature) {
  if (says_temperature && !rules.says_sampling) rules.do_sample = rules.temperature > 0;
  if (!rules.do_sample || rules.temperature == 0) {
    rules.do_sample = false;
    rules.temperature = 1.0;
  }
}

/// One question to the model.
struct Call {
  CallKind kind = CallKind::kLikelihood;
  /// Plain text; what a chat template made of messages where one is applied.
  std::string context;
  std::string continuation;
  bool wants_whole = false;  ///< kLikelihood: Answer::whole_log_likelihood is asked for
  GenerationRules rules;     ///< kGeneration
  /// Files of pictures, one for each <image> in the context.
  std::vector<std::string> images = {};
  int64_t repeat = 0;  ///< of the draws of one context: separates their random numbers
  /// The context was made by a chat template that wrote its own BOS: none is added.
  bool has_own_bos = false;
};

/// One row of a benchmark. Multiple choice: a call for each choice, in order.
struct Item {
  int64_t doc_id = 0;                ///< of the row in its split, from 0
  Json doc;                          ///< the row, its fields made uniform
  Json target;                       ///< index of the right choice, list of such, or text
  std::vector<std::string> choices;  ///< multiple choice
  std::vector<Call> calls;
};

/// What the model said to one call.
struct Answer {
  double log_likelihood = 0;  ///< natural logarithm, summed over `num_tokens`
  bool is_greedy = false;     ///< every token of the continuation was the likeliest
  int64_t num_tokens = 0;     ///< of the continuation
  /// kLikelihood: the same of context and continuation together, for metrics that look at all.
  /// Zero where nobody asked (Call::wants_whole).
  double whole_log_likelihood = 0;
  int64_t num_whole_tokens = 0;
  std::string text = {};       ///< kGeneration, without the stop string
  int64_t num_cut_tokens = 0;  ///< of the context's left side, which did not fit the window
};

}  // namespace danlu::eval
