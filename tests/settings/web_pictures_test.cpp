// From which hosts pictures on the web may come.
#include "settings/web_pictures.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace danlu::settings {
namespace {

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

}  // namespace
}  // namespace danlu::settings
