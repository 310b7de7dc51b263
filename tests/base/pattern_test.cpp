// Patterns that people write: what they match, and that no pattern can hang the program.
#include "base/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(Pattern, TellsPatternsFromNames) {
  for (const char* pattern : {".*q_proj", "q_proj|k_proj", "layers.[0-3]", "^model"})
    EXPECT_TRUE(looks_like_pattern(pattern)) << pattern;
  for (const char* name : {"q_proj", "model.layers.0.mlp", "all-linear", ""})
    EXPECT_FALSE(looks_like_pattern(name)) << name;
}

}  // namespace
}  // namespace danlu
