// Outputs through the program: what is read is never replaced, two commands do not make one thing,
// and data that are mostly dropped make nothing.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/bad_input.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// What another danlu holds while it makes `name` in `directory`.
class Held {
 public:
  Held(const fs::path& directory, const std::string& name) {
    file_ = directory / (".danlu-" + name + ".lock");
    fd_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    EXPECT_EQ(::flock(fd_, LOCK_EX | LOCK_NB), 0);
  }
  ~Held() {
    fs::remove(file_);
    ::close(fd_);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  fs::path file_;
  int fd_;
};

class Outputs : public BadInput {
 protected:
  void expect_kept(const std::vector<std::string>& command, const fs::path& kept) const {
    const auto before = contents_below(kept);
    expect_error(run(command), 2, {"[--output] ", "holds the source", "hint: choose another"});
    EXPECT_EQ(contents_below(kept), before);
  }
};

TEST_F(Outputs, InitNeverReplacesItsSource) {
  const fs::path model = copy_model();
  const std::string config = model / "config.json";
  expect_kept({"init", "--config", "model", "--output", "model", "--overwrite"}, model);
  expect_kept({"init", "--config", config, "--output", "model/", "--overwrite"}, model);
  expect_kept({"init", "--config", good("config.json"), "--tokenizer", "model", "--output", model,
               "--overwrite"},
              model);
  fs::create_directory_symlink("model", (*this) / "link");
  expect_kept({"init", "--config", config, "--output", "link", "--overwrite"}, model);
  EXPECT_TRUE(fs::is_symlink((*this) / "link"));
}

/// --overwrite replaces models, not whatever else lies in the directory.
TEST_F(Outputs, OverwritingTakesNothingThatIsNoModel) {
  const auto refused = [&](const std::vector<std::string>& command, const fs::path& kept,
                           const std::string& name) {
    const auto before = contents_below(kept);
    expect_error(run(command), 2, {"--overwrite replaces a whole checkpoint", name});
    EXPECT_EQ(contents_below(kept), before);
  };
  const std::vector<std::string> init = {"init",     "--config", good("config.json"),
                                         "--output", "home",     "--overwrite"};
  write("home/thesis/thesis.tex", "mine");
  write("home/models/old/model.safetensors", "");
  refused(init, (*this) / "home", "home/");
  fs::remove_all((*this) / "home");
  ASSERT_EQ(run(init).exit_code, 0);
  EXPECT_EQ(run(init).exit_code, 0) << "its own result is replaced";

  write("rows.jsonl", "{}\n");
  const std::vector<std::string> to_gguf = {"convert", good("model"), "rows.jsonl",
                                            "--to",    "gguf",        "--overwrite"};
  refused(to_gguf, (*this) / ".", "rows.jsonl is no part of one");
  refused({"convert", good("model"), "rows.jsonl", "--to", "hf", "--overwrite"}, (*this) / ".",
          "rows.jsonl is no part of one");
}

TEST_F(Outputs, InitAsksForNoMoreMemoryThanThereIs) {
  const fs::path config = copy_model() / "config.json";
  nlohmann::json changed = nlohmann::json::parse(content_of(config));
  changed["vocab_size"] = 1 << 28;
  changed["hidden_size"] = 1 << 16;
  write_content(config, changed.dump());
  expect_error(run({"init", "--config", config, "--output", "new"}), 6,
               {"[init] ", " GB in fp32, and "});
  EXPECT_FALSE(fs::exists((*this) / "new"));
}

/// A project's own directory as the output of a training.
TEST_F(Outputs, TrainingWritesOverNoFileThatNoRunLeft) {
  for (const char* name : {"README.md", "config.yaml", "logging.jsonl", "tokenizer.json"}) {
    const fs::path own = write(std::string("run/") + name, "mine");
    expect_error(train(good("good.jsonl")), 2,
                 {"--output_dir run holds ", name, "--overwrite_output_dir"});
    EXPECT_EQ(content_of(own), "mine");
    fs::remove_all((*this) / "run");
  }
  const fs::path notes = write("run/notes.txt", "mine");
  ASSERT_EQ(train(good("good.jsonl")).exit_code, 0);
  EXPECT_EQ(train(good("good.jsonl")).exit_code, 0) << "what a run left is no other's";
  EXPECT_EQ(content_of(notes), "mine");
}

TEST_F(Outputs, AFileAndAPrefixOfOneNameAreNotGuessedAbout) {
  const ProgramResult made = run({"preprocess", "--input", good("good.jsonl"),
                                  "--tokenizer-name-or-path", good("tokenizer"), "--output-prefix",
                                  "rows.jsonl", "--handler-name", "AlpacaStyleInstructionHandler"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(train("rows.jsonl").exit_code, 0);
  fs::copy(good("good.jsonl"), (*this) / "rows.jsonl");
  expect_error(train("rows.jsonl"), 2,
               {"rows.jsonl is a file and also the prefix of preprocessed samples"});
}

TEST_F(Outputs, TokenizerTrainAndPreprocessNeverReplaceTheirInput) {
  const fs::path text = write("made/tokenizer.json", content_of(good("text.txt")));
  expect_kept({"tokenizer", "train", "--input", text, "--vocab_size", "270", "--output", "made",
               "--overwrite"},
              (*this) / "made");
  fs::create_directory((*this) / "ids");
  fs::copy(good("good.jsonl"), (*this) / "ids/x_preprocess.json");
  expect_kept({"preprocess", "--input", "ids/x_preprocess.json", "--tokenizer", good("model"),
               "--output_prefix", "ids/x", "--overwrite"},
              (*this) / "ids");
}

TEST_F(Outputs, OneProcessMakesThem) {
  const std::vector<std::string> init = {"init", "--config", good("config.json"), "--output",
                                         "new"};
  const std::vector<std::string> tokenizer = {"tokenizer",    "train", "--input",  good("text.txt"),
                                              "--vocab_size", "270",   "--output", "made"};
  const std::vector<std::string> infer = {"infer",     "--model",          good("model"),
                                          "--dataset", good("good.jsonl"), "--max_new_tokens",
                                          "1",         "--output",         "answers.jsonl"};
  fs::create_directory((*this) / "made");
  {
    const Held directory((*this) / "", "new"), file((*this) / "made", "tokenizer.json"),
        answers((*this) / "", "answers.jsonl");
    for (const auto& command : {init, tokenizer, infer}) {
      expect_error(run(command), 8, {" is making it", "hint: wait until it has finished"});
    }
    EXPECT_FALSE(fs::exists((*this) / "new"));
    EXPECT_FALSE(fs::exists((*this) / "made/tokenizer.json"));
  }
  for (const auto& command : {init, tokenizer, infer}) {
    const ProgramResult made = run(command);
    EXPECT_EQ(made.exit_code, 0) << made.err;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator((*this) / "made"), {}), 2) << "a lock is left";
}

TEST_F(Outputs, AnswersReplaceNothingThatCameMeanwhile) {
  std::string rows;
  for (int i = 0; i < 200; ++i) rows += "{\"query\": \"fox\"}\n";
  write("rows.jsonl", rows);
  ProgramResult result;
  std::thread program([&] {
    result = run({"infer", "--model", good("model"), "--dataset", "rows.jsonl", "--batch_size", "1",
                  "--max_new_tokens", "16", "--output", "answers.jsonl"});
  });
  const fs::path partial = (*this) / "answers.jsonl.partial";
  for (int i = 0; i < 60'000 && !fs::exists(partial); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  write("answers.jsonl", "mine");
  program.join();
  expect_error(result, 2, {"answers.jsonl was made by somebody else", "answers.jsonl.partial"});
  EXPECT_EQ(content_of((*this) / "answers.jsonl"), "mine");
  const std::string answers = content_of(partial);
  EXPECT_EQ(std::count(answers.begin(), answers.end(), '\n'), 200);
}

// One row of another layout among sixty: every verb that reads rows says so and makes nothing.
TEST_F(Outputs, AreNotMadeOfDataThatAreMostlyDropped) {
  std::string rows =
      "{\"messages\": [{\"role\": \"user\", \"content\": \"fox\"}, "
      "{\"role\": \"assistant\", \"content\": \"dog\"}]}\n";
  for (int i = 0; i < 60; ++i) rows += "{\"instruction\": \"fox?\", \"output\": \"dog\"}\n";
  const fs::path mixed = write("mixed.jsonl", rows);
  const std::vector<std::string> words = {"60 of 61 rows would be dropped",
                                          "60 rows: column \"messages\" is missing",
                                          "mixed.jsonl:2", "--max_dropped_ratio 1"};
  std::vector<std::string> prepare = {"preprocess",  "--input",         mixed,   "--tokenizer",
                                      good("model"), "--output_prefix", "ids/x", "--overwrite"};
  prepare[2] = good("good.jsonl");
  ASSERT_EQ(run(prepare).exit_code, 0);
  const auto before = contents_below((*this) / "ids");
  prepare[2] = mixed;
  expect_error(run(prepare), 3, words);
  EXPECT_EQ(contents_below((*this) / "ids"), before);
  expect_error(train(mixed), 3, words);
  EXPECT_FALSE(fs::exists((*this) / "run/checkpoint-1"));
  std::vector<std::string> infer = {"infer",     "--model",  good("model"),
                                    "--dataset", mixed,      "--max_new_tokens",
                                    "1",         "--output", "answers.jsonl"};
  expect_error(run(infer), 3, words);
  EXPECT_FALSE(fs::exists((*this) / "answers.jsonl"));
  for (auto* command : {&prepare, &infer}) {
    command->insert(command->end(), {"--max_dropped_ratio", "1"});
    const ProgramResult asked_for = run(*command);
    EXPECT_EQ(asked_for.exit_code, 0) << asked_for.err;
  }
  EXPECT_THAT(train(mixed, {"--max_dropped_ratio", "1", "--max_steps", "1"}).err,
              HasSubstr("61 read, 1 kept, 60 dropped"));
}

}  // namespace
}  // namespace danlu::test
