// The server against a client of bare sockets: what it answers, what it refuses, whom it cuts.
#include "http/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "support/raw_http.h"

namespace danlu::http {
namespace server_test {

using test::raw_request;
using test::RawClient;
using test::RawResponse;
using testing::HasSubstr;
using testing::Not;

/// Waits for what another thread does.
bool comes(const std::function<bool()>& is_there) {
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

TEST_F(HttpServer, AnswersOneRequestAfterTheOtherOnOneConnection) {
  start();
  RawClient client(server_->port());
  for (int i = 0; i < 3; ++i) {
    client.send(raw_request("POST", "/echo", "text " + std::to_string(i)));
    const RawResponse response = client.response();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "text " + std::to_string(i));
    EXPECT_EQ(response.headers.at("content-type"), "text/plain");
  }
}

TEST_F(HttpServer, RequestsSentAtOnceAreAnsweredInOrder) {
  start();
  RawClient client(server_->port());
  std::string all;
  for (int i = 0; i < 20; ++i) all += raw_request("POST", "/echo", std::to_string(i));
  client.send(all);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(client.response().body, std::to_string(i));
}

TEST_F(HttpServer, ARequestThatComesByteByByteIsOne) {
  start();
  RawClient client(server_->port());
  for (const char c : raw_request("POST", "/echo", "slow but fair")) client.send({&c, 1});
  EXPECT_EQ(client.response().body, "slow but fair");
}

TEST_F(HttpServer, ChunksOfABodyArePutTogether) {
  start();
  RawClient client(server_->port());
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  client.send("4\r\nabcd\r\n1;note=1\r\ne\r\n0\r\n\r\n");
  EXPECT_EQ(client.response().body, "abcde");
  client.send(raw_request("POST", "/echo", "the next"));
  EXPECT_EQ(client.response().body, "the next");
}

TEST_F(HttpServer, PathsAreDecodedAndMatched) {
  start();
  EXPECT_EQ(ask(raw_request("GET", "/hello/a%20b?x=1")).body, "a b");
  EXPECT_EQ(ask(raw_request("GET", "/hello/")).status, 404);
  EXPECT_EQ(ask(raw_request("GET", "/nothing")).status, 404);
  const RawResponse other = ask(raw_request("DELETE", "/hello/x"));
  EXPECT_EQ(other.status, 405);
  EXPECT_EQ(other.headers.at("allow"), "GET, HEAD");
  EXPECT_EQ(ask(raw_request("OPTIONS", "/echo")).headers.at("allow"), "POST");
}

TEST_F(HttpServer, HeadHasTheHeadersAlone) {
  start();
  RawClient client(server_->port());
  client.send(raw_request("HEAD", "/hello/abc") + raw_request("GET", "/hello/next"));
  const RawResponse head = client.response(/*has_body=*/false);
  EXPECT_EQ(head.headers.at("content-length"), "3");
  EXPECT_EQ(client.response().body, "next");
}

TEST_F(HttpServer, WhatIsNoRequestIsRefusedAndTheConnectionEnds) {
  start();
  for (const std::string text :
       {"\x16\x03\x01\x02\x01\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET /../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /%2e%2e/etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /a%00b HTTP/1.1\r\nHost: x\r\n\r\n", "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET http://elsewhere/ HTTP/1.1\r\nHost: x\r\n\r\n", "GET /hello/x HTTP/1.1\r\n\r\n",
        "GET /hello/x HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: "
        "chunked\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "GET /hello/x HTTP/1.1\r\nHost : x\r\n\r\n",
        // A header in two lines, read as one by some and as two by others.
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n "
        "chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        "GET /hello/x HTTP/1.1\r\nHost: x\r\nA: b\r\n\tc\r\n\r\n"}) {
    RawClient client(server_->port());
    client.send(text);
    const RawResponse response = client.response();
    EXPECT_EQ(response.status, 400) << text;
    EXPECT_TRUE(client.comes_to_end()) << text;
  }
}

TEST_F(HttpServer, ProxiesMayNameTheWholeAddress) {
  start();
  EXPECT_EQ(ask("GET http://x:80/hello/a%20b?y=1 HTTP/1.1\r\nHost: X:80\r\n\r\n").body, "a b");
  EXPECT_EQ(ask("GET https://x?y=1 HTTP/1.1\r\nHost: x\r\n\r\n").status, 404);
  // A body may have lines that begin with spaces.
  EXPECT_EQ(ask(raw_request("POST", "/echo", "a\n b\r\n\tc\r\n\r\n d")).body,
            "a\n b\r\n\tc\r\n\r\n d");
}

TEST_F(HttpServer, ShortBodiesDoNotWaitForLargeOnes) {
  settings_.max_body_bytes = size_t{2} << 20;
  start();
  const std::string large(size_t{1} << 20, 'a');
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<RawClient>(server_->port()));
    clients.back()->send(raw_request("POST", "/wait", large));
  }
  // One is worked on; no other is begun, and both handlers are free.
  ASSERT_TRUE(comes([&] { return num_waiting_ == 1; }));
  EXPECT_EQ(ask(raw_request("POST", "/echo", "short")).body, "short");
  EXPECT_EQ(num_waiting_, 1);
  is_released_ = true;
  for (const auto& client : clients)
    EXPECT_EQ(client->response().body, std::to_string(large.size()));
}

TEST_F(HttpServer, LargeBodiesTogetherAreBounded) {
  settings_.max_body_bytes = size_t{1} << 20;
  start();
  const std::string head =
      "POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\nExpect: 100-continue\r\n\r\n";
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 16; ++i) {
    clients.push_back(std::make_unique<RawClient>(server_->port()));
    clients.back()->send(head);
    ASSERT_TRUE(clients.back()->receive_until("100 Continue"));
  }
  const RawResponse refused = ask(head);
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  EXPECT_EQ(ask(raw_request("POST", "/echo", "short")).body, "short");
  clients.clear();
  is_released_ = true;
  EXPECT_TRUE(comes([&] {
    return ask(raw_request("POST", "/wait", std::string(size_t{1} << 20, 'a'))).status == 200;
  }));
}

