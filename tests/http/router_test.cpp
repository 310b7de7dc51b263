#include "http/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace danlu::http {
namespace router_test {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

Handler nothing() {
  return [](const ExchangePtr&) {};
}

TEST(Router, PlacesTakeOnePartAndTheLastOneTheRest) {
  Router router;
  router.add("GET", "/v1/models", nothing());
  router.add("GET", "/v1/models/{}/info", nothing());
  router.add("GET", "/files/{*}", nothing());
  EXPECT_THAT(router.find("GET", "/v1/models/a b/info").places, ElementsAre("a b"));
  EXPECT_THAT(router.find("GET", "/files/a/b/c").places, ElementsAre("a/b/c"));
  EXPECT_THAT(router.find("GET", "/files/").places, ElementsAre(""));
  EXPECT_EQ(router.find("GET", "/v1/models//info").handler, nullptr);
  EXPECT_EQ(router.find("GET", "/v1/models/").handler, nullptr);
  EXPECT_EQ(router.find("GET", "/v1").handler, nullptr);
  EXPECT_NE(router.find("GET", "/v1/models").handler, nullptr);
}

TEST(Router, TheFirstOfSeveralCounts) {
  Router router;
  router.add("GET", "/a/{}", nothing());
  router.add("GET", "/a/b", nothing());
  EXPECT_THAT(router.find("GET", "/a/b").places, ElementsAre("b"));
}

TEST(Router, OtherMethodsAreNamed) {
  Router router;
  router.add("POST", "/a", nothing());
  router.add("GET", "/a", nothing());
  EXPECT_EQ(router.find("PUT", "/a").allow, "POST, GET, HEAD");
  EXPECT_EQ(router.find("PUT", "/b").allow, "");
  EXPECT_NE(router.find("HEAD", "/a").handler, nullptr);
}

TEST(Router, ASecondRouteOfOneNameIsAMistakeOfOurs) {
  Router router;
  router.add("GET", "/a", nothing());
  EXPECT_THROW(router.add("GET", "/a", nothing()), InternalError);
  EXPECT_THROW(router.add("GET", "a", nothing()), InternalError);
}

TEST(Target, PathAndQueryAreDecoded) {
  std::string path;
  std::vector<std::pair<std::string, std::string>> query;
  ASSERT_TRUE(read_target("/a%2Fb/%E4%BD%A0?x=1+2&y=%26&z&&=v#part", &path, &query));
  EXPECT_EQ(path, "/a/b/你");
  EXPECT_THAT(query, ElementsAre(Pair("x", "1 2"), Pair("y", "&"), Pair("z", ""), Pair("", "v")));
}

TEST(Target, WhatLeavesThePathIsNone) {
  std::string path = "before";
  std::vector<std::pair<std::string, std::string>> query;
  for (const char* target :
       {"", "a", "*", "/..", "/a/../b", "/a/..", "/.", "/a/./b", "/%2e%2e/b", "/a%2f..%2fb",
        "/a%5c..", "/a%00", "/%", "/%4", "/%4g", "/a?x=%4", "//../a"})
    EXPECT_FALSE(read_target(target, &path, &query)) << target;
  EXPECT_EQ(path, "before");
  EXPECT_TRUE(read_target("/a..b/.c/...", &path, &query));
}

TEST(Headers, TheirCaseDoesNotMatter) {
  const Headers headers = {{"Content-Type", "a"}, {"content-type", "b"}};
  EXPECT_EQ(*find_header(headers, "CONTENT-TYPE"), "a");
  EXPECT_EQ(find_header(headers, "Content"), nullptr);
}

}  // namespace router_test
}  // namespace danlu::http
