// What an error of a run advises works as it is typed, and deletes nothing.
#include <sstream>

#include "cli/bad_input.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class RunHints : public BadInput {
 protected:
  ProgramResult again(const std::vector<std::string>& more) const {
    return train(good("good.jsonl"), more);
  }
  /// The words of the hint from `flag` to the end of its line.
  static std::vector<std::string> advised(const ProgramResult& result, const std::string& flag,
                                          size_t num_words) {
    const size_t hint = result.err.find("hint: ");
    std::istringstream words(
        result.err.substr(std::min(result.err.find(flag + " ", hint), result.err.size())));
    std::vector<std::string> found;
    for (std::string word; found.size() < num_words && words >> word;) {
      while (word.ends_with(';')) word.pop_back();
      found.push_back(word);
    }
    return found;
  }
};

TEST_F(RunHints, ChangedRatesAndTypesGoOnAsTheHintSays) {
  for (const std::string dtype : {"fp32", "bf16"}) {
    if (!is_slow() && dtype == "fp32") continue;
    ASSERT_EQ(again({"--dtype", dtype, "--output_dir", dtype}).exit_code, 0);
    const std::string other = dtype == "fp32" ? "bf16" : "fp32";
    for (std::vector<std::string> change : std::vector<std::vector<std::string>>{
             {"--dtype", other}, {"--dtype", dtype, "--lr", "0.5"}}) {
      change.insert(change.end(), {"--output_dir", dtype, "--max_steps", "3"});
      const ProgramResult refused = again(change);
      expect_error(refused, 2, {"with other settings", "hint: restore the settings; or continue"});
      const std::vector<std::string> typed = advised(refused, "--resume", 2);
      change.insert(change.end(), typed.begin(), typed.end());
      const ProgramResult gone_on = again(change);
      EXPECT_EQ(gone_on.exit_code, 0) << gone_on.err;
      EXPECT_THAT(gone_on.err, HasSubstr("at step 2"));
      fs::remove_all((*this) / dtype / "checkpoint-3");
    }
  }
}

TEST_F(RunHints, WhatCannotGoOnBeginsAnewAsTheHintSays) {
  for (const char* tuner : {"full", "lora"}) {
    const std::vector<std::string> common = {"--tuner", tuner, "--output_dir", tuner};
    const auto with = [&](std::vector<std::string> more) {
      more.insert(more.begin(), common.begin(), common.end());
      return more;
    };
    ASSERT_EQ(again(with({})).exit_code, 0);
    const ProgramResult refused = again(with({"--seed", "7"}));
    expect_error(refused, 2, {"seed: 42 then, 7 now", "begin a new run from these weights"});
    EXPECT_THAT(refused.err, Not(HasSubstr("--resume " + std::string(tuner))));
    std::vector<std::string> typed =
        advised(refused, tuner == std::string("full") ? "--model" : "--adapters", 2);
    ASSERT_EQ(typed.size(), 2u) << refused.err;
    typed.insert(typed.end(), {"--seed", "7", "--output_dir", std::string(tuner) + "-anew"});
    const ProgramResult anew = again(with(typed));
    EXPECT_EQ(anew.exit_code, 0) << anew.err;
  }
  // What the checkpoint is decides the option, not what the new line would train.
  expect_error(again({"--tuner", "lora", "--output_dir", "full"}), 2, {"--model full/checkpoint-"});
  expect_error(again({"--tuner", "full", "--output_dir", "lora"}), 2,
               {"--adapters lora/checkpoint-"});
}

TEST_F(RunHints, ARunsFolderNamesItsLatestCheckpoint) {
  // As other systems leave it: nothing but checkpoints.
  for (const char* name : {"v0/checkpoint-9", "v0/checkpoint-10", "v0/checkpoint-x", "v0/runs"})
    fs::create_directories((*this) / name);
  fs::copy(good("model"), (*this) / "v0/checkpoint-10", fs::copy_options::recursive);
  const ProgramResult refused = ask("v0");
  expect_error(refused, 4, {"v0: no weights here", "hint: "});
  const std::vector<std::string> typed = advised(refused, "given:", 2);
  ASSERT_EQ(typed.size(), 2u) << refused.err;
  EXPECT_EQ(typed[1], "v0/checkpoint-10");
  EXPECT_EQ(ask(typed[1]).exit_code, 0);
}

