// The main function of test programs that are linked with libtorch: under DANLU_CPU the libraries
// must know the class before they are loaded, and a class that the processor lacks is no failure.
#include <gtest/gtest.h>

#include <cstdio>

#include "base/cpu_class.h"
#include "base/error.h"

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;  // SKIP_RETURN_CODE in CMakeLists.txt
  try {
    danlu::restart_constrained(argv);
  } catch (const danlu::DeviceError& error) {
    std::printf("not run: %s\n", error.what());
    return kSkipped;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
