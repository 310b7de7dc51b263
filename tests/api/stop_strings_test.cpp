#include "api/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

#include "support/throws.h"

namespace danlu::api {
namespace {

/// The definition: the first end of a stop string, the longest that ends there.
std::string ended_by_definition(const std::string& text, const std::vector<std::string>& stops,
                                bool include) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop))
        longest = std::max(longest, stop.size());
    }
    if (longest > 0) return text.substr(0, include ? end : end - longest);
  }
  return text;
}

TEST(StopStrings, HoldsBackWhatMayBeginOneAndNoMore) {
  StopStrings stop({"\nUser:", "END"});
  EXPECT_EQ(stop.push("Hi\n"), "Hi");
  EXPECT_EQ(stop.push("Us"), "");
  EXPECT_EQ(stop.push("ed E"), "\nUsed ");
  EXPECT_EQ(stop.push("N"), "");
  EXPECT_EQ(stop.finish(), "EN");
  EXPECT_FALSE(stop.found());
}

TEST(StopStrings, EndsOnceAndSaysWhere) {
  StopStrings stop({"tail", "ai"});
  EXPECT_EQ(stop.push("the t"), "the ");
  EXPECT_EQ(stop.push("ail and more"), "t");
  EXPECT_EQ(stop.found(), "ai");
  EXPECT_EQ(stop.found_at(), 5u);
  EXPECT_EQ(stop.push("x"), "");
  EXPECT_EQ(stop.finish(), "");
}

TEST(StopStrings, MayIncludeTheStopString) {
  StopStrings stop({"。"}, true);
  EXPECT_EQ(stop.push("好。不"), "好。");
  EXPECT_EQ(stop.found_at(), 3u);
}

TEST(StopStrings, AnyCutGivesWhatTheDefinitionGives) {
  std::mt19937 random(1);
  const auto word = [&](size_t length) {
    std::string text;
    for (size_t i = 0; i < length; ++i) text += "ab\n"[random() % 3];
    return text;
  };
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = random() % 4; i > 0; --i) stops.push_back(word(1 + random() % 5));
    const std::string text = word(random() % 30);
    const bool include = random() % 2;
    StopStrings stop(stops, include);
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const size_t length = 1 + random() % 6;
      out += stop.push(std::string_view(text).substr(at, length));
      at += length;
    }
    out += stop.finish();
    ASSERT_EQ(out, ended_by_definition(text, stops, include)) << text;
    if (stop.found()) {
      ASSERT_EQ(text.substr(stop.found_at(), stop.found()->size()), *stop.found());
    }
  }
}

TEST(StopStrings, RefusesAnEmptyOne) {
  EXPECT_EQ(test::error_of<UsageError>([] { StopStrings({"a", ""}); }),
            "a stop string must not be empty");
}

}  // namespace
}  // namespace danlu::api
