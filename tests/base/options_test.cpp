#include "base/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "support/temporary_directory.h"

namespace danlu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

OptionTable table() {
  return OptionTable(
      "sft", "fine-tune", "danlu sft --model DIR",
      {{.name = "model", .help = "model directory", .aliases = {"model_name_or_path", "m"}},
       {.name = "learning_rate",
        .type = OptionType::kFloat,
        .default_text = "1e-4",
        .help = "peak rate",
        .aliases = {"lr"}},
       {.name = "train_tokens", .type = OptionType::kInt, .help = "tokens"},
       {.name = "packing", .type = OptionType::kBool, .default_text = "true", .help = "pack"},
       {.name = "bf16", .type = OptionType::kBool, .default_text = "false", .help = "bf16"},
       {.name = "dataset", .type = OptionType::kList, .help = "files", .aliases = {"data_path"}},
       {.name = "dtype", .help = "type", .choices = {"bf16", "fp16", "fp32"}},
       {.name = "columns", .type = OptionType::kJson, .help = "columns"},
       {.name = "cache",
        .default_text = "~/.cache",
        .help = "folder",
        .environment = "DANLU_TEST_CACHE"},
       {.name = "dropout",
        .type = OptionType::kFloat,
        .help = "part",
        .aliases = {"lora_dropout_p"},
        .range = at_least(0).below(1)},
       {.name = "max_steps",
        .type = OptionType::kInt,
        .default_text = "-1",
        .help = "steps",
        .range = at_least(1).or_value(-1)},
       {.name = "noise",
        .help = "",
        .aliases = {"neftune_alpha"},
        .unavailable_because = "no noise is added to embeddings"},
       {.name = "log_extras",
        .type = OptionType::kBool,
        .help = "",
        .aliases = {"log_more"},
        .ignored_because = "all is logged"},
       {.name = "ddp_timeout",
        .help = "",
        .aliases = {"ddp_backend"},
        .ignored_because = "one process runs"}});
}

Options parse(const std::vector<std::string>& words, bool accepts_config = false) {
  return table().parse(words, accepts_config);
}

/// The text and the hint of the error that `words` give.
std::string error_of(const std::vector<std::string>& words, bool accepts_config = false) {
  try {
    parse(words, accepts_config);
  } catch (const UsageError& e) {
    EXPECT_EQ(e.code(), ExitCode::kUsage);
    return std::string(e.what()) + " | " + e.hint();
  }
  return "no error";
}

TEST(OptionSpelling, EveryWayToGiveAValue) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--learning_rate", "2e-5"},
                                                {"--learning-rate", "2e-5"},
                                                {"--learning_rate=2e-5"},
                                                {"--lr", "2e-5"},
                                                {"--lr=2e-5"},
                                                {"--learning-rate=2e-5"}}) {
    EXPECT_DOUBLE_EQ(parse(words).get_float("learning_rate"), 2e-5) << words[0];
  }
  EXPECT_EQ(parse({"-m", "dir"}).get_string("model"), "dir");
  EXPECT_EQ(parse({"--model-name-or-path", "dir"}).get_string("model"), "dir");
}

TEST(OptionSpelling, EveryWayToSwitchSomethingOnAndOff) {
  for (const char* word : {"true", "True", "TRUE", "t", "yes", "Y", "1", "on", "On"}) {
    EXPECT_TRUE(parse({"--bf16", word}).get_bool("bf16")) << word;
    EXPECT_TRUE(parse({std::string("--bf16=") + word}).get_bool("bf16")) << word;
    EXPECT_FALSE(parse({"--no-bf16", word}).get_bool("bf16")) << word;
  }
  for (const char* word : {"false", "False", "f", "no", "N", "0", "off"}) {
    EXPECT_FALSE(parse({"--packing", word}).get_bool("packing")) << word;
    EXPECT_TRUE(parse({"--no_packing=" + std::string(word)}).get_bool("packing")) << word;
  }
  EXPECT_TRUE(parse({"--bf16"}).get_bool("bf16"));
  EXPECT_FALSE(parse({"--no-packing"}).get_bool("packing"));
  EXPECT_FALSE(parse({"--no_packing"}).get_bool("packing"));
}

