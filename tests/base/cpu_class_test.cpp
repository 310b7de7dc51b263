#include "base/cpu_class.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/error.h"

namespace danlu {
namespace {

using testing::HasSubstr;

/// The class is read once per process, so each case is a child of its own; exits with `code` after
/// printing to stderr.
void expect_child(const char* choice, const std::function<void()>& body, int code,
                  const std::string& printed) {
  EXPECT_EXIT(
      {
        ::setenv("DANLU_CPU", choice, 1);
        try {
          body();
        } catch (const UsageError& error) {
          std::fprintf(stderr, "%s", error.what());
          std::exit(2);
        } catch (const DeviceError& error) {
          std::fprintf(stderr, "%s", error.what());
          std::exit(5);
        }
        std::exit(0);
      },
      testing::ExitedWithCode(code), HasSubstr(printed));
}

TEST(CpuClass, WithoutAWishEverythingIsUsed) {
  expect_child("", [] { std::fprintf(stderr, "%d", cpu_class() == detected_cpu_class()); }, 0, "1");
  expect_child(
      "", [] { std::fprintf(stderr, "changed %d", constrain_libraries()); }, 0, "changed 0");
}

TEST(CpuClass, AWishLowersItAndTellsTheLibraries) {
  const auto body = [] {
    ::setenv("OPENBLAS_CORETYPE", "Zen", 1);
    const bool first = constrain_libraries(), second = constrain_libraries();
    std::fprintf(stderr, "%d%d %d %s %s %s %s", first, second, cpu_class() == CpuClass::kPlain,
                 std::getenv("ATEN_CPU_CAPABILITY"), std::getenv("ONEDNN_MAX_CPU_ISA"),
                 std::getenv("OPENBLAS_CORETYPE"), describe_cpu_class().c_str());
  };
#if defined(__x86_64__)
  expect_child("plain", body, 0, "10 1 default SSE41 Nehalem SSE");
#else
  expect_child("plain", body, 0, "10 1 default advanced_simd armv8 NEON");
#endif
}

#if defined(__x86_64__)
constexpr const char *kHighest = "avx512", *kOtherMachines = "dots", *kAll = "avx512, avx2, plain";
const bool kHasHighest = detected_cpu_class() >= CpuClass::kAvx512;
#else
constexpr const char *kHighest = "dots", *kOtherMachines = "avx2", *kAll = "dots, plain";
const bool kHasHighest = detected_cpu_class() != CpuClass::kPlain;
#endif

TEST(CpuClass, NothingIsRaisedAndOtherWordsAreRefused) {
  for (const std::string word : {"avx1024", kOtherMachines})
    expect_child(
        word.c_str(), [] { cpu_class(); }, 2,
        std::string("must be one of ") + kAll + ", got '" + word + "'");
  if (kHasHighest) GTEST_SKIP() << "the processor has all classes that can be chosen";
  expect_child(kHighest, [] { cpu_class(); }, 5, "this processor has less");
}

}  // namespace
}  // namespace danlu
