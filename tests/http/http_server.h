// tests/http/http_server.h: a server with the routes that tests ask.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "http/server.h"
#include "support/raw_http.h"

namespace danlu::http {
namespace server_test {

using test::raw_request;
using test::RawClient;
using test::RawResponse;
using testing::HasSubstr;
using testing::Not;

/// Waits for what another thread does.
inline bool comes(const std::function<bool()>& is_there) {
  for (int i = 0; i < 4000; ++i) {
    if (is_there()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

class HttpServer : public testing::Test {
 protected:
  void SetUp() override {
    settings_.port = 0;
    router_.add("POST", "/echo", [](const ExchangePtr& exchange) {
      exchange->respond({.status = 200,
                         .headers = {{"Content-Type", "text/plain"}},
                         .body = exchange->request().body});
    });
    router_.add("GET", "/hello/{}", [](const ExchangePtr& exchange) {
      exchange->respond({.status = 200, .headers = {}, .body = exchange->request().places[0]});
    });
    router_.add("GET", "/keep", [this](const ExchangePtr& exchange) {
      const std::lock_guard lock(mutex_);
      kept_.push_back(exchange);
    });
    router_.add("POST", "/wait", [this](const ExchangePtr& exchange) {
      ++num_waiting_;
      comes([this] { return is_released_.load(); });
      exchange->respond(
          {.status = 200, .headers = {}, .body = std::to_string(exchange->request().body.size())});
    });
    router_.add("GET", "/throw",
                [](const ExchangePtr&) { throw std::runtime_error("a secret of the handler"); });
    router_.add("GET", "/forget", [](const ExchangePtr&) {});
  }

  void start() {
    server_ = std::make_unique<Server>(settings_, std::move(router_));
    server_->start();
  }
  ExchangePtr kept(size_t index = 0) {
    EXPECT_TRUE(comes([&] {
      const std::lock_guard lock(mutex_);
      return kept_.size() > index;
    }));
    const std::lock_guard lock(mutex_);
    return kept_.at(index);
  }
  RawResponse ask(const std::string& request) {
    RawClient client(server_->port());
    client.send(request);
    return client.response(!request.starts_with("HEAD"));
  }

  Settings settings_;
  Router router_;
  std::mutex mutex_;
  std::vector<ExchangePtr> kept_;
  std::atomic<int> num_waiting_ = 0;  ///< of /wait, that have begun
  std::atomic<bool> is_released_ = false;
  std::unique_ptr<Server> server_;
};

}  // namespace server_test
}  // namespace danlu::http