TEST(OptionSpelling, ABareSwitchLeavesTheNextWordAlone) {
  const Options options = parse({"--bf16", "words", "--packing", "--lr", "1"});
  EXPECT_TRUE(options.get_bool("bf16"));
  EXPECT_THAT(options.positional(), ElementsAre("words"));
  EXPECT_EQ(options.get_float("learning_rate"), 1.0);
}

TEST(OptionSpelling, SomeFlagsMayStandWithoutTheirValue) {
  const OptionTable asked("eval", "", "",
                          {{.name = "model", .help = "", .word = 1},
                           {.name = "chat", .help = "", .may_be_alone = true},
                           {.name = "limit", .type = OptionType::kInt, .help = ""}});
  const auto chat = [&](const std::vector<std::string>& words, bool accepts_config = false) {
    return asked.parse(words, accepts_config).get_string_or("chat", "-");
  };
  EXPECT_EQ(chat({}), "-");
  EXPECT_EQ(chat({"--chat"}), "true");
  EXPECT_EQ(chat({"--chat", "--limit", "1"}), "true");
  EXPECT_EQ(chat({"--chat", "qwen", "--limit", "1"}), "qwen");
  EXPECT_EQ(chat({"--chat=qwen"}), "qwen");
  EXPECT_EQ(chat({"--chat", "Yes"}), "true");
  EXPECT_EQ(chat({"--chat", "0"}), "false");
  EXPECT_EQ(chat({"--no-chat"}), "false");
  EXPECT_THAT(asked.help(), HasSubstr("--chat [TEXT]"));
  // What says something by itself is not its value.
  const test::TemporaryDirectory directory;
  std::ofstream(directory / "a.yaml") << "model: there\n";
  const Options options = asked.parse({"--chat", directory / "a.yaml", "--chat", "limit=3"}, true);
  EXPECT_EQ(options.get_string("chat"), "true");
  EXPECT_EQ(options.get_string("model"), "there");
  EXPECT_EQ(options.get_int("limit"), 3);
}

TEST(OptionValues, AMapOfAFileIsOneElementWhereThatIsTaken) {
  const OptionTable asked("eval", "", "",
                          {{.name = "rules", .type = OptionType::kList, .takes_map = true},
                           {.name = "names", .type = OptionType::kList}});
  const test::TemporaryDirectory directory;
  const auto parsed = [&](const std::string& text) {
    std::ofstream(directory / "a.yaml") << text;
    return asked.parse({directory / "a.yaml"}, true);
  };
  EXPECT_THAT(parsed("rules: {until: [\"}}\", \"a, b\"], top_k: 3}\n").get_list("rules"),
              ElementsAre(R"({"until":["}}","a, b"],"top_k":3})"));
  EXPECT_THAT(parsed("rules: top_k=3,top_p=1\n").get_list("rules"),
              ElementsAre("top_k=3", "top_p=1"));
  EXPECT_THROW(parsed("names: {a: 1}\n"), UsageError);
  EXPECT_THAT(asked.parse({"--rules", R"({"until": ["}}", "x"]})"}).get_list("rules"),
              ElementsAre(R"({"until": ["}}", "x"]})"));
}

TEST(OptionSpelling, NegativeNumbersAndDashesAreValues) {
  EXPECT_EQ(parse({"--train_tokens", "-1"}).get_int("train_tokens"), -1);
  EXPECT_EQ(parse({"--lr", "-.5"}).get_float("learning_rate"), -0.5);
  EXPECT_EQ(parse({"--model", "-"}).get_string("model"), "-");
  EXPECT_EQ(parse({"--model", "--not a flag"}).get_string("model"), "--not a flag");
  EXPECT_EQ(parse({"--model="}).get_string("model"), "");
  EXPECT_EQ(parse({"--model", ""}).get_string("model"), "");
  EXPECT_THAT(parse({"--bf16", "--", "--lr", "-x"}).positional(), ElementsAre("--lr", "-x"));
}

TEST(OptionValues, IntegersMayBeWrittenWithExponents) {
  EXPECT_EQ(parse({"--train_tokens", "2e8"}).get_int("train_tokens"), 200000000);
  EXPECT_EQ(parse({"--train_tokens", "1.5e3"}).get_int("train_tokens"), 1500);
  EXPECT_EQ(parse({"--train_tokens", "+7"}).get_int("train_tokens"), 7);
  EXPECT_EQ(parse({"--train_tokens", "9223372036854775807"}).get_int("train_tokens"), INT64_MAX);
  for (const char* wrong : {"1.5", "many", "", "1e30", "0x10", "1 2", "nan"}) {
    EXPECT_THAT(error_of({"--train_tokens", wrong}),
                HasSubstr(std::string("[sft] --train_tokens: expected an integer, got '") + wrong))
        << wrong;
  }
}

