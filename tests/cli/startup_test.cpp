// Commands without tensors must not pay for libtorch (350 ms, 288 libraries): not timed, counted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "cli/run_program.h"

namespace danlu::test {
namespace {

/// The libraries the dynamic linker opened while `arguments` ran, also those opened later.
std::set<std::string> libraries_of(const std::vector<std::string>& arguments,
                                   const std::string& input = {}) {
  const ProgramResult result =
      run_danlu(arguments, {.environment = {{"LD_DEBUG", "files"}}, .input = input});
  std::set<std::string> names;
  std::istringstream lines(result.err);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find("calling init: ");
    if (at == line.npos) continue;
    const std::string path = line.substr(at + 14);
    names.insert(path.substr(path.rfind('/') + 1));
  }
  return names;
}

const auto kHeavy = testing::AnyOf(testing::HasSubstr("torch"), testing::HasSubstr("libc10"),
                                   testing::HasSubstr("duckdb"), testing::HasSubstr("openblas"));

TEST(Startup, HelpLoadsNoHeavyLibrary) {
  for (const std::string& command : listed_commands()) {
    const std::set<std::string> libraries = libraries_of({command, "--help"});
    EXPECT_THAT(libraries, testing::Contains("libdanlu_core.so")) << "the probe sees nothing";
    EXPECT_THAT(libraries, testing::Not(testing::Contains(kHeavy))) << command;
    EXPECT_LT(libraries.size(), 30u) << command;
  }
}

TEST(Startup, FlagErrorsLoadNoHeavyLibrary) {
  EXPECT_THAT(libraries_of({"chat", "--modle", "x"}), testing::Not(testing::Contains(kHeavy)));
}

}  // namespace
}  // namespace danlu::test
