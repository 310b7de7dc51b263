#include "cli/engine/eval_model.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "arch/attention_size.h"
#include "arch/gated_delta.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/rng.h"
#include "base/threads.h"
#include "cli/engine/model_files.h"
#include "data/media_settings.h"
#include "device/select.h"

namespace danlu::cli {
namespace {

bool is_eval_interrupted() { return pending_interrupt() != 0; }

/// Draws of one context differ by its repeats alone, whichever rank makes them and when.
uint64_t stream_of(const eval::Call& call) {
  uint64_t hash = static_cast<uint64_t>(call.repeat);
  for (const unsigned char byte : call.context) hash = mix64(hash, byte);
  return hash;
}

/// Where the first of the stop strings begins; npos: none is there.
size_t stop_in(const std::string& text, const std::vector<std::string>& until) {
  size_t first = std::string::npos;
  for (const std::string& stop : until) {
    if (!stop.empty()) first = std::min(first, text.find(stop));
  }
  return first;
}

bool knows_thoughts(const EvalModelSettings& settings) {
  return !settings.think_end.empty() || settings.think_end_id;
}

/// Where the answer begins; npos: thoughts have not ended.
size_t end_of_thoughts(const std::string& text, const std::string& think_end) {
  const size_t at = think_end.empty() ? text.npos : text.rfind(think_end);
  return at == text.npos ? at : at + think_end.size();
}

/// What is left behind the thoughts, as lm-eval has it: all of a text in which none end.
std::string without_thoughts(const std::string& text, const EvalModelSettings& settings) {
  if (!knows_thoughts(settings)) return text;
  const size_t at = end_of_thoughts(text, settings.think_end);
  const size_t begin = text.find_first_not_of(" \t\n\r\f\v", at == text.npos ? 0 : at);
  return begin == text.npos ? "" : text.substr(begin);
}

eval::Answer generated(const std::string& whole, const eval::Call& call, int64_t num_cut,
                       const EvalModelSettings& settings) {
  const std::string text = without_thoughts(whole, settings);
  eval::Answer answer;
  answer.text = text.substr(0, stop_in(text, call.rules.until));
  answer.num_cut_tokens = num_cut;
  return answer;
}

/// One text a call, or windows of one.
struct AskedTexts {
  std::vector<infer::ScoredText> texts;
  std::vector<size_t> call_of;  ///< of each text
  std::vector<int64_t> num_open;
  std::vector<eval::Answer> answers;
};

/// The ids of a call, in windows, and its pictures.
struct EncodedCall {
  std::vector<eval::Encoded> parts;
  std::vector<infer::PromptPicture> pictures = {};
};

AskedTexts asked_texts(const std::vector<eval::Call>& calls, const std::vector<size_t>& which,
                       const std::function<EncodedCall(const eval::Call&)>& encode) {
  std::vector<EncodedCall> encoded(which.size());
  parallel_for(which.size(), default_thread_count(),
               [&](size_t i) { encoded[i] = encode(calls[which[i]]); });
  AskedTexts asked;
  asked.num_open.resize(which.size());
  asked.answers.resize(which.size());
  for (size_t i = 0; i < which.size(); ++i) {
    for (eval::Encoded& part : encoded[i].parts) {
      eval::Answer& answer = asked.answers[i];
      answer.is_greedy = true;
      answer.num_tokens += std::ssize(part.ids) - part.num_context;
      answer.num_cut_tokens += part.num_cut;
      if (calls[which[i]].wants_whole) answer.num_whole_tokens += std::ssize(part.ids);
      asked.texts.push_back({std::move(part.ids), part.num_context, calls[which[i]].wants_whole,
                             encoded[i].pictures});
      asked.call_of.push_back(i);
      ++asked.num_open[i];
    }
  }
  return asked;
}

std::vector<size_t> calls_that(const std::vector<eval::Call>& calls, bool generate) {
  std::vector<size_t> which;
  for (size_t i = 0; i < calls.size(); ++i) {
    if ((calls[i].kind == eval::CallKind::kGeneration) == generate) which.push_back(i);
  }
  return which;
}

}  // namespace

EvalModel::EvalModel(const InferenceModel& loaded, const EvalModelSettings& settings)
    : loaded_(loaded), settings_(settings), encoder_(loaded.tokenizer, settings.encoder) {}

void EvalModel::answer(const std::vector<eval::Call>& calls, const OnAnswer& on_answer) {
  answer_likelihoods(calls, on_answer);
  answer_generations(calls, on_answer);
  if (const int signal = pending_interrupt())
    throw_interrupted(
        signal, tr("[eval] stopped; the answers so far are kept, and the same command goes on"));
}

void EvalModel::answer_likelihoods(const std::vector<eval::Call>& calls,
                                   const OnAnswer& on_answer) {
  const std::vector<size_t> which = calls_that(calls, /*generate=*/false);
  if (which.empty()) return;
  AskedTexts asked = asked_texts(calls, which, [&](const eval::Call& call) {
    if (call.kind == eval::CallKind::kRolling) return EncodedCall{encoder_.rolling(call)};
    Asked one = with_pictures(call, [&](const eval::Call& text) { return encoder_.pair(text); });
    return EncodedCall{{std::move(one.text)}, std::move(one.pictures)};
  });
  infer::LikelihoodStats stats;
  infer::score_texts(
      *loaded_.model, asked.texts, settings_.likelihood,
      [&](size_t text, const infer::Likelihood& likelihood) {
        const size_t i = asked.call_of[text];
        eval::Answer& answer = asked.answers[i];
        answer.log_likelihood += likelihood.sum;
        answer.whole_log_likelihood += likelihood.whole_sum;
        answer.is_greedy &= likelihood.is_greedy;
        if (--asked.num_open[i] == 0) on_answer(which[i], answer);
      },
      &stats, is_eval_interrupted);
  counts_.likelihood.given_tokens += stats.given_tokens;
  counts_.likelihood.computed_tokens += stats.computed_tokens;
}

EvalModel::Asked EvalModel::with_pictures(
    const eval::Call& call, const std::function<eval::Encoded(const eval::Call&)>& encode) const {
  if (call.images.empty()) return {encode(call), {}};
  if (!loaded_.media) {
    throw UsageError(tr("[eval] {}: a question with a picture: {}", call.images.front(),
                        data::why_no_media(loaded_.model_directory)));
  }
  if (call.wants_whole)
    throw UsageError(tr("[eval] a metric over context and answer has no pictures"));
  eval::Call marked = call;
  marked.context = PromptMedia::marked(call.context);
  Asked asked{encode(marked), {}};
  const int64_t before = std::ssize(asked.text.ids);
  asked.pictures = loaded_.media->expand(call.images, settings_.media_folder, &asked.text.ids);
  asked.text.num_context += std::ssize(asked.text.ids) - before;
  return asked;
}

infer::Request EvalModel::request_of(const eval::Call& call, const Asked& prompt) const {
  infer::Request request;
  request.prompt = prompt.text.ids;
  request.pictures = prompt.pictures;
  request.max_new_tokens = call.rules.max_tokens;
  request.num_tokens = static_cast<int64_t>(loaded_.tokenizer->size());
  request.stop_ids = infer::end_ids(loaded_.defaults.stop_ids, *loaded_.tokenizer,
                                    settings_.applies_template ? loaded_.encoder.get() : nullptr);
  // Their text is no part of an answer, in which a stop string is looked for.
  for (const std::string& stop : call.rules.until) {
    const auto id = loaded_.tokenizer->token_to_id(stop);
    if (id && loaded_.tokenizer->is_special(*id)) request.stop_ids.push_back(*id);
  }
  // Greedy unless a benchmark says otherwise, whatever generation_config.json would do.
  request.sampling.do_sample = call.rules.do_sample;
  request.sampling.temperature = call.rules.temperature;
  request.sampling.top_p = call.rules.top_p;
  request.sampling.top_k = call.rules.top_k;
  request.sampling.num_beams = call.rules.num_beams;
  request.sampling.repetition_penalty = call.rules.repetition_penalty;
  request.sampling.seed = settings_.seed;
  request.stream = stream_of(call);
  return request;
}

void EvalModel::answer_by_beams(const infer::Request& request, const eval::Call& call, size_t index,
                                int64_t num_cut, const OnAnswer& on_answer) {
  const infer::Answer found =
      infer::beam_search(*loaded_.model, request, &counts_.generation, is_eval_interrupted);
  if (found.reason == infer::FinishReason::kCancelled) return;
  std::vector<text::TokenId> ids = found.ids;
  if (settings_.think_end_id) {
    const auto end = static_cast<text::TokenId>(*settings_.think_end_id);
    ids.erase(ids.begin(), std::find(ids.rbegin(), ids.rend(), end).base());
  }
  on_answer(index, generated(loaded_.tokenizer->decode(ids, true), call, num_cut, settings_));
}

void EvalModel::answer_generations(const std::vector<eval::Call>& calls,
                                   const OnAnswer& on_answer) {
  std::vector<size_t> which = calls_that(calls, /*generate=*/true);
  std::vector<Asked> prompts(which.size());
  parallel_for(which.size(), default_thread_count(), [&](size_t i) {
    prompts[i] = with_pictures(calls[which[i]],
                               [&](const eval::Call& text) { return encoder_.prompt(text); });
  });
  std::vector<size_t> order(which.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return prompts[a].text.ids.size() > prompts[b].text.ids.size();
  });
  std::vector<infer::Request> requests;
  std::vector<size_t> asked;  // index into which and prompts, of each request
  for (const size_t i : order) {
    const eval::Call& call = calls[which[i]];
    const infer::Request request = request_of(call, prompts[i]);
    if (call.rules.num_beams > 1) {
      if (is_eval_interrupted()) return;
      answer_by_beams(request, call, which[i], prompts[i].text.num_cut, on_answer);
      continue;
    }
    requests.push_back(request);
    asked.push_back(i);
  }
  // Longest first: what follows needs no more memory, and may be answered by more at a time.
  for (size_t from = 0; from < requests.size() && !is_eval_interrupted();) {
    constexpr size_t kBatches = 8;
    const int64_t batch = batch_of(requests[from]);
    const size_t end = std::min(requests.size(), from + kBatches * static_cast<size_t>(batch));
    const std::vector<infer::Request> some(requests.begin() + static_cast<std::ptrdiff_t>(from),
                                           requests.begin() + static_cast<std::ptrdiff_t>(end));
    generate_texts(
        some, batch,
        [&](size_t request) -> const eval::Call& { return calls[which[asked[from + request]]]; },
        [&](size_t request, const std::string& text) {
          const size_t i = asked[from + request];
          on_answer(which[i], generated(text, calls[which[i]], prompts[i].text.num_cut, settings_));
        });
    from = end;
  }
}

