// Commands without tensors must not pay for libtorch (350 ms, 288 libraries): not timed, counted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "cli/run_program.h"

namespace danlu::test {
namespace {

/// The names of the libraries that were opened while `arguments` ran.
std::set<std::string> libraries_of(const std::vector<std::string>& arguments) {
  std::set<std::string> names;
  for (const std::filesystem::path path :
       opened_libraries(run_danlu(arguments, {.environment = {{"LD_DEBUG", "files"}}})))
    names.insert(path.filename());
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