// As vllm.utils.argparse_utils.human_readable_int reads them.
TEST(OptionValues, IntegersMayBeWrittenInThousands) {
  const std::vector<std::pair<const char*, int64_t>> read = {
      {"1k", 1000},    {"1K", 1024},   {"25.6k", 25600},    {"2m", 2000000},
      {"2M", 2097152}, {"-1k", -1000}, {"1.1g", 1100000000}};
  for (const auto& [text, value] : read)
    EXPECT_EQ(parse({"--train_tokens", text}).get_int("train_tokens"), value) << text;
  for (const char* wrong : {"k", "1.5K", "0.0001k", "1kk", "1 k", "1t", "infk", "1e30k"})
    EXPECT_THAT(error_of({"--train_tokens", wrong}), HasSubstr("expected an integer")) << wrong;
}

TEST(OptionValues, NumbersAndChoicesAreChecked) {
  EXPECT_THAT(error_of({"--lr", "fast"}), HasSubstr("[sft] --lr: expected a number, got 'fast'"));
  EXPECT_THAT(error_of({"--lr", "nan"}), HasSubstr("expected a number"));
  EXPECT_EQ(parse({"--dtype", "BF16"}).get_string("dtype"), "bf16");
  EXPECT_THAT(error_of({"--dtype", "bf61"}),
              HasSubstr("[sft] --dtype: expected one of bf16 | fp16 | fp32, got 'bf61' | did you "
                        "mean 'bf16'?"));
  EXPECT_THAT(error_of({"--bf16=perhaps"}), HasSubstr("expected true or false, got 'perhaps'"));
}

TEST(OptionValues, ListsTakeAllWordsCommasAndRepetition) {
  const auto list = [](const std::vector<std::string>& words) {
    return parse(words).get_list("dataset");
  };
  EXPECT_THAT(list({}), IsEmpty());
  EXPECT_THAT(list({"--dataset", "a", "b", "--bf16"}), ElementsAre("a", "b"));
  EXPECT_THAT(list({"--dataset", "a,b", "c"}), ElementsAre("a", "b", "c"));
  EXPECT_THAT(list({"--dataset", "a", "--data-path", "b"}), ElementsAre("a", "b"));
  EXPECT_THAT(list({"--dataset=a, b"}), ElementsAre("a", "b"));
  EXPECT_THAT(list({"--dataset", "{x,y}/*.json"}), ElementsAre("{x,y}/*.json"));
  EXPECT_THAT(list({"--dataset", R"(["a,b","c"])"}), ElementsAre("a,b", "c"));
  EXPECT_THAT(error_of({"--dataset", "--bf16"}), HasSubstr("--dataset: a value is missing"));
}

TEST(OptionValues, ListsKeepTheBytesOfFileNames) {
  const Options options = parse({"--dataset", "caf\xe9.jsonl", "\xe4\xb8\xad, \xff\"\\\n"});
  EXPECT_THAT(options.get_list("dataset"),
              ElementsAre("caf\xe9.jsonl", "\xe4\xb8\xad", "\xff\"\\"));
  EXPECT_EQ(options.to_json()["dataset"][0], "caf\xe9.jsonl");
  EXPECT_THAT(options.print_config(), HasSubstr("caf\ufffd.jsonl"));
}

TEST(OptionValues, JsonIsTextOrAFile) {
  EXPECT_EQ(parse({"--columns", R"({"q": "query"})"}).get_json("columns")["q"], "query");
  EXPECT_THAT(error_of({"--columns", "{oops"}), HasSubstr("[sft] --columns:1:2: not valid JSON"));
  EXPECT_THROW(parse({"--columns", "/nowhere.json"}), IoError);
}

TEST(OptionErrors, AnUnknownFlagNamesTheNearestOne) {
  EXPECT_EQ(error_of({"--modle", "x"}), "[sft] unknown flag --modle | did you mean --model?");
  EXPECT_EQ(error_of({"--learning-rat", "1"}),
            "[sft] unknown flag --learning-rat | did you mean --learning_rate?");
  EXPECT_EQ(error_of({"--zzzzzz"}),
            "[sft] unknown flag --zzzzzz | danlu sft --help lists the names");
  EXPECT_EQ(error_of({"-q"}), "[sft] unknown flag -q | danlu sft --help lists the names");
  EXPECT_THAT(error_of({"--no-model"}), HasSubstr("unknown flag --no-model"))
      << "only switches can be negated";
}

