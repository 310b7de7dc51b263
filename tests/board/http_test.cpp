// The board's routes, the page's files and the guards, over a socket.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <optional>

#include "board/board.h"
#include "board/page.h"
#include "board/run_folder.h"
#include "board/serve_board.h"
#include "http/guards.h"
#include "http/server.h"

namespace danlu::board {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// One connection that is read until `until` is there, or its end.
class Client {
 public:
  explicit Client(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    timeval limit{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) ADD_FAILURE();
  }
  ~Client() { ::close(fd_); }

  void send(const std::string& text) const {
    EXPECT_EQ(::send(fd_, text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  std::string read(const std::string& until = "") {
    char block[4096];
    while (until.empty() || text_.find(until) == text_.npos) {
      const ssize_t got = ::recv(fd_, block, sizeof block, 0);
      if (got <= 0) break;
      text_.append(block, static_cast<size_t>(got));
    }
    return text_;
  }
  void forget() { text_.clear(); }

 private:
  int fd_;
  std::string text_;
};

class BoardHttp : public ::testing::Test {
 protected:
  BoardHttp() {
    put_settings(folder_ / "a");
    put(folder_ / "a" / "logging.jsonl", step_line(1, 2));
    put(folder_ / "a" / "train.log", "hello\n");
  }
  void start(std::vector<std::string> keys = {}) {
    board_ = std::make_unique<Board>(std::vector<std::filesystem::path>{folder_.path()});
    http::Router router;
    http::add_guards({.api_keys = keys, .open_paths = page_paths()}, &router);
    board_->add_routes(router);
    add_page(router,
             {.has_runs = true, .has_chat = false, .needs_key = !keys.empty(), .version = "9"});
    http::Settings settings;
    settings.port = 0;
    server_ = std::make_unique<http::Server>(settings, std::move(router));
    server_->start();
  }
  std::string get(const std::string& path, const std::string& more = "") const {
    Client client(server_->port());
    client.send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + more +
                "\r\n");
    return client.read();
  }
  std::string id() const {
    const std::string list = get("/api/runs");
    const size_t at = list.find("\"id\":\"");
    return at == list.npos ? "" : list.substr(at + 6, 16);
  }

  const test::TemporaryDirectory folder_;
  std::unique_ptr<Board> board_;
  std::unique_ptr<http::Server> server_;
};

TEST_F(BoardHttp, ThePageIsServedUnderAStrictPolicy) {
  start();
  const std::string page = get("/");
  EXPECT_THAT(
      page,
      AllOf(HasSubstr("200 OK"), HasSubstr("text/html; charset=utf-8"), HasSubstr("js/main.js"),
            HasSubstr("default-src 'none'; script-src 'self'; style-src 'self';"),
            HasSubstr("require-trusted-types-for 'script'"), HasSubstr("nosniff"),
            Not(HasSubstr("unsafe")), Not(HasSubstr("http://")), Not(HasSubstr("https://"))));
  EXPECT_THAT(get("/js/main.js"), HasSubstr("text/javascript"));
  EXPECT_THAT(get("/favicon.ico"), AllOf(HasSubstr("200 OK"), HasSubstr("image/svg+xml")));
  EXPECT_THAT(get("/lib/dompurify.LICENSE.txt"), HasSubstr("Apache License"));
  EXPECT_THAT(get("/js/../../etc/passwd"), Not(HasSubstr("200 OK")));
}

TEST_F(BoardHttp, AFileThatTheBrowserHasIsNotSentAgain) {
  start();
  const std::string page = get("/style.css");
  const size_t at = page.find("ETag: ");
  ASSERT_NE(at, page.npos);
  const std::string tag = page.substr(at + 6, page.find('\r', at) - at - 6);
  EXPECT_THAT(get("/style.css", "If-None-Match: " + tag + "\r\n"),
              AllOf(HasSubstr("304"), Not(HasSubstr("--ground"))));
}

TEST_F(BoardHttp, RunsAreToldAsJson) {
  start();
  EXPECT_THAT(get("/api/page"),
              HasSubstr(R"({"runs":true,"chat":false,"needs_key":false,"version":"9"})"));
  EXPECT_THAT(get("/api/runs"), AllOf(HasSubstr("application/json"), HasSubstr(R"("name":"a")")));
  EXPECT_THAT(get("/api/runs/" + id() + "/curves?name=loss"),
              HasSubstr(R"("loss":{"x":[1],"y":[2.0])"));
  EXPECT_THAT(get("/api/runs/" + id() + "/settings"), HasSubstr(R"("given":["lr","model"])"));
  EXPECT_THAT(get("/api/runs/" + id() + "/log"), HasSubstr(R"("text":"hello\n")"));
  EXPECT_THAT(get("/api/runs/" + id() + "/samples"), HasSubstr(R"("samples":[])"));
  EXPECT_THAT(get("/api/runs/" + id()), HasSubstr(R"("checkpoints":[])"));
}

TEST_F(BoardHttp, WhatIsNotThereOrNoNumberIsAnErrorOfOpenAIsShape) {
  start();
  EXPECT_THAT(get("/api/runs/0123456789abcdef"),
              AllOf(HasSubstr("404 "), HasSubstr(R"("type":"NotFoundError")")));
  EXPECT_THAT(get("/api/runs/" + id() + "/log?name=../a/args.json"), HasSubstr("404 "));
  EXPECT_THAT(get("/api/runs/" + id() + "/curves?after=1e9"),
              AllOf(HasSubstr("400 "), HasSubstr("after must be a whole number")));
  EXPECT_THAT(get("/api/runs/" + id() + "/curves?points=99999999999999999999"), HasSubstr("400 "));
}

TEST_F(BoardHttp, WhoListensHearsOfChanges) {
  start();
  Client client(server_->port());
  client.send("GET /api/runs/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(client.read("event: runs"), HasSubstr("text/event-stream"));
  client.read("\n\n");
  append(folder_ / "a" / "logging.jsonl", step_line(2, 1.25));
  const std::string heard = client.read("event: changes");
  EXPECT_THAT(client.read("\"loss\":1.25"), HasSubstr("\"loss\":1.25"));
}

TEST_F(BoardHttp, ManyMayListenAndLeave) {
  start();
  const auto listens = [&](std::unique_ptr<Client>& client) {
    client = std::make_unique<Client>(server_->port());
    client->send("GET /api/runs/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    return client->read("\n\n").find("event: runs") != std::string::npos;
  };
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<Client>> clients(40);
    for (auto& client : clients) {
      // That those of the round before have left is seen a little later.
      bool is_heard = false;
      for (int attempt = 0; attempt < 400 && !is_heard; ++attempt) {
        is_heard = listens(client);
        if (!is_heard) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
      ASSERT_TRUE(is_heard);
    }
  }
  EXPECT_THAT(get("/api/runs"), HasSubstr("200 OK"));
}

TEST_F(BoardHttp, TheKeyGuardsWhatIsTheUsers) {
  start({"first key", "second"});
  for (const char* path :
       {"/api/runs", "/api/runs/events", "/api/runs/x", "/v1/models", "/api/other"})
    EXPECT_THAT(get(path), AllOf(HasSubstr("401 "), HasSubstr("WWW-Authenticate: Bearer"),
                                 Not(HasSubstr("first"))))
        << path;
  for (const char* key : {"", "secon", "secondsecond", "Second", "first", "first keyfirst key"})
    EXPECT_THAT(get("/api/runs", std::string("Authorization: Bearer ") + key + "\r\n"),
                HasSubstr("401 "))
        << key;
  EXPECT_THAT(get("/api/runs", "Authorization: second\r\n"), HasSubstr("401 "));
  EXPECT_THAT(get("/api/runs", "Authorization: Bearer second\r\n"), HasSubstr("200 OK"));
  EXPECT_THAT(get("/api/runs", "Authorization: Bearer first key\r\n"), HasSubstr("200 OK"));
  for (const char* path : {"/", "/js/main.js", "/api/page"})
    EXPECT_THAT(get(path), HasSubstr("200 OK")) << path;
}

// A page elsewhere may have its own name lead to this machine (DNS rebinding).
TEST_F(BoardHttp, AnotherSitesNameGetsNothing) {
  start();
  const auto asked_as = [&](const std::string& host) {
    Client client(server_->port());
    client.send("GET /api/runs HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n");
    return client.read();
  };
  for (const char* host : {"evil.example", "evil.example:80", "127.0.0.1.evil.example",
                           "localhost.evil.example", "notlocalhost", "127.1"})
    EXPECT_THAT(asked_as(host), AllOf(HasSubstr("403 "), Not(HasSubstr("\"runs\"")))) << host;
  for (const char* host :
       {"localhost", "LOCALHOST:1", "127.0.0.1:80", "[::1]:80", "192.168.1.5:80", "a.localhost"})
    EXPECT_THAT(asked_as(host), HasSubstr("200 OK")) << host;
}

TEST_F(BoardHttp, AProxyThatChangesTheNameGetsThePageAndAnotherSiteNothing) {
  start();
  const auto asked_from = [&](const std::string& origin, const std::string& path) {
    Client client(server_->port());
    client.send("GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1:1\r\nOrigin: " + origin +
                "\r\nConnection: close\r\n\r\n");
    return client.read();
  };
  // Browsers name the origin of a module's request though it is the page's own.
  EXPECT_THAT(asked_from("http://proxy.example", "/js/main.js"),
              AllOf(HasSubstr("200 OK"), Not(HasSubstr("Access-Control-Allow-Origin"))));
  EXPECT_THAT(asked_from("http://proxy.example", "/api/runs"),
              AllOf(HasSubstr("403 "), Not(HasSubstr("\"runs\""))));
}

TEST_F(BoardHttp, RoutesOutliveTheBoard) {
  start();
  Client listener(server_->port());
  listener.send("GET /api/runs/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
  listener.read("event: runs");
  board_.reset();
  EXPECT_THAT(listener.read("\r\n0\r\n\r\n"), HasSubstr("\r\n0\r\n\r\n"));  // the end of its answer
  EXPECT_THAT(get("/api/runs"), HasSubstr("503 "));
  EXPECT_THAT(get("/api/runs/events"), HasSubstr("503 "));
}

}  // namespace
}  // namespace danlu::board
