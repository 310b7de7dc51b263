// Who may ask a server.
#include "http/guards.h"

#include <gmock/gmock.h>

#include "serve/protocol_test.h"

namespace danlu::serve {
namespace guards_test {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(ProtocolTest, KeysAreAskedForAndCompared) {
  access_.api_keys = {"first", "second"};
  access_.open_paths = {"/", "/assets/"};
  start();
  const auto with = [&](const std::string& header) {
    return ask(raw_request("GET", "/v1/models", "", header)).status;
  };
  EXPECT_EQ(with(""), 401);
  EXPECT_EQ(with("Authorization: Bearer \r\n"), 401);
  EXPECT_EQ(with("Authorization: Bearer firs\r\n"), 401);
  EXPECT_EQ(with("Authorization: Bearer firstt\r\n"), 401);
  EXPECT_EQ(with("Authorization: Basic first\r\n"), 401);
  EXPECT_EQ(with("Authorization: Bearer first\r\n"), 200);
  EXPECT_EQ(with("authorization: bearer second\r\n"), 200);
  EXPECT_EQ(ask(raw_request("GET", "/health")).status, 200);
  EXPECT_EQ(ask(raw_request("POST", "/tokenize", "{}")).status, 401);
  EXPECT_EQ(ask(raw_request("GET", "/assets/nothing.js")).status, 404) << "no key is asked for";
  EXPECT_EQ(ask(raw_request("GET", "/")).status, 404);
  const RawResponse refused = ask(raw_request("GET", "/v1/models"));
  EXPECT_EQ(Json::parse(refused.body)["error"]["code"], "invalid_api_key");
}

TEST_F(ProtocolTest, PagesOfOtherOriginsAreRefusedUnlessNamed) {
  access_.allowed_origins = {"https://chat.example.com"};
  start();
  const auto from = [&](const std::string& origin) {
    return ask(raw_request("GET", "/v1/models", "", "Origin: " + origin + "\r\n"));
  };
  EXPECT_EQ(from("https://evil.example.com").status, 403);
  EXPECT_EQ(from("null").status, 403);
  EXPECT_EQ(from("http://localhost").headers.count("access-control-allow-origin"), 0);
  EXPECT_EQ(from("http://localhost").status, 200) << "its own page";
  EXPECT_EQ(from("https://chat.example.com").headers.at("access-control-allow-origin"),
            "https://chat.example.com");
  const RawResponse preflight =
      ask(raw_request("OPTIONS", "/v1/chat/completions", "",
                      "Origin: https://chat.example.com\r\nAccess-Control-Request-Method: POST\r\n"
                      "Access-Control-Request-Headers: authorization,x-stainless-os\r\n"));
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers.at("access-control-allow-headers"), "authorization,x-stainless-os");
}

TEST_F(ProtocolTest, AServerOfThisMachineAnswersToItsOwnNamesAlone) {
  start();
  const auto to = [&](const std::string& host) {
    return ask("GET /v1/models HTTP/1.1\r\nHost: " + host + "\r\n\r\n").status;
  };
  EXPECT_EQ(to("evil.example.com"), 403);
  EXPECT_EQ(to("127.0.0.1.evil.example.com"), 403);
  EXPECT_EQ(to("127.0.0.1:8000"), 200);
  EXPECT_EQ(to("[::1]:8000"), 200);
  EXPECT_EQ(to("LOCALHOST:80"), 200);
  EXPECT_EQ(to("192.168.1.5:80"), 200) << "no page can have an address lead here";
}

/// The board has no such flag, and its errors name none.
TEST_F(ProtocolTest, AFlagIsNamedWhereThereIsOne) {
  access_.allowing_flag = "--allowed-origins";
  const std::string request = "GET /v1/models HTTP/1.1\r\nHost: evil.example.com\r\n\r\n";
  EXPECT_NE(ask(request).body.find("alone: --allowed-origins names"), std::string::npos);
  TearDown();
  access_.allowing_flag.clear();
  start();
  EXPECT_NE(ask(request).body.find("for this machine alone\""), std::string::npos);
}

TEST(SameSecret, ComparesAllOfIt) {
  EXPECT_TRUE(http::is_same_secret("abc", "abc"));
  EXPECT_FALSE(http::is_same_secret("abd", "abc"));
  EXPECT_FALSE(http::is_same_secret("ab", "abc"));
  EXPECT_FALSE(http::is_same_secret("abcabc", "abc"));
  EXPECT_FALSE(http::is_same_secret("", "abc"));
}

TEST(Loopback, IsWhatOnlyThisMachineReaches) {
  for (const char* host : {"127.0.0.1", "127.8.8.8", "::1", "localhost", "LocalHost"})
    EXPECT_TRUE(http::is_loopback(host)) << host;
  for (const char* host :
       {"0.0.0.0", "::", "192.168.0.1", "example.com", "", "127.0.0.1.example.com"})
    EXPECT_FALSE(http::is_loopback(host)) << host;
}

}  // namespace guards_test
}  // namespace danlu::serve