TEST(OptionErrors, AMissingValueIsNotTakenFromTheNextFlag) {
  EXPECT_THAT(error_of({"--model", "--lr", "1"}), HasSubstr("[sft] --model: a value is missing"));
  EXPECT_THAT(error_of({"--model"}), HasSubstr("--model=VALUE"));
}

/// What parsing `words` prints.
std::string notices_of(const std::vector<std::string>& words) {
  log::set_verbose(true);
  testing::internal::CaptureStderr();
  parse(words);
  return testing::internal::GetCapturedStderr();
}

TEST(OptionRanges, NumbersOutsideTheirRangeNameFlagRuleAndValue) {
  EXPECT_THAT(error_of({"--dropout", "1"}),
              HasSubstr("[sft] --dropout: expected a number of at least 0 and below 1, got '1'"));
  for (const std::string wrong : {"-0.1", "1.5", "inf", "-inf", "nan", "1e999"}) {
    const char* kind = wrong.ends_with("inf") ? "a finite number" : "a number";
    EXPECT_THAT(error_of({"--lora-dropout-p=" + wrong}),
                HasSubstr(std::string("[sft] --lora-dropout-p: expected ") + kind +
                          " of at least 0 and below 1"))
        << wrong;
  }
  EXPECT_EQ(parse({"--dropout", "0"}).get_float("dropout"), 0.0);
  EXPECT_EQ(parse({"--dropout", "0.999"}).get_float("dropout"), 0.999);
}

TEST(OptionRanges, ASpecialValueBesideTheRange) {
  EXPECT_EQ(parse({"--max_steps", "-1"}).get_int("max_steps"), -1);
  EXPECT_EQ(parse({"--max_steps", "1"}).get_int("max_steps"), 1);
  for (const char* wrong : {"0", "-2", "-5e3"}) {
    EXPECT_THAT(error_of({"--max_steps", wrong}),
                HasSubstr("[sft] --max_steps: expected an integer of at least 1, or -1, got '" +
                          std::string(wrong)));
  }
}

TEST(OptionRanges, EverySourceIsChecked) {
  OptionTable profiled = table();
  profiled.add_profile({.name = "wild", .values = {{"dropout", "7"}}});
  try {
    profiled.parse({"--profile", "wild"});
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr("profile wild: expected a number of at least 0"));
  }
}

TEST(NumberRanges, AreWrittenAsRules) {
  EXPECT_EQ(at_least(1).rule("an integer"), "an integer of at least 1");
  EXPECT_EQ(above(0).rule("a number"), "a number above 0");
  EXPECT_EQ(above(0).up_to(1).rule("a number"), "a number above 0 and up to 1");
  EXPECT_EQ(at_least(1).up_to(1e6).rule("an integer"),
            "an integer of at least 1 and up to 1000000");
  EXPECT_EQ(NumberRange().rule("a number"), "a finite number");
  EXPECT_EQ(NumberRange().rule("a finite number"), "a finite number");
  EXPECT_EQ(NumberRange().below(3).or_value(5).rule("a number"), "a number below 3, or 5");
  EXPECT_TRUE(above(0).up_to(1).contains(1.0));
  EXPECT_FALSE(above(0).up_to(1).contains(0.0));
  EXPECT_TRUE(above(0).or_value(0).contains(0.0));
}

TEST(OptionRepetition, TheLastValueCountsAndANoticeSaysSo) {
  EXPECT_EQ(notices_of({"--lr", "1", "--lr", "2"}),
            "notice: --lr 2 takes the place of the earlier --lr 1: the last one counts\n");
  EXPECT_EQ(notices_of({"--learning-rate", "1e-4", "--lr=1e-5"}),
            "notice: --lr 1e-5 takes the place of the earlier --learning-rate 1e-4: the last one "
            "counts\n");
  EXPECT_EQ(parse({"--lr", "1", "--learning_rate", "2"}).get_float("learning_rate"), 2.0);
  EXPECT_EQ(notices_of({"--lr", "1e-5", "--learning_rate", "1e-5"}), "");
  EXPECT_THAT(notices_of({"--packing", "--no-packing"}), HasSubstr("--no-packing false"));
  EXPECT_EQ(notices_of({"--dataset", "a", "--data_path", "b"}), "") << "lists are joined";
}

