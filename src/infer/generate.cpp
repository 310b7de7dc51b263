#include "infer/generate.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "base/clock.h"
#include "base/error.h"
#include "infer/engine.h"
#include "infer/live_request.h"
#include "infer/step.h"

namespace danlu::infer {
namespace {

bool contains(const std::vector<text::TokenId>& ids, text::TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

/// A request being answered.
struct Running {
  const Request* request;
  SequenceId sequence;
  std::vector<text::TokenId> seen;     ///< prompt and answer
  std::vector<text::TokenId> pending;  ///< ids the next forward consumes
  Answer answer;
};

/// Lets the next pass of such a text begin with its first token.
void begin_anew_if_outgrown(const arch::ModelConfig& config, SequenceCache& cache,
                            Running& running) {
  const int64_t cached = cache.length(running.sequence);
  if (!outgrows_cache(config, cached, cached + std::ssize(running.pending))) return;
  cache.truncate(running.sequence, 0);
  running.pending = running.seen;
}

/// Takes the next token into account; true when the request is finished.
bool accept_token(Running& running, text::TokenId id, int64_t max_positions,
                  const OnToken& on_token) {
  if (contains(running.request->stop_ids, id)) {
    running.answer.reason = FinishReason::kStop;
    running.answer.stopped_by = id;
    return true;
  }
  if (running.request->rules.constraint) running.request->rules.constraint->accept(id);
  running.answer.ids.push_back(id);
  running.seen.push_back(id);
  running.pending = {id};
  if (on_token && !on_token(0, id)) {
    running.answer.reason = FinishReason::kCancelled;
    return true;
  }
  const bool window_full =
      max_positions > 0 && static_cast<int64_t>(running.seen.size()) >= max_positions;
  return window_full ||
         static_cast<int64_t>(running.answer.ids.size()) >= running.request->max_new_tokens;
}

/// Counts what a step took, by whether a prompt began in it.
void count_step(const EngineCounts& before, const EngineCounts& after, double seconds,
                GenerationStats& counts) {
  const bool prefill = after.prompt_tokens > before.prompt_tokens;
  counts.prompt_tokens += after.prompt_tokens - before.prompt_tokens;
  counts.new_tokens += after.new_tokens - before.new_tokens;
  (prefill ? counts.prefill_s : counts.decode_s) += seconds;
}

/// Errors: the output's own, but for pictures that cannot be read.
void end_answer(const EngineOutput& output, Answer& answer) {
  answer.reason = *output.finished;
  answer.stopped_by = output.stopped_by;
  if (!output.error) return;
  try {
    std::rethrow_exception(output.error);
  } catch (const DataError& error) {
    answer.problem = error.what();
  }
}

}  // namespace

const char* name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kFailed:
      return "error";
    case FinishReason::kCancelled:
      break;
  }
  return "cancelled";
}

void check_prompt(const arch::ModelConfig& config, const std::vector<text::TokenId>& prompt,
                  const std::vector<PromptPicture>& pictures) {
  if (prompt.empty()) {
    throw DataError(tr("[generate] the prompt is empty after tokenisation"),
                    tr("give some text, or a model whose tokenizer adds a BOS token"));
  }
  for (const text::TokenId id : prompt) {
    if (id < 0 || id >= config.vocab_size) {
      throw DataError(tr("[generate] prompt id {} is outside the model's vocabulary of {}", id,
                         config.vocab_size),
                      tr("the tokenizer does not belong to this model"));
    }
  }
  if (config.max_positions > 0 && static_cast<int64_t>(prompt.size()) >= config.max_positions) {
    throw DataError(tr("[generate] the prompt has {} tokens, the model's window holds {}",
                       prompt.size(), config.max_positions),
                    tr("shorten the prompt"));
  }
  check_pictures(config, prompt, pictures);
}

