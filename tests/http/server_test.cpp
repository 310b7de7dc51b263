// The server against a client of bare sockets: what it answers, and what it refuses.
#include "http_server.h"

namespace danlu::http {
namespace server_test {

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

TEST_F(HttpServer, AClientThatHasSaidAllIsAnswered) {
  start();
  std::atomic<int> told = 0;
  RawClient client(server_->port());
  client.send(raw_request("GET", "/keep") + raw_request("GET", "/hello/you"));
  kept()->on_close([&] { ++told; });
  client.end_sending();
  ASSERT_TRUE(client.receive_until("HTTP/1.1 100 Continue\r\n\r\n")) << "it is asked";
  EXPECT_TRUE(kept()->is_open());
  kept()->respond({.status = 200, .headers = {}, .body = "done"});
  EXPECT_EQ(client.response().body, "done");
  EXPECT_EQ(client.response().body, "you");
  EXPECT_TRUE(client.comes_to_end());
  EXPECT_EQ(told, 0);
  EXPECT_TRUE(comes([&] { return server_->counts().connections == 0; }));
}

TEST_F(HttpServer, AClientThatHasSaidAllHasItsStreamToTheEnd) {
  start();
  RawClient client(server_->port());
  client.send(raw_request("GET", "/keep"));
  kept()->begin_stream(200, {{"Content-Type", "text/event-stream"}});
  kept()->write("data: 1\n\n");
  ASSERT_TRUE(client.receive_until("data: 1\n\n"));
  client.end_sending();
  ASSERT_TRUE(client.receive_until(":\n\n")) << "it is asked";
  EXPECT_TRUE(kept()->write("data: 2\n\n"));
  kept()->end();
  const RawResponse response = client.response();
  EXPECT_TRUE(response.is_complete);
  EXPECT_EQ(response.body, "data: 1\n\n:\n\ndata: 2\n\n");
}

/// One that is gone answers with a reset when it is asked.
TEST_F(HttpServer, AClientThatGoesAfterItHasSaidAllIsToldToTheHandler) {
  start();
  std::atomic<int> told = 0;
  RawClient client(server_->port()), old(server_->port());
  client.send(raw_request("GET", "/keep"));
  kept()->on_close([&] { ++told; });
  client.end_sending();
  ASSERT_TRUE(client.receive_until("100 Continue"));
  client.close();
  kept()->begin_stream(200, {});
  EXPECT_TRUE(comes([&] { return told == 1 || !kept()->write("x"); }));
  EXPECT_TRUE(comes([&] { return told == 1; }));
  old.send("GET /keep HTTP/1.0\r\n\r\n");
  kept(1)->on_close([&] { ++told; });
  old.end_sending();
  EXPECT_TRUE(comes([&] { return told == 2; })) << "HTTP/1.0 has no words to ask it";
}

}  // namespace server_test
}  // namespace danlu::http
