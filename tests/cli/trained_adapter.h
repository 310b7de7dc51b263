// tests/cli/trained_adapter.h: BadInput with a LoRA run on its model.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "cli/bad_input.h"

namespace danlu::test {

/// "12" of "12 prompt tokens, …": how long the prompt was with its template.
inline std::string prompt_tokens(const ProgramResult& result) {
  const size_t end = result.err.find(" prompt tokens");
  if (end == std::string::npos) return "none in: " + result.err;
  const size_t line = result.err.rfind('\n', end);
  const size_t begin = line == std::string::npos ? 0 : line + 1;
  return result.err.substr(begin, end - begin);
}

class TrainedAdapter : public BadInput {
 protected:
  /// run/: a LoRA on the good model, trained on the good rows far enough to answer otherwise.
  /// Without flags of its own it is trained once per process and copied.
  std::filesystem::path train_adapter(const std::vector<std::string>& more = {}) const {
    namespace fs = std::filesystem;
    static const TemporaryDirectory kept;
    const fs::path mine = (*this) / "run", copy = kept / "run";
    if (more.empty() && fs::exists(copy)) {
      fs::copy(copy, mine, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
      return mine;
    }
    // At twice the rate two of it at once are so large that rounding passes merge's tolerance.
    std::vector<std::string> arguments = {"--tuner",     "lora", "--lr",         "0.05",
                                          "--max_steps", "6",    "--save_steps", "6"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = train(good("good.jsonl"), arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    if (more.empty() && result.exit_code == 0)
      fs::copy(mine, copy, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    return mine;
  }
};

}  // namespace danlu::test
