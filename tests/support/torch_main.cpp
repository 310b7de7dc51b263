// The main function of test programs that are linked with libtorch: under DANLU_CPU the libraries
// must know the class before they are loaded.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/cpu_class.h"
#include "base/error.h"

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
  if (!refused.empty()) {
    testing::RegisterTest("NotOnThisProcessor", argv[0], nullptr, nullptr, __FILE__, __LINE__,
                          [refused] { return new NotOnThisProcessor(refused); });
    testing::GTEST_FLAG(filter) = "NotOnThisProcessor.*";
  }
  return RUN_ALL_TESTS();
}
