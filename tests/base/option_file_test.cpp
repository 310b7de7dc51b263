#include "base/option_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "base/options.h"
#include "support/temporary_directory.h"

namespace danlu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class OptionFileTest : public testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& content) const {
    write_file_atomic(dir_ / name, content);
    return (dir_ / name).string();
  }

  static OptionTable table() {
    OptionTable out(
        "sft", "", "",
        {{.name = "model", .help = "", .aliases = {"model_name_or_path"}, .group = "Model"},
         {.name = "lr",
          .type = OptionType::kFloat,
          .default_text = "1",
          .help = "",
          .group = "Optimizer settings",
          .environment = "DANLU_TEST_LR"},
         {.name = "steps", .type = OptionType::kInt, .help = "", .group = "Optimizer settings"},
         {.name = "packing", .type = OptionType::kBool, .default_text = "false", .help = ""},
         {.name = "dataset", .type = OptionType::kList, .help = ""},
         {.name = "columns", .type = OptionType::kJson, .help = ""}});
    out.add_profile({.name = "slow", .values = {{"lr", "0.1"}}});
    return out;
  }

  static Options parse(const std::vector<std::string>& words) { return table().parse(words, true); }

  static std::string error_of(const std::vector<std::string>& words) {
    try {
      parse(words);
    } catch (const UsageError& e) {
      return std::string(e.what()) + " | " + e.hint();
    }
    return "no error";
  }

  const test::TemporaryDirectory dir_;
};

TEST_F(OptionFileTest, EveryTypeFromYaml) {
  const Options options = parse({file("run.yaml",
                                      "model_name_or_path: dir  # a comment\n"
                                      "lr: 2e-5\n"
                                      "steps: 2e3\n"
                                      "packing: yes\n"
                                      "dataset: [a, 'b,c']\n"
                                      "columns:\n  q: query\n  n: 3\n  s: '3'\n")});
  EXPECT_EQ(options.get_string("model"), "dir");
  EXPECT_EQ(options.get_float("lr"), 2e-5);
  EXPECT_EQ(options.get_int("steps"), 2000);
  EXPECT_TRUE(options.get_bool("packing"));
  EXPECT_THAT(options.get_list("dataset"), ElementsAre("a", "b,c"));
  EXPECT_EQ(options.get_json("columns").dump(), R"({"q":"query","n":3,"s":"3"})");
  EXPECT_EQ(options.source("model"), OptionSource::kFile);
}

TEST_F(OptionFileTest, JsonWorksToo) {
  const Options options =
      parse({file("run.json",
                  "{\n\t\"lr\": 0.5, \"dataset\": \"a,b\", \"packing\": true,\n\t"
                  "\"columns\": {\"a\": [1, \"\\ud83d\\ude00\"]}, \"model\": null}")});
  EXPECT_EQ(options.get_float("lr"), 0.5);
  EXPECT_THAT(options.get_list("dataset"), ElementsAre("a", "b"));
  EXPECT_EQ(options.get_json("columns")["a"][1], "😀");
  EXPECT_FALSE(options.is_set("model"));
}

TEST_F(OptionFileTest, AFlagBeatsTheFileAndTheFileBeatsTheEnvironment) {
  const std::string path = file("run.yaml", "lr: 3\nprofile: slow\n");
  ::setenv("DANLU_TEST_LR", "2", 1);
  EXPECT_EQ(parse({path}).get_float("lr"), 3.0);
  EXPECT_EQ(parse({path, "--lr", "4"}).get_float("lr"), 4.0);
  EXPECT_EQ(parse({"--lr", "4", path}).get_float("lr"), 4.0);
  EXPECT_EQ(parse({file("none.yaml", "")}).get_float("lr"), 2.0);
  ::unsetenv("DANLU_TEST_LR");
  EXPECT_EQ(parse({file("profile.yaml", "profile: slow\n")}).get_float("lr"), 0.1);
  EXPECT_EQ(parse({"--config", path}).get_float("lr"), 3.0);
  EXPECT_EQ(parse({path, "lr=5"}).get_float("lr"), 5.0) << "name=value words are flags";
}

TEST_F(OptionFileTest, UnknownKeysNameFileLineAndTheNearestName) {
  const std::string path = file("run.yaml", "lr: 1\npaking: true\n");
  EXPECT_EQ(error_of({path}),
            path + ":2: unknown name 'paking' for danlu sft | did you mean packing?");
  const std::string wrong = file("wrong.yaml", "\nsteps: soon\n");
  EXPECT_THAT(error_of({wrong}), HasSubstr(wrong + ":2: steps: expected an integer, got 'soon'"));
  EXPECT_THAT(error_of({file("list.yaml", "lr: [1, 2]\n")}), HasSubstr("lr: expected one value"));
  EXPECT_THAT(error_of({file("bad.yaml", "lr: [1\n")}), HasSubstr("not valid YAML"));
  EXPECT_THAT(error_of({file("words.yaml", "just words\n")}), HasSubstr("expected `name: value`"));
  EXPECT_THAT(error_of({file("latin1.yaml", "model: caf\xe9\n")}), HasSubstr("not UTF-8 text"));
  EXPECT_THAT(error_of({(dir_ / "missing.yaml").string()}), HasSubstr("missing.yaml"));
}

