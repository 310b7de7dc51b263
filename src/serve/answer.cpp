#include "serve/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "api/refusal.h"
#include "grammar/vocabulary.h"

namespace danlu::serve {

Error error_of(const infer::EngineOutput& output) {
  try {
    if (output.error) std::rethrow_exception(output.error);
  } catch (...) {
    return current_error();
  }
  return InternalError("a request failed without saying why");
}

int status_of(Blame blame) {
  switch (blame) {
    case Blame::kClient:
      return 400;
    case Blame::kServer:
      return 500;
    case Blame::kEnd:
      return 503;
  }
  return 500;
}

Blame blame_for(const Error& why) {
  return api::is_of_client(why) ? Blame::kClient : Blame::kServer;
}

http::Response response_of(int status, const Json& json) {
  return {
      .status = status, .headers = {{"Content-Type", "application/json"}}, .body = dump_text(json)};
}

http::Response access_refusal(int status, const std::string& message, const std::string& code) {
  return response_of(status, api::error_json(status, message, "", code));
}

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

api::AnswerReaderSettings reader_settings(size_t choice, const AnswerPlan& plan) {
  api::AnswerReaderSettings settings = plan.reader;
  if (plan.continues_text) settings.before = api::text_before(plan.prompt_of(choice));
  return settings;
}

}  // namespace

int64_t num_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

Answer::Answer(AnswerPlan plan) : plan_(std::move(plan)) {
  const size_t total = plan_.prompts.size() * static_cast<size_t>(plan_.num_choices);
  choices_.reserve(total);
  for (size_t i = 0; i < total; ++i) choices_.emplace_back(i, plan_);
}

Answer::Choice::Choice(size_t number, const AnswerPlan& plan)
    : index(number),
      reader(plan.tokenizer, reader_settings(number, plan)),
      placing(api::stream_behind(plan.tokenizer, plan.reader.skips_special,
                                 reader_settings(number, plan).before)) {}

void Answer::on_accepted() {
  if (!streams()) return;
  plan_.exchange->begin_stream(200, {{"Content-Type", "text/event-stream; charset=utf-8"},
                                     {"Cache-Control", "no-cache"},
                                     {"X-Accel-Buffering", "no"}});
}

Heard Answer::on_output(size_t index, const infer::EngineOutput& output) {
  Choice& choice = choices_[index];
  if (is_over_ || is_gone_ || !choice.finish_reason.empty()) return Heard::kGone;
  if (output.finished == infer::FinishReason::kFailed) {
    const Error why = error_of(output);
    on_failed(why, blame_for(why));
    return Heard::kAll;
  }
  choice.cached_tokens = std::max(choice.cached_tokens, output.cached_tokens);
  if (!output.prompt_logprobs.empty()) choice.prompt_logprobs = output.prompt_logprobs;
  if (!choice.has_begun) {
    choice.has_begun = true;
    begin_choice(choice);
  }
  api::AnswerPiece piece = plan_.drops_answer ? api::AnswerPiece() : taken(choice, output);
  if (output.finished || choice.reader.stopped_by()) {
    api::AnswerPiece rest = choice.reader.finish();
    piece.content += rest.content;
    piece.reasoning += rest.reasoning;
    std::move(rest.calls.begin(), rest.calls.end(), std::back_inserter(piece.calls));
    end_choice(choice, output);
  }
  take_piece(choice, piece);
  if (choice.finish_reason.empty()) return is_gone_ ? Heard::kGone : Heard::kMore;
  if (++num_over_ == choices_.size()) complete();
  return Heard::kAll;
}

api::AnswerPiece Answer::taken(Choice& choice, const infer::EngineOutput& output) const {
  const auto& drawn = output.token ? output.token : output.stopped_by;
  if (!drawn) return {};
  ++choice.num_tokens;
  if (plan_.returns_ids) choice.ids.push_back(*drawn);
  const bool has_text = output.token || plan_.reader.includes_stop;
  if (output.logprobs) {
    choice.logprobs.push_back(shown(*output.logprobs, plan_.num_logprobs.value_or(0)));
    if (has_text) choice.logprobs.back().characters = num_characters(choice.placing.push(*drawn));
  }
  return has_text ? choice.reader.push(*drawn) : api::AnswerPiece();
}

void Answer::end_choice(Choice& choice, const infer::EngineOutput& output) {
  choice.finish_reason = "stop";
  if (const auto& stop = choice.reader.stopped_by()) {
    choice.stop_reason = *stop;
  } else if (output.finished == infer::FinishReason::kLength || plan_.drops_answer) {
    choice.finish_reason = "length";
  } else if (output.stopped_by &&
             std::count(plan_.stop_ids.begin(), plan_.stop_ids.end(), *output.stopped_by) > 0) {
    choice.stop_reason = *output.stopped_by;
  }
  if (choice.finish_reason == "stop" && choice.reader.has_called() && !plan_.names_call)
    choice.finish_reason = "tool_calls";
}

