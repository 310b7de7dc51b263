// Beam search against Hugging Face's definition, written down here without cache, forks or pruning.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "base/json.h"
#include "infer/generate.h"
#include "infer/tested_device.h"
#include "models/weight_files.h"

namespace danlu::infer {
namespace beam_search_test {

using Ids = std::vector<text::TokenId>;
constexpr int64_t kVocab = 13;

std::unique_ptr<models::CausalLM> small_model(uint64_t seed) {
  const Json json = {{"model_type", "llama"},    {"vocab_size", kVocab},
                     {"hidden_size", 16},        {"intermediate_size", 24},
                     {"num_hidden_layers", 1},   {"num_attention_heads", 2},
                     {"num_key_value_heads", 1}, {"max_position_embeddings", 64},
                     {"rms_norm_eps", 1e-5},     {"initializer_range", 0.4}};
  auto model = std::make_unique<models::CausalLM>(
      arch::family_of(json).parse(json), parallel::Mesh::single(), at::kFloat, tested_device());
  models::initialize(*model, seed);
  return model;
}

/// log p(v | ids) for every token v.
std::vector<double> next_log_p(const models::CausalLM& model, const Ids& prompt,
                               const Ids& answer) {
  std::vector<int64_t> ids(prompt.begin(), prompt.end()), positions;
  ids.insert(ids.end(), answer.begin(), answer.end());
  const auto n = static_cast<int64_t>(ids.size());
  for (int64_t i = 0; i < n; ++i) positions.push_back(i);
  models::ForwardInput input;
  input.ids_N = at::tensor(ids, at::kLong);
  input.positions_N = at::tensor(positions, at::kLong);
  input.segments = {{0, n}, {0, n}};
  const at::NoGradGuard no_grad;
  const at::Tensor last_V = model.logits(model.forward_hidden(input))[n - 1];
  const at::Tensor log_p_V = at::log_softmax(last_V.to(at::kCPU, at::kDouble), -1).contiguous();
  return {log_p_V.data_ptr<double>(), log_p_V.data_ptr<double>() + kVocab};
}

struct Scored {
  Ids ids;  ///< with the stop token
  double score = 0;
};

void keep_best(std::vector<Scored>& all, size_t count) {
  std::stable_sort(all.begin(), all.end(),
                   [](const Scored& a, const Scored& b) { return a.score > b.score; });
  if (all.size() > count) all.resize(count);
}

/// -inf but for the `count` largest.
void keep_largest(std::vector<double>& values, size_t count) {
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end(), std::greater<double>());
  for (double& value : values) {
    if (value < sorted.at(count - 1)) value = -INFINITY;
  }
}

/// The search of transformers since 4.51: every step ranks the max(2, 1 + stop ids) * num_beams
/// best continuations, or as many that were drawn from all; the first num_beams of them may end an
/// answer, the best num_beams that do not end go on; it is over when no running beam can beat the
/// worst of num_beams ended answers.
Answer search_as_defined(const models::CausalLM& model, const Request& request) {
  const auto num_beams = static_cast<size_t>(request.sampling.num_beams);
  const size_t of_each = std::max<size_t>(2, 1 + request.stop_ids.size());
  const size_t ranked = of_each * num_beams;
  const double penalty = request.sampling.length_penalty;
  const EarlyStopping early = request.sampling.early_stopping;
  std::vector<Scored> running = {{}}, ended;
  for (int64_t length = 1; length <= request.max_new_tokens; ++length) {
    std::vector<Scored> next, drawn;
    for (size_t b = 0; b < running.size(); ++b) {
      std::vector<double> log_p = next_log_p(model, request.prompt, running[b].ids);
      if (request.sampling.top_k > 0)
        keep_largest(log_p, std::max(static_cast<size_t>(request.sampling.top_k), of_each));
      for (uint64_t v = 0; v < kVocab; ++v) {
        if (std::isinf(log_p[v])) continue;
        next.push_back({running[b].ids, running[b].score + log_p[v]});
        next.back().ids.push_back(static_cast<text::TokenId>(v));
        const double u = uniform_at(request.sampling.seed, request.stream * 64 + b,
                                    static_cast<uint64_t>((length - 1) * kVocab) + v);
        drawn.push_back(next.back());
        drawn.back().score -= std::log(-std::log(u));
      }
    }
    if (request.sampling.do_sample) {
      keep_best(drawn, ranked);
      std::erase_if(next, [&](const Scored& one) {
        return std::none_of(drawn.begin(), drawn.end(),
                            [&](const Scored& other) { return other.ids == one.ids; });
      });
    }
    keep_best(next, ranked);
    running.clear();
    const bool closed = early == EarlyStopping::kWhenFull && ended.size() == num_beams;
    for (size_t rank = 0; rank < next.size(); ++rank) {
      const bool is_stop =
          std::count(request.stop_ids.begin(), request.stop_ids.end(), next[rank].ids.back()) > 0;
      const bool ends = is_stop || length == request.max_new_tokens;
      if (!ends) running.push_back(next[rank]);
      if (!ends || rank >= num_beams || closed) continue;
      ended.push_back(
          {next[rank].ids, next[rank].score / std::pow(static_cast<double>(length), penalty)});
      if (!is_stop) ended.back().ids.push_back(-1);  // so that each has an end to take off
    }
    keep_best(running, num_beams);
    keep_best(ended, num_beams);
    if (running.empty()) break;
    if (ended.size() < num_beams) continue;
    if (early == EarlyStopping::kWhenFull) break;
    const bool at_full_length = early == EarlyStopping::kNever && penalty > 0;
    const auto reach = static_cast<double>(at_full_length ? request.max_new_tokens : length);
    if (running[0].score / std::pow(reach, penalty) <= ended.back().score) break;
  }
  Answer best{ended.at(0).ids,
              ended[0].ids.back() == -1 ? FinishReason::kLength : FinishReason::kStop};
  best.ids.pop_back();
  return best;
}

Request request_number(size_t number) {
  Request request;
  request.prompt = {static_cast<text::TokenId>(number % kVocab),
                    static_cast<text::TokenId>(number * 5 % kVocab)};
  request.max_new_tokens = 2 + static_cast<int64_t>(number % 5);
  request.sampling.num_beams = 2 + static_cast<int64_t>(number / 2 % 2);
  return request;
}

/// How many of 60 requests with `stops` stop ids are answered otherwise than defined.
int answered_otherwise(size_t stops, const SamplingParams& sampling) {
  int differing = 0;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const auto model = small_model(seed);
    for (size_t number = 0; number < 10; ++number) {
      Request request = request_number(number + 10 * seed);
      for (size_t i = 0; i < stops; ++i)
        request.stop_ids.push_back(static_cast<text::TokenId>((number + 3 * i) % kVocab));
      const int64_t num_beams = request.sampling.num_beams;
      request.sampling = sampling;
      request.sampling.num_beams = num_beams;
      const Answer ours = beam_search(*model, request);
      const Answer defined = search_as_defined(*model, request);
      differing += ours.ids != defined.ids || ours.reason != defined.reason;
    }
  }
  return differing;
}