TEST_F(HttpServer, WhoListensHearsOfEachAnswer) {
  std::mutex mutex;
  std::vector<std::string> heard;
  settings_.on_answer = [&](const Answered& answered) {
    const std::lock_guard lock(mutex);
    EXPECT_GE(answered.seconds, 0);
    heard.push_back(answered.request.method + answered.request.path + " " +
                    std::to_string(answered.status));
  };
  start();
  const auto hears = [&](const std::string& line) {
    EXPECT_TRUE(comes([&] {
      const std::lock_guard lock(mutex);
      return !heard.empty() && heard.back() == line;
    })) << line;
  };
  RawClient client(server_->port());
  client.send(raw_request("POST", "/echo", "a"));
  client.response();
  hears("POST/echo 200");
  client.send(raw_request("GET", "/nothing"));
  client.response();
  hears("GET/nothing 404");
  client.send("BROKEN\r\n\r\n");
  client.response();
  hears(" 400");
  {
    RawClient leaves(server_->port());
    leaves.send(raw_request("GET", "/keep"));
    kept()->begin_stream(200, {});
  }
  hears("GET/keep 499");
}

TEST_F(HttpServer, CodingsOfBodiesThatAreNotReadAreNamed) {
  start();
  for (const char* coding : {"gzip, chunked", "deflate,chunked", "identity, chunked"}) {
    RawClient client(server_->port());
    client.send(std::string("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: ") + coding +
                "\r\n\r\n0\r\n\r\n");
    const RawResponse response = client.response();
    EXPECT_EQ(response.status, 501) << coding;
    EXPECT_TRUE(client.comes_to_end()) << coding;
  }
}

