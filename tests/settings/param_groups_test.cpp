// --param_groups: rules, and what is none.
#include <gmock/gmock.h>

#include "base/pattern.h"
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

TEST_F(TrainOptions, RatesOfPartsAreRulesBeforeTheUsersOwn) {
  const auto groups =
      with("sft", {"--lr", "2e-4", "--lorap_lr_ratio", "16", "--vit_lr", "1e-5", "--aligner_lr",
                   "4e-4", "--param_groups", R"([{"pattern":"norm"}])"})
          .adamw.groups.rules;
  ASSERT_EQ(groups.size(), 6u);
  EXPECT_EQ(groups[0].pattern, "lora_B");
  EXPECT_EQ(groups[0].lr_scale, 16);
  EXPECT_DOUBLE_EQ(groups[1].lr_scale, 0.05);
  const Pattern tower(groups[1].pattern), merger(groups[3].pattern);
  EXPECT_TRUE(tower.is_found_in("visual.blocks.0.attn.qkv.weight"));
  EXPECT_FALSE(tower.is_found_in("visual.merger.mlp.0.weight"));
  EXPECT_TRUE(merger.is_found_in("visual.merger.mlp.0.weight"));
  EXPECT_DOUBLE_EQ(groups[3].lr_scale, 2);
  // What is both is multiplied by both.
  EXPECT_DOUBLE_EQ(groups[2].lr_scale, 0.8);
  EXPECT_TRUE(Pattern(groups[2].pattern).is_found_in("visual.blocks.0.attn.qkv.lora_B"));
  EXPECT_FALSE(Pattern(groups[2].pattern).is_found_in("visual.blocks.0.attn.qkv.lora_A"));
  EXPECT_EQ(groups[3].flag, "--aligner_lr");
  EXPECT_EQ(groups[5].pattern, "norm");
}

}  // namespace danlu::settings::options_test