api::Usage Answer::usage() const {
  api::Usage usage;
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    // Prompts count once, however many choices they have.
    if (i % static_cast<size_t>(plan_.num_choices) == 0) {
      usage.prompt_tokens += static_cast<int64_t>(prompt_of(choice).size());
      usage.cached_tokens += choice.cached_tokens;
    }
    usage.completion_tokens += choice.num_tokens;
    usage.reasoning_tokens += choice.reader.reasoning_tokens();
  }
  return usage;
}

void Answer::send(Json choice, Json beside) {
  if (is_gone_) return;
  Json chunk = api::answer_json(plan_.head, chunk_object());
  chunk.update(beside);
  chunk["choices"].push_back(std::move(choice));
  if (plan_.stream.with_running_usage) {
    chunk["usage"] = api::usage_json(usage());
  } else if (plan_.stream.with_usage) {
    chunk["usage"] = nullptr;
  }
  if (!plan_.exchange->write(api::event_of(chunk))) is_gone_ = true;
}

void Answer::complete() {
  is_over_ = true;
  if (!streams()) {
    Json json = whole();
    json["usage"] = api::usage_json(usage());
    return plan_.exchange->respond(response_of(200, json));
  }
  if (plan_.stream.with_usage) {
    Json chunk = api::answer_json(plan_.head, chunk_object());
    chunk["usage"] = api::usage_json(usage());
    plan_.exchange->write(api::event_of(chunk));
  }
  plan_.exchange->write(std::string(api::kLastEvent));
  plan_.exchange->end();
}

void Answer::on_failed(const Error& why, Blame blame) {
  if (std::exchange(is_over_, true)) return;
  const int status = status_of(blame);
  const Json json = api::error_json(status, why.what());
  // Before it began a stream is an answer like any other.
  plan_.exchange->respond(response_of(status, json));
  if (!streams()) return;
  plan_.exchange->write(api::event_of(json));
  plan_.exchange->write(std::string(api::kLastEvent));
  plan_.exchange->end();
}

api::ShownToken Answer::shown(text::TokenId id, double logprob) const {
  constexpr size_t kMost = 1 << 15;
  if (shown_.size() >= kMost) shown_.clear();
  const auto [found, is_new] = shown_.try_emplace(id);
  if (is_new) found->second = spelling_of(id);
  api::ShownToken token = found->second;
  token.logprob = logprob;
  return token;
}

api::ShownToken Answer::spelling_of(text::TokenId id) const {
  if (plan_.wants_tokens_as_ids) return {.text = fmt::format("token_id:{}", id)};
  // Alone it would be the beginning of a text, whose space SentencePiece leaves out.
  const text::Tokenizer& tokenizer = *plan_.tokenizer;
  const std::string once = tokenizer.decode(std::vector{id});
  const bool is_half = once.find(kReplacement) != std::string::npos;
  const std::string twice = is_half ? "" : tokenizer.decode(std::vector{id, id});
  api::ShownToken token = {.text = twice.starts_with(once) ? twice.substr(once.size()) : once};
  // Half a character: clients put the bytes of several tokens together.
  if (is_half) {
    const std::vector<text::TokenId> before = tokenizer.encode("a", /*add_special=*/false);
    if (const auto bytes = grammar::bytes_of_token(tokenizer, id, before); bytes != token.text)
      token.bytes = bytes;
  }
  return token;
}

api::ShownLogprobs Answer::shown(const infer::TokenLogprobs& logprobs, int64_t most) const {
  api::ShownLogprobs all;
  all.chosen = shown(logprobs.chosen.id, logprobs.chosen.logprob);
  for (const infer::TokenLogprob& token : logprobs.likeliest) {
    if (std::ssize(all.likeliest) < most) all.likeliest.push_back(shown(token.id, token.logprob));
  }
  return all;
}

Json Answer::prompt_logprobs_json(const Choice& choice) const {
  Json list = Json::array({nullptr});
  for (const infer::TokenLogprobs& token : choice.prompt_logprobs) {
    Json entry = Json::object();
    const auto put = [&](const infer::TokenLogprob& one) {
      entry[std::to_string(one.id)] = {{"logprob", std::max(double{one.logprob}, -9999.0)},
                                       {"rank", one.rank},
                                       {"decoded_token", shown(one.id).text}};
    };
    const auto most = static_cast<size_t>(plan_.num_prompt_logprobs.value_or(0));
    for (const infer::TokenLogprob& one :
         std::span(token.likeliest).first(std::min(most, token.likeliest.size())))
      put(one);
    put(token.chosen);
    list.push_back(std::move(entry));
  }
  return list;
}

void Answer::move_ids(Choice& choice, Json* json) const {
  if (plan_.returns_ids) (*json)["token_ids"] = std::exchange(choice.ids, {});
}

void Answer::put_prompt_ids(const Choice& choice, Json* json) const {
  if (plan_.returns_ids) (*json)["prompt_token_ids"] = prompt_of(choice);
}

}  // namespace danlu::serve
