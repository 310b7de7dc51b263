#include "infer/generate.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <numeric>

#include "base/clock.h"
#include "base/error.h"
#include "device/parallel.h"
#include "infer/step.h"

namespace danlu::infer {
namespace {

bool contains(const std::vector<text::TokenId>& ids, text::TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

/// A request being answered.
struct Running {
  size_t index;
  const Request* request;
  SequenceId sequence;
  std::vector<text::TokenId> seen;     ///< prompt and answer
  std::vector<text::TokenId> pending;  ///< ids the next forward consumes
  Answer answer;
};

text::TokenId next_token(const models::CausalLM& model, const at::Tensor& logits_BV, size_t row,
                         const Running& r) {
  return sample_token(answerable(logits_BV, row, *r.request), r.seen, r.request->sampling,
                      r.request->stream, r.answer.ids.size(), model.dtype());
}
/// One for each row of the logits.
std::vector<text::TokenId> next_tokens(const models::CausalLM& model, const at::Tensor& logits_BV,
                                       const std::vector<Running>& running) {
  std::vector<text::TokenId> ids(running.size());
  device::parallel_each(running.size(),
                        [&](size_t i) { ids[i] = next_token(model, logits_BV, i, running[i]); });
  return ids;
}

/// Takes the next token into account; true when the request is finished.
bool accept_token(Running& running, text::TokenId id, int64_t max_positions,
                  const OnToken& on_token) {
  if (contains(running.request->stop_ids, id)) {
    running.answer.reason = FinishReason::kStop;
    return true;
  }
  running.answer.ids.push_back(id);
  running.seen.push_back(id);
  running.pending = {id};
  if (on_token && !on_token(running.index, id)) {
    running.answer.reason = FinishReason::kCancelled;
    return true;
  }
  const bool window_full =
      max_positions > 0 && static_cast<int64_t>(running.seen.size()) >= max_positions;
  return window_full ||
         static_cast<int64_t>(running.answer.ids.size()) >= running.request->max_new_tokens;
}

/// What was answered so far stays; the requests from `next` on were not begun.
void cancel_unfinished(std::vector<Running>& running, size_t next, std::vector<Answer>& answers) {
  for (Running& r : running) answers[r.index] = std::move(r.answer);
  for (Running& r : running) answers[r.index].reason = FinishReason::kCancelled;
  for (size_t i = next; i < answers.size(); ++i) answers[i].reason = FinishReason::kCancelled;
}

}  // namespace

void check_prompt(const arch::ModelConfig& config, const std::vector<text::TokenId>& prompt) {
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
}

std::vector<Answer> generate(const models::CausalLM& model, const std::vector<Request>& requests,
                             int64_t batch_size, const OnToken& on_token, GenerationStats* stats,
                             const IsCancelled& is_cancelled, const OnAnswer& on_answer) {
  for (const Request& request : requests) {
    request.sampling.validate();
    check_prompt(model.config(), request.prompt);
  }
  GenerationStats local;
  GenerationStats& counts = stats ? *stats : local;
  SequenceCache cache(model.config(), model.dtype(), model.device());
  std::vector<Answer> answers(requests.size());
  std::vector<Running> running;
  size_t next = 0;
  while (next < requests.size() || !running.empty()) {
    if (is_cancelled && is_cancelled()) {
      cancel_unfinished(running, next, answers);
      break;
    }
    const double start_s = steady_now_s();
    bool prefill = false;
    while (next < requests.size() &&
           static_cast<int64_t>(running.size()) < std::max<int64_t>(1, batch_size)) {
      const Request& request = requests[next];
      if (request.max_new_tokens <= 0) {
        if (on_answer) on_answer(next, answers[next]);
        ++next;
        continue;
      }
      running.push_back({next++, &request, cache.add(), request.prompt, request.prompt, {}});
      counts.prompt_tokens += static_cast<int64_t>(request.prompt.size());
      prefill = true;
    }
    if (running.empty()) break;
    std::vector<StepInput> inputs;
    for (const Running& r : running) inputs.push_back({r.sequence, r.pending});
    at::Tensor logits_BV = next_logits(model, cache, inputs);
    const std::vector<text::TokenId> ids = next_tokens(model, logits_BV, running);
    std::vector<Running> still;
    for (size_t i = 0; i < running.size(); ++i) {
      Running& r = running[i];
      const text::TokenId id = ids[i];
      ++counts.new_tokens;
      if (accept_token(r, id, model.config().max_positions, on_token)) {
        cache.remove(r.sequence);
        answers[r.index] = std::move(r.answer);
        if (on_answer) on_answer(r.index, answers[r.index]);
      } else {
        still.push_back(std::move(r));
      }
    }
    running = std::move(still);
    (prefill ? counts.prefill_s : counts.decode_s) += steady_now_s() - start_s;
  }
  return answers;
}

Session::Session(const models::CausalLM& model)
    : model_(model),
      cache_(model.config(), model.dtype(), model.device()),
      sequence_(cache_.add()) {}

Answer Session::answer(const Request& request, const OnToken& on_token, GenerationStats* stats) {
  request.sampling.validate();
  check_prompt(model_.config(), request.prompt);
  GenerationStats local;
  GenerationStats& counts = stats ? *stats : local;
  const auto [mismatch, unused] =
      std::mismatch(cached_.begin(), cached_.end(), request.prompt.begin(), request.prompt.end());
  // At least one token must run: its logits are the answer's first.
  const size_t shared =
      std::min<size_t>(static_cast<size_t>(mismatch - cached_.begin()), request.prompt.size() - 1);
  cache_.truncate(sequence_, static_cast<int64_t>(shared));
  cached_.assign(request.prompt.begin(),
                 request.prompt.begin() + static_cast<std::ptrdiff_t>(shared));
  Running running{
      0,
      &request,
      sequence_,
      request.prompt,
      {request.prompt.begin() + static_cast<std::ptrdiff_t>(shared), request.prompt.end()},
      {}};
  counts.prompt_tokens += static_cast<int64_t>(request.prompt.size());
  bool done = request.max_new_tokens <= 0;
  bool first = true;
  while (!done) {
    const double start_s = steady_now_s();
    at::Tensor logits_BV = next_logits(model_, cache_, {{sequence_, running.pending}});
    cached_.insert(cached_.end(), running.pending.begin(), running.pending.end());
    const text::TokenId id = next_token(model_, logits_BV, 0, running);
    ++counts.new_tokens;
    (first ? counts.prefill_s : counts.decode_s) += steady_now_s() - start_s;
    first = false;
    done = accept_token(running, id, model_.config().max_positions, on_token);
  }
  return running.answer;
}

}  // namespace danlu::infer