int64_t EvalModel::batch_of(const infer::Request& longest) const {
  if (settings_.generation_batch > 0) return settings_.generation_batch;
  // Keys and values stay; what a pass over all prompts makes of its ids comes and goes.
  constexpr int64_t kMost = 16, kCacheBytes = int64_t{2} << 30, kPassTokens = 32768;
  const arch::ModelConfig& config = loaded_.model->config();
  const int64_t bytes_per_token = arch::count_key_layers(config) * arch::kept_of_token(config).elements() *
                                  static_cast<int64_t>(c10::elementSize(loaded_.model->dtype()));
  const int64_t tokens = std::ssize(longest.prompt) + longest.max_new_tokens;
  const int64_t fits =
      std::min(kCacheBytes / (bytes_per_token * tokens), kPassTokens / std::ssize(longest.prompt));
  return std::clamp<int64_t>(fits, 1, kMost);
}

void EvalModel::generate_texts(const std::vector<infer::Request>& requests, int64_t batch,
                               const std::function<const eval::Call&(size_t)>& call_of,
                               const std::function<void(size_t, const std::string&)>& on_text) {
  struct Text {
    text::DecodeStream stream;
    std::string text;
    bool answers;  ///< its thoughts have ended with a token
  };
  const auto think_end = settings_.think_end_id;
  std::vector<Text> texts(requests.size(), {text::DecodeStream(loaded_.tokenizer), {}, !think_end});
  const auto has_ended = [&](const Text& own, const std::vector<std::string>& until) {
    if (!own.answers) return false;
    if (settings_.think_end.empty()) return stop_in(own.text, until) != std::string::npos;
    const size_t begin = end_of_thoughts(own.text, settings_.think_end);
    return begin != std::string::npos &&
           stop_in(own.text.substr(begin), until) != std::string::npos;
  };
  infer::generate(
      *loaded_.model, requests, batch,
      [&](size_t request, text::TokenId id) {
        Text& own = texts[request];
        own.text += own.stream.push(id);
        if (think_end && id == *think_end) {
          own = {text::DecodeStream(loaded_.tokenizer), {}, true};
        }
        return !has_ended(own, call_of(request).rules.until);
      },
      &counts_.generation, is_eval_interrupted,
      [&](size_t request, const infer::Answer& answer) {
        if (answer.reason == infer::FinishReason::kFailed) throw DataError(answer.problem);
        // Cancelled here is what a stop string ended; of an interrupt nobody is told.
        if (answer.reason != infer::FinishReason::kCancelled)
          texts[request].text += texts[request].stream.finish();
        on_text(request, texts[request].text);
      });
}

