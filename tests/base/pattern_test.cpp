// Patterns that people write: what they match, and that no pattern can hang the program.
#include "base/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/throws.h"

namespace danlu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Pattern, MatchesTheWholeNameOrAPart) {
  const Pattern pattern(R"(model\.layers\.\d+\.mlp\.(up|down)_proj)");
  EXPECT_TRUE(pattern.matches("model.layers.11.mlp.up_proj"));
  EXPECT_FALSE(pattern.matches("model.layers.11.mlp.up_proj.weight"));
  EXPECT_TRUE(pattern.is_found_in("model.layers.11.mlp.up_proj.weight"));
  EXPECT_FALSE(pattern.is_found_in("model.layers.x.mlp.up_proj.weight"));
  // Alternatives are tried until the whole fits, as Python's fullmatch does.
  EXPECT_TRUE(Pattern("a|ab").matches("ab"));
}

TEST(Pattern, SaysWhatIsWrongAndWhere) {
  EXPECT_THAT(test::error_of<PatternError>([] { Pattern("q_proj("); }),
              AllOf(HasSubstr("'q_proj(' is not a valid regular expression: missing closing"),
                    HasSubstr("(at character 7)")));
}

TEST(Pattern, ARunawayPatternIsAnErrorNotAnEndlessSearch) {
  const Pattern pattern("(.*)*(.*)*[xz]");
  EXPECT_THAT(
      test::error_of<PatternError>([&] { pattern.matches("model.layers.0.self_attn.q_proj"); }),
      AllOf(HasSubstr("'(.*)*(.*)*[xz]' takes more than 1000000 steps to match 'model.layers.0"),
            HasSubstr("write .*")));
}

TEST(Pattern, ACountWithoutALowerBoundStartsAtZeroAsInPython) {
  EXPECT_TRUE(Pattern("ab{,2}c").matches("ac"));
  EXPECT_TRUE(Pattern("ab{,2}c").matches("abbc"));
  EXPECT_FALSE(Pattern("ab{,2}c").matches("abbbc"));
  EXPECT_FALSE(Pattern("ab{,2}c").matches("ab{,2}c"));
  EXPECT_TRUE(Pattern("[x]b{,1}").matches("xb"));
  EXPECT_TRUE(Pattern(R"([\]]b{,1})").matches("]b"));
  // In all of these Python too takes the brace as it stands.
  EXPECT_TRUE(Pattern(R"(ab\{,2})").matches("ab{,2}"));
  EXPECT_TRUE(Pattern("[{,2}]").matches("2"));
  EXPECT_FALSE(Pattern("[{,2}]").matches("0"));
  EXPECT_FALSE(Pattern("[]{,2}]").matches("0"));
  EXPECT_TRUE(Pattern("[]{,2}]").matches("]"));
  EXPECT_TRUE(Pattern("[^]{,2}]").matches("0"));
  EXPECT_FALSE(Pattern("[^]{,2}]").matches("2"));
  EXPECT_TRUE(Pattern("a{,x}").matches("a{,x}"));
  EXPECT_TRUE(Pattern("a{,2").matches("a{,2"));
  // What follows a backslash that is itself escaped is a count again.
  EXPECT_TRUE(Pattern(R"(a\\{,2})").matches(R"(a\\)"));
  // The place of a mistake is that of the text as it was written.
  EXPECT_THAT(test::error_of<PatternError>([] { Pattern("b{,2}c("); }),
              AllOf(HasSubstr("'b{,2}c(' is not"), HasSubstr("(at character 7)")));
}

// What CPython 3.11's re.sub gave.
TEST(Pattern, ReplacesAsPythonsSub) {
  struct Case {
    const char *pattern, *replacement, *text;
    int64_t count;
    const char* expected;
  };
  const Case cases[] = {
      {"\\[.*?\\]", "", "a [step] b [x] [", 0, "a  b  ["},
      {"x*", "-", "abxd", 0, "-a-b--d-"},
      {"(\\w+) (\\w+)", "\\2 \\g<1>!", "one two three four", 0, "two one! four three!"},
      {"a", "b", "aaaa", 2, "bbaa"},
      {" +", " ", "a   b    c", 0, "a b c"},
      {"\\b", "|", "hi you", 0, "|hi| |you|"},
      {"(a)|(b)", "<\\1\\2>", "abc", 0, "<a><b>c"},
      {"<<.*?>>", "", "1 <<2*3=6>>6 <<a>>", 0, "1 6 "},
      {"é", "\\n", "caféé", 0, "caf\n\n"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Pattern(c.pattern).replaced(c.text, c.replacement, c.count), c.expected)
        << c.pattern << " in " << c.text;
  }
  EXPECT_THAT(test::error_of<PatternError>([] { Pattern("(a)").replaced("a", "\\2"); }),
              HasSubstr("names a group"));
}

TEST(Pattern, FindsAndRemovesAsPythonDoes) {
  const Pattern number(R"((\d+)(\.\d+)?)");
  const auto all = number.find_all("1.5 and 20");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].end, 3u);
  EXPECT_EQ(all[1].begin, 8u);
  EXPECT_EQ(all[0].groups, (std::vector<std::string>{"1", ".5"}));
  EXPECT_EQ(all[1].groups, (std::vector<std::string>{"20", ""}));
  EXPECT_EQ(number.find("a 7 8")->begin, 2u);
  EXPECT_FALSE(number.find("none"));
  EXPECT_EQ(number.removed_from("1.5 and 20"), " and ");
  // re.sub("x*", "", "axb") takes the empty matches too, and changes nothing by them.
  EXPECT_EQ(Pattern("x*").removed_from("axb"), "ab");
}

TEST(Pattern, EscapesMeanWhatTheyMeanInPython) {
  EXPECT_TRUE(Pattern(R"([\u4e00-\u9fff]{2})").matches("中文"));
  EXPECT_TRUE(Pattern(R"(\U0001F600)").matches("😀"));
  EXPECT_TRUE(Pattern(R"(a\Z)").is_found_in("a"));
  EXPECT_FALSE(Pattern(R"(a\Z)").is_found_in("a\n"));
  EXPECT_FALSE(Pattern(R"(\v)").is_found_in("\n"));
  EXPECT_TRUE(Pattern(R"(\v)").matches("\v"));
  EXPECT_THAT(test::error_of<PatternError>([] { Pattern(R"(\u4e00\v()"); }),
              HasSubstr("(at character 9)"));
  // Digits and words of all scripts in texts, of ASCII in names.
  EXPECT_TRUE(Pattern(R"(\d\w)", PatternUse::kText).matches("５中"));
  EXPECT_FALSE(Pattern(R"(\d\w)").matches("５中"));
}

TEST(Pattern, TellsPatternsFromNames) {
  for (const char* pattern : {".*q_proj", "q_proj|k_proj", "layers.[0-3]", "^model"})
    EXPECT_TRUE(looks_like_pattern(pattern)) << pattern;
  for (const char* name : {"q_proj", "model.layers.0.mlp", "all-linear", ""})
    EXPECT_FALSE(looks_like_pattern(name)) << name;
}

}  // namespace
}  // namespace danlu
