// tests/settings/option_lines.h: command lines of the training verbs turned into configurations.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/commands/commands.h"
#include "settings/options/from_options.h"
#include "support/alpaca_line.h"
#include "support/temporary_directory.h"
#include "support/tiny_model.h"

namespace danlu::settings::options_test {

/// An environment variable for the length of a test.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  ~ScopedVariable() { ::unsetenv(name_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
};

using danlu::test::alpaca_line;

inline std::vector<std::string> operator+(std::vector<std::string> words,
                                          const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

class TrainOptions : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(directory_ / "model");
    write_json_file(directory_ / "model" / "config.json", test::tiny_config("llama"));
    // A header without tensors: what is there is opened, and no weight of it is read.
    std::ofstream(directory_ / "model" / "model.safetensors")
        << std::string("\x02\0\0\0\0\0\0\0{}", 10);
    std::ofstream(directory_ / "data.json") << "[]";
  }

  TrainConfig parse(const std::string& verb, std::vector<std::string> words) const {
    OptionTable table = verb == "sft"        ? cli::sft_options()
                        : verb == "pretrain" ? cli::pretrain_options()
                        : verb == "train"    ? cli::train_options()
                        : verb == "rlhf"     ? cli::rlhf_options()
                                             : cli::posttrain_options();
    words.insert(words.end(), {"--cache_dir", (directory_ / "cache").string()});
    return config_from_options(verb, table.parse(words, /*accepts_config=*/true));
  }
  std::vector<std::string> base() const {
    return {"--model", (directory_ / "model").string(), "--dataset",
            (directory_ / "data.json").string()};
  }
  TrainConfig with(const std::string& verb, const std::vector<std::string>& more) const {
    std::vector<std::string> words = more;
    for (const std::string& word : base()) words.push_back(word);
    return parse(verb, words);
  }
  /// The error text of a command line that must not be accepted.
  template <typename Expected = UsageError>
  std::string refusal(const std::string& verb, const std::vector<std::string>& more) const {
    try {
      with(verb, more);
    } catch (const Expected& error) {
      return error.hint().empty() ? error.what() : std::string(error.what()) + " | " + error.hint();
    }
    return "(accepted)";
  }

  /// What a command line that is accepted prints, with -v.
  std::string notices(const std::string& verb, const std::vector<std::string>& more) const {
    log::set_verbose(true);
    testing::internal::CaptureStderr();
    try {
      with(verb, more);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
    return testing::internal::GetCapturedStderr();
  }

  const danlu::test::TemporaryDirectory directory_;
};

}  // namespace danlu::settings::options_test
