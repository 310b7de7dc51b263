#include "serve/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <string_view>
#include <system_error>
#include <utility>

#include "api/adapter_requests.h"
#include "api/refusal.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/in_english.h"
#include "base/log.h"
#include "serve/chat_answer.h"
#include "serve/completion_answer.h"
#include "serve/token_limits.h"

namespace danlu::serve {
namespace {

/// A picture that takes long keeps one of them; pixels are made by more threads of the loader.
constexpr size_t kPictureThreads = 4;

/// Names of fields that nothing reads; more are not told of.
constexpr size_t kNamedFields = 100;

/// A client's text may hold what would begin a line of its own, or a terminal's commands.
std::string on_one_line(std::string text) {
  constexpr size_t kLongest = 200;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  return text;
}

uint64_t random_seed() {
  static thread_local std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

void respond_json(const http::ExchangePtr& exchange, const Json& json) {
  exchange->respond(response_of(200, json));
}

void respond_text(const http::ExchangePtr& exchange, std::string text) {
  exchange->respond({.status = 200,
                     .headers = {{"Content-Type", "text/plain; charset=utf-8"}},
                     .body = std::move(text)});
}

/// What a handler threw, as the client is to hear it.
void respond_error(const http::ExchangePtr& exchange) {
  try {
    throw;
  } catch (const api::Refusal& refusal) {
    exchange->respond(response_of(refusal.status(), api::error_json(refusal)));
  } catch (const Error& error) {
    const int status = api::is_of_client(error) ? 400 : 500;
    exchange->respond(response_of(status, api::error_json(status, error.what())));
  } catch (const std::exception& error) {
    exchange->respond(response_of(500, api::error_json(500, error.what())));
  }
}

/// Too many requests wait, or no engine is left.
void respond_busy(const http::ExchangePtr& exchange, bool is_dead) {
  const int status = is_dead ? 503 : 429;
  http::Response response = response_of(
      status, api::error_json(status, is_dead ? "the engine has stopped"
                                              : "too many requests wait: try again later"));
  response.headers.emplace_back("Retry-After", "1");
  exchange->respond(std::move(response));
}

/// A group that is not with the engine yet, counted among those that wait.
class QueuePlace {
 public:
  explicit QueuePlace(EngineLoop& loop) : loop_(loop) { loop_.count_elsewhere(1); }
  ~QueuePlace() { loop_.count_elsewhere(-1); }
  QueuePlace(const QueuePlace&) = delete;
  QueuePlace& operator=(const QueuePlace&) = delete;

 private:
  EngineLoop& loop_;
};

/// The id that a client, or a proxy before it, calls the request by; "": none that may stand in a
/// line of a log.
std::string told_id(const http::Exchange& exchange) {
  constexpr size_t kLongestId = 256;
  const std::string* id = http::find_header(exchange.request().headers, "X-Request-Id");
  const bool is_word =
      id && id->size() <= kLongestId &&
      std::all_of(id->begin(), id->end(), [](char c) { return c > ' ' && c < 0x7f; });
  return is_word ? *id : "";
}

/// Each token of a prompt takes some hundred bytes for each of its likeliest, until all is written.
void refuse_many_logprobs(const std::vector<infer::EngineRequest>& requests) {
  constexpr int64_t kMost = int64_t{1} << 21;
  int64_t entries = 0;
  for (const infer::EngineRequest& request : requests)
    if (request.num_prompt_logprobs)
      entries += std::ssize(request.request.prompt) * (1 + *request.num_prompt_logprobs);
  if (entries <= kMost) return;
  throw api::Refusal(
      fmt::format("log-probabilities of the prompts would have {} entries, more than {}: "
                  "ask for fewer prompts at a time",
                  entries, kMost),
      "prompt");
}

AnswerPlan plan_of(const http::ExchangePtr& exchange, const ServedModel& model,
                   const api::GenerationWish& wish, api::AnswerHead head) {
  AnswerPlan plan;
  plan.exchange = exchange;
  const std::string told = told_id(*exchange);
  exchange->add_header("X-Request-Id", told.empty() ? head.id : told);
  plan.tokenizer = model.description().tokenizer;
  plan.head = std::move(head);
  plan.stream = wish.stream;
  plan.num_choices = wish.num_choices;
  plan.num_logprobs = wish.num_logprobs;
  plan.num_prompt_logprobs = wish.num_prompt_logprobs;
  plan.stop_ids = wish.stop_ids;
  plan.returns_ids = wish.returns_ids;
  plan.wants_tokens_as_ids = wish.wants_tokens_as_ids;
  plan.reader.skips_special = wish.skips_special;
  plan.reader.stop = wish.stop.value_or(model.description().stop);
  plan.reader.includes_stop = wish.includes_stop;
  plan.reader.min_tokens = wish.min_tokens;
  plan.reader.whole_calls = !wish.stream.is_on;
  return plan;
}

}  // namespace

Service::Service(ServedModel& model, EngineLoop& loop, ServiceSettings settings)
    : model_(model),
      loop_(loop),
      settings_(std::move(settings)),
      pictures_({.threads = model.description().encode_media ? kPictureThreads : 0,
                 .max_waiting = loop.max_queue()}) {}

void Service::add(http::Router* router, const char* method, const char* pattern, Handle handle,
                  http::Pace pace) {
  const bool is_asked = std::string_view(method) == "POST";
  const auto handler = [this, handle, is_asked](const http::ExchangePtr& exchange) {
    const InEnglish english;  // clients read it
    try {
      if (is_asked && !note_open(exchange)) return respond_busy(exchange, /*is_dead=*/true);
      (this->*handle)(exchange);
    } catch (...) {
      respond_error(exchange);
    }
  };
  router->add(method, pattern, handler, pace);
}

bool Service::note_open(const http::ExchangePtr& exchange) {
  constexpr size_t kFew = 64;
  const std::lock_guard lock(mutex_);
  if (has_ended_) return false;
  if (open_.size() > kFew + 2 * num_open_) {
    std::erase_if(open_, [](const auto& one) { return one.expired(); });
    num_open_ = open_.size();
  }
  open_.push_back(exchange);
  return true;
}

void Service::end_answers() {
  std::vector<std::weak_ptr<http::Exchange>> open;
  {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
    open.swap(open_);
  }
  const Json json = api::error_json(
      503, "a process that holds a part of the model is gone, and the answer is not complete");
  for (const auto& one : open) {
    const http::ExchangePtr exchange = one.lock();
    if (!exchange) continue;
    exchange->respond(response_of(503, json));
    // One that has begun is a stream.
    exchange->write(api::event_of(json));
    exchange->write(std::string(api::kLastEvent));
    exchange->end();
  }
}

void Service::add_routes(http::Router* router) {
  router->set_error_body([](int status, std::string_view message) {
    std::string text(message);
    if (status == 404)
      text +=
          ": /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/rerank, /v1/score, "
          "/classify and /v1/models are here";
    return response_of(status, api::error_json(status, text));
  });
  add(router, "POST", "/v1/chat/completions", &Service::chat);
  add(router, "POST", "/v1/completions", &Service::complete);
  add(router, "POST", "/v1/embeddings", &Service::embed);
  for (const char* path : {"/v1/rerank", "/rerank", "/v2/rerank"})
    add(router, "POST", path, &Service::rerank);
  for (const char* path : {"/v1/score", "/score"}) add(router, "POST", path, &Service::score);
  add(router, "POST", "/classify", &Service::classify);
  if (model_.description().load_adapter) {
    add(router, "POST", "/v1/load_lora_adapter", &Service::load_adapter, http::Pace::kSlow);
    add(router, "POST", "/v1/unload_lora_adapter", &Service::unload_adapter, http::Pace::kSlow);
  }
  add(router, "GET", "/v1/models", &Service::list_models);
  add(router, "GET", "/v1/models/{*}", &Service::show_model);
  add(router, "POST", "/tokenize", &Service::tokenize);
  add(router, "POST", "/detokenize", &Service::detokenize);
  // Who watches the server asks while other requests take long.
  add(router, "GET", "/health", &Service::health, http::Pace::kPrompt);
  add(router, "GET", "/ping", &Service::health, http::Pace::kPrompt);
  add(router, "GET", "/version", &Service::show_version, http::Pace::kPrompt);
  add(router, "GET", "/metrics", &Service::show_metrics, http::Pace::kPrompt);
}

api::AnswerHead Service::head_of(const http::Exchange& exchange, const std::string& model,
                                 const std::string& request_id, const char* prefix) const {
  const std::string id = request_id.empty() ? told_id(exchange) : request_id;
  return {.id = id.empty() ? api::new_id(prefix) : prefix + id,
          .model = model.empty() ? model_.description().names.front() : model,
          .created_s = static_cast<int64_t>(unix_now_s())};
}

void Service::chat(const http::ExchangePtr& exchange) {
  const api::ChatRequest wish =
      api::read_chat_request(api::parse_body(exchange->request().body), settings_.limits);
  model_.require_name(wish.model);
  warn_of_unread(wish.unread);
  if (model_.description().judging) return judge(exchange, wish);
  model_.require_words();
  model_.require_known_calls(wish);
  BuiltPrompt built = model_.chat_prompt(wish);
  AnswerPlan plan =
      plan_of(exchange, model_, wish, head_of(*exchange, wish.model, wish.request_id, "chatcmpl-"));
  plan.prompts.push_back(built.request.prompt);
  plan.reader.thought = built.thought;
  plan.continues_text = wish.continues_last();
  plan.names_call = wish.tool_choice.kind == api::ToolChoice::Kind::kNamed;
  if (wish.tool_choice.kind != api::ToolChoice::Kind::kNone) {
    plan.reader.tool_format = model_.description().tool_format;
    plan.reader.tools = wish.conversation.tools;
    plan.reader.one_call = !wish.calls_in_parallel;
  }
  std::shared_ptr<text::TokenConstraint> constraint = model_.constraints().of_form(wish.form);
  if (!constraint) {
    constraint = model_.constraints().of_calls(wish, model_.description().tool_format);
    // An answer that must be calls is the beginning of one where its length ends it, whole as
    // streamed.
    if (constraint) plan.reader.whole_calls = false;
  }
  if (constraint) {
    // What the client does not see is not thought, as in vLLM.
    const api::Thought before = wish.shows_reasoning ? built.thought : api::Thought::kNone;
    const auto form = behind_thought(constraint, before, model_.description().tokenizer);
    plan.reader.thought = form == constraint ? api::Thought::kNone : before;
    constraint = form;
  }
  auto requests = model_.engine_requests(wish, std::move(built.request), random_seed(), constraint);
  refuse_many_logprobs(requests);
  auto receiver = std::make_shared<ChatAnswer>(
      std::move(plan),
      ChatWords{.shows_reasoning = wish.shows_reasoning, .echo = std::move(built.echo)});
  const bool sees = !requests.front().request.pictures.empty();
  const auto hand_over = sees ? &Service::submit_seeing : &Service::submit;
  (this->*hand_over)(exchange, std::move(requests), std::move(receiver));
}

void Service::complete(const http::ExchangePtr& exchange) {
  const api::CompletionRequest wish =
      api::read_completion_request(api::parse_body(exchange->request().body), settings_.limits);
  model_.require_name(wish.model);
  model_.require_words();
  warn_of_unread(wish.unread);
  require_places(wish.prompts.size() * static_cast<size_t>(wish.num_choices));
  if (loop_.is_full()) return respond_busy(exchange, loop_.is_dead());
  const auto constraint = model_.constraints().of_form(wish.form);
  AnswerPlan plan =
      plan_of(exchange, model_, wish, head_of(*exchange, wish.model, wish.request_id, "cmpl-"));
  plan.drops_answer = wish.max_tokens == 0;
  plan.continues_text = true;
  std::vector<std::string> echoes;
  std::vector<infer::EngineRequest> requests;
  for (const api::Prompt& prompt : wish.prompts) {
    BuiltPrompt built = model_.completion_prompt(wish, prompt);
    plan.prompts.push_back(built.request.prompt);
    if (wish.echoes) echoes.push_back(std::move(built.echo));
    // Equal prompts are asked for unlike answers.
    for (infer::EngineRequest& request : model_.engine_requests(
             wish, std::move(built.request), random_seed(), constraint, std::ssize(plan.prompts))) {
      // As many as either of the two asks for.
      if (wish.echoes && wish.num_logprobs)
        request.num_prompt_logprobs =
            std::max(*wish.num_logprobs, wish.num_prompt_logprobs.value_or(0));
      requests.push_back(std::move(request));
    }
  }
  refuse_many_logprobs(requests);
  submit(exchange, std::move(requests),
         std::make_shared<CompletionAnswer>(std::move(plan), std::move(echoes)));
}

void Service::require_places(size_t answers) const {
  if (answers <= loop_.max_queue()) return;
  throw api::Refusal(fmt::format("a request may ask for {} answers at most, this one for {}",
                                 loop_.max_queue(), answers),
                     "n");
}

void Service::warn_of_unread(const std::map<std::string, std::string>& fields) {
  if (fields.empty()) return;
  const std::lock_guard lock(mutex_);
  for (const auto& [field, nearest] : fields) {
    if (unread_.size() >= kNamedFields || !unread_.insert(on_one_line(field)).second) continue;
    log::warning(
        "a request has a field that nothing reads, and the answer does not follow it: {}{}",
        on_one_line(field), nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest));
  }
}

void Service::submit(const http::ExchangePtr& exchange, std::vector<infer::EngineRequest> requests,
                     std::shared_ptr<Receiver> receiver) {
  // A request's texts that become vectors have a limit of their own.
  if (!requests.front().pooling) require_places(requests.size());
  const auto ticket = loop_.submit(std::move(requests), std::move(receiver));
  if (!ticket) return respond_busy(exchange, loop_.is_dead());
  exchange->on_close([this, ticket = *ticket] { loop_.cancel(ticket); });
}

void Service::submit_seeing(const http::ExchangePtr& exchange,
                            std::vector<infer::EngineRequest> requests,
                            std::shared_ptr<Receiver> receiver) {
  if (loop_.is_full()) return respond_busy(exchange, loop_.is_dead());
  // In its place in the queue until it is submitted, or dropped with its job.
  auto place = std::make_shared<QueuePlace>(loop_);
  PictureDesk::Job job;
  job.pictures = requests.front().request.pictures;
  job.num_takers = std::ssize(requests);
  job.is_wanted = [exchange] { return exchange->is_open(); };
  job.ready = [this, exchange, requests = std::move(requests), receiver = std::move(receiver),
               place = std::move(place)](const std::vector<infer::PromptPicture>& pictures,
                                         const std::exception_ptr& problem) mutable {
    try {
      place.reset();
      if (problem) std::rethrow_exception(problem);
      for (infer::EngineRequest& one : requests) one.request.pictures = pictures;
      submit(exchange, std::move(requests), std::move(receiver));
    } catch (...) {
      respond_error(exchange);
    }
  };
  if (!pictures_.add(std::move(job))) respond_busy(exchange, /*is_dead=*/false);
}

OpenedAdapter Service::adapter_at(const api::LoadAdapterRequest& wish) const {
  try {
    return model_.description().load_adapter(wish.path);
  } catch (const IoError& error) {  // a pipe in a file's place, and the like
    throw api::Refusal(fmt::format("Loading lora {} failed: {}", wish.name, error.what()),
                       "lora_path");
  }
}

void Service::load_adapter(const http::ExchangePtr& exchange) {
  const api::LoadAdapterRequest wish =
      api::read_load_adapter_request(api::parse_body(exchange->request().body));
  model_.adapters().require_free(wish.name, wish.replaces);
  std::error_code unknown;
  if (!std::filesystem::is_directory(wish.path, unknown)) {
    throw api::Refusal(
        fmt::format("Loading lora {} failed: No adapter found for {}", wish.name, wish.path),
        "lora_path", 404);
  }
  const bool is_known_parent = [&] {
    const auto& names = model_.description().names;
    return std::find(names.begin(), names.end(), wish.parent) != names.end();
  }();
  OpenedAdapter opened = adapter_at(wish);
  model_.adapters().add({.name = wish.name,
                         .adapter = std::move(opened.adapter),
                         .parent = is_known_parent ? wish.parent : "",
                         .created_s = static_cast<int64_t>(unix_now_s()),
                         .prompt = std::move(opened.prompt)},
                        wish.replaces);
  log::info("adapter {} loaded from {}", wish.name, wish.path);
  respond_text(exchange, fmt::format("Success: LoRA adapter '{}' added successfully.", wish.name));
}

void Service::unload_adapter(const http::ExchangePtr& exchange) {
  const std::string name =
      api::read_unload_adapter_request(api::parse_body(exchange->request().body));
  model_.adapters().remove(name);
  log::info("adapter {} unloaded", name);
  respond_text(exchange, fmt::format("Success: LoRA adapter '{}' removed successfully.", name));
}

void Service::list_models(const http::ExchangePtr& exchange) {
  Json json = {{"object", "list"}, {"data", Json::array()}};
  for (const api::ModelCard& card : model_.cards()) json["data"].push_back(api::model_json(card));
  respond_json(exchange, json);
}

void Service::show_model(const http::ExchangePtr& exchange) {
  const std::string& name = exchange->request().places.front();
  for (const api::ModelCard& card : model_.cards()) {
    if (card.id == name) return respond_json(exchange, api::model_json(card));
  }
  throw unknown_model(name);
}

void Service::tokenize(const http::ExchangePtr& exchange) {
  const api::TokenizeRequest wish =
      api::read_tokenize_request(api::parse_body(exchange->request().body), settings_.limits);
  model_.require_name(wish.model);
  warn_of_unread(wish.unread);
  const std::vector<text::TokenId> ids = model_.tokenize(wish);
  Json json = {{"count", ids.size()},
               {"max_model_len", model_.description().max_model_len},
               {"tokens", ids},
               {"token_strs", nullptr}};
  if (wish.returns_texts) {
    json["token_strs"] = Json::array();
    for (const text::TokenId id : ids) {
      json["token_strs"].push_back(
          model_.description().tokenizer->id_to_token(id).value_or(std::string()));
    }
  }
  respond_json(exchange, json);
}

void Service::detokenize(const http::ExchangePtr& exchange) {
  const api::DetokenizeRequest wish =
      api::read_detokenize_request(api::parse_body(exchange->request().body));
  model_.require_name(wish.model);
  warn_of_unread(wish.unread);
  respond_json(exchange, {{"prompt", model_.description().tokenizer->decode(wish.ids)}});
}

void Service::health(const http::ExchangePtr& exchange) {
  bool is_over = loop_.is_dead();
  {
    const std::lock_guard lock(mutex_);
    is_over = is_over || has_ended_;
  }
  exchange->respond({.status = is_over ? 503 : 200, .headers = {}, .body = {}});
}

void Service::show_version(const http::ExchangePtr& exchange) {
  respond_json(exchange, {{"version", settings_.version}});
}

void Service::show_metrics(const http::ExchangePtr& exchange) {
  const infer::EngineCounts counts = loop_.counts();
  exchange->respond({.status = 200,
                     .headers = {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}},
                     .body = loop_.metrics().text(model_.description().names.front(), counts,
                                                  loop_.settings().max_pages)});
}

}  // namespace danlu::serve
