// TLS, with openssl's own client.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "http/server.h"
#include "support/raw_http.h"
#include "support/temporary_directory.h"

namespace danlu::http {
namespace tls_test {

using testing::HasSubstr;

class HttpsServer : public testing::Test {
 protected:
  void SetUp() override {
    const std::string make =
        "cd '" + folder_.path().string() +
        "' && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "
        "/CN=localhost -addext subjectAltName=DNS:localhost -keyout key.pem -out cert.pem "
        ">/dev/null 2>&1";
    ASSERT_EQ(std::system(make.c_str()), 0);
    settings_.port = 0;
    settings_.tls = {.certificate = folder_ / "cert.pem", .key = folder_ / "key.pem"};
    router_.add("GET", "/who", [](const ExchangePtr& exchange) {
      const bool is_encrypted = exchange->request().is_encrypted;
      exchange->begin_stream(200, {});
      exchange->write(is_encrypted ? "en" : "plain");
      exchange->write("crypted");
      exchange->end();
    });
  }

  /// What openssl's client is answered.
  std::string ask(uint16_t port, const std::string& flags) {
    std::ofstream(folder_ / "request")
        << "GET /who HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    const std::string command = "cd '" + folder_.path().string() +
                                "' && openssl s_client -quiet -verify_return_error -CAfile "
                                "cert.pem -servername localhost -connect 127.0.0.1:" +
                                std::to_string(port) + " " + flags +
                                " <request 2>errors | tr -d '\\r'";
    std::string answer;
    FILE* pipe = ::popen(command.c_str(), "r");
    char bytes[4096];
    for (size_t size = 0; (size = std::fread(bytes, 1, sizeof bytes, pipe)) > 0;)
      answer.append(bytes, size);
    ::pclose(pipe);
    return answer;
  }

  const test::TemporaryDirectory folder_;
  Settings settings_;
  Router router_;
};

TEST_F(HttpsServer, AnswersUnderTls12And13) {
  Server server(settings_, router_);
  server.start();
  EXPECT_THAT(server.url(), HasSubstr("https://127.0.0.1:"));
  for (const char* version : {"-tls1_2", "-tls1_3"}) {
    const std::string answer = ask(server.port(), version);
    EXPECT_THAT(answer, HasSubstr("200 OK")) << version;
    EXPECT_THAT(answer, HasSubstr("crypted")) << version;
    EXPECT_THAT(answer, testing::Not(HasSubstr("plain"))) << version;
  }
  EXPECT_EQ(ask(server.port(), "-tls1_1 -cipher DEFAULT@SECLEVEL=0"), "");
}

TEST_F(HttpsServer, AClientThatSpeaksNoTlsHarmsNobody) {
  Server server(settings_, router_);
  server.start();
  test::RawClient plain(server.port());
  plain.send(test::raw_request("GET", "/who"));
  EXPECT_TRUE(plain.comes_to_end());
  EXPECT_THAT(plain.received(), testing::Not(HasSubstr("HTTP/1.1")));
  EXPECT_THAT(ask(server.port(), ""), HasSubstr("200 OK"));
}

TEST_F(HttpsServer, FilesThatAreNoCertificateOrKeyAreNamed) {
  std::ofstream(folder_ / "bad.pem") << "no certificate";
  Settings bad = settings_;
  bad.tls->certificate = folder_ / "bad.pem";
  EXPECT_THROW(Server(bad, Router()).start(), IoError);
  bad = settings_;
  bad.tls->key = folder_ / "none.pem";
  EXPECT_THROW(Server(bad, Router()).start(), IoError);
}

}  // namespace tls_test
}  // namespace danlu::http
