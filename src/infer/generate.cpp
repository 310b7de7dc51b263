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
  std::shared_ptr<PromptPictures> pictures;
  Answer answer;
};

/// Whether a text has keys in the cache that turn by other frequencies than the next pass: longrope
/// has others for texts beyond its original context. Hugging Face begins such a text anew, too.
bool outgrows_cache(const arch::ModelConfig& config, int64_t cached, int64_t length) {
  const int64_t original = config.rope.original_max_positions;
  return config.rope.scaling == arch::RopeScaling::kLongRope && cached > 0 &&
         (cached > original) != (length > original);
}

/// Lets the next pass of such a text begin with its first token.
void begin_anew_if_outgrown(const arch::ModelConfig& config, SequenceCache& cache,
                            Running& running) {
  const int64_t cached = cache.length(running.sequence);
  if (!outgrows_cache(config, cached, cached + std::ssize(running.pending))) return;
  cache.truncate(running.sequence, 0);
  running.pending = running.seen;
}

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
    running.answer.stopped_by = id;
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

class Generation {
 public:
  Generation(const models::CausalLM& model, const std::vector<Request>& requests,
             int64_t batch_size, const OnToken& on_token, const OnAnswer& on_answer,
             GenerationStats& counts)
      : model_(model),
        requests_(requests),
        batch_size_(static_cast<size_t>(std::max<int64_t>(1, batch_size))),
        on_token_(on_token),
        on_answer_(on_answer),
        counts_(counts),
        cache_(model.config(), model.dtype(), model.device()),
        answers_(requests.size()) {}

  bool is_done() const { return next_ >= requests_.size() && running_.empty(); }

  /// A pass over all requests that are being answered and those that now begin.
  void step() {
    const double start_s = steady_now_s();
    const bool prefill = admit();
    if (running_.empty()) return;
    std::vector<StepInput> inputs;
    for (Running& r : running_) {
      begin_anew_if_outgrown(model_.config(), cache_, r);
      inputs.push_back({r.sequence, r.pending, r.pictures.get()});
    }
    const at::Tensor logits_BV = next_logits(model_, cache_, inputs);
    const std::vector<text::TokenId> ids = next_tokens(model_, logits_BV, running_);
    std::vector<Running> still;
    for (size_t i = 0; i < running_.size(); ++i) {
      Running& r = running_[i];
      ++counts_.new_tokens;
      if (r.pictures) r.pictures->release();
      if (accept_token(r, ids[i], model_.config().max_positions, on_token_)) {
        cache_.remove(r.sequence);
        finish(r.index, std::move(r.answer));
      } else {
        still.push_back(std::move(r));
      }
    }
    running_ = std::move(still);
    (prefill ? counts_.prefill_s : counts_.decode_s) += steady_now_s() - start_s;
  }

  /// What was answered so far stays; the others were not begun.
  void cancel() {
    for (Running& r : running_) {
      answers_[r.index] = std::move(r.answer);
      answers_[r.index].reason = FinishReason::kCancelled;
    }
    for (size_t i = next_; i < answers_.size(); ++i) answers_[i].reason = FinishReason::kCancelled;
  }

  std::vector<Answer> take() { return std::move(answers_); }

 private:
  /// Pictures of a pass that others join. One request's go through whatever their size.
  static constexpr int64_t kPassPatches = int64_t{1} << 15;

  void finish(size_t index, Answer answer) {
    answers_[index] = std::move(answer);
    if (on_answer_) on_answer_(index, answers_[index]);
  }

  /// Whether any began.
  bool admit() {
    int64_t patches = 0;
    bool begins = false;
    for (; next_ < requests_.size() && running_.size() < batch_size_; ++next_) {
      const Request& request = requests_[next_];
      if (request.max_new_tokens <= 0) {
        finish(next_, {});
        continue;
      }
      const auto pictures =
          PromptPictures::of(model_.config(), std::ssize(request.prompt), request.pictures);
      if (pictures) {
        if (patches > 0 && patches + pictures->patches() > kPassPatches) break;
        patches += pictures->patches();
        try {
          pictures->load();
        } catch (const DataError& error) {
          finish(next_, {.ids = {}, .reason = FinishReason::kFailed, .problem = error.what()});
          continue;
        }
      }
      running_.push_back(
          {next_, &request, cache_.add(), request.prompt, request.prompt, pictures, {}});
      counts_.prompt_tokens += std::ssize(request.prompt);
      begins = true;
    }
    return begins;
  }

  const models::CausalLM& model_;
  const std::vector<Request>& requests_;
  const size_t batch_size_;
  const OnToken& on_token_;
  const OnAnswer& on_answer_;
  GenerationStats& counts_;
  SequenceCache cache_;
  std::vector<Answer> answers_;
  std::vector<Running> running_;
  size_t next_ = 0;
};

}  // namespace

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
                             const IsCancelled& is_cancelled, const OnAnswer& on_answer) {
  for (const Request& request : requests) {
    request.sampling.validate();
    check_prompt(model.config(), request.prompt, request.pictures);
  }
  GenerationStats local;
  Generation generation(model, requests, batch_size, on_token, on_answer, stats ? *stats : local);
  while (!generation.is_done()) {
    if (is_cancelled && is_cancelled()) {
      generation.cancel();
      break;
    }
    generation.step();
  }
  return generation.take();
}

Session::Session(const models::CausalLM& model)
    : model_(model),
      cache_(model.config(), model.dtype(), model.device()),
      sequence_(cache_.add()) {}

Answer Session::answer(const Request& request, const OnToken& on_token, GenerationStats* stats) {
  request.sampling.validate();
  check_prompt(model_.config(), request.prompt, request.pictures);
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
  Running running{0,
                  &request,
                  sequence_,
                  request.prompt,
                  {request.prompt.begin() + split, request.prompt.end()},
                  pictures,
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
    const text::TokenId id = next_token(model_, logits_BV, 0, running);
    ++counts.new_tokens;
    (first ? counts.prefill_s : counts.decode_s) += steady_now_s() - start_s;
    first = false;
    done = accept_token(running, id, model_.config().max_positions, on_token);
  }
  return running.answer;
}

}  // namespace danlu::infer
