// Signals while `danlu infer` answers: the exit code names the signal, what was answered is kept.
// And while any command starts.
#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/bad_input.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kStarted = "completing the text itself";

class InterruptedInfer : public BadInput {
 protected:
  /// A model without a template (infer says so once it listens to signals) whose window is so wide
  /// that an answer takes longer than any test.
  void SetUp() override {
    BadInput::SetUp();
    write("config.json", R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
      "vocab_size": 320, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 10000000,
      "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "torch_dtype": "float32"})");
    const ProgramResult made = run(
        {"init", "--config", "config.json", "--tokenizer", good("tokenizer"), "--output", "model"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    fs::remove((*this) / "model/chat_template.jinja");
    replace_in_file((*this) / "model/tokenizer_config.json", "\"chat_template\"",
                    "\"was_template\"");
  }
  ProgramResult infer(const std::vector<std::string>& more, int signal) const {
    std::vector<std::string> arguments = {"infer", "--model", "model", "--max_new_tokens",
                                          "9000000"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_danlu(arguments, {.environment = {{"OMP_NUM_THREADS", "1"}},
                                 .directory = ((*this) / "").string(),
                                 .signal = signal,
                                 .signal_after = kStarted});
  }
};

TEST_F(InterruptedInfer, AStreamedAnswerEndsWithTheSignalsCode) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    const ProgramResult result = infer({"--prompt", "the quick"}, signal);
    EXPECT_EQ(result.exit_code, 128 + signal) << result.err;
    EXPECT_THAT(result.err, HasSubstr("[infer] stopped; the answer is not complete"));
    EXPECT_THAT(result.err, EndsWith("\nSTOPPED (exit " + std::to_string(128 + signal) + ")\n"));
    EXPECT_FALSE(result.out.empty());
  }
}

TEST_F(InterruptedInfer, NothingIsPublishedAndNothingMeasured) {
  std::string rows;
  for (int i = 0; i < 500; ++i)
    rows += R"({"query": "the quick", "response": "brown fox"})"
            "\n";
  for (const std::string beams : {"1", "2"}) {
    const ProgramResult result = infer(
        {"--dataset", write("q.jsonl", rows), "--output", "answers.jsonl", "--num_beams", beams},
        SIGTERM);
    EXPECT_EQ(result.exit_code, 143) << result.err;
    EXPECT_THAT(result.err, HasSubstr("[infer] stopped: 0 of 500 rows are done"));
    EXPECT_THAT(result.err, Not(HasSubstr("exact match")));
    for (const char* name : {"answers.jsonl", "answers.jsonl.partial"})
      EXPECT_FALSE(fs::exists((*this) / name)) << name;
  }
}

TEST_F(InterruptedInfer, WhatIsDoneStaysInThePartialFile) {
  // Blank lines have no answer and are done at once; the others never end.
  for (const std::string beams : {"1", "2"}) {
    const ProgramResult result = infer({"--dataset", write("q.txt", "\nthe quick\n\nbrown fox\n"),
                                        "--output", "answers.jsonl", "--num_beams", beams},
                                       SIGINT);
    EXPECT_EQ(result.exit_code, 130) << result.err;
    EXPECT_THAT(result.err, HasSubstr("[infer] stopped: 2 of 4 rows are done"));
    EXPECT_THAT(result.err, HasSubstr("the answers so far are in answers.jsonl.partial"));
    EXPECT_FALSE(fs::exists((*this) / "answers.jsonl"));
    std::istringstream lines(content_of((*this) / "answers.jsonl.partial"));
    std::vector<std::string> reasons;
    for (std::string line; std::getline(lines, line);)
      reasons.push_back(json::parse(line)["finish_reason"]);
    EXPECT_THAT(reasons, ::testing::ElementsAre("error", "cancelled", "error"));
  }
}

TEST_F(InterruptedInfer, WhatCannotBeKeptIsPrinted) {
  fs::create_directory((*this) / "answers.jsonl.partial");
  const ProgramResult result = infer({"--dataset", write("q.txt", "\nthe quick\n\nbrown fox\n"),
                                      "--output", "answers.jsonl", "--num_beams", "2"},
                                     SIGINT);
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the answers were printed instead"));
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 3) << result.out;
}

/// The first line of all is the program's own about its environment: the engine is not open then,
/// and nobody listens. Whatever the signal meets, none of these ends by itself.
TEST_F(InterruptedInfer, BeforeTheModelIsThereACommandEndsByTheFirstSignalAndSaysSo) {
  const std::string large = write("large.txt", std::string(60'000'000, 'x'));
  write("mine.yaml", R"(task: mine
dataset_kwargs: {data_files: {test: rows.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{q}}"
doc_to_target: "{{a}}"
generation_kwargs: {max_gen_toks: 9000000}
metric_list: [{metric: exact_match}]
)");
  write("rows.jsonl", R"({"q": "1", "a": "2"})");
  const std::vector<std::vector<std::string>> commands = {
      {"infer", "--model", "model", "--prompt", "hi", "--max_new_tokens", "9000000"},
      {"eval", "--model", "model", "--include_path", "mine.yaml", "--tasks", "mine", "--data_dir",
       "."},
      {"sft", "--model", good("model"), "--dataset", good("good.jsonl"), "--output_dir", "run",
       "--max_steps", "9000000"},
      {"tokenize", "--model", good("tokenizer"), "--input", large}};
  for (const auto& words : commands) {
    for (const int signal : {SIGINT, SIGTERM}) {
      const ProgramResult result =
          run_danlu(words, {.environment = {{"OMP_NUM_THREADS", "1"},
                                            {"LOG_LEVEL", "unknown"},
                                            {"XDG_CACHE_HOME", (*this) / "cache"}},
                            .directory = ((*this) / "").string(),
                            .signal = signal,
                            .signal_after = "info is taken"});
      EXPECT_EQ(result.exit_code, 128 + signal) << words[0] << ": " << result.err;
      EXPECT_THAT(result.err, EndsWith("\nSTOPPED (exit " + std::to_string(128 + signal) + ")\n"))
          << words[0];
    }
  }
}

}  // namespace
}  // namespace danlu::test
