// tests/cli/bad_input.h: a tiny tokenizer, model and data set made by the program itself, to
// damage.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "cli/run_program.h"
#include "support/temporary_directory.h"

namespace danlu::test {

/// Built once per process: `model` (qwen2, width 32, vocabulary 320, window 64), `tokenizer` (280
/// ids, ChatML) and `good.jsonl` (8 rows). Each test works in an empty folder of its own.
class BadInput : public ::testing::Test {
 protected:
  void SetUp() override;

  /// Where the good things lie. Never change them; copy_model() first.
  static std::filesystem::path good(const std::string& name);
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }

  /// Runs in the test's folder on one thread.
  ProgramResult run(const std::vector<std::string>& arguments) const;
  /// A line that is to succeed.
  ProgramResult ok(const std::vector<std::string>& arguments) const;
  /// `danlu infer --model MODEL --prompt hi`: one answer of one token.
  ProgramResult ask(const std::filesystem::path& model, const std::string& prompt = "hi") const;
  /// `danlu sft` of the good model on this data set, into run/.
  ProgramResult train(const std::filesystem::path& dataset,
                      const std::vector<std::string>& more = {}) const;

  /// A copy of the good model that the test may damage.
  std::filesystem::path copy_model(const std::string& name = "model") const;
  std::filesystem::path write(const std::string& name, const std::string& content) const;

 private:
  const TemporaryDirectory folder_;
};

std::string content_of(const std::filesystem::path& file);
void write_content(const std::filesystem::path& file, const std::string& content);
void replace_in_file(const std::filesystem::path& file, const std::string& from,
                     const std::string& to);
/// Every file below `directory` with its content, for "nothing changed".
std::vector<std::pair<std::string, std::string>> contents_below(
    const std::filesystem::path& directory);

/// Exit code, and the words that the error must hold.
void expect_error(const ProgramResult& result, int exit_code,
                  const std::vector<std::string>& words);

}  // namespace danlu::test
