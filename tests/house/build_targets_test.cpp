// What `make build` and `make test` compile, as Ninja plans it.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace danlu::house {
namespace {

bool holds(const std::string& text, const char* part) { return text.find(part) != text.npos; }

/// Every command that makes `target` from nothing.
std::string commands_for(const std::string& target) {
  const std::string command =
      std::string("ninja -C '") + DANLU_BUILD_DIR + "' -t commands " + target + " 2>&1";
  std::string commands;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  char block[4096];
  for (size_t n; pipe && (n = std::fread(block, 1, sizeof block, pipe)) > 0;)
    commands.append(block, n);
  EXPECT_TRUE(pipe && ::pclose(pipe) == 0) << commands;
  return commands;
}

TEST(BuildTargets, TheProgramIsBuiltWithoutATest) {
  for (const char* target : {"all", "program"}) {
    const std::string commands = commands_for(target);
    for (const char* made :
         {"-o danlu ", "-o libdanlu_core.so ", "-o libdanlu_web.so ", "-o libdanlu_curl.so ",
          "-o libdanlu_stills.so ", "-o libdanlu_video.so "})
      EXPECT_TRUE(holds(commands, made)) << target << " lacks " << made;
    EXPECT_FALSE(holds(commands, "-o tests/")) << target;
  }
}

TEST(BuildTargets, TheTestsComeWithTheProgramThatTheyRun) {
  const std::string commands = commands_for("tests");
  for (const char* made : {"-o test_base ", "-o test_cli ", "-o danlu "})
    EXPECT_TRUE(holds(commands, made)) << made;
}

}  // namespace
}  // namespace danlu::house
