// Flags that do not fit, as a person meets them at the terminal: exit code 2, the flag as typed,
// the rule and what was got; and nothing is written.
#include "cli/bad_input.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class BadFlags : public BadInput {
 protected:
  ProgramResult train_good(const std::vector<std::string>& more = {}) const {
    return train(good("good.jsonl"), more);
  }
  ProgramResult infer(const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"infer", "--model", good("model"), "--prompt", "hi"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
};

TEST_F(BadFlags, NumbersOutOfRange) {
  expect_error(
      train_good({"--per_device_train_batch_size", "0"}), 2,
      {"[sft] --per_device_train_batch_size: expected an integer of at least 1", "got '0'"});
  expect_error(train_good({"--learning_rate", "nan"}), 2,
               {"[sft] --learning_rate: expected a number above 0, got 'nan'"});
  expect_error(train_good({"--learning_rate", "inf"}), 2,
               {"[sft] --learning_rate: expected a finite number above 0, got 'inf'"});
  write("run.yaml", "max_length: 32\nseed: -3\n");
  expect_error(run({"sft", "run.yaml"}), 2,
               {"run.yaml:2: seed: expected an integer of at least 0, got '-3'"});
  EXPECT_FALSE(fs::exists((*this) / "run"));
}

TEST_F(BadFlags, DecodingNumbersOutOfRange) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> lines = {
      {{"--temperature", "-1"}, "--temperature: expected a number of at least 0"},
      {{"--top_p", "0"}, "--top_p: expected a number above 0 and up to 1, got '0'"},
      {{"--top_p", "1.5"}, "--top_p: expected a number above 0 and up to 1"},
      {{"--top_k", "-2"}, "--top_k: expected an integer of at least 0, or -1"},
      {{"--min_p", "2"}, "--min_p: expected a number of at least 0 and below 1"},
      {{"--max_new_tokens", "0"}, "--max_new_tokens: expected an integer of at least 1"},
      {{"--num_beams", "0"}, "--num_beams: expected an integer of at least 1"},
      {{"--repetition_penalty", "0"}, "--repetition_penalty: expected a number above 0"},
      {{"--seed", "-1"}, "--seed: expected an integer of at least 0"},
      {{"--seed", "99999999999999999999"},
       "--seed: expected an integer of at most 9223372036854775807 in size"},
      {{"--max_batch_size", "0"}, "--max_batch_size: expected an integer of at least 1"}};
  for (const auto& [words, rule] : lines) expect_error(infer(words), 2, {"[infer] ", rule});
  expect_error(run({"chat", "--model", good("model"), "--top_p", "nan"}), 2,
               {"[chat] --top_p: expected a number above 0 and up to 1, got 'nan'"});
}

TEST_F(BadFlags, NumbersOfOtherVerbsOutOfRange) {
  expect_error(run({"merge", "--adapters", "a", "--tolerance", "-1"}), 2,
               {"[merge] --tolerance: expected a number of at least 0"});
  expect_error(run({"verify", "m", "--golden", "g", "--tolerance", "nan"}), 2,
               {"[verify] --tolerance: expected a number of at least 0"});
  expect_error(run({"init", "--config", "c", "--output", "o", "--seed", "-1"}), 2,
               {"[init] --seed: expected an integer of at least 0"});
  expect_error(run({"inspect", "x", "--sample", "-1"}), 2,
               {"[inspect] --sample: expected an integer of at least 0"});
  expect_error(run({"preprocess", "--input", "x", "--output_prefix", "o", "--seq_length", "1"}), 2,
               {"[preprocess] --seq_length: expected an integer of at least 2"});
  EXPECT_THAT(run({"infer", "--help"}).out, HasSubstr("[1 to 64]"));
}

TEST_F(BadFlags, KeysThatStandTwiceInAFile) {
  write("twice.yaml", "lr: 1\nlr: 2\n");
  expect_error(run({"sft", "twice.yaml"}), 2, {"twice.yaml:2: 'lr'", "twice.yaml:1 too"});
  write("alias.json", "{\"batch_size\": 1,\n \"per_device_train_batch_size\": 2}");
  expect_error(run({"sft", "alias.json"}), 2,
               {"alias.json:2: 'per_device_train_batch_size'", "alias.json:1 as 'batch_size'"});
}

TEST_F(BadFlags, DryRunsNoticeNamesThatChooseNothing) {
  expect_error(
      train_good({"--dry_run", "--tuner", "lora", "--target_modules", "q_prj"}), 2,
      {"--target_modules: target 'q_prj' matches no linear layer", "did you mean q_proj?"});
  expect_error(train_good({"--dry_run", "--tuner", "freeze", "--freeze", "nothing"}), 2,
               {"--freeze 'nothing' matches no parameter"});
  EXPECT_FALSE(fs::exists((*this) / "run"));
}

