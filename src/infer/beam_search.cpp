#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <map>
#include <span>

#include "base/clock.h"
#include "base/error.h"
#include "infer/engine.h"

namespace danlu::infer {
namespace {

struct Beam {
  RequestHandle handle;            ///< of the engine's request that has its text
  std::vector<text::TokenId> ids;  ///< of the answer
  double score = 0;                ///< summed log-probability
};

struct Hypothesis {
  std::vector<text::TokenId> ids;
  double score;             ///< length-normalised
  bool has_stopped = true;  ///< by a stop id; false: cut where the search ran out
};

struct Candidate {
  double score;  ///< summed log-probability
  double key;    ///< what candidates are ranked by: the score, or a perturbed one when sampling
  size_t beam;
  text::TokenId id;
};

double normalised(double score, size_t length, double penalty) {
  return score / std::pow(static_cast<double>(std::max<size_t>(length, 1)), penalty);
}

void log_softmax_in_place(std::span<float> row) {
  const float top = *std::max_element(row.begin(), row.end());
  double total = 0;
  for (const float logit : row) total += std::exp(logit - top);
  const double log_total = top + std::log(total);
  for (float& logit : row) logit = static_cast<float>(logit - log_total);
}

/// Among equals the earlier beam and id, so that the order does not hang on how it was found.
bool ranks_before(const Candidate& a, const Candidate& b) {
  if (a.key != b.key) return a.key > b.key;
  return a.beam != b.beam ? a.beam < b.beam : a.id < b.id;
}

/// Best first by score. With do_sample: those that were drawn.
std::vector<Candidate> best_candidates(const models::CausalLM& model,
                                       std::vector<std::vector<float>> logits_BV,
                                       const std::vector<Beam>& beams, const Request& request,
                                       size_t step) {
  // As many as HF takes: every beam can go on though each stop id takes a place of every beam.
  const size_t of_each = std::max<size_t>(2, 1 + request.stop_ids.size());
  const size_t wanted = of_each * static_cast<size_t>(request.sampling.num_beams);
  const int64_t vocab = model.config().vocab_size;
  std::vector<Candidate> candidates;
  for (size_t b = 0; b < beams.size(); ++b) {
    const std::span<float> row(logits_BV[b]);
    require_usable_logits(row, model.dtype());
    log_softmax_in_place(row);
    std::vector<text::TokenId> seen = request.prompt;
    seen.insert(seen.end(), beams[b].ids.begin(), beams[b].ids.end());
    process_logits(row, seen, request.sampling, of_each);
    // No beam can contribute more than `wanted`: a heap whose front is the last of its best.
    std::vector<Candidate> best;
    best.reserve(wanted + 1);
    for (size_t v = 0; v < row.size(); ++v) {
      if (!std::isfinite(row[v])) continue;
      const double score = beams[b].score + row[v];
      double key = score;
      if (request.sampling.do_sample) {
        // Ranking by score + Gumbel noise draws without replacement in proportion to exp(score).
        const double u = uniform_at(request.sampling.seed, request.stream * 64 + b,
                                    step * static_cast<uint64_t>(vocab) + v);
        key -= std::log(-std::log(u));
      }
      if (best.size() == wanted && key <= best.front().key) continue;
      best.push_back({score, key, b, static_cast<text::TokenId>(v)});
      std::push_heap(best.begin(), best.end(), ranks_before);
      if (best.size() <= wanted) continue;
      std::pop_heap(best.begin(), best.end(), ranks_before);
      best.pop_back();
    }
    candidates.insert(candidates.end(), best.begin(), best.end());
  }
  require_probabilities(!candidates.empty(), request.sampling);
  std::sort(candidates.begin(), candidates.end(), ranks_before);
  if (candidates.size() > wanted) candidates.resize(wanted);
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
  return candidates;
}

void add_hypothesis(std::vector<Hypothesis>& finished, Hypothesis hypothesis, size_t num_beams) {
  finished.push_back(std::move(hypothesis));
  std::stable_sort(finished.begin(), finished.end(),
                   [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
  if (finished.size() > num_beams) finished.pop_back();
}

/// The beams of the next step, at most num_beams; candidates that end an answer go to `finished`.
template <typename Fork>
std::vector<Beam> grow(const std::vector<Candidate>& candidates, const std::vector<Beam>& beams,
                       const Request& request, const Fork& fork,
                       std::vector<Hypothesis>& finished) {
  const size_t num_beams = static_cast<size_t>(request.sampling.num_beams);
  std::vector<Beam> grown;
  for (size_t rank = 0; rank < candidates.size() && grown.size() < num_beams; ++rank) {
    const Candidate& candidate = candidates[rank];
    const std::vector<text::TokenId>& ids = beams[candidate.beam].ids;
    if (std::find(request.stop_ids.begin(), request.stop_ids.end(), candidate.id) !=
        request.stop_ids.end()) {
      // HF does the same: an ending that did not make it into the first num_beams is not kept.
      if (rank < num_beams) {
        add_hypothesis(
            finished,
            {ids, normalised(candidate.score, ids.size() + 1, request.sampling.length_penalty)},
            num_beams);
      }
      continue;
    }
    Beam beam{fork(beams[candidate.beam].handle, candidate.id), ids, candidate.score};
    beam.ids.push_back(candidate.id);
    grown.push_back(std::move(beam));
  }
  return grown;
}

/// Whether a search whose beams have `length` of at most `max_length` tokens is over, as HF
/// decides. REQUIRES: beams, best first.
bool is_over(const std::vector<Hypothesis>& finished, const std::vector<Beam>& beams,
             const Request& request, size_t length, size_t max_length) {
  if (finished.size() < static_cast<size_t>(request.sampling.num_beams)) return false;
  const EarlyStopping early = request.sampling.early_stopping;
  if (early == EarlyStopping::kWhenFull) return true;
  const double penalty = request.sampling.length_penalty;
  // A positive penalty favours length: the longest answer bounds what a beam can still reach.
  const bool may_grow = early == EarlyStopping::kNever && penalty > 0;
  return normalised(beams.front().score, may_grow ? max_length : length, penalty) <=
         finished.back().score;
}

/// The best of what ended and, if the search ran out of length or was cancelled, of what is still
/// growing.
Answer best_answer(std::vector<Hypothesis> finished, const std::vector<Beam>& beams,
                   const Request& request, FinishReason reason) {
  if (reason != FinishReason::kStop) {
    for (const Beam& beam : beams) {
      const double score = normalised(beam.score, beam.ids.size(), request.sampling.length_penalty);
      add_hypothesis(finished, {beam.ids, score, false},
                     static_cast<size_t>(request.sampling.num_beams));
    }
  }
  Answer answer;
  answer.reason = reason;
  if (finished.empty()) return answer;
  answer.ids = finished.front().ids;
  if (finished.front().has_stopped && reason == FinishReason::kLength)
    answer.reason = FinishReason::kStop;
  return answer;
}

/// The logits behind each beam. Errors: those of pictures that cannot be read.
std::vector<std::vector<float>> logits_of(Engine& engine, const std::vector<Beam>& beams) {
  std::map<RequestHandle, std::vector<float>> given;
  while (given.size() < beams.size()) {
    for (EngineOutput& output : engine.step()) {
      if (output.error) std::rethrow_exception(output.error);
      given[output.handle] = std::move(output.logits);
    }
  }
  std::vector<std::vector<float>> logits_BV;
  for (const Beam& beam : beams) logits_BV.push_back(std::move(given.at(beam.handle)));
  return logits_BV;
}

/// How many tokens an answer may have.
size_t longest_answer(const arch::ModelConfig& config, const Request& request) {
  const int64_t window = config.max_positions;
  if (window == 0) return static_cast<size_t>(std::max<int64_t>(0, request.max_new_tokens));
  // The prompt's own logits are had even if it fills the window.
  const int64_t room = std::max<int64_t>(1, window - std::ssize(request.prompt));
  return static_cast<size_t>(std::clamp<int64_t>(request.max_new_tokens, 0, room));
}

/// The search itself, over an engine's requests: each step forks those that go on.
Answer search(const models::CausalLM& model, Engine& engine, const Request& request,
              const IsCancelled& is_cancelled) {
  const size_t max_length = longest_answer(model.config(), request);
  Request first = request;
  first.rules = {};
  std::vector<Beam> beams{
      {engine.add({.request = std::move(first), .gives_logits = true}), {}, 0.0}};
  std::vector<Hypothesis> finished;
  for (size_t step = 0; step < max_length; ++step) {
    const std::vector<Candidate> candidates =
        best_candidates(model, logits_of(engine, beams), beams, request, step);
    beams = grow(
        candidates, beams, request,
        [&](RequestHandle parent, text::TokenId next) { return engine.fork(parent, next); },
        finished);
    if (beams.empty()) return best_answer(std::move(finished), beams, request, FinishReason::kStop);
    // What reaches the last length is ranked with what ended: nothing is decided before that.
    if (step + 1 < max_length && is_over(finished, beams, request, step + 1, max_length))
      return best_answer(std::move(finished), beams, request, FinishReason::kStop);
    if (is_cancelled && is_cancelled())
      return best_answer(std::move(finished), beams, request, FinishReason::kCancelled);
  }
  return best_answer(std::move(finished), beams, request, FinishReason::kLength);
}

}  // namespace

Answer beam_search(const models::CausalLM& model, const Request& request, GenerationStats* stats,
                   const IsCancelled& is_cancelled, Followers* followers) {
  const double start_s = steady_now_s();
  Engine engine(model,
                {.max_sequences = request.sampling.num_beams,
                 .max_batched_tokens = std::numeric_limits<int64_t>::max() / 2,
                 .prefix_caching = false},
                followers);
  const Answer answer = search(model, engine, request, is_cancelled);
  engine.cancel_all();
  if (stats) {
    stats->prompt_tokens += static_cast<int64_t>(request.prompt.size());
    stats->new_tokens += static_cast<int64_t>(answer.ids.size());
    stats->decode_s += steady_now_s() - start_s;
  }
  return answer;
}

}  // namespace danlu::infer
