#include "grammar/regex.h"

#include <gtest/gtest.h>

#include <random>

#include "base/pattern.h"
#include "grammar/follow.h"
#include "support/throws.h"
#include "text/fake_tokenizer.h"

namespace danlu::grammar {
namespace {

const Compiler& byte_compiler() {
  static const Compiler kCompiler(
      std::make_shared<text::FakeTokenizer>(std::vector<std::string>{"<end>"},
                                            std::vector<std::string>{}),
      {256});
  return kCompiler;
}

class RandomPatterns {
 public:
  explicit RandomPatterns(unsigned seed) : random_(seed) {}
  size_t below(size_t bound) { return random_() % bound; }

  std::string pattern(int depth = 0) {
    std::string text = sequence(depth);
    for (size_t i = below(3); i > 1; --i) text += "|" + sequence(depth);
    return text;
  }
  std::string word() {
    static const std::vector<std::string> kWords = {"a",  "b",  "1", "-", "é",
                                                    "😀", "\n", " ", "_", "]"};
    std::string text;
    for (size_t i = below(7); i > 0; --i) text += kWords[below(kWords.size())];
    return text;
  }

 private:
  std::string sequence(int depth) {
    std::string text;
    for (size_t i = below(4); i > 0; --i) {
      text += atom(depth);
      static const std::vector<std::string> kCounts = {"*",     "+",     "?",  "{2}", "{1,}",
                                                       "{0,3}", "{2,4}", "*?", "+?",  "??"};
      if (below(2)) text += kCounts[below(kCounts.size())];
    }
    return text;
  }
  std::string atom(int depth) {
    static const std::vector<std::string> kAtoms = {
        "a",      "b",      "1",   "é",   "😀",    ".",    "\\d",    "\\w",
        "\\W",    "\\s",    "\\S", "\\D", "[ab]",  "[^a]", "[a-c1]", "[é-😀]",
        "[^\\w]", "[\\]-]", "\\n", "\\-", "\\x61", "_",    "[-a]",   "]"};
    if (depth < 3 && below(4) == 0)
      return std::string(below(2) ? "(" : "(?:") + pattern(depth + 1) + ")";
    return kAtoms[below(kAtoms.size())];
  }
  std::mt19937 random_;
};

TEST(GrammarRegex, AcceptsWhatPerlsExpressionsMatch) {
  RandomPatterns random(3);
  int matches = 0;
  for (int round = 0; round < 2500; ++round) {
    const std::string pattern = random.pattern();
    const auto grammar = byte_compiler().regex(pattern);
    const Pattern oracle(pattern);
    for (int i = 0; i < 20; ++i) {
      const std::string text = random.word();
      const bool expected = oracle.matches(text);
      matches += expected;
      ASSERT_EQ(grammar->accepts(text), expected) << pattern << " on '" << text << "'";
    }
  }
  EXPECT_GT(matches, 2000);
}

TEST(GrammarRegex, DrawnTextsMatch) {
  RandomPatterns random(4);
  std::mt19937 draws(5);
  const text::FakeTokenizer tokenizer({"<end>"}, {});
  int ended = 0;
  for (int round = 0; round < 400; ++round) {
    const std::string pattern = random.pattern();
    const auto constraint = byte_compiler().begin(byte_compiler().regex(pattern));
    const auto ids = draw_some(*constraint, tokenizer, 256, draws, 3000);
    if (!ids || ids->size() > 200) continue;
    ++ended;
    EXPECT_TRUE(Pattern(pattern).matches(tokenizer.decode(*ids, false))) << pattern;
  }
  EXPECT_GT(ended, 200);
}

TEST(GrammarRegex, AnchorsAtTheEndsSayNothingNew) {
  const auto grammar = byte_compiler().regex("^a|b$");
  EXPECT_TRUE(grammar->accepts("a"));
  EXPECT_TRUE(grammar->accepts("b"));
  EXPECT_FALSE(grammar->accepts("ab"));
}

TEST(GrammarRegex, NamesWhatItDoesNotKnow) {
  const auto error = [](const std::string& pattern) {
    return test::error_of<GrammarError>([&] { byte_compiler().regex(pattern); });
  };
  EXPECT_EQ(error("a(?=b)"), "pattern 'a(?=b)', byte 3: this kind of group is not supported");
  EXPECT_EQ(error("(?<=a)b"), "pattern '(?<=a)b', byte 3: this kind of group is not supported");
  EXPECT_EQ(error("(a)\\1"), "pattern '(a)\\1', byte 4: '\\1' is not supported");
  EXPECT_EQ(error("\\bword"), "pattern '\\bword', byte 1: '\\b' is not supported");
  EXPECT_EQ(error("\\p{L}"), "pattern '\\p{L}', byte 1: '\\p' is not supported");
  EXPECT_EQ(error("(a"), "pattern '(a', byte 2: a group is not closed");
  EXPECT_EQ(error("a)"), "pattern 'a)', byte 1: ')' closes nothing");
  EXPECT_EQ(error("[z-a]"),
            "pattern '[z-a]', byte 4: a range of a class goes from a lower to a higher character");
  EXPECT_EQ(error("*a"), "pattern '*a', byte 0: '*' repeats nothing");
  EXPECT_EQ(error("a{3,2}"), "pattern 'a{3,2}', byte 6: the first count is larger than the second");
  EXPECT_EQ(error("a++"), "pattern 'a++', byte 3: possessive repetition is not supported");
  EXPECT_EQ(error("a^b"), "pattern 'a^b', byte 1: '^' is followed only at the ends of the pattern");
  EXPECT_EQ(error("\xFF"), "pattern '\xFF', byte 0: it is not UTF-8");
  EXPECT_EQ(error("[^\\x{0}-\\x{10FFFF}]"), "no text satisfies the constraint");
}

TEST(GrammarRegex, CountsInsideCountsDoNotMultiply) {
  // 50^5 letters would not fit anywhere; as rules they are 250 states.
  const auto grammar = byte_compiler().regex("(((((a{50}){50}){50}){50}){50})?b");
  EXPECT_TRUE(grammar->accepts("b"));
  EXPECT_FALSE(grammar->accepts(std::string(50, 'a') + "b"));
  EXPECT_FALSE(byte_compiler().regex("(a*)*(a*)*(a|a)*c")->accepts(std::string(20000, 'a')));
  EXPECT_NE(test::error_of<GrammarError>([] {
              byte_compiler().regex("(a{60000}b{60000}c{60000}d{60000}e{60000})");
            }).find("too large"),
            std::string::npos);
  std::string deep;
  for (int i = 0; i < 200; ++i) deep += "(";
  EXPECT_NE(
      test::error_of<GrammarError>([&] { byte_compiler().regex(deep); }).find("nested more than"),
      std::string::npos);
}

}  // namespace
}  // namespace danlu::grammar
