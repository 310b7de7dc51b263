// Every message has its Chinese: src/base/messages/zh.json is complete, fits, and holds nothing
// else.
#include "house/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

namespace danlu::house {
namespace {

using ::testing::ElementsAre;

nlohmann::ordered_json catalogue(const char* name = "zh.json") {
  std::ifstream file(root() / "src/base/messages" / name);
  return nlohmann::ordered_json::parse(file);
}

bool is_chinese(const std::string& text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0xE3 && byte <= 0xE9;
  });
}

/// Names and commands are the same in every language.
bool may_stay(const std::string& text) {
  static const std::regex words("[A-Za-z]{2,} [a-z]{2,}");
  return text.starts_with("danlu ") || !std::regex_search(text, words);
}

TEST(Messages, EveryMessageOfTheSourcesIsInTheCatalogue) {
  const auto chinese = catalogue();
  const auto untranslated = read_untranslated(root() / "tests/house/untranslated.txt");
  int messages = 0;
  for (const SourceFile& file : source_files(root(), "src")) {
    for (const Literal& literal : literals_of(file)) {
      if (!is_message(literal) || untranslated.has(literal)) continue;
      ++messages;
      EXPECT_TRUE(chinese.contains(literal.text))
          << literal.path << ":" << literal.line << ": \"" << literal.text << "\"";
    }
  }
  EXPECT_GT(messages, 1500);
}

TEST(Messages, EveryPairHasTheSamePlacesAndIsChinese) {
  for (const char* name : {"zh.json", "zh_libraries.json"}) {
    const auto pairs = catalogue(name);
    for (const auto& [english, chinese] : pairs.items()) {
      const std::string text = chinese.get<std::string>();
      EXPECT_EQ(places_of(english), places_of(text)) << english << "\n" << text;
      const bool is_name = text == english && may_stay(english);
      const bool is_word_of_json = english == text + " literal";
      EXPECT_TRUE(is_chinese(text) || is_name || is_word_of_json) << english;
    }
  }
}

TEST(Messages, FullWidthPunctuationHasNoSpacesBesideIt) {
  // A space at the very end is a prompt's.
  static const std::regex spaced(
      "(（|）|：|，|。|；|、|！|？|“|”|「|」|《|》) .| "
      "(（|）|：|，|。|；|、|！|？|“|”|「|」|《|》)");
  for (const char* name : {"zh.json", "zh_libraries.json"}) {
    const auto pairs = catalogue(name);
    for (const auto& [english, chinese] : pairs.items())
      EXPECT_FALSE(std::regex_search(chinese.get<std::string>(), spaced)) << chinese;
  }
}

TEST(Messages, TheCatalogueIsSortedAndHoldsNothingThatIsNotSaid) {
  std::set<std::string> said;
  for (const SourceFile& file : source_files(root(), "src")) {
    for (const Literal& literal : literals_of(file)) said.insert(literal.text);
  }
  std::string before;
  const auto pairs = catalogue();
  for (const auto& [english, chinese] : pairs.items()) {
    EXPECT_LT(before, english) << "not sorted";
    EXPECT_TRUE(said.count(english)) << "no source says \"" << english << "\"";
    before = english;
  }
}

TEST(Messages, TheScannerSeesWhatIsSaid) {
  const auto found = literals_of({"x.cpp",
                                  {"throw UsageError(tr(\"[a] {} is \"  // \"no\"",
                                   "  \"no \\\"b\\\"\", x), 'c', R\"(raw text here)\");",
                                   "throw InternalError(\"this cannot be\");"}});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].text, "[a] {} is no \"b\"");
  EXPECT_THAT(found[0].calls, ElementsAre("UsageError", "tr"));
  EXPECT_EQ(found[0].line, 1);
  EXPECT_TRUE(is_message(found[0]));
  EXPECT_FALSE(is_message(found[1]));
  EXPECT_THAT(places_of("{} {{x}} {:.3f}"), ElementsAre("0:", "1:.3f"));
  EXPECT_EQ(places_of("{1:g} {0}"), places_of("{} {:g}"));
}

}  // namespace
}  // namespace danlu::house