TEST_F(RunHints, ARunOfAnotherProfileGoesOnUnderItsOwn) {
  ASSERT_EQ(again({"--profile", "danlu"}).exit_code, 0);
  const ProgramResult refused = again({"--profile", "mindspeed"});
  expect_error(refused, 2,
               {"it began with the defaults of --profile danlu",
                "hint: restore the settings: --profile danlu; or "});
  EXPECT_EQ(again(advised(refused, "--profile", 2)).exit_code, 0);
}

TEST_F(RunHints, WhereCheckpointsAreNoHintRemovesThem) {
  ASSERT_EQ(again({}).exit_code, 0);
  const auto before = contents_below((*this) / "run/checkpoint-2");
  const ProgramResult refused = again({"--finetune"});
  expect_error(refused, 2,
               {"run holds checkpoints of an earlier run, and --finetune begins anew",
                "go on with them: --resume auto"});
  EXPECT_THAT(refused.err, Not(HasSubstr("overwrite")));
  std::vector<std::string> typed = advised(refused, "--resume", 2);
  typed.push_back("--finetune");
  EXPECT_EQ(again(typed).exit_code, 0);
  EXPECT_EQ(contents_below((*this) / "run/checkpoint-2"), before);
}

TEST_F(RunHints, AStoppedRunAsAModelNamesItsNewestCheckpoint) {
  for (const char* tuner : {"full", "lora"}) {
    ASSERT_EQ(again({"--tuner", tuner, "--output_dir", tuner}).exit_code, 0);
    const fs::path stopped = (*this) / (std::string(tuner) + "-stopped");
    fs::create_directory(stopped);
    fs::rename((*this) / (std::string(tuner) + "/checkpoint-2"), stopped / "checkpoint-2");
    fs::create_directory_symlink("checkpoint-2", stopped / "last");
    const bool is_adapter = tuner == std::string("lora");
    const std::string newest = (is_adapter ? "--adapters " : "is ") + (stopped / "last").string();
    expect_error(again({"--tuner", "full", "--load", stopped, "--save", stopped}), 4,
                 {"no weights there", newest});
    // Pre-training would begin with random weights where there are none at all.
    expect_error(run({"pretrain", "--load", stopped, "--save", (*this) / "other", "--tokenizer",
                      good("model"), "--dataset", good("good.jsonl"), "--max_steps", "1"}),
                 4, {"no weights there", newest});
    expect_error(run({"infer", "--model", stopped, "--prompt", "a", "--template", "default"}), 4,
                 {"no weights here", newest});
  }
}

/// The first start of a script that loads what it saves begins at random; a mistyped name does not.
TEST_F(RunHints, PretrainingBeginsAtRandomWhereNothingLooksLikeWhatWasNamed) {
  const fs::path model = copy_model("base");
  const auto pretrained = [&](const std::string& load, const std::string& save) {
    return run({"pretrain", "--load", load, "--save", save, "--hf_config", model / "config.json",
                "--tokenizer", model, "--dataset", good("good.jsonl"), "--json-keys", "output",
                "--max_steps", "1"});
  };
  expect_error(pretrained("bsae", "out"), 4,
               {"--load bsae: no weights there", "did you mean base? --from_scratch"});
  EXPECT_FALSE(fs::exists((*this) / "out"));
  const ProgramResult first = pretrained("bases", "bases");
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("--load bases: no checkpoint there; random weights"));
}

TEST_F(RunHints, TheModelItselfIsNoPlaceForTheRun) {
  const fs::path model = copy_model("base");
  const auto before = contents_below(model);
  for (const std::string name : {"base", "./base/", "base/../base"}) {
    const ProgramResult refused = again({"--model", name, "--output_dir", "base"});
    expect_error(refused, 2,
                 {"--output_dir base is what this run reads (--model)",
                  "hint: choose another --output_dir"});
    EXPECT_THAT(refused.err, Not(HasSubstr("overwrite")));
  }
  EXPECT_EQ(contents_below(model), before);
}

