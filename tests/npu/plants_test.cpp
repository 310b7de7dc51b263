// Faults planted in the plug-in (tests/npu_plants), each of which the simulator or a comparison
// sees.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "npu/support.h"

namespace danlu::npu::test {
namespace {

struct Plant {
  std::string name, seen;
};

std::vector<Plant> plants() {
  std::vector<Plant> all;
  std::ifstream file(DANLU_SOURCE_DIR "/tests/npu_plants/plants.txt");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("plant ")) all.push_back({line.substr(6), ""});
    if (line.starts_with("seen ")) all.back().seen = line.substr(5);
  }
  return all;
}

/// Whether this program's tests pass where the plug-in has this plant awake.
bool pass_with(const std::string& plant, const std::string& tests) {
  // Tests in processes of their own begin the program again by its first word.
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("DANLU_TEST_NPU_PLUGIN", DANLU_BUILD_DIR "/npu_plants/libdanlu_npu.so", 1);
    ::setenv("DANLU_TEST_NPU_PLANT", plant.c_str(), 1);
    ::unsetenv("GTEST_OUTPUT");  // its failures are nobody's result
    // Not closed: pipes of tests in processes of their own would take the numbers.
    const int nowhere = ::open("/dev/null", O_WRONLY);
    for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) ::dup2(nowhere, fd);
    const std::string filter = "--gtest_filter=" + tests;
    ::execl(program.c_str(), program.c_str(), filter.c_str(), nullptr);
    ::_exit(99);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_NE(WIFEXITED(status) ? WEXITSTATUS(status) : 0, 99) << "it did not start";
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(NpuPlants, EachIsSeenAndAsleepTheyChangeNothing) {
  if (is_on_card()) GTEST_SKIP() << "asks the simulator";
  const std::vector<Plant> all = plants();
  ASSERT_GE(all.size(), 15u);
  std::string tests;
  for (const Plant& plant : all) tests += (tests.empty() ? "" : ":") + plant.seen;
  EXPECT_TRUE(pass_with("none", tests));
  for (const Plant& plant : all) EXPECT_FALSE(pass_with(plant.name, plant.seen)) << plant.name;
}

}  // namespace
}  // namespace danlu::npu::test