TEST(OptionErrors, WhatIsNotAvailableIsRefusedUnlessItIsOff) {
  EXPECT_THAT(error_of({"--neftune-alpha", "5"}),
              HasSubstr("[sft] --neftune-alpha is not available: no noise is added to embeddings"));
  EXPECT_THAT(error_of({"--noise"}), HasSubstr("--noise is not available"));
  EXPECT_THAT(error_of({"--noise", "5", "--neftune_alpha", "0"}), HasSubstr("--noise is not"));
  for (const char* off : {"0", "0.0", "false", "None", "null"})
    EXPECT_EQ(error_of({"--noise", off}), "no error") << off;
  EXPECT_THAT(table().help(), testing::Not(HasSubstr("noise")));
  EXPECT_FALSE(parse({"--noise", "0"}).print_config().empty());
}

TEST(OptionSources, AMessageCanNameTheFlagAsTyped) {
  EXPECT_EQ(parse({"--lora-dropout-p", "0.5"}).given_as("dropout"), "--lora-dropout-p");
  EXPECT_EQ(parse({"-m", "x"}).given_as("model"), "-m");
  EXPECT_EQ(parse({}).given_as("dropout"), "--dropout");
  ::setenv("DANLU_TEST_CACHE", "x", 1);
  EXPECT_EQ(parse({}).given_as("cache"), "DANLU_TEST_CACHE");
  ::unsetenv("DANLU_TEST_CACHE");
}

TEST(OptionErrors, ARequiredOptionIsNamed) {
  const OptionTable required("x", "", "danlu x --input FILE",
                             {{.name = "input", .help = "a file", .required = true}});
  try {
    required.parse({});
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_STREQ(e.what(), "[x] --input is required: a file");
    EXPECT_EQ(e.hint(), "usage: danlu x --input FILE");
  }
}

TEST(OptionErrors, WrongGettersAndTablesAreOurFault) {
  EXPECT_THROW(parse({}).get_int("model"), InternalError);
  EXPECT_THROW(parse({}).get_int("no_such"), InternalError);
  EXPECT_THROW(parse({}).get_string("model"), UsageError);
  EXPECT_THROW(OptionTable("x", "", "", {{.name = "a"}, {.name = "b", .aliases = {"a"}}}),
               InternalError);
}

TEST(OptionSources, IgnoredOptionsAreAcceptedWithANoticeThatNamesThemAsTyped) {
  EXPECT_EQ(notices_of({"--ddp_timeout", "1800"}),
            "notice: --ddp_timeout has no effect here: one process runs\n");
  EXPECT_EQ(notices_of({"--ddp-backend=gloo", "--ddp_timeout", "1", "--ddp-backend", "mpi"}),
            "notice: --ddp-backend, --ddp_timeout have no effect here: one process runs\n");
  EXPECT_EQ(notices_of({"--log_more", "--ddp_backend"}),
            "notice: --ddp_backend has no effect here: one process runs\n"
            "notice: --log_more has no effect here: all is logged\n");
  EXPECT_THAT(parse({"--ddp_backend", "gloo", "word"}).positional(), ElementsAre("word"));
}

TEST(OptionSources, FlagBeatsEnvironmentBeatsProfileBeatsDefault) {
  OptionTable profiled = table();
  profiled.add_profile({.name = "alpaca", .values = {{"cache", "from-profile"}, {"lr", "2e-5"}}});
  EXPECT_EQ(profiled.parse({}).get_string("cache"), "~/.cache");
  EXPECT_FALSE(profiled.parse({}).is_set("cache"));
  EXPECT_TRUE(profiled.parse({}).has_value("cache"));

  const Options profile = profiled.parse({"--profile", "alpaca"});
  EXPECT_EQ(profile.get_string("cache"), "from-profile");
  EXPECT_EQ(profile.source("cache"), OptionSource::kProfile);
  EXPECT_EQ(profile.get_float("learning_rate"), 2e-5);

  ::setenv("DANLU_TEST_CACHE", "from-env", 1);
  const Options environment = profiled.parse({"--profile=alpaca"});
  EXPECT_EQ(environment.get_string("cache"), "from-env");
  EXPECT_EQ(environment.source("cache"), OptionSource::kEnvironment);
  const Options flag = profiled.parse({"--cache", "from-flag", "--profile", "alpaca"});
  EXPECT_EQ(flag.get_string("cache"), "from-flag");
  EXPECT_EQ(flag.source("cache"), OptionSource::kFlag);
  ::unsetenv("DANLU_TEST_CACHE");

  try {
    profiled.parse({"--profile", "alpacca"});
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_EQ(e.hint(), "did you mean 'alpaca'?");
  }
  EXPECT_THROW(profiled.add_profile({.name = "x", .values = {{"nothing", "1"}}}), InternalError);
}

