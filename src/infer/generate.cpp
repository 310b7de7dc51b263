#include "infer/generate.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <map>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/token_type.h"
#include "infer/engine.h"
#include "ops/pages.h"

namespace danlu::infer {
namespace {

/// The tokens of a pass: prompts are read whole.
constexpr int64_t kAnyTokens = std::numeric_limits<int64_t>::max() / 2;
/// What a conversation keeps where the model's window has no end.
constexpr int64_t kKeptTokens = int64_t{1} << 17;

/// Counts what a step took, by whether a prompt began in it.
void count_step(const EngineCounts& before, const EngineCounts& after, double seconds,
                GenerationStats& counts) {
  const bool prefill = after.prompt_tokens > before.prompt_tokens;
  counts.prompt_tokens += after.prompt_tokens - before.prompt_tokens;
  counts.new_tokens += after.new_tokens - before.new_tokens;
  counts.guessed += after.guessed - before.guessed;
  counts.guessed_right += after.guessed_right - before.guessed_right;
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
    if (id < 0 || (config.encoder ? without_type(id) : id) >= config.vocab_size) {
      throw DataError(tr("[generate] prompt id {} is outside the model's vocabulary of {}", id,
                         config.vocab_size),
                      tr("the tokenizer does not belong to this model"));
    }
  }
  // What answers nothing needs no place behind its text.
  const int64_t needed = std::ssize(prompt) + (config.encoder ? 0 : 1);
  if (config.max_positions > 0 && needed > config.max_positions) {
    throw DataError(tr("[generate] the prompt has {} tokens, the model's window holds {}",
                       prompt.size(), config.max_positions),
                    tr("shorten the prompt"));
  }
  check_pictures(config, prompt, pictures);
}

namespace {

/// Who hears of answers while they are made; all may be empty.
struct Told {
  const OnToken& on_token;
  const IsCancelled& is_cancelled;
  const OnAnswer& on_answer;
};

/// failures: what the engine said of answers that ended by kFailed.
std::vector<Answer> answers_of(Engine& engine, const std::vector<Request>& requests,
                               const Told& told, GenerationStats& counts,
                               std::vector<std::exception_ptr>& failures) {
  std::vector<Answer> answers(requests.size());
  failures.resize(requests.size());
  std::map<RequestHandle, size_t> unfinished;
  for (size_t i = 0; i < requests.size(); ++i) unfinished[engine.add({.request = requests[i]})] = i;
  const auto finish = [&](RequestHandle handle) {
    const size_t index = unfinished.at(handle);
    unfinished.erase(handle);
    if (told.on_answer) told.on_answer(index, answers[index]);
  };
  while (engine.has_work() && !(told.is_cancelled && told.is_cancelled())) {
    const double start_s = steady_now_s();
    const EngineCounts before = engine.counts();
    for (const EngineOutput& output : engine.step()) {
      // A step that keeps guesses has several outputs of an answer, which may have ended before.
      const auto found = unfinished.find(output.handle);
      if (found == unfinished.end()) continue;
      const size_t index = found->second;
      Answer& answer = answers[index];
      failures[index] = output.error;
      if (output.finished) end_answer(output, answer);
      if (output.token) answer.ids.push_back(*output.token);
      if (output.token && told.on_token && !told.on_token(index, *output.token)) {
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

}  // namespace

std::vector<Answer> generate(const models::CausalLM& model, const std::vector<Request>& requests,
                             int64_t batch_size, const OnToken& on_token, GenerationStats* stats,
                             const IsCancelled& is_cancelled, const OnAnswer& on_answer,
                             Followers* followers, int64_t pass_tokens,
                             const Speculation& speculation) {
  GenerationStats local;
  Engine engine(model,
                {.max_sequences = std::max<int64_t>(1, batch_size),
                 .max_batched_tokens = pass_tokens > 0 ? pass_tokens : kAnyTokens,
                 .prefix_caching = false,
                 .lookup = speculation.lookup,
                 .predicted_tokens = speculation.predicted_tokens},
                followers);
  std::vector<std::exception_ptr> failures;
  return answers_of(engine, requests, {on_token, is_cancelled, on_answer}, stats ? *stats : local,
                    failures);
}

namespace {

std::unique_ptr<Engine> engine_of_session(const models::CausalLM& model, Followers* followers,
                                          const Speculation& speculation) {
  const int64_t window = model.config().max_positions;
  return std::make_unique<Engine>(
      model,
      EngineSettings{.max_sequences = 1,
                     .max_batched_tokens = kAnyTokens,
                     .kept_pages = ops::pages_for(window > 0 ? window : kKeptTokens),
                     .lookup = speculation.lookup,
                     .predicted_tokens = speculation.predicted_tokens},
      followers);
}

}  // namespace

Session::Session(const models::CausalLM& model, Followers* followers,
                 const Speculation& speculation)
    : model_(model),
      followers_(followers),
      speculation_(speculation),
      engine_(engine_of_session(model, followers, speculation)) {}

Session::~Session() = default;

Answer Session::answer(const Request& request, const OnToken& on_token, GenerationStats* stats) {
  GenerationStats local;
  std::vector<std::exception_ptr> failures;
  std::vector<Answer> answers;
  try {
    answers = answers_of(*engine_, {request}, {on_token, {}, {}}, stats ? *stats : local, failures);
  } catch (...) {
    // An engine whose pass failed is of no further use; the conversation may go on.
    engine_ = engine_of_session(model_, followers_, speculation_);
    throw;
  }
  if (failures.front()) std::rethrow_exception(failures.front());
  return std::move(answers.front());
}

}  // namespace danlu::infer
