// infer/likelihood.h: log-probabilities of given texts: many at a time, what several begin with
// computed once.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "infer/generate.h"
#include "models/causal_lm.h"
#include "text/tokenizer.h"

namespace danlu::infer {

/// ids[num_context …] are scored, each after all before it. REQUIRES: 1 <= num_context <
/// ids.size().
struct ScoredText {
  std::vector<text::TokenId> ids;
  int64_t num_context = 1;
  bool wants_whole = false;  ///< all but the first id are asked for too
  /// In the context, in order; none beside wants_whole.
  std::vector<PromptPicture> pictures = {};
};

/// Natural logarithms of softmax in f32, added in double.
struct Likelihood {
  double sum = 0;         ///< of ids[num_context …]
  bool is_greedy = true;  ///< each of these is the first largest logit
  double whole_sum = 0;   ///< of ids[1 …]; 0 if nobody asked
};

struct LikelihoodSettings {
  int64_t batch_size = 0;      ///< texts in a pass; 0: as many as pass_tokens allows
  int64_t pass_tokens = 4096;  ///< new tokens in a pass of several texts
  /// Keys and values of the texts of one pass of several, where batch_size does not say. Those of
  /// the beginnings that passes before it computed are held beside them: the same again, at most,
  /// for each level of beginnings within beginnings.
  int64_t pass_cache_bytes = int64_t{1} << 30;
  /// Ids that several texts begin with go through the model once. false, with batch_size 1: the
  /// numbers of a text are the same bits whatever else is asked.
  bool share_prefixes = true;
};

struct LikelihoodStats {
  int64_t given_tokens = 0, computed_tokens = 0;
};

/// Told of each text as soon as it is scored, in any order.
using OnLikelihood = std::function<void(size_t index, const Likelihood& likelihood)>;

/// Scores all texts; false if is_cancelled() ended it before (those that on_likelihood was told of
/// are whole). Longest first, so that what does not fit into memory is known early. In f32 the
/// numbers differ from those of one text a pass by rounding alone: beginnings are not shared where
/// a text is so long that arch::turns_by_length.
/// Errors: DataError as check_scored, and those of PromptPicture::pixels; NumericError if logits
/// are not numbers.
bool score_texts(const models::CausalLM& model, const std::vector<ScoredText>& texts,
                 const LikelihoodSettings& settings, const OnLikelihood& on_likelihood,
                 LikelihoodStats* stats = nullptr, const IsCancelled& is_cancelled = {});

/// Errors: DataError if an id is outside the vocabulary, the window (config.max_positions, 0: none)
/// does not hold all ids but the last, or placeholders are not those of the pictures.
void check_scored(const arch::ModelConfig& config, const ScoredText& text);

}  // namespace danlu::infer