TEST_F(OptionFileTest, AKeyThatStandsTwiceIsAnErrorWithBothLines) {
  const std::string twice = file("twice.yaml", "lr: 1\nsteps: 3\nlr: 2\n");
  EXPECT_EQ(error_of({twice}), twice + ":3: 'lr' is written twice; it stands at " + twice +
                                   ":1 too | keep one of them");
  const std::string json = file("twice.json", "{\n\t\"lr\": 1,\n\t\"steps\"\n: 3,\n\"lr\": 2}\n");
  EXPECT_EQ(error_of({json}),
            json + ":5: 'lr' is written twice; it stands at " + json + ":2 too | keep one of them");
  const std::string nested = file("nested.yaml", "columns:\n  q: a\n  q: b\n");
  EXPECT_THAT(error_of({nested}), HasSubstr(":3: 'q' is written twice; it stands at"));
  EXPECT_THAT(error_of({file("env.yaml", "ENV:\n  A: 1\n  A: 2\n")}),
              HasSubstr(":3: 'A' is written twice"));
}

TEST_F(OptionFileTest, ASecondDocumentIsAnError) {
  EXPECT_EQ(error_of({file("two.yaml", "lr: 1\n---\nsteps: 3\n")}),
            (dir_ / "two.yaml").string() +
                ":3: a second document begins here; one file is one configuration | remove the "
                "line ---, or put the rest into a file of its own");
  EXPECT_EQ(error_of({file("one.yaml", "---\nlr: 1\n---\n# nothing\n")}), "no error");
}

TEST_F(OptionFileTest, WhatAliasesAndVariablesMakeIsLimited) {
  // Each line holds the line before nine times: 9^9 values, twenty gigabytes of them.
  std::string bomb = "columns:\n  a0: &a0 x\n", doubled = "ENV:\n  DANLU_TEST_V0: 0123456789\n";
  for (int i = 1; i < 10; ++i) {
    bomb += "  a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 9; ++k) bomb += "*a" + std::to_string(i - 1) + (k < 8 ? ", " : "]\n");
  }
  EXPECT_THAT(error_of({file("bomb.yaml", bomb)}), HasSubstr("are larger than 32 MiB"));
  EXPECT_THAT(error_of({file("self.yaml", "columns: &a [*a]\n")}), HasSubstr("nested too deeply"));
  for (int i = 1; i < 40; ++i) {
    const std::string before = "${DANLU_TEST_V" + std::to_string(i - 1) + "}";
    doubled += "  DANLU_TEST_V" + std::to_string(i) + ": " + before + before + "\n";
  }
  EXPECT_THAT(error_of({file("doubled.yaml", doubled)}), HasSubstr("are larger than 32 MiB"));
  for (int i = 0; i < 40; ++i) ::unsetenv(("DANLU_TEST_V" + std::to_string(i)).c_str());
  EXPECT_EQ(error_of({file("alias.yaml", "columns:\n  a: &a [x, y]\n  b: *a\n")}), "no error");
}

TEST_F(OptionFileTest, DeepNestingIsAnError) {
  const std::string deep = "columns: " + std::string(100000, '[') + std::string(100000, ']');
  EXPECT_THAT(error_of({file("deep.yaml", deep)}), HasSubstr("not valid YAML"));
  EXPECT_THAT(error_of({file("deep.json", "{\"columns\": " + std::string(100000, '[') +
                                              std::string(100000, ']') + "}")}),
              HasSubstr("nested more than 512 deep"));
}

TEST_F(OptionFileTest, AnOptionUnderTwoNamesInOneFileIsAnErrorWithBothLines) {
  for (const char* name : {"run.yaml", "run.json"}) {
    const bool json = std::string(name) == "run.json";
    const std::string path =
        file(name, json ? "{\"model\": \"a\",\n \"lr\": 1,\n \"model_name_or_path\": \"b\"}"
                        : "model: a\nlr: 1\nmodel_name_or_path: b\n");
    EXPECT_EQ(error_of({path}), path +
                                    ":3: 'model_name_or_path' gives model a second time; it "
                                    "stands at " +
                                    path + ":1 as 'model' too | keep one of them");
  }
  const std::string dashes = file("dashes.yaml", "model-name-or-path: a\nmodel_name_or_path: a\n");
  EXPECT_THAT(error_of({dashes}), HasSubstr("a second time"));
  EXPECT_EQ(error_of({file("agree.yaml", "model: a\nmodel_name_or_path: a\n")}), "no error");
  const std::string grouped = file("grouped.yaml", "optimizer_settings:\n  lr: 9\nlr: 1\n");
  EXPECT_THAT(error_of({grouped}), HasSubstr(":3: 'lr' gives lr a second time; it stands at"));
}

