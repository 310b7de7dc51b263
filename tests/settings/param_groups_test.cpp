// --param_groups: rules, and what is none.
#include <gmock/gmock.h>

#include "settings/option_lines.h"

namespace danlu::settings::options_test {

using testing::HasSubstr;

TEST_F(TrainOptions, ParamGroupsAreAListOfRules) {
  const auto groups =
      with("sft", {"--param_groups", R"([{"pattern":"embed","lr_scale":0},{"pattern":"norm"}])"})
          .adamw.groups.rules;
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].lr_scale, 0);
  EXPECT_EQ(groups[1].lr_scale, 1);
  EXPECT_TRUE(with("sft", {"--param_groups", "[]"}).adamw.groups.rules.empty());
  for (const char* wrong :
       {"{}", R"({"pattern":"embed","lr_scale":0})", "5", "[5]", "[{}]", R"([{"pattern":5}])",
        R"([{"pattern":"embed","lr_scale":"0"}])", R"([{"pattern":"embed","lr":0}])"}) {
    EXPECT_THAT(refusal("sft", {"--param_groups", wrong}),
                testing::AllOf(HasSubstr(R"([train] --param_groups: a list of {"pattern",)"),
                               HasSubstr(std::string("is expected, got ") + wrong + " | as '[{")));
  }
}

}  // namespace danlu::settings::options_test