TEST_F(BadFlags, LoraFlagsThatDisagreeWithTheAdapter) {
  const ProgramResult made = train_good({"--tuner", "lora", "--lora_rank", "4"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const auto go_on = [&](std::vector<std::string> more) {
    for (const char* word : {"--tuner", "lora", "--adapters", "run", "--output_dir", "next"})
      more.push_back(word);
    return train_good(more);
  };
  expect_error(go_on({"--lora_rank", "8"}), 2,
               {"run/adapter_config.json", "--lora_rank 8 (adapter: 4)", "hint: leave them out"});
  EXPECT_FALSE(fs::exists((*this) / "next"));
  const ProgramResult same = go_on({"--lora_rank", "4", "--lora_target", "all-linear"});
  EXPECT_EQ(same.exit_code, 0) << same.err;
}

TEST_F(BadFlags, ValuesOfIgnoredFlagsAreSwallowed) {
  const ProgramResult result =
      train_good({"--dry_run", "--logging_dir", "logs", "--tf32", "True", "--tb_unused=1"});
  expect_error(result, 2, {"unknown flag --tb_unused"});
  const ProgramResult taken = train_good({"--dry_run", "--logging_dir", "logs", "--tf32", "True"});
  EXPECT_EQ(taken.exit_code, 0) << taken.err;
  EXPECT_THAT(taken.err, HasSubstr("notice: --logging_dir has no effect here"));
  EXPECT_THAT(taken.err, HasSubstr("notice: --tf32 has no effect here"));
}

TEST_F(BadFlags, TheLastOfTwoValuesCountsAndIsTold) {
  const ProgramResult result = train_good({"--dry_run", "--lr", "1e-3", "--learning_rate", "1e-4"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("notice: --learning_rate 1e-4 takes the place of the earlier "
                                    "--lr 1e-3: the last one counts"));
  EXPECT_THAT(result.err, HasSubstr("AdamW lr 0.0001"));
}

TEST_F(BadFlags, TheBannerNamesTheDeviceChosen) {
  const ProgramResult result = train_good({"--dry_run", "--device", "auto"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, testing::ContainsRegex("device  (cpu|cuda:[0-9]|npu:[0-9]), "));
}

TEST_F(BadFlags, WordsAfterTokenizer) {
  expect_error(run({"tokenizer", "trian", "--input", "x"}), 2,
               {"[tokenizer] unknown word 'trian'", "did you mean danlu tokenizer train?"});
  expect_error(run({"tokenizer", "zzz"}), 2, {"'zzz'; there is: train"});
  expect_error(run({"tokenizer"}), 2, {"what to do is missing: train"});
  expect_error(run({"tokenizer", "--input", "x"}), 2, {"what to do is missing: train"});
  EXPECT_EQ(run({"tokenizer", "--help"}).exit_code, 0);
  EXPECT_EQ(run({"tokenizer", "train", "--help"}).out, run({"tokenizer", "--help"}).out);
}

TEST_F(BadFlags, GuideLinesForPreprocessAndInferParse) {
  const std::vector<std::vector<std::string>> lines = {
      {"preprocess",
       "--input",
       "data/",
       "--tokenizer-name-or-path",
       "model/",
       "--tokenizer-type",
       "PretrainedFromHF",
       "--handler-name",
       "GeneralPretrainHandler",
       "--cache-dir",
       "cache",
       "--output-prefix",
       "out/prefix",
       "--json-keys",
       "text",
       "--workers",
       "16",
       "--n-subs",
       "16",
       "--log-interval",
       "1000"},
      {"preprocess", "--input", "train.parquet", "--tokenizer-name-or-path", "model/",
       "--output-prefix", "out/alpaca", "--workers", "4", "--log-interval", "1000",
       "--tokenizer-type", "PretrainedFromHF", "--handler-name", "AlpacaStyleInstructionHandler",
       "--prompt-type", "llama2", "--map-keys",
       R"({"prompt":"instruction","query":"input","response":"output"})"},
      {"infer", "--model_type", "qwen1half-7b-chat"},
      {"infer", "--ckpt_dir", "xxx/checkpoint-xxx", "--load_dataset_config", "true"}};
  for (std::vector<std::string> line : lines) {
    line.push_back("--print_config");
    const ProgramResult result = run(line);
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
}

}  // namespace
}  // namespace danlu::test