TEST_F(OptionFileTest, ALaterFileMayOverrideAnEarlierOne) {
  file("base.yaml", "lr: 1\nmodel: a\n");
  const std::string run = file("run.yaml", "include: base.yaml\nlr: 2\n");
  const std::string last = file("last.yaml", "lr: 3\n");
  EXPECT_EQ(parse({run}).get_float("lr"), 2.0);
  EXPECT_EQ(parse({run, last}).get_float("lr"), 3.0);
}

TEST_F(OptionFileTest, JsonErrorsNameTheLine) {
  const std::string path = file("run.json", "{\n  \"lr\": 1,\n  \"paking\": true\n}\n");
  EXPECT_THAT(error_of({path}), testing::StartsWith(path + ":3: unknown name 'paking'"));
  const std::string value = file("value.json", "{\"lr\": 1,\n\r\n\t\"steps\":\"soon\"}");
  EXPECT_THAT(error_of({value}), testing::StartsWith(value + ":3: steps: expected an integer"));
}

TEST_F(OptionFileTest, JsonTextsAreReadAsJsonReadsThem) {
  const Json columns = {{"quote\"\\", "a\tb\n\u4e2d"},
                        {"/", "\xF0\x9F\x98\x80 # no: comment"},
                        {"e", Json::array()},
                        {"n", -0.5}};
  const std::string text = Json{{"columns", columns}, {"model", "x: y"}}.dump(-1, ' ', true);
  const Options options = parse({file("run.json", "\xEF\xBB\xBF" + text)});
  EXPECT_EQ(options.get_json("columns"), columns);
  EXPECT_EQ(options.get_string("model"), "x: y");
  EXPECT_EQ(options.given_as("model"), (dir_ / "run.json").string() + ":1: model");
}

TEST_F(OptionFileTest, IncludedFilesComeFirst) {
  fs::create_directories(dir_ / "base");
  file("base/one.yaml", "lr: 1\nsteps: 10\n");
  file("base/two.yaml", "include: one.yaml\nsteps: 20\n");
  const Options options =
      parse({file("run.yaml", "packing: true\ninclude: [base/two.yaml]\nlr: 7\n")});
  EXPECT_EQ(options.get_float("lr"), 7.0);
  EXPECT_EQ(options.get_int("steps"), 20);
  file("loop.yaml", "include: loop2.yaml\n");
  EXPECT_THAT(error_of({file("loop2.yaml", "include: loop.yaml\n")}), HasSubstr("includes itself"));
}

TEST_F(OptionFileTest, VariablesAreExpanded) {
  ::setenv("DANLU_TEST_ROOT", "/data", 1);
  ::unsetenv("DANLU_TEST_UNSET");
  const Options options = parse({file("run.yaml",
                                      "model: ${DANLU_TEST_ROOT}/qwen\n"
                                      "dataset: ['${DANLU_TEST_ROOT}/a', '$literal', "
                                      "'${DANLU_TEST_UNSET:-b}']\n")});
  EXPECT_EQ(options.get_string("model"), "/data/qwen");
  EXPECT_THAT(options.get_list("dataset"), ElementsAre("/data/a", "$literal", "b"));
  const std::string path = file("bad.yaml", "model: ${DANLU_TEST_UNSET}\n");
  EXPECT_EQ(error_of({path}), path +
                                  ":1: environment variable DANLU_TEST_UNSET is not set | "
                                  "set it, or write ${DANLU_TEST_UNSET:-default}");
}

TEST_F(OptionFileTest, AnEnvMapSetsVariablesOfThisProcess) {
  ::unsetenv("DANLU_TEST_FROM_FILE");
  parse({file("run.yaml", "ENV:\n  DANLU_TEST_FROM_FILE: 8\n")});
  EXPECT_STREQ(std::getenv("DANLU_TEST_FROM_FILE"), "8");
  EXPECT_THAT(error_of({file("bad.yaml", "ENV: 3\n")}), HasSubstr("ENV: expected a map"));
}

TEST_F(OptionFileTest, MapsUnderAHeadingOfTheHelpAreOpened) {
  const Options options =
      parse({file("run.yaml", "optimizer_settings:\n  lr: 9\n  steps: 4\nModel:\n  model: x\n")});
  EXPECT_EQ(options.get_float("lr"), 9.0);
  EXPECT_EQ(options.get_int("steps"), 4);
  EXPECT_THAT(error_of({file("bad.yaml", "tuning:\n  lr: 9\n")}),
              HasSubstr("unknown name 'tuning'"));
}

TEST_F(OptionFileTest, PrintedConfigurationReadsBackTheSame) {
  const std::vector<std::string> words = {"--lr",      "3",          "--dataset", "a,b",     "c",
                                          "--columns", R"({"q":1})", "--model",   "a: b # c"};
  const Options first = parse(words);
  const Options second = parse({file("printed.yaml", first.print_config())});
  EXPECT_EQ(first.to_json(), second.to_json());
  EXPECT_TRUE(second.is_given("lr"));
  EXPECT_FALSE(second.is_given("packing")) << "a default is not what the user said";
}

}  // namespace
}  // namespace danlu
