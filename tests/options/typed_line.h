// tests/options/typed_line.h: a command line that is read, and done, in the test's own process.
#pragma once
#include <string>
#include <vector>

#include "base/options.h"
#include "cli/command.h"

namespace danlu::test {

using Words = std::vector<std::string>;

inline Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

enum class Fate {
  kTaken,
  kRefused,  ///< with an error that names the option
  kBroken,   ///< an internal error, one that names another cause, or a printed configuration that
             ///< says something else
};

struct Outcome {
  Fate fate = Fate::kTaken;
  std::string text = {};  ///< the error and its hint
};

/// How far a line goes: to its options and their --print_config, which must give the same options
/// again; to a training's settings as well; or to its end.
enum class Reach { kOptions, kSettings, kEnd };

/// The verb with `words`, of which some give a value to `spec` (nullptr: what fails is broken).
/// What it prints is thrown away.
Outcome type_line(const cli::Command& command, const OptionTable& table, const Words& words,
                  const OptionSpec* spec, Reach reach);

/// Does a line that a test needs done; its error is a failure of the test.
void must_run(const std::string& verb, const Words& words);

}  // namespace danlu::test