TEST(OptionOutput, OptionsOutliveTheirTable) {
  const Options options = [] { return table().parse({"--lr", "5"}); }();
  EXPECT_EQ(options.get_float("learning_rate"), 5.0);
  EXPECT_EQ(options.to_json()["learning_rate"], 5.0);
}

TEST(OptionOutput, PrintConfigShowsValuesWithTheirSource) {
  const std::string text = parse({"--lr", "5", "--dataset", "a", "b"}).print_config();
  EXPECT_THAT(text, testing::ContainsRegex("learning_rate: 5.0 +# flag --lr\n"));
  EXPECT_THAT(text, testing::ContainsRegex("packing: true +# default\n"));
  EXPECT_THAT(text, HasSubstr("dataset: [\"a\",\"b\"]"));
  EXPECT_THAT(text, HasSubstr("model: null"));
  EXPECT_THAT(text, testing::Not(HasSubstr("ddp_timeout")));
}

TEST(Words, GiveTheOptionsOfTheirPlacesThatNoFlagGives) {
  const OptionTable copies("copy", "copy", "danlu copy FROM TO",
                           {{.name = "from", .word = 1}, {.name = "to", .word = 2}});
  const Options both = copies.parse({"a", "b"});
  EXPECT_EQ(both.get_string("from") + both.get_string("to"), "ab");
  EXPECT_THAT(both.positional(), IsEmpty());
  const Options flagged = copies.parse({"b", "--from", "a"});
  EXPECT_EQ(flagged.get_string("from") + flagged.get_string("to"), "ab");
  EXPECT_FALSE(copies.parse({"a"}).is_set("to"));
  const test::TemporaryDirectory directory;
  std::ofstream(directory / "copy.yaml") << "from: a\n";
  const Options filed = copies.parse({directory / "copy.yaml", "b"}, true);
  EXPECT_EQ(filed.get_string("from") + filed.get_string("to"), "ab");
  EXPECT_THAT(copies.parse({"model.safetensors.index.json"}, true).get_string("from"),
              HasSubstr("index"));
  EXPECT_THAT(copies.parse({"a", "b", "c", "--", "-d"}).positional(), ElementsAre("c", "-d"));
}

TEST(OptionHelp, ShowsDefaultsChoicesAliasesAndWhatIsIgnored) {
  const std::string help = table().help();
  EXPECT_THAT(help, testing::StartsWith("danlu sft: fine-tune\n\nUsage: danlu sft --model DIR\n"));
  EXPECT_THAT(help, HasSubstr("[default: 1e-4]"));
  EXPECT_THAT(help, HasSubstr("(bf16 | fp16 | fp32)"));
  EXPECT_THAT(help, HasSubstr("(also --model_name_or_path, -m)"));
  EXPECT_THAT(help, HasSubstr("without effect here\n  --log_extras --ddp_timeout\n"));
  EXPECT_THAT(help, HasSubstr("[env: DANLU_TEST_CACHE]"));
}

TEST(NearestName, FindsTyposSwapsAndBeginnings) {
  const std::vector<std::string> names = {"tokenize", "detokenize", "train", "pretrain"};
  EXPECT_EQ(nearest_name("tokenise", names), "tokenize");
  EXPECT_EQ(nearest_name("tokneize", names), "tokenize");
  EXPECT_EQ(nearest_name("Train", names), "train");
  EXPECT_EQ(nearest_name("detok", names), "detokenize");
  EXPECT_EQ(nearest_name("xyz", names), std::nullopt);
  EXPECT_EQ(nearest_name("", names), std::nullopt);
}

}  // namespace
}  // namespace danlu