TEST_F(RunHints, ADryRunNamesTheVersionThatTheRunGoesOnWith) {
  const std::vector<std::string> line = {"--output_dir", "out", "--version_dir", "true"};
  ASSERT_EQ(again(line).exit_code, 0);
  const fs::path parent = (*this) / "out";
  const fs::path version = fs::directory_iterator(parent)->path();
  fs::remove(version / "DONE");  // as if killed before its end
  for (const std::vector<std::string>& how :
       std::vector<std::vector<std::string>>{{"--dry_run"}, {"--resume", "auto", "--dry_run"}}) {
    std::vector<std::string> dry = line;
    dry.insert(dry.end(), how.begin(), how.end());
    const ProgramResult result = again(dry);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("going on with out/v0-"));
  }
}

TEST_F(RunHints, ATemplateIsWithoutEffectOnlyWhereFilesHaveAnother) {
  const ProgramResult made = run({"preprocess", "--input", good("good.jsonl"), "--output-prefix",
                                  "rows", "--model", good("tokenizer"), "--prompt-type", "chatml"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const auto tuned_with = [&](const std::string& name) {
    return train("rows", {"--prompt-type", name, "--output_dir", name, "--dry_run"});
  };
  const ProgramResult same = tuned_with("chatml"), other = tuned_with("default");
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_THAT(same.err, Not(HasSubstr("without effect")));
  for (const ProgramResult& result : {same, other})
    EXPECT_THAT(result.err, HasSubstr("chatml (of the tokenised files)"));
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(other.err, HasSubstr("rows was tokenised before with template chatml: --prompt-type "
                                   "without effect"));
}

TEST_F(RunHints, AChineseTerminalReadsOfTheDataInChinese) {
  ProgramSettings settings;
  settings.environment = {
      {"OMP_NUM_THREADS", "1"}, {"XDG_CACHE_HOME", (*this) / "cache"}, {"DANLU_LANG", "zh"}};
  settings.directory = (*this) / "";
  fs::create_directory((*this) / "rows");
  fs::copy_file(good("good.jsonl"), (*this) / "rows/one.jsonl");
  write("rows/two.json", R"([{"instruction": "fox?", "output": "dog"}])");
  write("rows/notes.md", "notes");
  const ProgramResult result = run_danlu({"sft", "--model", good("model"), "--dataset", "rows",
                                          "--output_dir", "run", "--no-version-dir", "--dry_run"},
                                         settings);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::string detected = "rows: 1 个 json 文件，1 个 jsonl 文件，";
  EXPECT_THAT(result.err, testing::StartsWith(detected));
  EXPECT_THAT(result.err, HasSubstr(" B（已忽略：1 .md）；识别为 query/response ("));
  EXPECT_THAT(result.err, HasSubstr("\n分词 "));
  EXPECT_THAT(result.err, HasSubstr(" 行/s  "));
  EXPECT_THAT(result.err, Not(HasSubstr("detected")));
}

TEST_F(RunHints, DroppedRowsAreInChineseInTheBannerToo) {
  ProgramSettings settings;
  settings.environment = {
      {"OMP_NUM_THREADS", "1"}, {"XDG_CACHE_HOME", (*this) / "cache"}, {"DANLU_LANG", "zh"}};
  settings.directory = (*this) / "";
  std::string words;
  for (int i = 0; i < 100; ++i) words += "fox ";
  write("rows.jsonl",
        "{\"instruction\": \"fox?\", \"output\": \"dog\"}\n"
        "{\"instruction\": 7, \"output\": \"dog\"}\n"
        "[1]\n"
        "{\"instruction\": \"" +
            words + "\", \"output\": \"dog\"}\n");
  const ProgramResult result =
      run_danlu({"sft", "--model", good("model"), "--dataset", "rows.jsonl", "--output_dir", "run",
                 "--max_dropped_ratio", "1", "--dry_run"},
                settings);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("1 列 \"instruction\" 不是 字符串 (rows.jsonl:2: 实际为 数字)"));
  EXPECT_THAT(result.err, HasSubstr("1 行不是对象 (rows.jsonl:3: 实际为 列表)"));
  EXPECT_THAT(result.err, HasSubstr("1 超过 64 个 token (rows.jsonl:4: 223 个 token)"));
  EXPECT_THAT(result.err, Not(HasSubstr(" tokens)")));
}

TEST_F(RunHints, TheProgressOfALittleFileEndsAtItsEnd) {
  const ProgramResult result = train(
      write("rows.jsonl", "{\"instruction\": \"fox?\", \"output\": \"dog\"}\n"), {"--dry_run"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("tokenise 1/1 kB 100.0%"));
}

}  // namespace
}  // namespace danlu::test