TEST(BeamSearch, AnswersAsHuggingFaceWithNoneOrSeveralStopIds) {
  SamplingParams sampling;
  for (const size_t stops : {0, 1, 2, 3, 5}) {
    for (const double penalty : {0.0, 1.0, 3.0}) {
      sampling.length_penalty = penalty;
      EXPECT_EQ(answered_otherwise(stops, sampling), 0) << stops << " stop ids, " << penalty;
    }
  }
}

TEST(BeamSearch, StopsEarlyAsAsked) {
  SamplingParams sampling;
  for (const double penalty : {-1.0, 1.0, 3.0}) {
    sampling.length_penalty = penalty;
    for (const EarlyStopping early : {EarlyStopping::kWhenFull, EarlyStopping::kNever}) {
      sampling.early_stopping = early;
      EXPECT_EQ(answered_otherwise(3, sampling), 0) << penalty;
    }
  }
}

TEST(BeamSearch, SampledBeamsDrawFromAllBeamsTogether) {
  SamplingParams sampling;
  sampling.do_sample = true;
  for (const size_t stops : {0, 1, 3}) {
    for (const int64_t top_k : {0, 1, 3}) {  // 1: each beam keeps more, so that all can go on
      sampling.top_k = top_k;
      sampling.seed = 7 * stops + static_cast<uint64_t>(top_k);
      EXPECT_EQ(answered_otherwise(stops, sampling), 0) << stops << " stop ids, top_k " << top_k;
    }
  }
}

TEST(BeamSearch, ParametersThatLeaveNoProbabilityAreAnError) {
  const auto model = small_model(3);
  Request request = request_number(1);
  request.sampling.do_sample = true;
  request.sampling.temperature = 1e-46;  // 0 in f32
  EXPECT_THROW(beam_search(*model, request), UsageError);
}

/// The answer of a single step is the best of the four candidates that two beams draw: how often
/// each token comes follows from drawing without replacement.
TEST(BeamSearch, SampledBeamsAreDrawnThenRankedByScore) {
  const auto model = small_model(3);
  Request request;
  request.prompt = {1, 2};
  request.max_new_tokens = 1;
  request.sampling.num_beams = 2;
  request.sampling.do_sample = true;
  const std::vector<double> log_p = next_log_p(*model, request.prompt, {});
  std::vector<double> expected(kVocab, 0.0);
  std::vector<size_t> drawn;
  const std::function<void(double, double)> draw = [&](double probability, double left) {
    if (drawn.size() == 4) {
      expected[*std::max_element(drawn.begin(), drawn.end(), [&](size_t a, size_t b) {
        return log_p[a] < log_p[b];
      })] += probability;
      return;
    }
    for (size_t v = 0; v < kVocab; ++v) {
      if (std::count(drawn.begin(), drawn.end(), v)) continue;
      const double p = std::exp(log_p[v]);
      drawn.push_back(v);
      draw(probability * p / left, left - p);
      drawn.pop_back();
    }
  };
  draw(1, 1);
  constexpr int kDraws = 2000;
  std::vector<double> seen(kVocab, 0.0);
  for (int i = 0; i < kDraws; ++i) {
    request.sampling.seed = static_cast<uint64_t>(i);
    const Answer answer = beam_search(*model, request);
    ASSERT_EQ(answer.ids.size(), 1u);
    seen[static_cast<size_t>(answer.ids[0])] += 1.0 / kDraws;
  }
  // Five standard deviations of the frequency of an event seen kDraws times.
  for (size_t v = 0; v < kVocab; ++v) {
    const double deviation = std::sqrt(expected[v] * (1 - expected[v]) / kDraws);
    EXPECT_NEAR(seen[v], expected[v], 5 * deviation + 1e-9) << v;
  }
}

}  // namespace beam_search_test
}  // namespace danlu::infer