TEST_F(HttpServer, LimitsOfHeadersAndBodies) {
  settings_.max_header_bytes = 4096;
  settings_.max_body_bytes = 1000;
  start();
  EXPECT_EQ(ask(raw_request("POST", "/echo", std::string(1000, 'x'))).body.size(), 1000);
  EXPECT_EQ(ask(raw_request("POST", "/echo", std::string(1001, 'x'))).status, 413);
  EXPECT_EQ(ask(raw_request("GET", "/hello/x", "", "A: " + std::string(5000, 'x') + "\r\n")).status,
            431);
  EXPECT_EQ(ask("GET /" + std::string(9000, 'x')).status, 431) << "no end of the line in sight";
  std::string chunks = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 11; ++i) chunks += "64\r\n" + std::string(100, 'x') + "\r\n";
  EXPECT_EQ(ask(chunks + "0\r\n\r\n").status, 413);
}

TEST_F(HttpServer, AHeaderTooManyIsRefused) {
  start();
  std::string more;
  for (int i = 0; i < 300; ++i) more += "A: b\r\n";
  EXPECT_EQ(ask(raw_request("GET", "/hello/x", "", more)).status, 431);
}

TEST_F(HttpServer, GuardsAnswerBeforeTheBodyIsSent) {
  router_.add_guard([](const Request& request, Headers* headers) -> std::optional<Response> {
    headers->emplace_back("X-Guard", "was here");
    if (find_header(request.headers, "authorization")) return std::nullopt;
    return Response{.status = 401, .headers = {}, .body = "no"};
  });
  start();
  RawClient client(server_->port());
  client.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n");  // and no byte of it
  const RawResponse refused = client.response();
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.headers.at("connection"), "close");
  EXPECT_EQ(ask(raw_request("POST", "/echo", "x", "Authorization: k\r\n")).headers.at("x-guard"),
            "was here");
}

TEST_F(HttpServer, AClientThatAsksFirstIsToldToGoOn) {
  start();
  RawClient client(server_->port());
  client.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.response(/*has_body=*/false).status, 100);
  client.send("ok");
  EXPECT_EQ(client.response().body, "ok");
}

TEST_F(HttpServer, WhatAHandlerThrowsOrForgetsIsA500WithoutItsWords) {
  start();
  const RawResponse thrown = ask(raw_request("GET", "/throw"));
  EXPECT_EQ(thrown.status, 500);
  EXPECT_THAT(thrown.body, Not(HasSubstr("secret")));
  EXPECT_EQ(ask(raw_request("GET", "/forget")).status, 500);
}

TEST_F(HttpServer, AStreamComesAsItIsWritten) {
  start();
  RawClient client(server_->port());
  client.send(raw_request("GET", "/keep"));
  const ExchangePtr exchange = kept();
  exchange->begin_stream(200, {{"Content-Type", "text/event-stream"}});
  EXPECT_TRUE(exchange->write("data: 1\n\n"));
  ASSERT_TRUE(client.receive_until("data: 1\n\n")) << "before the stream has ended";
  exchange->write("data: 2\n\n");
  exchange->end();
  const RawResponse response = client.response();
  EXPECT_EQ(response.body, "data: 1\n\ndata: 2\n\n");
  EXPECT_TRUE(response.is_complete);
  EXPECT_FALSE(exchange->write("too late"));
  client.send(raw_request("GET", "/hello/again"));
  EXPECT_EQ(client.response().body, "again");
}

