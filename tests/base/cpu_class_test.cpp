#include "base/cpu_class.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#if defined(__x86_64__)
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

#include <cerrno>
#include <cstddef>
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

TEST(CpuClass, WithoutAWishEverythingButTilesIsUsed) {
  const auto body = [] {
    std::fprintf(stderr, "%d",
                 cpu_class() == detected_cpu_class() || (cpu_class() == CpuClass::kAvx512Bf16 &&
                                                         detected_cpu_class() == CpuClass::kAmx));
  };
  expect_child("", body, 0, "1");
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
  if (detected_cpu_class() >= CpuClass::kAvx512Bf16)
    expect_child("avx512bf16", body, 0, "10 0 avx512 AVX512_CORE_BF16 SkylakeX AVX-512 with bf16");
#else
  expect_child("plain", body, 0, "10 1 default advanced_simd armv8 NEON");
#endif
}

#if defined(__x86_64__)
constexpr const char *kHighest = "amx", *kOtherMachines = "dots",
                     *kAll = "amx, avx512bf16, avx512, avx2, plain";
const bool kHasHighest = detected_cpu_class() >= CpuClass::kAmx;
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

#if defined(__x86_64__)
TEST(CpuClass, WithTilesOrInTheirPlaceBf16HasInstructions) {
  if (detected_cpu_class() < CpuClass::kAvx512Bf16) GTEST_SKIP() << "no instructions of bf16";
  const auto body = [] {
    std::fprintf(stderr, "%d %d %d", has_bf16_dots(), libtorch_has_bf16_dots(),
                 cpu_class() == CpuClass::kAmx && !multiplies_bf16_faster());
  };
  for (const char* choice : {"", "avx512bf16"}) expect_child(choice, body, 0, "1 1 0");
}

/// A refusal is tried by a filter of system calls where there is something to refuse; elsewhere
/// tests/base/tile_registers_test.cpp has what leads to it.
TEST(CpuClass, TilesAreUsedIfTheyAreAskedForAndGranted) {
  if (detected_cpu_class() != CpuClass::kAmx) GTEST_SKIP() << "this processor has no AMX";
  const auto refuse = [] {
    sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{std::size(rules), rules};
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
  };
  const auto tell = [] { std::fprintf(stderr, "%s", describe_cpu_class().c_str()); };
  expect_child("", tell, 0, "AVX-512 with bf16 (the processor has AMX, which DANLU_CPU=amx uses)");
  expect_child("amx", [&] { refuse(), tell(); }, 5, "DANLU_CPU=amx: the system does not grant it");
}
#endif

}  // namespace
}  // namespace danlu
