#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "infer/generate.h"
#include "infer/step.h"

namespace danlu::infer {
namespace beam_detail {

struct Beam {
  SequenceId sequence;
  std::vector<text::TokenId> ids;  ///< of the answer
  double score = 0;                ///< summed log-probability
};

struct Hypothesis {
  std::vector<text::TokenId> ids;
  double score;  ///< length-normalised
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
  const double top = *std::max_element(row.begin(), row.end());
  double total = 0;
  for (const float logit : row) total += std::exp(logit - top);
  const double log_total = top + std::log(total);
  for (float& logit : row) logit = static_cast<float>(logit - log_total);
}

std::vector<Candidate> best_candidates(at::Tensor logits_BV, const std::vector<Beam>& beams,
                                       const Request& request, size_t step) {
  const size_t wanted = 2 * static_cast<size_t>(request.sampling.num_beams);
  const int64_t vocab = logits_BV.size(1);
  std::vector<Candidate> candidates;
  for (size_t b = 0; b < beams.size(); ++b) {
    const std::span<float> row = answerable(logits_BV, b, request);
    require_usable_logits(row);
    log_softmax_in_place(row);
    std::vector<text::TokenId> seen = request.prompt;
    seen.insert(seen.end(), beams[b].ids.begin(), beams[b].ids.end());
    process_logits(row, seen, request.sampling);
    for (int64_t v = 0; v < static_cast<int64_t>(row.size()); ++v) {
      if (std::isinf(row[static_cast<size_t>(v)])) continue;
      const double score = beams[b].score + row[static_cast<size_t>(v)];
      double key = score;
      if (request.sampling.do_sample) {
        // Ranking by score + Gumbel noise draws without replacement in proportion to exp(score).
        const double u = uniform_at(request.sampling.seed, request.stream * 64 + b,
                                    step * static_cast<uint64_t>(vocab) + static_cast<uint64_t>(v));
        key -= std::log(-std::log(u));
      }
      candidates.push_back({score, key, b, static_cast<text::TokenId>(v)});
    }
    // Keep the list short: no beam can contribute more than `wanted`.
    const size_t keep = std::min(candidates.size(), wanted);
    std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(keep),
                      candidates.end(),
                      [](const Candidate& a, const Candidate& b) { return a.key > b.key; });
    candidates.resize(keep);
  }
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
      // As HF: an ending that did not make it into the first num_beams is not kept.
      if (rank < num_beams) {
        add_hypothesis(
            finished,
            {ids, normalised(candidate.score, ids.size() + 1, request.sampling.length_penalty)},
            num_beams);
      }
      continue;
    }
    Beam beam{fork(beams[candidate.beam].sequence), ids, candidate.score};
    beam.ids.push_back(candidate.id);
    grown.push_back(std::move(beam));
  }
  return grown;
}

/// The best of what ended and, if the search ran out of length or was cancelled, of what is still
/// growing.
Answer best_answer(std::vector<Hypothesis> finished, const std::vector<Beam>& beams,
                   const Request& request, FinishReason reason) {
  if (reason != FinishReason::kStop) {
    for (const Beam& beam : beams) {
      const double score = normalised(beam.score, beam.ids.size(), request.sampling.length_penalty);
      add_hypothesis(finished, {beam.ids, score}, static_cast<size_t>(request.sampling.num_beams));
    }
  }
  Answer answer;
  if (!finished.empty()) answer.ids = finished.front().ids;
  answer.reason = reason;
  return answer;
}

}  // namespace beam_detail

Answer beam_search(const models::CausalLM& model, const Request& request, GenerationStats* stats,
                   const IsCancelled& is_cancelled) {
  using namespace beam_detail;
  request.sampling.validate();
  check_prompt(model.config(), request.prompt);
  const auto start = std::chrono::steady_clock::now();
  const size_t num_beams = static_cast<size_t>(request.sampling.num_beams);
  const int64_t window = model.config().max_positions;
  SequenceCache cache(model.config(), model.dtype(), model.device());
  std::vector<Beam> beams{{cache.add(), {}, 0.0}};
  std::vector<Hypothesis> finished;
  std::vector<StepInput> inputs{{beams[0].sequence, request.prompt}};
  FinishReason reason = FinishReason::kLength;
  for (size_t step = 0; static_cast<int64_t>(step) < request.max_new_tokens; ++step) {
    const at::Tensor logits_BV = next_logits(model, cache, inputs);
    const std::vector<Candidate> candidates = best_candidates(logits_BV, beams, request, step);
    std::vector<Beam> grown = grow(
        candidates, beams, request, [&](SequenceId parent) { return cache.fork(parent); },
        finished);
    for (const Beam& beam : beams) cache.remove(beam.sequence);
    beams = std::move(grown);
    if (beams.empty()) {
      reason = FinishReason::kStop;
      break;
    }
    const double best_possible =
        normalised(candidates[0].score, step + 1, request.sampling.length_penalty);
    if (finished.size() == num_beams && finished.back().score >= best_possible) {
      reason = FinishReason::kStop;
      break;
    }
    if (is_cancelled && is_cancelled()) {
      reason = FinishReason::kCancelled;
      break;
    }
    if (window > 0 && static_cast<int64_t>(request.prompt.size() + step + 1) >= window) break;
    inputs.clear();
    for (const Beam& beam : beams) inputs.push_back({beam.sequence, {beam.ids.back()}});
  }
  const Answer answer = best_answer(std::move(finished), beams, request, reason);
  if (stats) {
    stats->prompt_tokens += static_cast<int64_t>(request.prompt.size());
    stats->new_tokens += static_cast<int64_t>(answer.ids.size());
    stats->decode_s +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  return answer;
}

}  // namespace danlu::infer
