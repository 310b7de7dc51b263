// tests/cli/optimizer_lines.h: short trainings with an optimizer of their own, in which ranks and
// resumed runs are compared.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "cli/launch.h"

namespace danlu::test {

class OptimizerLines : public Launch {
 protected:
  /// Four steps of four samples, with a checkpoint after the second.
  std::vector<std::string> line(const std::string& run,
                                const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words =
        training(run, {"--max_steps", "4", "--save_steps", "2", "--val_ratio", "0", "--batch_size",
                       "2", "--global_batch_size", "4", "--lr", "1e-3"});
    words.insert(words.end(), always_.begin(), always_.end());
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  ProgramResult done(const std::vector<std::string>& words) const {
    const ProgramResult result = run_words(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result;
  }
  /// Takes the run back to its checkpoint of step 2.
  void take_back(const std::string& run) const {
    std::filesystem::remove_all((*this) / run / "checkpoint-4");
    for (const char* name : {"DONE", "model.safetensors", "adapter_model.safetensors"})
      std::filesystem::remove((*this) / run / name);
  }

  std::vector<std::string> always_;  ///< flags of every line
};

}  // namespace danlu::test