std::vector<Answer> generate(const models::CausalLM& model, const std::vector<Request>& requests,
                             int64_t batch_size, const OnToken& on_token, GenerationStats* stats,
                             const IsCancelled& is_cancelled, const OnAnswer& on_answer,
                             Followers* followers) {
  GenerationStats local;
  GenerationStats& counts = stats ? *stats : local;
  Engine engine(model,
                {.max_sequences = std::max<int64_t>(1, batch_size),
                 .max_batched_tokens = std::numeric_limits<int64_t>::max() / 2,
                 .prefix_caching = false},
                followers);
  std::vector<Answer> answers(requests.size());
  std::map<RequestHandle, size_t> unfinished;
  for (size_t i = 0; i < requests.size(); ++i) unfinished[engine.add({.request = requests[i]})] = i;
  const auto finish = [&](RequestHandle handle) {
    const size_t index = unfinished.at(handle);
    unfinished.erase(handle);
    if (on_answer) on_answer(index, answers[index]);
  };
  while (engine.has_work() && !(is_cancelled && is_cancelled())) {
    const double start_s = steady_now_s();
    const EngineCounts before = engine.counts();
    for (const EngineOutput& output : engine.step()) {
      const size_t index = unfinished.at(output.handle);
      Answer& answer = answers[index];
      if (output.finished) end_answer(output, answer);
      if (output.token) answer.ids.push_back(*output.token);
      if (output.token && on_token && !on_token(index, *output.token)) {
        answer.reason = FinishReason::kCancelled;
        engine.cancel(output.handle);
        finish(output.handle);
      } else if (output.finished) {
        finish(output.handle);
      }
    }
    count_step(before, engine.counts(), steady_now_s() - start_s, counts);
  }
  for (const auto& [handle, index] : unfinished) {
    answers[index].reason = FinishReason::kCancelled;
    engine.cancel(handle);
  }
  return answers;
}

Session::Session(const models::CausalLM& model)
    : model_(model), cache_(model), sequence_(cache_.add()) {}

Answer Session::answer(const Request& request, const OnToken& on_token, GenerationStats* stats) {
  request.sampling.validate();
  check_prompt(model_.config(), request.prompt, request.pictures);
  check_rules(request.rules, model_.config().vocab_size);
  GenerationStats local;
  GenerationStats& counts = stats ? *stats : local;
  const auto pictures =
      PromptPictures::of(model_.config(), std::ssize(request.prompt), request.pictures);
  const std::vector<text::TokenId> named = names_.named(request.prompt, pictures.get());
  const auto [mismatch, unused] =
      std::mismatch(cached_.begin(), cached_.end(), named.begin(), named.end());
  // At least one token must run: its logits are the answer's first.
  size_t shared =
      std::min<size_t>(static_cast<size_t>(mismatch - cached_.begin()), request.prompt.size() - 1);
  if (outgrows_cache(model_.config(), cache_.length(sequence_), std::ssize(request.prompt)))
    shared = 0;
  cache_.truncate(sequence_, static_cast<int64_t>(shared));
  const auto split = static_cast<std::ptrdiff_t>(shared);
  cached_.assign(named.begin(), named.begin() + split);
  Running running{&request,
                  sequence_,
                  request.prompt,
                  {request.prompt.begin() + split, request.prompt.end()},
                  {}};
  counts.prompt_tokens += static_cast<int64_t>(request.prompt.size());
  bool done = request.max_new_tokens <= 0;
  bool first = true;
  while (!done) {
    const double start_s = steady_now_s();
    begin_anew_if_outgrown(model_.config(), cache_, running);
    at::Tensor logits_BV =
        next_logits(model_, cache_, {{sequence_, running.pending, pictures.get()}});
    if (first)
      cached_ = named;
    else
      cached_.push_back(running.seen.back());
    const auto id =
        next_of(answerable(logits_BV, 0, request), request, running.seen, model_.dtype());
    (first ? counts.prefill_s : counts.decode_s) += steady_now_s() - start_s;
    first = false;
    if (!id) {
      running.answer.reason = FinishReason::kStop;
      break;
    }
    ++counts.new_tokens;
    done = accept_token(running, *id, model_.config().max_positions, on_token);
  }
  return running.answer;
}

}  // namespace danlu::infer
