// serve/service.h: the routes of the protocol: requests to the engine's loop, answers to clients.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "api/adapter_requests.h"
#include "api/responses.h"
#include "http/router.h"
#include "serve/engine_loop.h"
#include "serve/picture_desk.h"
#include "serve/served_model.h"
#include "text/token_constraint.h"

namespace danlu::serve {

struct ServiceSettings {
  api::RequestLimits limits = {};
  std::string version = {};
  /// Each request in a line of the log, without its text.
};

class Service {
 public:
  /// The loop outlives this, and this the server whose router has its routes.
  Service(ServedModel& model, EngineLoop& loop, ServiceSettings settings);

  /// /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/rerank, /v1/score, /classify,
  /// /v1/models, /tokenize, /detokenize, /health, /ping, /version, /metrics; /v1/load_lora_adapter
  /// and /v1/unload_lora_adapter where the model can load them. Errors in OpenAI's shape.
  void add_routes(http::Router* router);

  /// Each answer under way ends now with an error (503), in a stream before `[DONE]`, and so does
  /// every later request: another process is gone, without which the engine says nothing more. From
  /// any thread.
  void end_answers();

 private:
  using Handle = void (Service::*)(const http::ExchangePtr&);
  void add(http::Router* router, const char* method, const char* pattern, Handle handle,
           http::Pace pace = http::Pace::kAny);
  void chat(const http::ExchangePtr& exchange);
  void complete(const http::ExchangePtr& exchange);
  void embed(const http::ExchangePtr& exchange);
  void classify(const http::ExchangePtr& exchange);
  /// A chat with a model that has no words.
  void judge(const http::ExchangePtr& exchange, const api::ChatRequest& wish);
  void rerank(const http::ExchangePtr& exchange);
  void score(const http::ExchangePtr& exchange);
  void rank(const http::ExchangePtr& exchange, const api::RankRequest& wish,
            const std::function<Json(const std::vector<double>& scores, int64_t tokens)>& json);
  void submit_judged(const http::ExchangePtr& exchange, const api::ClassifyRequest& wish,
                     NumbersAnswer::MakeJson json);
  void load_adapter(const http::ExchangePtr& exchange);
  void unload_adapter(const http::ExchangePtr& exchange);
  void list_models(const http::ExchangePtr& exchange);
  void show_model(const http::ExchangePtr& exchange);
  void tokenize(const http::ExchangePtr& exchange);
  void detokenize(const http::ExchangePtr& exchange);
  void health(const http::ExchangePtr& exchange);
  void show_version(const http::ExchangePtr& exchange);
  void show_metrics(const http::ExchangePtr& exchange);
  void submit(const http::ExchangePtr& exchange, std::vector<infer::EngineRequest> requests,
              std::shared_ptr<Receiver> receiver);
  /// The same of requests with the same pictures, once these are pixels.
  void submit_seeing(const http::ExchangePtr& exchange, std::vector<infer::EngineRequest> requests,
                     std::shared_ptr<Receiver> receiver);
  /// Keeps one whose answer end_answers() is to end. false: it was called.
  bool note_open(const http::ExchangePtr& exchange);
  /// Errors: Refusal for more answers than may wait.
  void require_places(size_t answers) const;
  /// Each in a line of the log, the first time: {its name, the field that may be meant}.
  void warn_of_unread(const std::map<std::string, std::string>& fields);
  /// Errors: those of the loader; Refusal where its files cannot be read.
  OpenedAdapter adapter_at(const api::LoadAdapterRequest& wish) const;
  /// request_id: what the body says of it; else the exchange's header, else a new one.
  api::AnswerHead head_of(const http::Exchange& exchange, const std::string& model,
                          const std::string& request_id, const char* prefix) const;

  ServedModel& model_;
  EngineLoop& loop_;
  const ServiceSettings settings_;
  std::mutex mutex_;
  std::set<std::string> unread_;  ///< fields that were told of; these by the mutex
  std::vector<std::weak_ptr<http::Exchange>> open_;
  size_t num_open_ = 0;  ///< when those that are over were last taken out
  bool has_ended_ = false;
  PictureDesk pictures_;  ///< its threads use the others: it ends first
};

}  // namespace danlu::serve
