// From which hosts pictures on the web may come, and what becomes of those that do not.
#include "settings/web_pictures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "support/fake_hub.h"
#include "support/throws.h"

namespace danlu::settings {
namespace {

using test::FakeHub;
using test::HubAnswer;
using test::HubRequest;
using testing::AnyOf;
using testing::HasSubstr;

TEST(WebPictures, HostsAreReadAsBrowsersReadThem) {
  EXPECT_EQ(host_of_url("https://Example.org/a.png"), "example.org");
  EXPECT_EQ(host_of_url("http://a.example.org:8080?x=/y"), "a.example.org");
  EXPECT_EQ(host_of_url("https://good.org@evil.net/a"), "evil.net");
  EXPECT_EQ(host_of_url("https://evil.net\\@good.org/a"), "evil.net");
  EXPECT_EQ(host_of_url("https://evil.net#@good.org"), "evil.net");
  EXPECT_EQ(host_of_url("ftp://example.org/a"), "");
  EXPECT_EQ(host_of_url("file:///etc/passwd"), "");
}

TEST(WebPictures, DomainsHoldThoseBelowThem) {
  const std::vector<std::string> domains{"Example.org", ""};
  EXPECT_TRUE(is_allowed_host("example.org", domains));
  EXPECT_TRUE(is_allowed_host("cdn.example.org", domains));
  EXPECT_FALSE(is_allowed_host("badexample.org", domains));
  EXPECT_FALSE(is_allowed_host("example.org.evil.net", domains));
  EXPECT_FALSE(is_allowed_host("", domains));
  EXPECT_FALSE(is_allowed_host("evil.net", {}));
}

/// A server that answers as its test says.
class WebServer : public testing::Test {
 protected:
  void SetUp() override { ::setenv("no_proxy", "127.0.0.1,localhost", 1); }

  std::string fetch(const std::string& path, HubAnswer answer) {
    hub_.rule = [answer = std::move(answer)](const HubRequest& request) {
      return request.path == "/picture" ? HubAnswer{.body = "a picture"} : answer;
    };
    hub_.forget_requests();
    return fetch_web_picture(hub_.url() + path, {"127.0.0.1"}, limits_);
  }
  /// What is said of a file that is not to be had.
  template <typename Fault>
  std::string refusal(HubAnswer answer) {
    return test::error_of<Fault>([&] { fetch("/a.png", std::move(answer)); });
  }
  size_t num_requests() const { return hub_.requests().size(); }

  FakeHub hub_;
  WebLimits limits_{.most_bytes = 1 << 20, .tries = 3, .pause_s = 0.01};
};

TEST_F(WebServer, GivesTheFileAlsoBehindARedirect) {
  EXPECT_EQ(fetch("/a.png", {.body = "bytes"}), "bytes");
  EXPECT_EQ(fetch("/a.png", {.status = 302, .headers = {{"Location", "/picture"}}}), "a picture");
}

TEST_F(WebServer, AHostThatIsNotAllowedIsNotAsked) {
  EXPECT_THAT(test::error_of<UsageError>(
                  [&] { fetch_web_picture(hub_.url("localhost") + "/picture", {"127.0.0.1"}); }),
              HasSubstr("localhost is not among --allow_media_domains"));
  EXPECT_EQ(num_requests(), 0u);
  EXPECT_THAT(refusal<UsageError>(
                  {.status = 301, .headers = {{"Location", hub_.url("localhost") + "/picture"}}}),
              HasSubstr("/a.png: localhost is not among"));
  EXPECT_EQ(num_requests(), 1u) << "the redirect was not followed";
}

TEST_F(WebServer, AFileThatIsNotThereIsOneRowsFault) {
  EXPECT_THAT(refusal<DataError>({.status = 404}), HasSubstr("/a.png: status 404"));
  EXPECT_EQ(num_requests(), 1u) << "asking again changes nothing";
  EXPECT_THAT(refusal<DataError>({.status = 302, .headers = {{"Location", "file:///etc/passwd"}}}),
              HasSubstr("redirected to file:///etc/passwd, which is no http URL"));
  EXPECT_THAT(refusal<DataError>({.status = 302, .headers = {{"Location", "/a.png"}}}),
              HasSubstr("more than 5 redirects"));
  EXPECT_THAT(refusal<DataError>({.body = std::string((1 << 20) + 1, 'x')}),
              HasSubstr("more than 1 MiB"));
}

TEST_F(WebServer, ASlowServerIsLeft) {
  limits_.patience_s = 0.2;
  limits_.least_rate = 1e6;  // 4 kB in 100 ms are less
  EXPECT_THAT(refusal<DataError>({.body = std::string(1 << 20, 'x'), .pause_ms = 100}),
              HasSubstr("slower than 1000000 bytes a second"));
}

TEST_F(WebServer, WhatMayPassIsAskedForAgain) {
  EXPECT_THAT(refusal<DataError>({.status = 500}), HasSubstr("/a.png: status 500"));
  EXPECT_EQ(num_requests(), 3u);
  EXPECT_THAT(refusal<IoError>({.status = 503}), HasSubstr("cannot be fetched: status 503"));
  EXPECT_EQ(num_requests(), 3u);
  EXPECT_THAT(refusal<DataError>({.body = "0123456789", .cut_after = 4}),
              AnyOf(HasSubstr("6 bytes remaining to read"), HasSubstr("with 6 bytes missing")));
  EXPECT_EQ(num_requests(), 3u);
  EXPECT_THAT(test::error_of<IoError>(
                  [&] { fetch_web_picture("http://127.0.0.1:1/a.png", {"127.0.0.1"}, limits_); }),
              HasSubstr("cannot be fetched"));
  int tries = 0;
  hub_.rule = [&](const HubRequest&) {
    return ++tries < 3 ? HubAnswer{.status = 429} : HubAnswer{.body = "at last"};
  };
  EXPECT_EQ(fetch_web_picture(hub_.url() + "/b.png", {"127.0.0.1"}, limits_), "at last");
}

}  // namespace
}  // namespace danlu::settings
