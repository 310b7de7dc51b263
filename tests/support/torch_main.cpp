// The main function of test programs that are linked with libtorch: under DANLU_CPU the libraries
// must know the class before they are loaded.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/cpu_class.h"
#include "base/error.h"
#include "support/slow.h"

namespace {

/// Stands for all tests where the processor has less than DANLU_CPU asks for, or nothing above it:
/// the run without the variable is then the same.
class NotOnThisProcessor : public testing::Test {
 public:
  explicit NotOnThisProcessor(std::string why) : why_(std::move(why)) {}
  void TestBody() override { GTEST_SKIP() << why_; }

 private:
  std::string why_;
};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// GoogleTest would give two runs of one program at the same time one report.
void name_report(const char* program) {
  const std::string report = environment("GTEST_OUTPUT"), cpu = environment("DANLU_CPU");
  if (cpu.empty() || !report.ends_with('/')) return;
  const std::string name = std::filesystem::path(program).filename().string();
  ::setenv("GTEST_OUTPUT", (report + name + "_" + cpu + ".xml").c_str(), 1);
}

/// One part of DANLU_TEST_SOME runs of a list that takes long (tests/CMakeLists.txt), and with
/// DANLU_SLOW all of it, or of the longer list that DANLU_TEST_SLOW_FILTER names.
void take_some_of_the_list() {
  const std::string parts = environment("DANLU_TEST_SOME"),
                    longer = environment("DANLU_TEST_SLOW_FILTER");
  if (danlu::test::is_slow()) {
    if (!longer.empty()) testing::GTEST_FLAG(filter) = longer;
  } else if (!parts.empty()) {
    ::setenv("GTEST_TOTAL_SHARDS", parts.c_str(), 1);
    ::setenv("GTEST_SHARD_INDEX", "0", 1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string refused;
  try {
    danlu::restart_constrained(argv);
    if (!environment("DANLU_CPU").empty() && danlu::cpu_class() == danlu::detected_cpu_class())
      refused = "this processor has no more than DANLU_CPU asks for";
  } catch (const danlu::DeviceError& error) {
    refused = error.what();
  }
  name_report(argv[0]);
  testing::InitGoogleTest(&argc, argv);
  take_some_of_the_list();
  if (!refused.empty()) {
    testing::RegisterTest("NotOnThisProcessor", argv[0], nullptr, nullptr, __FILE__, __LINE__,
                          [refused] { return new NotOnThisProcessor(refused); });
    testing::GTEST_FLAG(filter) = "NotOnThisProcessor.*";
  }
  return RUN_ALL_TESTS();
}
