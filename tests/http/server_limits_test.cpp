// Whom the server cuts or turns away, and how it ends.
#include "http_server.h"

namespace danlu::http {
namespace server_test {

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