/// Proxies cut what is silent. Events may have comments between them, other streams may not.
TEST_F(HttpServer, AStreamOfEventsIsNeverSilentForLong) {
  settings_.beat_s = 0.02;
  start();
  RawClient client(server_->port()), other(server_->port());
  client.send(raw_request("GET", "/keep"));
  const ExchangePtr exchange = kept();
  exchange->begin_stream(200, {{"Content-Type", "text/event-stream; charset=utf-8"}});
  ASSERT_TRUE(client.receive_until("\r\n:\n\n\r\n")) << "before the first event";
  other.send(raw_request("GET", "/keep"));
  const ExchangePtr plain = kept(1);
  plain->begin_stream(200, {{"Content-Type", "text/plain"}});
  exchange->write("data: 1\n\n");
  ASSERT_TRUE(client.receive_until("data: 1\n\n\r\n3\r\n:\n\n")) << "and after one";
  exchange->end();
  plain->end();
  EXPECT_TRUE(client.response().is_complete);
  EXPECT_EQ(other.response().body, "");
  client.send(raw_request("GET", "/hello/again"));
  EXPECT_EQ(client.response().body, "again") << "an answer that has ended says nothing more";
}

/// Large answers whose parts another thread has are made on a handler's.
TEST_F(HttpServer, AnAnswerMayBeMadeOnAHandlersThread) {
  start();
  for (const bool fails : {false, true}) {
    RawClient client(server_->port());
    client.send(raw_request("GET", "/keep"));
    std::thread::id made_by;
    kept(fails ? 1 : 0)->respond_with([&]() -> Response {
      made_by = std::this_thread::get_id();
      if (fails) throw std::runtime_error("a secret");
      return {.status = 200, .headers = {}, .body = "large"};
    });
    const RawResponse response = client.response();
    EXPECT_EQ(response.status, fails ? 500 : 200);
    EXPECT_NE(made_by, std::this_thread::get_id());
    if (!fails) {
      EXPECT_EQ(response.body, "large");
    }
  }
}

TEST_F(HttpServer, SlowHandlersHoldUpNoneButTheirLike) {
  std::atomic<int> num_waiting = 0;
  std::atomic<bool> may_go_on = false;
  const auto wait = [&](const ExchangePtr& exchange) {
    ++num_waiting;
    EXPECT_TRUE(comes([&] { return may_go_on.load(); }));
    exchange->respond({.status = 200, .headers = {}, .body = "slow"});
  };
  router_.add("GET", "/slow", wait, Pace::kSlow);
  start();
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < settings_.handler_threads + settings_.slow_handler_threads; ++i) {
    slow.push_back(std::make_unique<RawClient>(server_->port()));
    slow.back()->send(raw_request("GET", "/slow"));
  }
  ASSERT_TRUE(comes([&] { return num_waiting == settings_.slow_handler_threads; }));
  EXPECT_EQ(ask(raw_request("GET", "/hello/you")).body, "you");
  may_go_on = true;
  for (const auto& client : slow) EXPECT_EQ(client->response().body, "slow");
}

TEST_F(HttpServer, AStreamThatIsDroppedIsSeenToBeIncomplete) {
  start();
  RawClient client(server_->port());
  client.send(raw_request("GET", "/keep"));
  kept()->begin_stream(200, {});
  kept()->write("half");
  ASSERT_TRUE(client.receive_until("half"));
  {
    const std::lock_guard lock(mutex_);
    kept_.clear();
  }
  EXPECT_FALSE(client.response().is_complete);
  EXPECT_TRUE(client.is_closed());
}

TEST_F(HttpServer, ToAnOldClientAStreamEndsWithTheConnection) {
  start();
  RawClient client(server_->port());
  client.send("GET /keep HTTP/1.0\r\n\r\n");
  kept()->begin_stream(200, {});
  kept()->write("all");
  kept()->end();
  EXPECT_EQ(client.response().body, "all");
}

TEST_F(HttpServer, AClientThatGoesIsToldToTheHandler) {
  start();
  std::atomic<int> told = 0;
  {
    RawClient client(server_->port());
    client.send(raw_request("GET", "/keep"));
    kept()->on_close([&] { ++told; });
    EXPECT_TRUE(kept()->is_open());
  }
  EXPECT_TRUE(comes([&] { return told == 1; }));
  EXPECT_FALSE(kept()->is_open());
  kept()->begin_stream(200, {});
  EXPECT_FALSE(kept()->write("nobody"));
  kept()->on_close([&] { ++told; });
  EXPECT_EQ(told, 2) << "one that is set too late runs at once";
}

