#include "options/typed_line.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/option_text.h"
#include "settings/options/from_options.h"
#include "support/temporary_directory.h"

namespace danlu::test {
namespace {

/// While it is there standard input has nothing, and what is printed goes nowhere.
class Silence {
 public:
  Silence() {
    std::fflush(stdout);
    const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3; ++fd) {
      kept_[fd] = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
      ::dup2(nowhere, fd);
    }
    ::close(nowhere);
  }
  ~Silence() {
    std::fflush(stdout);
    for (int fd = 0; fd < 3; ++fd) {
      ::dup2(kept_[fd], fd);
      ::close(kept_[fd]);
    }
  }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  int kept_[3] = {};
};

std::string text_of(const Error& error) {
  return error.hint().empty() ? error.what() : error.what() + (" | " + error.hint());
}

/// Messages may write a flag with dashes, by any of its names, and without the leading ones.
bool is_named(const OptionSpec& spec, std::string text) {
  std::replace(text.begin(), text.end(), '-', '_');
  const auto stands = [&](const std::string& name) {
    return name.size() > 1 && text.find(option_text::normalise_name(name)) != text.npos;
  };
  return stands(spec.name) || std::any_of(spec.aliases.begin(), spec.aliases.end(), stands);
}

/// "" if the printed configuration, read as a file, gives the same options.
std::string read_back(const OptionTable& table, const Options& options) {
  static const TemporaryDirectory directory;
  const std::filesystem::path file = directory / "printed.yaml";
  std::ofstream(file) << options.print_config();
  const Json first = options.to_json(), second = table.parse({file.string()}, true).to_json();
  for (const auto& [name, value] : first.items()) {
    if (second.at(name) != value)
      return name + ": " + value.dump() + ", printed and read again " + second.at(name).dump();
  }
  return "";
}

}  // namespace

Outcome type_line(const cli::Command& command, const OptionTable& table, const Words& words,
                  const OptionSpec* spec, Reach reach) {
  const Silence silence;
  try {
    const Options options = table.parse(words, command.accepts_config);
    if (command.accepts_config) {
      if (const std::string other = read_back(table, options); !other.empty())
        return {Fate::kBroken, other};
    }
    if (reach == Reach::kSettings && command.trains)
      settings::config_from_options(command.name, options);
    const int code = reach == Reach::kEnd ? cli::run_command(command, options) : 0;
    if (code != 0) return {Fate::kBroken, "exit code " + std::to_string(code)};
    return {};
  } catch (...) {
    const Error error = current_error();
    const bool is_clear =
        error.code() != ExitCode::kInternal && spec && is_named(*spec, text_of(error));
    return {is_clear ? Fate::kRefused : Fate::kBroken, text_of(error)};
  }
}

void must_run(const std::string& verb, const Words& words) {
  const cli::Command& command = *cli::find_command(verb);
  const Outcome outcome = type_line(command, command.options(), words, nullptr, Reach::kEnd);
  EXPECT_EQ(outcome.fate, Fate::kTaken) << verb << ": " << outcome.text;
}

}  // namespace danlu::test
