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

TEST(Pattern, TellsPatternsFromNames) {
  for (const char* pattern : {".*q_proj", "q_proj|k_proj", "layers.[0-3]", "^model"})
    EXPECT_TRUE(looks_like_pattern(pattern)) << pattern;
  for (const char* name : {"q_proj", "model.layers.0.mlp", "all-linear", ""})
    EXPECT_FALSE(looks_like_pattern(name)) << name;
}

}  // namespace
}  // namespace danlu