TEST_F(HttpServer, AClientThatGoesInTheMidstOfAStreamIsToldToTheHandler) {
  start();
  std::atomic<int> told = 0;
  {
    RawClient client(server_->port());
    client.send(raw_request("GET", "/keep"));
    kept()->on_close([&] { ++told; });
    kept()->begin_stream(200, {});
    kept()->write("first");
    ASSERT_TRUE(client.receive_until("first"));
  }
  EXPECT_TRUE(comes([&] { return told == 1; }));
  EXPECT_TRUE(comes([&] { return server_->counts().connections == 0; }));
}

TEST_F(HttpServer, ACompleteAnswerIsNoClose) {
  start();
  std::atomic<int> told = 0;
  {
    RawClient client(server_->port());
    client.send(raw_request("GET", "/keep"));
    kept()->on_close([&] { ++told; });
    kept()->respond({.status = 200, .headers = {}, .body = "done"});
    EXPECT_EQ(client.response().body, "done");
  }
  EXPECT_TRUE(comes([&] { return server_->counts().connections == 0; }));
  EXPECT_EQ(told, 0);
}

TEST_F(HttpServer, AReaderThatDoesNotReadIsCut) {
  settings_.max_output_bytes = 1 << 20;
  start();
  RawClient client(server_->port(), /*receive_buffer=*/4096);
  client.send(raw_request("GET", "/keep"));
  std::atomic<int> told = 0;
  kept()->on_close([&] { ++told; });
  kept()->begin_stream(200, {});
  const std::string piece(64 << 10, 'x');
  bool is_cut = false;
  for (int i = 0; i < 1000 && !is_cut; ++i) is_cut = !kept()->write(piece);
  EXPECT_TRUE(is_cut) << "64 MB were taken for a client that reads nothing";
  EXPECT_LT(kept()->pending_bytes(), 2 << 20);
  EXPECT_TRUE(comes([&] { return told == 1; }));
}

TEST_F(HttpServer, AReaderThatTakesNothingForTooLongIsCut) {
  settings_.write_timeout_s = 0.3;
  settings_.max_output_bytes = size_t{1} << 30;
  start();
  RawClient client(server_->port(), /*receive_buffer=*/4096);
  client.send(raw_request("GET", "/keep"));
  std::atomic<int> told = 0;
  kept()->on_close([&] { ++told; });
  kept()->begin_stream(200, {});
  kept()->write(std::string(32 << 20, 'x'));
  EXPECT_TRUE(comes([&] { return told == 1; }));
}

TEST_F(HttpServer, ASenderThatIsTooSlowIsCut) {
  settings_.header_timeout_s = 0.2;
  settings_.body_timeout_s = 0.2;
  start();
  RawClient slow_head(server_->port()), slow_body(server_->port());
  slow_head.send("GET / HTTP/1.1\r\n");
  slow_body.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(slow_head.response().status, 408);
  EXPECT_EQ(slow_body.response().status, 408);
  EXPECT_TRUE(slow_head.comes_to_end());
}

TEST_F(HttpServer, ASenderThatSendsAByteNowAndThenIsCutToo) {
  settings_.header_timeout_s = 0.3;
  start();
  RawClient client(server_->port());
  client.send("GET / HTTP/1.1\r\nA: ");
  bool is_cut = false;
  for (int i = 0; i < 400 && !is_cut; ++i) {
    client.send("x");
    is_cut = client.receive(/*timeout_ms=*/20);
  }
  EXPECT_EQ(client.response().status, 408);
}

TEST_F(HttpServer, AConnectionWithoutARequestIsClosed) {
  settings_.keep_alive_timeout_s = 0.2;
  start();
  RawClient client(server_->port());
  EXPECT_TRUE(client.comes_to_end());
  EXPECT_EQ(client.received(), "");
}

