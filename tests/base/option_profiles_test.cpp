// Whose defaults hold: what is typed decides, and only what no other system has.
#include "base/option_profiles.h"

#include <gmock/gmock.h>

#include <fstream>

#include "base/options.h"
#include "support/temporary_directory.h"

namespace danlu {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

OptionTable two_systems(bool red_is_the_commands = false) {
  OptionTable out("sft", "", "",
                  {{.name = "tuner",
                    .help = "",
                    .aliases = {"sft_type", "finetuning_type", "green_type", "early_type"}},
                   {.name = "model", .help = ""},
                   {.name = "model_type", .help = ""},
                   {.name = "stage", .help = ""},
                   {.name = "rank", .type = OptionType::kInt, .default_text = "8", .help = ""},
                   {.name = "alpha", .type = OptionType::kFloat, .default_text = "32", .help = ""},
                   {.name = "save", .type = OptionType::kInt, .help = ""},
                   {.name = "eval", .type = OptionType::kInt, .help = ""},
                   {.name = "inert",
                    .type = OptionType::kBool,
                    .help = "",
                    .aliases = {"fused", "no_fusion"},
                    .ignored_because = "there is one"}});
  out.add_profile({.name = "own"});
  out.add_profile(
      {.name = "red",
       .system = "Red 2",
       .values = {{"rank", "4"}, {"alpha", "= 2 * rank"}, {"eval", "50"}, {"save", "= eval"}},
       .marks = {{"sft_type"}, {"model_type", "model"}, {"no_fusion"}},
       .of_command = red_is_the_commands,
       .unless_given = "stage"});
  out.add_profile({.name = "blue",
                   .system = "Blue",
                   .values = {{"rank", "16"}},
                   .marks = {{"finetuning_type"}}});
  out.add_profile({.name = "green",
                   .system = "Green on red",
                   .values = {{"rank", "2"}},
                   .marks = {{"green_type"}},
                   .yields_to = {"red", "both"}});
  out.add_profile({.name = "early",
                   .system = "Early",
                   .values = {{"rank", "1"}},
                   .marks = {{"early_type"}},
                   .yields_to = {"green"}});
  out.add_profile({.name = "both",
                   .system = "Both",
                   .values = {{"rank", "3"}},
                   .marks = {{.name = "inert", .beside = {"green_type", "sft_type"}}}});
  return out;
}

std::string chosen_by(const std::vector<std::string>& words, bool red_is_the_commands = false) {
  try {
    const Options options = two_systems(red_is_the_commands).parse(words, true);
    return options.profile().name + " by " + options.profile().by;
  } catch (const UsageError& error) {
    return std::string(error.what()) + " | " + error.hint();
  }
}

TEST(OptionProfiles, OnlyTheSpellingThatOneSystemHasDecides) {
  EXPECT_EQ(chosen_by({}), "own by ");
  EXPECT_EQ(chosen_by({"--tuner", "lora"}), "own by ") << "our own name of the same option";
  EXPECT_EQ(chosen_by({"--sft-type", "lora"}), "red by --sft-type");
  EXPECT_EQ(chosen_by({"--finetuning_type=lora"}), "blue by --finetuning_type");
  EXPECT_EQ(chosen_by({"--fused"}), "own by ");
  EXPECT_EQ(chosen_by({"--fused", "--no-fusion"}), "red by --no-fusion") << "names of one option";
  EXPECT_EQ(chosen_by({"--model_type", "x"}), "red by --model_type");
  EXPECT_EQ(chosen_by({"--model_type", "x", "--model", "y"}), "own by ");
}

TEST(OptionProfiles, ASystemOnTopOfAnotherYieldsToItsMarks) {
  EXPECT_EQ(chosen_by({"--green_type", "a"}), "green by --green_type");
  EXPECT_EQ(chosen_by({"--green_type", "a", "--no-fusion"}), "red by --no-fusion");
  EXPECT_EQ(chosen_by({"--early_type", "a", "--green_type", "a"}), "green by --green_type")
      << "in whatever order they stand";
  EXPECT_THAT(chosen_by({"--green_type", "a", "--finetuning_type", "b"}),
              HasSubstr("a flag of Blue"));
}

TEST(OptionProfiles, SomeNamesSaySomethingBesideOthersAlone) {
  EXPECT_EQ(chosen_by({"--inert", "true"}), "own by ");
  EXPECT_EQ(chosen_by({"--inert", "true", "--green_type", "a"}),
            "both by --inert beside --green_type");
  EXPECT_EQ(chosen_by({"--early_type", "a", "--inert", "true", "--green_type", "a"}),
            "both by --inert beside --green_type")
      << "green yields to both, and early to green";
  EXPECT_THAT(chosen_by({"--sft_type", "a", "--inert", "true"}),
              HasSubstr("--sft_type is a flag of Red 2, --inert beside --sft_type one of Both"));
}

TEST(OptionProfiles, FormulasFollowOtherOptions) {
  const auto value_of = [](const std::string& option) {
    return option == "rank" ? std::string("4") : "full";
  };
  EXPECT_EQ(profile_value("= rank", value_of), "4");
  EXPECT_EQ(profile_value("= 2 * rank", value_of), "8");
  EXPECT_EQ(profile_value("= tuner == full ? 200 : 50", value_of), "200");
  EXPECT_EQ(profile_value("= tuner == lora ? 200 : 50", value_of), "50");
}

/// A flag of an older version of one system changes what its profile says.
OptionTable two_versions() {
  OptionTable out("sft", "", "",
                  {{.name = "tuner", .help = "", .aliases = {"old_tuner", "new_tuner"}},
                   {.name = "kind", .help = ""},
                   {.name = "share", .type = OptionType::kFloat, .default_text = "1", .help = ""},
                   {.name = "count", .type = OptionType::kInt, .default_text = "0", .help = ""},
                   {.name = "limit", .type = OptionType::kFloat, .help = "", .may_be_none = true}});
  out.add_profile({.name = "own"});
  out.add_profile(
      {.name = "red",
       .values = {{"count", "2"}, {"limit", "4"}},
       .values_beside = {{"old_tuner", {{"share", "= kind == plain ? 1 : 0.9"}, {"count", "50"}}}},
       .marks = {{"old_tuner"}, {"new_tuner"}}});
  return out;
}

TEST(OptionProfiles, AMarkOfAnOlderVersionHasItsValues) {
  const auto values = [](const std::vector<std::string>& words) {
    const Options options = two_versions().parse(words, true);
    return std::make_pair(options.get_float("share"), options.get_int("count"));
  };
  EXPECT_EQ(values({"--new_tuner", "x"}), std::make_pair(1.0, int64_t{2}));
  EXPECT_EQ(values({"--old-tuner", "x"}), std::make_pair(0.9, int64_t{50}));
  EXPECT_EQ(values({"--old_tuner", "x", "--kind", "plain"}), std::make_pair(1.0, int64_t{50}));
  EXPECT_EQ(values({"--old_tuner", "x", "--count", "7"}), std::make_pair(0.9, int64_t{7}));
  EXPECT_EQ(values({"--old_tuner", "x", "--profile", "own"}), std::make_pair(1.0, int64_t{0}));
  // What is printed says it again where it is read.
  const test::TemporaryDirectory dir;
  const std::string path = dir / "run.yaml";
  std::ofstream(path) << two_versions().parse({"--old_tuner", "x"}).print_config();
  EXPECT_EQ(values({path}), std::make_pair(0.9, int64_t{50}));
}

TEST(OptionProfiles, NoneIsAValueThatOutweighsAProfile) {
  const auto limit = [](const std::vector<std::string>& words) {
    return two_versions().parse(words).get_float_or("limit", -1);
  };
  EXPECT_EQ(limit({"--new_tuner", "x"}), 4);
  EXPECT_EQ(limit({"--new_tuner", "x", "--limit", "none"}), -1);
  EXPECT_EQ(limit({"--new_tuner", "x", "--limit", "null"}), -1);
  EXPECT_EQ(limit({"--limit", "3"}), 3);
  EXPECT_THROW(two_versions().parse({"--share", "none"}), UsageError);
  // What is printed says it again where it is read.
  const test::TemporaryDirectory dir;
  const std::string path = dir / "run.yaml";
  std::ofstream(path)
      << two_versions().parse({"--new_tuner", "x", "--limit", "none"}).print_config();
  EXPECT_EQ(limit({path}), -1);
}

TEST(OptionProfiles, TwoSystemsInOneLineAreAnError) {
  EXPECT_THAT(chosen_by({"--sft_type", "lora", "--finetuning_type", "lora"}),
              AllOf(HasSubstr("[sft] --sft_type is a flag of Red 2, --finetuning_type one of Blue"),
                    HasSubstr("say --profile red or --profile blue")));
  EXPECT_EQ(chosen_by({"--sft_type", "lora", "--finetuning_type", "lora", "--profile", "own"}),
            "own by --profile");
}

TEST(OptionProfiles, TheCommandDecidesWhereNoFlagDoes) {
  EXPECT_EQ(chosen_by({}, true), "red by danlu sft");
  EXPECT_EQ(chosen_by({"--stage", "sft"}, true), "own by ");
  EXPECT_EQ(chosen_by({"--finetuning_type", "lora"}, true), "blue by --finetuning_type");
  EXPECT_EQ(chosen_by({"--profile", "own"}, true), "own by --profile");
}

TEST(OptionProfiles, AFilesKeysCountAsTyped) {
  const test::TemporaryDirectory dir;
  const std::string path = dir / "run.yaml";
  std::ofstream(path) << "rank: 3\nfinetuning_type: lora\n";
  EXPECT_EQ(chosen_by({path}), "blue by " + path + ":2: finetuning_type");
  std::ofstream(path) << "finetuning_type: lora\nprofile: red\n";
  EXPECT_EQ(chosen_by({path}), "red by " + path + ":2: profile");
  EXPECT_EQ(chosen_by({path, "--profile", "own"}), "own by --profile");
}

TEST(OptionProfiles, ValuesYieldToWhatIsGivenAndFollowIt) {
  const Options silent = two_systems().parse({"--sft_type", "lora"});
  EXPECT_EQ(silent.get_float("alpha"), 8.0);
  EXPECT_EQ(silent.get_int("save"), 50);
  EXPECT_THAT(silent.from_profile(), ElementsAre("rank", "alpha", "save", "eval"));
  const Options given = two_systems().parse({"--sft_type", "lora", "--rank", "64", "--eval", "7"});
  EXPECT_EQ(given.get_float("alpha"), 128.0);
  EXPECT_EQ(given.get_int("save"), 7);
  EXPECT_EQ(
      two_systems().parse({"--sft_type", "x", "--rank", "64", "--alpha", "1"}).get_float("alpha"),
      1);
  EXPECT_THAT(given.print_config(),
              AllOf(HasSubstr("# profile red\n"), HasSubstr("# profile by --sft_type\n")));
}

}  // namespace
}  // namespace danlu
