// tests/serve/protocol_test.h: a server whose engine's answers a test writes.
#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "http/guards.h"
#include "http/server.h"
#include "serve/answer.h"
#include "serve/scripted_engine.h"
#include "serve/service.h"
#include "support/byte_tokenizer.h"
#include "support/raw_http.h"

namespace danlu::serve {

using test::raw_request;
using test::RawClient;
using test::RawResponse;

inline bool comes(const std::function<bool()>& is_there) {
  for (int i = 0; i < 4000; ++i) {
    if (is_there()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

/// What a stream sent, in order, without its last line.
inline std::vector<Json> events_of(const std::string& body) {
  std::vector<Json> events;
  EXPECT_TRUE(body.ends_with("data: [DONE]\n\n")) << body;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    const std::string line = body.substr(at, end - at);
    if (line != "data: [DONE]") events.push_back(Json::parse(line.substr(6)));
    at = end + 2;
  }
  return events;
}

class ProtocolTest : public testing::Test {
 protected:
  void SetUp() override {
    script_.answer = [](const infer::Request&) { return std::string("hello|"); };
    model_.names = {"tiny", "alias"};
    model_.tokenizer = std::make_shared<test::ByteTokenizer>();
    model_.encoder = std::make_shared<test::PlainEncoder>();
    model_.make_encoder = [](const Json& arguments, const std::string*) {
      return std::make_shared<test::PlainEncoder>(arguments.dump());
    };
    model_.max_model_len = 1000;
    model_.sampling.do_sample = true;
    model_.tool_format = text::ToolFormat::kHermes;
  }
  void TearDown() override {
    if (!server_) return;
    server_->stop(0);
    loop_->end();
    thread_.join();
  }

  void start() {
    loop_ = std::make_unique<EngineLoop>(
        [this] { return std::make_unique<test::ScriptedEngine>(script_); }, loop_settings_);
    served_ = std::make_unique<ServedModel>(model_);
    service_ = std::make_unique<Service>(*served_, *loop_,
                                         ServiceSettings{.limits = limits_, .version = "1.2.3"});
    http::Router router;
    access_.refusal = access_refusal;
    http::add_guards(access_, &router);
    service_->add_routes(&router);
    http::Settings settings;
    settings.port = 0;
    server_ = std::make_unique<http::Server>(settings, std::move(router));
    server_->start();
    thread_ = std::thread([this] { loop_->run(); });
  }

  RawResponse ask(const std::string& request) {
    if (!server_) start();
    RawClient client(server_->port());
    client.send(request);
    return client.response();
  }
  Json post(const std::string& path, const Json& body, int status = 200) {
    const RawResponse response = ask(raw_request("POST", path, body.dump()));
    EXPECT_EQ(response.status, status) << response.body;
    return Json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  }
  static Json chat_body(const Json& more = Json::object()) {
    Json body = {{"model", "tiny"}, {"messages", {{{"role", "user"}, {"content", "hi"}}}}};
    body.update(more);
    return body;
  }
  Json chat(const Json& more = Json::object(), int status = 200) {
    return post("/v1/chat/completions", chat_body(more), status);
  }
  std::vector<Json> stream(const Json& body, const std::string& path = "/v1/chat/completions") {
    Json streamed = body;
    streamed["stream"] = true;
    const RawResponse response = ask(raw_request("POST", path, streamed.dump()));
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(response.headers.at("content-type"), "text/event-stream; charset=utf-8");
    return events_of(response.body);
  }
  infer::EngineRequest last_request() {
    const std::lock_guard lock(script_.mutex);
    return script_.added.back();
  }

  test::EngineScript script_;
  ModelDescription model_;
  http::AccessSettings access_;
  api::RequestLimits limits_;
  EngineLoopSettings loop_settings_;
  std::unique_ptr<EngineLoop> loop_;
  std::unique_ptr<ServedModel> served_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<http::Server> server_;
  std::thread thread_;
};

}  // namespace danlu::serve