TEST_F(HttpServer, OneConnectionTooManyIsTurnedAway) {
  settings_.max_connections = 2;
  start();
  RawClient first(server_->port()), second(server_->port());
  ASSERT_TRUE(comes([&] { return server_->counts().connections == 2; }));
  RawClient third(server_->port());
  const RawResponse response = third.response();
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.headers.at("retry-after"), "1");
  first.send(raw_request("GET", "/hello/still"));
  EXPECT_EQ(first.response().body, "still");
}

TEST_F(HttpServer, AThousandStreamsAreHeldByAFewThreads) {
  constexpr size_t kStreams = 1000;
  start();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (size_t i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<RawClient>(server_->port()));
    clients.back()->send(raw_request("GET", "/keep"));
  }
  kept(kStreams - 1);
  for (const ExchangePtr& exchange : kept_) exchange->begin_stream(200, {});
  for (int piece = 0; piece < 5; ++piece) {
    for (const ExchangePtr& exchange : kept_) ASSERT_TRUE(exchange->write("data: x\n\n"));
  }
  for (const ExchangePtr& exchange : kept_) exchange->end();
  for (const auto& client : clients) EXPECT_EQ(client->response().body.size(), 45);
}

TEST_F(HttpServer, StopLetsAnswersEndAndTakesNoMore) {
  start();
  RawClient busy(server_->port()), idle(server_->port());
  busy.send(raw_request("GET", "/keep"));
  const ExchangePtr exchange = kept();
  exchange->begin_stream(200, {});
  const uint16_t port = server_->port();
  bool is_clean = false;
  std::thread stopper([&] { is_clean = server_->stop(20); });
  EXPECT_TRUE(idle.comes_to_end()) << "a connection without a request is closed at once";
  EXPECT_TRUE(comes([&] {
    try {
      RawClient late(port);
      return late.comes_to_end(1000);
    } catch (const std::runtime_error&) {
      return true;
    }
  }));
  exchange->write("the end");
  exchange->end();
  stopper.join();
  EXPECT_TRUE(is_clean);
  EXPECT_EQ(busy.response().body, "the end");
}

TEST_F(HttpServer, StopCutsWhatDoesNotEnd) {
  start();
  RawClient client(server_->port());
  client.send(raw_request("GET", "/keep"));
  std::atomic<int> told = 0;
  kept()->on_close([&] { ++told; });
  kept()->begin_stream(200, {});
  EXPECT_FALSE(server_->stop(0.1));
  EXPECT_EQ(told, 1);
  EXPECT_FALSE(client.response().is_complete);
}

TEST_F(HttpServer, AnExchangeMayOutliveItsServer) {
  start();
  RawClient client(server_->port());
  client.send(raw_request("GET", "/keep"));
  const ExchangePtr exchange = kept();
  server_ = nullptr;
  exchange->respond({.status = 200, .headers = {}, .body = "late"});
  EXPECT_FALSE(exchange->is_open());
}

TEST_F(HttpServer, HeadersOfAHandlerMakeNoHeadersOfTheirOwn) {
  router_.add("GET", "/split", [](const ExchangePtr& exchange) {
    exchange->add_header("X-A", "b\r\nSet-Cookie: c");
    exchange->respond({.status = 200, .headers = {{"X-B", "d\r\n\r\nbody"}}, .body = "e"});
  });
  start();
  const RawResponse response = ask(raw_request("GET", "/split"));
  EXPECT_EQ(response.headers.count("set-cookie"), 0);
  EXPECT_EQ(response.headers.at("x-a"), "bSet-Cookie: c");
  EXPECT_EQ(response.body, "e");
}

TEST_F(HttpServer, APortThatIsTakenIsAnError) {
  start();
  Settings same = settings_;
  same.port = server_->port();
  Server second(same, Router());
  EXPECT_THROW(second.start(), IoError);
}

}  // namespace server_test
}  // namespace danlu::http