std::string EvalModel::chat_text(const std::vector<text::Message>& messages) const {
  if (!loaded_.encoder) {
    throw ModelError(tr("[eval] the model has no chat template that could be applied"),
                     tr("name one with --prompt_type, or ask plainly with --no_chat_template"));
  }
  return loaded_.encoder->render({messages, {}}, /*add_generation_prompt=*/true);
}

bool EvalModel::chat_text_has_bos() const {
  if (!template_has_bos_) {
    const auto& bos = loaded_.tokenizer->special_tokens().bos;
    template_has_bos_ = bos && !bos->empty() && chat_text({{"user", "?"}}).starts_with(*bos);
  }
  return *template_has_bos_;
}

int64_t EvalModel::count_tokens(const std::string& text) const {
  return std::ssize(loaded_.tokenizer->encode(text, /*add_special=*/false));
}

uint64_t EvalModel::picture_content(const std::string& image) const {
  if (!loaded_.media) return 0;
  return content_of_media(image, loaded_.media->settings(), settings_.media_folder);
}

Json EvalModel::identity() const {
  Json thoughts;
  if (settings_.think_end_id) thoughts = *settings_.think_end_id;
  if (!settings_.think_end.empty()) thoughts = settings_.think_end;
  return {{"thoughts", thoughts},
          {"files", files_of_model(loaded_)},
          {"tokenizer", loaded_.tokenizer->content_hash()},
          {"dtype", c10::toString(loaded_.model->dtype())},
          {"quantize", loaded_.quantize},
          {"device", device::name_of(loaded_.model->device())},
          {"window", settings_.encoder.window},
          {"add_special",
           settings_.encoder.add_special ? Json(*settings_.encoder.add_special) : Json()},
          {"prefix", encoder_.prefix_id()},
          {"stops", loaded_.defaults.stop_ids},
          {"version", DANLU_VERSION},
          {"template", loaded_.encoder ? loaded_.encoder->content_hash() : 0},
          {"media", loaded_.media ? loaded_.media->settings().answer_json() : Json()},
          {"seed", settings_.seed},
          {"alone", !settings_.likelihood.share_prefixes}};
}

}  // namespace danlu::cli
